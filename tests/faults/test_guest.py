"""A guest that dies or hangs: its sandbox is reported as failed, with the reason, within a second of being asked for,
and what it had is free again. And what one sandbox may do to itself without anybody else noticing."""

import os
import signal
import time

import pytest
import tally
from helpers import boxfile, proc
from world import wait_for

SECOND = 1.0


@pytest.fixture
def world(start):
    return start("--set", "pool.size=0")


def reason(box):
    return wait_for(lambda: box.state().get("reason"), f"{box.id} has no reason", 10, 0.005)


@pytest.mark.parametrize("number, words", [
    (signal.SIGKILL, "failed: its guest was killed from outside by signal 9"),
    (signal.SIGSTOP, "failed: its first process was stopped from outside"),
], ids=["killed", "stopped"])
@pytest.mark.parametrize("asked", ["its guest", "its port", "its use"])
def test_a_guest_that_fails_is_told_within_a_second(world, number, words, asked):
    box, other = world.box(), world.box()
    pid = box.pid()
    box.write("file", b"words")
    os.kill(pid, number)
    wait_for(lambda: proc.state(pid) in (None, "T", "Z"), "it is stopped or dead", 10, 0.001)
    tally.injected(f"guest {signal.Signals(number).name}")
    begun = time.monotonic()
    if asked == "its guest":
        assert box.wire().get("/health").status == 502
    elif asked == "its port":
        assert box.wire().get("/files?path=/home/user/file").status == 502
    else:
        world.call("GET", f"/v1/sandboxes/{box.id}/stat")
    assert words in reason(box)
    took = time.monotonic() - begun
    print(f"{took:.3f} s")
    assert took < SECOND
    world.nothing_left_of(box.id)
    assert not proc.alive(pid)
    assert other.run("echo here") == "here\n"


def test_one_that_is_stopped_for_a_moment_lives(world):
    box = world.box()
    pid = box.pid()
    for _ in range(20):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.03)
        os.kill(pid, signal.SIGCONT)
        assert box.wire().get("/health").status == 204
        tally.injected("guest stopped for a moment")
    assert box.state()["state"] == "running"


def test_a_guest_killed_while_nobody_serves_is_told_afterwards(world):
    box = world.box()
    pid = box.pid()
    world.signal(signal.SIGKILL, "monitor", "server", "keeper")
    os.kill(pid, signal.SIGKILL)
    tally.injected("guest SIGKILL")
    world.start()
    ended = box.state()
    assert ended["state"] == "ended" and ended["reason"], ended
    world.nothing_left_of(box.id)


def test_a_pid_that_was_given_to_another_is_not_taken_for_a_sandbox(world):
    """The record says which process it was by its start time: that of another is never signalled."""
    box = world.box()
    path = world.place / "boxes" / box.id
    time.sleep(0.1)                     # start times count in hundredths of a second
    stranger = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        guest = box.pid()
        schema, kind, fields = boxfile.read(path)
        world.signal(signal.SIGKILL, "monitor", "server", "keeper")
        os.kill(guest, signal.SIGKILL)
        assert int.from_bytes(dict(fields)[boxfile.PID], "little") == guest
        boxfile.write(path, schema, kind, [(tag, stranger.to_bytes(8, "little") if tag == boxfile.PID else value)
                                           for tag, value in fields])
        world.start()
        assert box.state()["state"] == "ended"
        world.nothing_left_of(box.id)
        assert proc.alive(stranger)
        tally.injected("pid reuse")
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


def test_memory_that_runs_out_ends_one_command_and_is_told(world):
    box = world.box(limits={"memory_bytes": 64 << 20})
    other = world.box()
    said = box.run("python3 -c 'x = bytearray(1 << 30)'; echo $?")
    assert said.endswith("137\n"), said
    tally.injected("cgroup OOM")
    assert box.run("echo here") == "here\n"
    events = wait_for(lambda: [event for event in world.ok("GET", f"/v1/sandboxes/{box.id}/events")["events"]
                               if event["kind"] == "limit"], "no event of the limit", 5)
    assert "'memory'" in events[0]["text"]
    assert other.run("echo here") == "here\n"


def test_a_fork_bomb_stays_inside_and_ends_with_its_sandbox(world):
    box = world.box(limits={"pids": 200})
    other = world.box()
    with box.wire(20).start("/bin/bash", "-c", "b() { b | b & b | b; }; b 2>/dev/null") as stream:
        assert stream.pid
        time.sleep(2)
        tally.injected("fork bomb")
        begun = time.monotonic()
        assert other.run("echo here") == "here\n"
        assert time.monotonic() - begun < 5
        begun = time.monotonic()
        assert box.end() == 204
        took = time.monotonic() - begun
    world.nothing_left_of(box.id)
    print(f"ended within {took:.3f} s")
    assert took < 2


def test_a_second_server_is_refused_with_the_first_ones_pid(world):
    import subprocess
    from helpers.cove import CLEAR
    done = subprocess.run([world.program(), "serve", "--data", world.data, "--run-dir", world.run_dir, "--listen",
                           "127.0.0.1:0"], capture_output=True, text=True, env=CLEAR, timeout=30)
    assert done.returncode == 1 and f"pid {world.process.pid}" in done.stderr
    assert world.answers()
