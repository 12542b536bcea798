"""What tests of the package `sandbox` have in common."""

from __future__ import annotations

import time
from pathlib import Path

import cove

STANDIN = Path(__file__).resolve().parent / "standin"


def kill_first_process(box):
    try:
        box.commands.run("kill -TERM 1; sleep 60", user="root", timeout=30)
    except cove.CoveError:
        pass  # the connection goes with it


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
