"""A client that follows a command comes back to it after every crash, and misses nothing."""

import hashlib
import time

from helpers.far import Far

import tally
from world import Follower, World, wait_for

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


def test_a_flood_waits_for_a_reader_that_does_not_read(start):
    """Hundreds of megabytes that nobody takes: nobody grows, the command waits, and can be killed."""
    world = start("--set", "pool.size=0")
    box, size = world.box(), 512 << 20
    script = f"yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c {size}"
    stream = box.wire(60).start("/bin/sh", "-c", script)
    server, guest = world.part("server"), box.pid()
    tally.injected("log flood")
    time.sleep(3)
    before = {pid: rss_kib(pid) for pid in (server, guest)}
    time.sleep(12)                      # longer than any reader was once waited for
    grown = {pid: rss_kib(pid) - kib for pid, kib in before.items()}
    assert max(grown.values()) < 1 << 10, grown
    assert stream.pid in box.wire().running()
    begun = time.monotonic()
    assert box.wire().kill(stream.pid).status == 200
    wait_for(lambda: stream.pid not in box.wire().running(), "it ends when it is killed", 20)
    took = time.monotonic() - begun
    with stream:
        out = stream.collect()
    assert (out.lost, out.error, out.end["signal"]) == (0, None, 9)
    assert 0 < len(out.stdout) < size // 8
    assert took < 3, f"a reader that does not read kept it alive for {took:.1f} s"
    print(f"{len(out.stdout)} bytes held for the reader; ended {took * 1000:.0f} ms after the signal; grown by {list(grown.values())} KiB")


def test_a_sandbox_is_paused_ended_and_left_while_nobody_reads(start):
    """What waits for a reader keeps nothing else from being done, and is there when the reader comes."""
    world = start("--set", "pool.size=0")
    boxes = [world.box() for _ in range(3)]
    streams = [box.wire(60).start("/usr/bin/seq", "3000000") for box in boxes]
    tally.injected("stalled reader", 3)
    time.sleep(1)
    box, stream = boxes[0], streams[0]
    begun = time.monotonic()
    world.ok("POST", f"/v1/sandboxes/{box.id}/pause")
    world.ok("POST", f"/v1/sandboxes/{box.id}/resume")
    with stream:
        out = stream.collect()
    assert (out.lost, out.error, sum_of(out.stdout)) == (0, None, sum_of(numbers(3000000)))
    assert boxes[1].end() in (200, 204)
    world.nothing_left_of(boxes[1].id)
    world.stop()                        # as a service manager does, with a client that does not read
    took = time.monotonic() - begun
    assert took < 30, f"{took:.1f} s"
    for stream in streams:
        stream.close()


def numbers(count):
    return b"".join(b"%d\n" % i for i in range(1, count + 1))


def sum_of(text):
    return hashlib.sha256(text).hexdigest()


def test_a_reader_at_100_kib_a_second_loses_nothing(start):
    """It never pauses for half a second, but what lies between it and the guest drains in lumps."""
    world = start("--set", "pool.size=0")
    stream = world.box().wire(60).start("/usr/bin/seq", "4000000")
    tally.injected("slow reader")
    begun, out = time.monotonic(), bytearray()
    with stream:
        for kind, value in stream.events():
            assert kind in ("stdout", "end"), kind
            if kind == "stdout":
                out += value
                while time.monotonic() - begun < min(45, len(out) / (100 << 10)):
                    time.sleep(0.05)    # after that as fast as it can
    assert (stream.error, sum_of(out)) == (None, sum_of(numbers(4000000)))


def test_the_sdk_loses_nothing_while_a_callback_is_busy_for_14_seconds(start, monkeypatch):
    world = start("--set", "pool.size=0")
    for name, value in world.variables().items():
        monkeypatch.setenv(name, value)
    from e2b import Sandbox
    digest, busy = hashlib.sha256(), []

    def on_stdout(text):
        if not busy:
            busy.append(time.sleep(14))
        digest.update(text.encode())

    tally.injected("slow reader")
    result = Sandbox.connect(world.box().id).commands.run("seq 3000000", on_stdout=on_stdout, timeout=120)
    assert (result.exit_code, digest.hexdigest()) == (0, sum_of(numbers(3000000)))


def test_60_commands_of_10_mb_are_read_whole_by_one_process(start):
    """At 30 MB a second, one after the other: the last waits for its reader for 20 s."""
    world = start("--set", "pool.size=0")
    box, line, wanted = world.box(), b"0123456789abcdefghijklmnopqrstuvwxyz\n", 10_000_000
    text = (line * (wanted // len(line) + 1))[:wanted]
    tally.injected("slow reader", 60)
    streams = [box.wire(60).start("/bin/sh", "-c", f"yes {line.decode().strip()} | head -c {wanted}")
               for _ in range(60)]
    for stream in streams:
        out, last = bytearray(), None
        with stream:
            for kind, last in stream.events():
                assert kind in ("stdout", "end", "keepalive"), kind
                if kind == "stdout":
                    out += last
                    time.sleep(len(last) / 30e6)
        assert (stream.error, last["exitCode"], out == text) == (None, 0, True)


class Reached(World):
    """By a client on another network, too."""
    host = "0.0.0.0"


def test_a_client_that_is_cut_off_is_found_and_its_command_goes_on(start):
    """While it was reading, and while it was not."""
    world = start("--set", "pool.size=0", "--set", "http.peer-ms=1000", kind=Reached)
    box = world.box()
    for reads in (True, False):
        with Far() as far:
            stream = box.wire(60).start("/bin/sh", "-c", f"yes | head -c 100000000; touch done-{reads}",
                                        kind=far.connection(small=True))
            if reads:
                for _ in range(3):
                    assert next(stream.events())[0] == "stdout"
            time.sleep(2 if not reads else 0)   # it is waited for while it answers, whatever it does
            assert box.wire().get(f"/files?path=/home/user/done-{reads}").status == 404
            tally.injected("client cut off")
            far.cut()
            begun = time.monotonic()
            wait_for(lambda: box.wire().get(f"/files?path=/home/user/done-{reads}").status == 200, "it goes on", 60)
            print(f"reading {reads}: freed after {time.monotonic() - begun:.1f} s")
            stream.close()
    with Far() as far:                  # and while there was nothing to read
        stream = box.wire(60).start("/bin/sleep", "1000", kind=far.connection())
        assert world.metric("cove_router_calls") == 1
        tally.injected("client cut off")
        far.cut()
        wait_for(lambda: world.metric("cove_router_calls") == 0, "its stream ends", 60)
        stream.close()


def rss_kib(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise LookupError(pid)
