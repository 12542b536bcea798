"""Each example, run as a user would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from marks import needs_root
from paths import python_path

TOP = Path(__file__).resolve().parents[1]
EXAMPLES = {
    "agent_loop.py": ([], "1366"),
    "data_analysis.py": (["."], "365 days"),
    "evaluate.py": (["100"], "failed: 4, right: 82, too slow: 4, wrong: 10"),
    "plots.py": (["."], "line chart 'Growth' of 25 points"),
    "overnight.py": ([], "orning: running and counting"),
    "web_app.py": ([], "'visits': 2"),
}


def test_every_example_is_here():
    assert sorted(EXAMPLES) == sorted(p.name for p in (TOP / "examples").glob("*.py"))


NEED_ROOT = ("evaluate.py", "plots.py")  # limits that hold, and the Python layer


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=needs_root if n in NEED_ROOT else ()) for n in sorted(EXAMPLES)],
)
def test_an_example(name, server, request, tmp_path):
    if name == "plots.py":
        request.getfixturevalue("layer")
    arguments, wanted = EXAMPLES[name]
    env = {
        **os.environ,
        "COVE_URL": server.url,
        "COVE_API_KEY": server.api_key,
        "PYTHONPATH": python_path(),
    }
    found = subprocess.run(
        [sys.executable, str(TOP / "examples" / name), *arguments],
        cwd=tmp_path, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    if "cannot pause" in found.stdout:
        pytest.skip(found.stdout.strip())
    assert wanted in found.stdout, found.stdout
    if name == "plots.py":
        assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    if name == "data_analysis.py":
        assert "polyline" in (tmp_path / "sales.svg").read_text()


def test_the_notebook_runs(server):
    env = {
        **os.environ,
        "COVE_URL": server.url,
        "COVE_API_KEY": server.api_key,
        "PYTHONPATH": python_path(),
    }
    subprocess.run([sys.executable, str(TOP / "notebook.py"), "--check"], env=env, check=True)


def test_the_docs_show_the_notebook_as_it_is():
    shown = (TOP.parents[1] / "docs" / "notebook.md").read_text()
    cells = json.loads((TOP / "examples" / "quickstart.ipynb").read_text())["cells"]
    assert cells and not [c["source"] for c in cells if "".join(c["source"]) not in shown]
