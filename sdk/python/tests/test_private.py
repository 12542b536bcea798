"""The private server ends with its process, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import cove
from cove import _server

PROGRAM = """
import sys, time
from cove import Sandbox, _server
sandbox = Sandbox.create()
print(_server.running().dir, _server.running()._process.pid, flush=True)
{then}
"""


def start(python, then):
    child = subprocess.Popen(
        [python, "-c", PROGRAM.format(then=then)], stdout=subprocess.PIPE, text=True
    )
    folder, pid = child.stdout.readline().split()
    return child, Path(folder), int(pid)


def wait_gone(folder, pid, seconds=60):
    deadline = time.monotonic() + seconds
    while folder.exists() or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{folder} and process {pid} are still there"
        time.sleep(0.05)


@pytest.mark.parametrize("then", ["pass", "import os; os._exit(1)"])
def test_it_goes_with_its_process(server, python, then):
    child, folder, pid = start(python, then)
    child.wait(60)
    child.stdout.close()
    wait_gone(folder, pid)


@pytest.mark.parametrize("number", [signal.SIGKILL])
def test_also_when_that_is_killed(server, python, number):
    child, folder, pid = start(python, "time.sleep(1000)")
    os.kill(child.pid, number)
    child.wait()
    child.stdout.close()
    wait_gone(folder, pid)


def test_a_forked_child_does_not_hold_it(server, python):
    then = (
        "import os; pid = os.fork()\nif not pid: time.sleep(30); os._exit(0)\n"
        "print(pid, flush=True); os._exit(0)"
    )
    child, folder, pid = start(python, then)
    forked = int(child.stdout.readline())
    child.wait()
    child.stdout.close()
    try:
        wait_gone(folder, pid, 25)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_what_a_sandbox_wrote_goes_with_it(client):
    """Also under the ids of its users: an ordinary user's server may not touch those as itself."""
    made = cove.Sandbox.create(client=client)
    layer = _server.running().dir / "data" / "volume" / "layers" / f"box-{made.id}"
    made.commands.run(
        "mkdir -p -m 700 /app/in && touch /app/in/x && chown -R user /app", user="root"
    )
    made.commands.run("mkdir -p own/er && chmod 0 own")
    assert layer.exists()
    made.kill()
    made.close()
    deadline = time.monotonic() + 60
    while layer.exists():
        assert time.monotonic() < deadline, sorted(layer.rglob("*"))
        time.sleep(0.05)
