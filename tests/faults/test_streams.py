"""A client that follows a command comes back to it after every crash, and misses nothing."""

import hashlib
import os
import signal
import time

import tally
from world import Follower

# Numbered lines of changing length, about 40 KB/s for half a minute.
WRITER = r"""
import sys, time
for i in range(int(sys.argv[1])):
    sys.stdout.write("%d %s\n" % (i, "x" * (i * 7 % 61)))
    if i % 20 == 0:
        sys.stdout.flush()
        time.sleep(0.02)
"""
VICTIMS = [("server",), ("keeper",), ("server", "keeper"), ("monitor", "server", "keeper"), ("monitor",)]


def wanted(lines):
    return b"".join(b"%d %s\n" % (i, b"x" * (i * 7 % 61)) for i in range(lines))


def test_a_reader_follows_a_stream_across_20_kills(start):
    world = start("--set", "pool.size=0")
    box, lines, kills = world.box(), 30000, 20
    follower = Follower(box, "/usr/bin/python3", "-c", WRITER, str(lines))
    text = wanted(lines)
    for number in range(kills):
        assert follower.read(until=len(text) * (number + 1) // (kills + 8)) is None, "the writer is too fast"
        world.kill(*VICTIMS[number % len(VICTIMS)])
        tally.injected("kill " + "+".join(VICTIMS[number % len(VICTIMS)]))
    end = follower.read()
    assert end == {"exitCode": 0, "exited": True, "status": "exit status 0"}
    assert follower.reconnects >= 15, follower.reconnects
    assert hashlib.sha256(follower.data).digest() == hashlib.sha256(text).digest()
    print(f"{kills} kills, {follower.reconnects} reconnects, {len(text)} bytes, all of them once")


def test_a_flood_with_a_stalled_reader_is_bounded_and_told(start):
    """A gigabyte that nobody reads: the server does not grow, and what fell out is counted."""
    world = start("--set", "pool.size=0")
    box = world.box()
    script = "yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c 1073741824; echo the end"
    stream = box.wire(300).start("/bin/sh", "-c", script)
    server, guest = world.part("server"), box.pid()
    grown = {pid: rss_kib(pid) for pid in (server, guest)}
    tally.injected("log flood")
    time.sleep(8)                       # the reader stalls longer than it is waited for
    grown = {pid: rss_kib(pid) - before for pid, before in grown.items()}
    out, lost, last = 0, 0, b""
    with stream:
        for kind, value in stream.events():
            if kind == "stdout":
                out, last = out + len(value), (last + value)[-100:]
            elif kind == "lost":
                lost += value
            elif kind == "end":
                assert value["exitCode"] == 0
    assert out + lost == (1 << 30) + len("the end\n") and lost > 0
    assert last.endswith(b"the end\n")
    assert max(grown.values()) < 32 << 10, grown
    print(f"{lost} bytes fell out, {out} arrived; grown by {grown} KiB")


def rss_kib(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise LookupError(pid)


def test_a_terminal_lives_through_a_new_program(start):
    """An upgrade: the binary is replaced and the server started again, while sandboxes work and a terminal is open."""
    world = start("--set", "pool.size=1")
    box = world.box()
    wire = box.wire(20)
    counting = Follower(box, "/bin/sh", "-c", "for i in $(seq 400); do echo $i; sleep 0.02; done")
    terminal = wire.start("/bin/bash", "--norc", "-i", pty={"size": {"cols": 80, "rows": 24}},
                          envs={"PS1": "", "TERM": "dumb"})
    pid = terminal.pid
    assert typed(wire, terminal, "stty -echo; export WORD=kept", "echo begun") == "begun"
    new = world.folder / "cove.new"
    new.write_bytes(world.program().read_bytes() + b"\0another build")
    new.chmod(0o755)
    os.replace(new, world.program())
    at = terminal.offset
    terminal.close()
    world.process.send_signal(signal.SIGTERM)
    assert world.process.wait(30) == 0
    world.process.stdout.close()
    world.start()
    tally.injected("upgrade")
    again = box.wire(20).follow(pid, offset=at)
    assert typed(box.wire(20), again, "", "echo $WORD $((6 * 7))") == "kept 42"
    again.close()
    assert counting.read()["exitCode"] == 0
    assert counting.data == b"".join(b"%d\n" % i for i in range(1, 401))
    assert world.box().run("echo new") == "new\n"


def typed(wire, stream, *lines):
    """The last line that a terminal printed after these were typed."""
    import base64
    for line in lines:
        if line:
            reply = wire.process("SendInput", {"process": {"pid": stream.pid}, "input": {
                "pty": base64.b64encode(line.encode() + b"\n").decode()}})
            assert reply.status == 200, reply
    text = b""
    for kind, value in stream.events():
        if kind == "pty":
            text += value
        words = [line.strip().decode() for line in text.splitlines() if line.strip()]
        if words and text.endswith(b"\n") and words[-1] in ("begun", "kept 42"):
            return words[-1]
    raise AssertionError(text)
