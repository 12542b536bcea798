"""Examples in docstrings and documents, run as written."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import python_path

import agentic_sandbox
import cove
import sandbox

TOP = Path(__file__).resolve().parents[1]
DOCS = TOP.parents[1] / "docs"


def modules():
    for package in (cove, sandbox, agentic_sandbox):
        yield package.__name__
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if "._async" not in info.name:  # the same text, but with `await`
                yield info.name


def cases():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in modules():
        module = importlib.import_module(name)
        for test in finder.find(module, name, globs={**vars(module), **vars(cove)}):
            if test.examples:
                yield test


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_a_docstring(case, server, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    said: list = []
    result = doctest.DocTestRunner().run(case, out=said.append)
    assert result.failed == 0, "".join(said)


def blocks(path):
    for number, match in enumerate(
        re.finditer(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S), 1
    ):
        yield pytest.param(match.group(1), id=f"{path.name}-{number}")


@pytest.mark.parametrize("block", list(blocks(DOCS / "python.md")))
def test_a_block_of_the_docs(block, server, request, tmp_path):
    if "SandboxExecutor" in block:
        if os.geteuid() != 0:
            pytest.skip("the Python layer, which kernels run on, needs a server that root started")
        request.getfixturevalue("layer")
    env = {**os.environ, "KUBECONFIG": "/nowhere", "PYTHONPATH": python_path()}
    if "sandbox.executor" not in block:  # which wants to mount a directory: a server of its own
        env.update(COVE_URL=server.url, COVE_API_KEY=server.api_key)
    found = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
