"""Readers that are slow, come in bursts or go: while one is connected the process waits for it, and it gets every byte."""

import concurrent.futures
import itertools
import socket
import time

import tally
from helpers.wire import Connection
from world import Follower, wait_for

NAP_S = 13                              # longer than any reader was once waited for
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
    """Nothing for long, then much at once; twice."""
    naps = itertools.chain([0, NAP_S], itertools.repeat(0, 40), [NAP_S], itertools.repeat(0))
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
