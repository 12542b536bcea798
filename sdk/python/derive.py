#!/usr/bin/env python3
"""derive.py - makes src/cove/_sync from src/cove/_async, word for word.

usage: derive.py [--check]

The client is written once, asynchronously. Its synchronous twin is the same text without `async` and
`await` and with the names of the table below, so neither can have a bug that the other has not. The result is
kept in the repository: who installs the package or reads it needs no build step. --check says whether it
is up to date.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "src" / "cove"
NOTE = "# Derived from {name} by derive.py: change that one.\n"

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_(raw|bytes|lines)\b", r"iter_\1"),
    (r"\bAsyncGenerator\[((?:[^\[\]]|\[[^\[\]]*\])+), None\]", r"Generator[\1, None, None]"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync_(?=[a-z])", ""),
    (r"\b_async\b", "_sync"),
    (r"\basynchronous", "synchronous"),
]


def derive(path: Path) -> str:
    text = path.read_text()
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return NOTE.format(name=f"_async/{path.name}") + text


def main() -> int:
    stale = []
    for source in sorted((HERE / "_async").glob("*.py")):
        target = HERE / "_sync" / source.name
        text = derive(source)
        if target.exists() and target.read_text() == text:
            continue
        stale.append(source.name)
        if "--check" not in sys.argv:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"derive: _sync is out of date: {', '.join(stale)} (run derive.py)", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
