"""The source itself: derived where it has to be, laid out, typed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]


def run(module, *arguments):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    found = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=TOP, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_synchronous_client_is_derived_from_the_asynchronous():
    subprocess.run([sys.executable, TOP / "derive.py", "--check"], check=True)


def test_layout():
    run("ruff", "format", "--check", "--no-cache", ".")


def test_lint():
    run("ruff", "check", "--no-cache", ".")


def test_types():
    run("mypy", "--cache-dir", os.devnull)
