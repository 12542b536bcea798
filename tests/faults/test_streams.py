"""A client that follows a command comes back to it after every crash, and misses nothing."""

import hashlib
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
STALL_S = 10                            # process.stall-ms: so long a reader may hold its process back
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
    """Hundreds of megabytes that nobody reads: nobody grows, and what falls out is counted."""
    world = start("--set", "pool.size=0")
    box, size = world.box(), 512 << 20
    script = f"yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c {size}; echo the end"
    stream = box.wire(300).start("/bin/sh", "-c", script)
    server, guest = world.part("server"), box.pid()
    before = {pid: rss_kib(pid) for pid in (server, guest)}
    tally.injected("log flood")
    time.sleep(STALL_S + 4)
    grown = {pid: rss_kib(pid) - kib for pid, kib in before.items()}
    out, lost, last = 0, 0, b""
    with stream:
        for kind, value in stream.events():
            if kind == "stdout":
                out, last = out + len(value), (last + value)[-100:]
            elif kind == "lost":
                lost += value
            elif kind == "end":
                assert value["exitCode"] == 0
    assert out + lost == size + len("the end\n") and lost > 0, (out, lost)
    assert last.endswith(b"the end\n")
    assert max(grown.values()) < 32 << 10, grown
    print(f"{lost} bytes fell out, {out} arrived; grown by {list(grown.values())} KiB")


def rss_kib(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise LookupError(pid)
