#!/usr/bin/env python3
"""notebook.py - runs the cells of examples/quickstart.ipynb and renders it into docs/notebook.md.

usage: notebook.py [--check]

A plain runner instead of Jupyter: the notebook needs nothing but the client. --check runs the cells and
writes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any, Dict, List

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "examples" / "quickstart.ipynb"
TARGET = HERE.parents[1] / "docs" / "notebook.md"


def run(code: str, names: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A cell: what it printed, and what its last expression shows."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102 - our own notebook
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: List[Dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        outputs.append(
            {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": None}
        )
    return outputs


def rendered(cell: Dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text + "\n"
    parts = [f"```python\n{text}\n```\n"]
    for output in cell["outputs"]:
        shown = output.get("text") or output["data"].get("text/html")
        if output["output_type"] == "execute_result" and "text/html" in output["data"]:
            parts.append(f"{shown}\n")
        else:
            parts.append(f"```\n{(shown or output['data']['text/plain']).rstrip()}\n```\n")
    return "\n".join(parts)


def main() -> int:
    notebook = json.loads(NOTEBOOK.read_text())
    names: Dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = run("".join(cell["source"]), names)
    if "--check" in sys.argv:
        return 0
    NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n")
    head = "<!-- notebook.md - examples/quickstart.ipynb, run and rendered by notebook.py. -->\n"
    TARGET.write_text(head + "\n".join(rendered(cell) for cell in notebook["cells"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
