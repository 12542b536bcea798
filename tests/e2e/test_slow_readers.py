"""Readers that are slow, busy or gone: the process waits for one that is there, for as long as it is, and no
byte is lost without a word."""

import hashlib
import os
import signal
import sys
import time

import pytest
from e2b import SandboxException

from helpers import proc
from helpers.far import Far
from helpers.guest import SLOWER
from helpers.wire import RpcError, SmallBuffers

RING = 131072                           # the smallest there is
# A clock that once ended a reader's right to be waited for: accepted, and without effect.
SMALL = ("--set", f"process.output-bytes={RING}", "--set", "process.stall-ms=100")


def numbers(count):
    return b"".join(b"%d\n" % i for i in range(1, count + 1))


def begin(wire, *argv, kind=SmallBuffers, **more):
    """One that waits for a line, so that readers can come before its output does."""
    return wire.start("/bin/bash", "-c", 'read x; exec "$@"', "bash", *argv, stdin=True, kind=kind, **more)


def go(wire, stream):
    assert wire.process("SendInput", {"process": {"pid": stream.pid}, "input": {"stdin": "Cg=="}}).status == 200


def stands_still(pid):
    """It has written all that somebody holds for it, and waits."""
    def seen():
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, *words = file.read().rpartition(")")[2].split()
        return state, words[10:12]      # with the time it has run

    def twice():
        before = seen()
        time.sleep(0.15)
        return before == seen() and before[0] == "S"

    proc.wait_until(twice, "the process to wait", 20 * SLOWER)


# --- one reader ------------------------------------------------------------------------------

def test_a_reader_that_was_busy_misses_nothing(start_guest):
    guest = start_guest(*SMALL)
    stream = guest.wire.start("/usr/bin/seq", "300000", kind=SmallBuffers)
    time.sleep(0.5)                     # five times the clock of old
    stands_still(stream.pid)
    out = stream.collect()
    assert (out.lost, out.error, out.end["exitCode"]) == (0, None, 0)
    assert out.stdout == numbers(300000)


def test_a_reader_that_is_always_slow_misses_nothing(start_guest):
    """It takes a little all the time, but each of its buffers for longer than the clock of old."""
    stream = start_guest(*SMALL).wire.start("/usr/bin/seq", "1200000", kind=SmallBuffers)
    out = bytearray()
    for kind, value in stream.events():
        assert kind in ("stdout", "end"), kind
        if kind == "stdout":
            out += value
            time.sleep(len(value) / (6 << 20))
    assert out == numbers(1200000)


def test_the_sdk_misses_nothing_while_a_callback_is_busy(start_guest, open_sandbox):
    guest = start_guest(*SMALL)
    digest, busy = hashlib.sha256(), []

    def on_stdout(text):
        if not busy:
            busy.append(time.sleep(0.7))
        digest.update(text.encode())

    result = open_sandbox(guest).commands.run("seq 2000000", on_stdout=on_stdout)
    assert result.exit_code == 0
    assert digest.digest() == hashlib.sha256(numbers(2000000)).digest()


def test_a_flood_that_nobody_reads_costs_nothing_and_can_be_killed(start_guest):
    guest = start_guest()
    stream = guest.wire.start("/usr/bin/yes", "0123456789" * 10, kind=SmallBuffers)
    stands_still(stream.pid)
    memory = guest.rss_kib()
    time.sleep(0.3)
    assert guest.rss_kib() - memory < 1024
    begun = time.monotonic()
    assert guest.wire.kill(stream.pid).status == 200
    proc.wait_until(lambda: stream.pid not in guest.wire.running(), "its end", 20 * SLOWER)
    assert time.monotonic() - begun < 2 * SLOWER, "a reader that does not read kept it from ending"
    out = stream.collect()              # what it wrote before is there, and how it ended
    assert (out.lost, out.end["signal"]) == (0, signal.SIGKILL)
    assert len(out.stdout) > 512 << 10


def test_a_terminal_that_nobody_reads_can_be_killed(start_guest):
    guest = start_guest(*SMALL)
    stream = guest.wire.start("/usr/bin/yes", pty={"size": {"cols": 80, "rows": 24}}, stdin=True,
                              kind=SmallBuffers)
    stands_still(stream.pid)
    assert guest.wire.kill(stream.pid).status == 200
    proc.wait_until(lambda: stream.pid not in guest.wire.running(), "its end", 20 * SLOWER)
    assert stream.collect().lost == 0


def test_a_time_limit_holds_while_nobody_reads(start_guest):
    guest = start_guest(*SMALL)
    stream = guest.wire.start("/usr/bin/yes", headers={"Connect-Timeout-Ms": "600"}, kind=SmallBuffers)
    proc.wait_until(lambda: stream.pid not in guest.wire.running(), "its end", 20 * SLOWER)
    out = stream.collect()
    assert (out.lost, out.end, out.error["code"]) == (0, None, "deadline_exceeded")


def test_a_guest_ends_while_nobody_reads(start_guest):
    guest = start_guest(*SMALL)
    streams = [guest.wire.start("/usr/bin/yes", kind=SmallBuffers) for _ in range(3)]
    for stream in streams:
        stands_still(stream.pid)
    guest.stop()                        # within its time, and nothing is left
    for stream in streams:
        stream.close()


def test_a_command_ends_beside_its_child_while_nobody_reads(start_guest):
    """What it wrote itself is kept to the last byte; a child that floods its pipe does not keep it alive."""
    guest = start_guest(*SMALL)
    script = "import os,sys;os.write(1,b'x'*400000);os.fork() and sys.exit(7)\nwhile 1:os.write(1,b'y'*100)"
    stream = guest.wire.start(sys.executable, "-c", script, kind=SmallBuffers)
    stands_still(stream.pid)
    received = 0
    events = stream.events()
    while received < 400000:
        kind, value = next(events)
        assert kind == "stdout"
        received += value.count(b"x")
    proc.wait_until(lambda: stream.pid not in guest.wire.running(), "its end", 20 * SLOWER)
    rest = list(events)
    assert rest[-1][0] == "end" and rest[-1][1]["exitCode"] == 7
    assert not {kind for kind, _ in rest} & {"lost"}
    os.killpg(stream.pid, signal.SIGKILL)


# --- readers that are gone -------------------------------------------------------------------

def test_a_peer_that_answers_is_waited_for_however_long_it_reads_nothing(start_guest):
    """TCP_USER_TIMEOUT would end its connection."""
    guest = start_guest(*SMALL, "--set", "http.peer-ms=200", "--set", "http.write-ms=200")
    stream = guest.wire.start("/usr/bin/seq", "200000", kind=SmallBuffers)
    stands_still(stream.pid)
    time.sleep(1)
    out = stream.collect()
    assert (out.lost, out.error, out.stdout) == (0, None, numbers(200000))


@pytest.mark.parametrize("reads", [True, False])
def test_a_process_is_freed_when_its_reader_is_cut_off(start_guest, folder, as_root, reads):
    """While it was reading, and while it was not: what has been sent, or the probes, stay without an answer."""
    guest = start_guest(*SMALL, "--set", "http.peer-ms=400", listen="0.0.0.0:0")
    with Far() as far:
        stream = guest.wire.start("/bin/sh", "-c", f"yes | head -c 30000000; touch {folder}/done",
                                  kind=far.connection(small=True))
        if reads:
            for _ in range(3):
                assert next(stream.events())[0] == "stdout"
        else:
            stands_still(stream.pid)
        assert not os.path.exists(f"{folder}/done")
        far.cut()
        proc.wait_until(lambda: os.path.exists(f"{folder}/done"), "the process to go on", 20 * SLOWER)
        stream.close()


# --- several readers -------------------------------------------------------------------------

def test_the_one_that_started_it_sets_the_pace(start_guest):
    """Another that does not keep up is told so, and that is the end of its own stream only."""
    guest = start_guest(*SMALL)
    first = begin(guest.wire, "/usr/bin/seq", "400000")
    late = guest.wire.follow(first.pid, kind=SmallBuffers)
    go(guest.wire, first)
    out = first.collect()
    assert (out.lost, out.error, out.end["exitCode"]) == (0, None, 0)
    assert out.stdout == numbers(400000)
    told = late.collect()
    assert (told.lost, told.end, told.error["code"]) == (0, None, "data_loss")
    assert numbers(400000).startswith(told.stdout) and told.stdout
    assert f"bytes {len(told.stdout)} to " in told.error["message"]


def test_the_sdk_says_that_it_did_not_keep_up(start_guest, open_sandbox):
    guest = start_guest(*SMALL)
    first = begin(guest.wire, "/usr/bin/seq", "1500000")
    late = open_sandbox(guest).commands.connect(first.pid)
    go(guest.wire, first)
    assert first.collect().stdout == numbers(1500000)
    with pytest.raises(SandboxException, match="not kept any more"):
        late.wait()


def test_one_that_comes_back_by_offset_takes_the_pace_over(start_guest):
    """Its former connection may not be known to be dead yet."""
    guest = start_guest(*SMALL)
    stalled = begin(guest.wire, "/usr/bin/seq", "300000")
    with guest.wire.follow(stalled.pid, offset=0) as other:
        go(guest.wire, stalled)
        out = other.collect()
    assert (out.lost, out.error, out.stdout) == (0, None, numbers(300000))
    assert stalled.collect().error["code"] == "data_loss"


def test_another_takes_the_pace_over_from_one_that_leaves(start_guest):
    """First those that began at an offset, the last of them before the others; then who came first."""
    guest = start_guest(*SMALL)
    first = begin(guest.wire, "/usr/bin/seq", "400000")
    plain = guest.wire.follow(first.pid, kind=SmallBuffers)
    resumed = guest.wire.follow(first.pid, offset=0, kind=SmallBuffers)
    go(guest.wire, first)
    stands_still(first.pid)      # for `resumed`, which has taken nothing; nobody is a ring behind
    resumed.close()
    time.sleep(0.2)
    stands_still(first.pid)      # for `first`
    first.close()
    out = plain.collect()
    assert (out.lost, out.error, out.end["exitCode"]) == (0, None, 0)
    assert out.stdout == numbers(400000)


def test_one_that_lives_with_gaps_is_told_of_them(start_guest):
    guest = start_guest(*SMALL)
    first = begin(guest.wire, "/usr/bin/seq", "400000")
    late = guest.wire.follow(first.pid, offset=0, kind=SmallBuffers, gaps=True)
    go(guest.wire, first)
    assert first.collect().stdout == numbers(400000)
    out = late.collect()
    assert out.lost > 0 and out.lost + len(out.stdout) == len(numbers(400000))
    assert (out.error, out.end["exitCode"]) == (None, 0)


# --- coming back too late --------------------------------------------------------------------

def test_an_offset_that_is_not_kept_any_more_is_refused_with_the_first_that_is(start_guest):
    guest = start_guest(*SMALL)
    stream = begin(guest.wire, "/usr/bin/seq", "100000")
    stream.close()
    go(guest.wire, stream)
    proc.wait_until(lambda: stream.pid not in guest.wire.running(), "its end", 10 * SLOWER)
    with pytest.raises(RpcError) as refused:
        guest.wire.follow(stream.pid, offset=0)
    assert refused.value.code == "data_loss"
    first = int(refused.value.message.rpartition(" ")[2])
    refusal = guest.wire.stream("process.Process/Connect", {"process": {"pid": stream.pid}},
                                {"Cove-Output-Offset": str(first - 1)})
    assert refusal.headers["Cove-Output-Offset"] == str(first)
    refusal.close()
    out = guest.wire.follow(stream.pid, offset=first).collect()
    assert (out.lost, out.error) == (0, None)
    assert out.stdout == numbers(100000)[first:] and len(out.stdout) > RING // 2


def test_without_an_offset_what_fell_out_is_told_and_no_error(start_guest):
    guest = start_guest(*SMALL)
    stream = begin(guest.wire, "/usr/bin/seq", "100000")
    stream.close()
    go(guest.wire, stream)
    proc.wait_until(lambda: stream.pid not in guest.wire.running(), "its end", 10 * SLOWER)
    again = guest.wire.follow(stream.pid)
    assert again.offset == 0
    out = again.collect()
    assert (out.error, out.end["exitCode"]) == (None, 0)
    assert out.lost > 0 and out.lost + len(out.stdout) == len(numbers(100000))


def test_the_clock_of_old_is_accepted_with_a_warning(start_guest):
    guest = start_guest(*SMALL)
    assert "name=process.stall-ms" in guest.log.read_text()
