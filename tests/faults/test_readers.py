"""Readers that are slow, come in bursts or go: while one is connected the process waits for it, and it gets every byte."""

import concurrent.futures
import itertools
import time

import pytest
import tally
from history import READERS, History
from slow import slowly
from world import Follower, wait_for

NAP_S = 13                              # longer than any reader was once waited for
SLOWLY_S, MUCH = 25, 12 << 20
LINE = b"0123456789abcdefghijklmnopqrstuvwxyz\n"


def bursts():
    """Nothing for long, then much at once; twice."""
    naps = itertools.chain([0, NAP_S], itertools.repeat(0, 40), [NAP_S], itertools.repeat(0))
    return lambda _: time.sleep(next(naps))


def test_a_slow_reader_gets_every_byte(start):
    """However slow it is: while it is connected, the process waits for it."""
    world = start("--set", "pool.size=0")
    readers = {"10 KiB/s": {"kind": slowly(10 << 10, SLOWLY_S)}, "100 KiB/s": {"kind": slowly(100 << 10, SLOWLY_S)},
               "100 KiB/s again": {"kind": slowly(100 << 10, SLOWLY_S)}, "bursts": {"pace": bursts()}}
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
                                kind=slowly(10 << 10, SLOWLY_S))
    for _ in range(3):
        stream.read_message()
    stream.close()                      # with bytes unread, which the server hears as a reset
    tally.injected("reader, gone")
    wait_for(lambda: box.run("cat /home/user/end 2>/dev/null; true") == "done\n", "the command does not end", 30, 0.2)


@pytest.mark.parametrize("kind", READERS)
def test_a_slow_reader_of_a_history_holds_its_process_back(start, kind):
    """Or what the histories show would be no more than that buffers are large."""
    history = History(start("--set", "pool.size=0"), f"reader-{kind}", workers=1)
    worker, = history.workers
    worker.create()
    worker.flood(kind)
    assert history.held == (kind == "slow"), "its process wrote all of it at once"
