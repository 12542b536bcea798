"""A client that follows a command comes back to it after every crash, and misses nothing."""

import concurrent.futures
import hashlib
import itertools
import socket
import time

import tally
from helpers.wire import Connection
from world import Follower, wait_for

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


SLOWLY_S, MUCH = 25, 12 << 20
LINE = b"0123456789abcdefghijklmnopqrstuvwxyz\n"


class SlowSocket(socket.socket):
    """Reads a little, often: never is there a gap in it."""

    rate, until = 0, 0

    def recv_into(self, buffer, *more):
        if time.monotonic() > self.until:
            return super().recv_into(buffer, *more)
        step = max(256, self.rate // 10)
        count = super().recv_into(memoryview(buffer)[:step], *more)
        time.sleep(count / self.rate)
        return count


def slowly(rate):
    """A connection on which so many bytes a second are read at first, and then as many as there are."""
    class Slow(Connection):
        def connect(self):
            self.sock = SlowSocket()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            self.sock.settimeout(self.timeout)
            self.sock.connect((self.host, self.port))
            self.sock.rate, self.sock.until = rate, time.monotonic() + SLOWLY_S
    return Slow


def bursts():
    """Nothing for longer than a stall may last, then much at once; twice."""
    naps = itertools.chain([0, STALL_S + 3], itertools.repeat(0, 40), [STALL_S + 3], itertools.repeat(0))
    return lambda _: time.sleep(next(naps))


def test_a_slow_reader_gets_every_byte(start):
    """However slow it is: while it is connected, the process waits for it."""
    world = start("--set", "pool.size=0")
    readers = {"10 KiB/s": {"kind": slowly(10 << 10)}, "100 KiB/s": {"kind": slowly(100 << 10)},
               "100 KiB/s again": {"kind": slowly(100 << 10)}, "bursts": {"pace": bursts()}}
    text = (LINE * (MUCH // len(LINE) + 1))[:MUCH]

    def one(name):
        follower = Follower(world.box(), "/bin/sh", "-c", f"yes {LINE.decode().strip()} | head -c {MUCH}; exit 9",
                            timeout=60, **readers[name])
        end = follower.read()
        tally.injected(f"reader, {name}")
        assert end["exitCode"] == 9 and follower.data == text, f"{name}: {len(follower.data)} of {MUCH} bytes, {end}"
        assert not follower.reconnects, f"{name}: {follower.reconnects}"

    with concurrent.futures.ThreadPoolExecutor(len(readers)) as pool:
        list(pool.map(one, readers))


def test_a_reader_that_goes_for_good_holds_nobody_back(start):
    world = start("--set", "pool.size=0")
    box = world.box()
    stream = box.wire(60).start("/bin/sh", "-c", f"head -c {64 << 20} /dev/zero; echo done >/home/user/end",
                                kind=slowly(10 << 10))
    for _ in range(3):
        stream.read_message()
    stream.close()                      # with bytes unread, which the server hears as a reset
    tally.injected("reader, gone")
    wait_for(lambda: box.run("cat /home/user/end 2>/dev/null; true") == "done\n", "the command does not end", 30, 0.2)


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
