"""The guest as pid 1 of its own pid namespace: it reaps every orphan and takes all with it."""

import os
import shutil
import subprocess
import time

import pytest

from helpers import proc
from helpers.guest import SLOWER

core = pytest.mark.core


def namespace():
    """A command that makes the next one pid 1, or None where the machine does not allow it."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return None             # root of a user namespace alone may not set groups for commands
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else None


NAMESPACE = namespace()
pytestmark = pytest.mark.skipif(NAMESPACE is None, reason="needs root, to make a pid namespace")


@pytest.fixture
def first(start_guest):
    return start_guest(prefix=NAMESPACE)


def zombies(guest):
    return [pid for pid in proc.children(guest.pid) if proc.state(pid) == "Z"]


@core
def test_the_guest_is_pid_1(first, open_sandbox):
    sandbox = open_sandbox(first)
    assert sandbox.commands.run("cat /proc/1/comm").stdout == "cove-guest\n"


@core
def test_orphans_are_reaped(first):
    script = "for i in {1..100}; do (sleep 0.1 & sleep 0.2 &) ; done; echo made"
    assert first.wire.start("/bin/bash", "-c", script).collect().stdout == b"made\n"
    proc.wait_until(lambda: not proc.children(first.pid), "no child and no zombie", 10 * SLOWER)


def test_reaping_orphans_does_not_steal_the_ends_of_commands(first):
    wire = first.wire
    for i in range(60):
        out = wire.start("/bin/bash", "-c",
                         f"for i in 1 2 3 4 5; do (true &); done; exit {i}").collect()
        assert out.end["exitCode"] == i
    proc.wait_until(lambda: not zombies(first), "no zombie", 10 * SLOWER)


@core
def test_sigterm_ends_everything_even_what_escaped(first):
    wire = first.wire
    out = wire.start("/bin/bash", "-c", "setsid sleep 701 >/dev/null 2>&1 </dev/null & disown; "
                     "sleep 0.2; echo away").collect()
    assert out.stdout == b"away\n"
    wire.start("/bin/sleep", "702")
    wire.start("/bin/bash", "-c", "trap '' TERM; sleep 703")
    found = lambda: [n for n in ("701", "702", "703") if proc.with_argument(n)]
    proc.wait_until(lambda: found() == ["701", "702", "703"], "three processes", 10)
    first.stop()
    proc.wait_until(lambda: found() == [], "all to be gone")


def test_an_orphan_that_ends_badly_does_no_harm(first):
    wire = first.wire
    wire.start("/bin/bash", "-c", "(sleep 0.1; kill -SEGV $BASHPID) & disown; exit 0").collect()
    time.sleep(0.3)
    assert wire.get("/health").status == 204
    proc.wait_until(lambda: not zombies(first), "no zombie", 10 * SLOWER)


def test_a_thousand_orphans_leave_nothing(first):
    before = len(first.descriptors())
    script = "for i in {1..1000}; do (sleep 0.05 &); done; true"
    assert first.wire.start("/bin/bash", "-c", script).collect().end["exitCode"] == 0
    proc.wait_until(lambda: not proc.children(first.pid), "no child and no zombie", 20 * SLOWER)
    proc.wait_until(lambda: len(first.descriptors()) <= before + 2, "its descriptors", 10)
