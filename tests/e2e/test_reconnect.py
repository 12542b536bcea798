"""Leaving a process and coming back: nothing is told twice, nothing is lost without a word."""

import asyncio
import hashlib
import random
import subprocess
import threading
import time

import pytest
from e2b import NotFoundException

from helpers.guest import BINARY, SLOWER
from helpers.there import PYTHON, os, proc
from helpers.wire import RpcError, SmallBuffers

pytestmark = pytest.mark.sdk

core = pytest.mark.core

# Writes numbered lines, some of them to stderr, at a few MB/s.
WRITER = r"""
import os, sys, time
for block in range(int(sys.argv[1])):
    text = b"".join(b"%09d\n" % i for i in range(block * 500, block * 500 + 500))
    os.write(1 + (block % 7 == 3), text)
    if block % 4 == 0:
        time.sleep(0.002)
"""


# Each of the last two when it is told to.
THREE_LINES = ("echo one; until [ -e {folder}/go-on ]; do sleep 0.02; done; echo two; "
               "until [ -e {folder}/end ]; do sleep 0.02; done; echo three")


# --- the SDK ---------------------------------------------------------------------------------

@core
def test_what_was_produced_meanwhile_is_delivered_first(sandbox, folder):
    handle = sandbox.commands.run(THREE_LINES.format(folder=folder), background=True)
    assert next(iter(handle))[0] == "one\n"
    handle.disconnect()
    time.sleep(0.4)                     # what comes before the guest hears of that goes where nobody reads
    os.mkdir(f"{folder}/go-on")
    time.sleep(0.3)
    again = sandbox.commands.connect(handle.pid)
    os.mkdir(f"{folder}/end")
    result = again.wait()
    assert result.stdout == "two\nthree\n"
    assert result.exit_code == 0


@core
def test_a_command_goes_on_when_its_client_leaves(sandbox, folder):
    handle = sandbox.commands.run(f"sleep 0.3; echo done >{folder}/file", background=True)
    handle.disconnect()
    proc.wait_until(lambda: os.path.exists(f"{folder}/file"), "the command's work", 10)


@core
async def test_the_async_client_comes_back_to_a_command(async_sandbox, folder):
    commands = async_sandbox.commands
    handle = await commands.run(THREE_LINES.format(folder=folder), background=True)
    while handle.stdout != "one\n":
        await asyncio.sleep(0.02)
    await handle.disconnect()
    await asyncio.sleep(0.4)
    os.mkdir(f"{folder}/go-on")
    await asyncio.sleep(0.3)
    seen = []
    again = await commands.connect(handle.pid, on_stdout=seen.append)
    os.mkdir(f"{folder}/end")
    assert (await again.wait()).exit_code == 0
    assert "".join(seen) == "two\nthree\n"


def test_connecting_to_no_process_is_not_found(sandbox):
    with pytest.raises(NotFoundException, match="not found"):
        sandbox.commands.connect(2 ** 22 + 1)


# --- offsets ---------------------------------------------------------------------------------

@core
def test_each_byte_arrives_once_and_in_order_over_many_reconnects(start_guest):
    # It holds all of it, also when the process has ended while nobody read.
    wire = start_guest("--set", "process.output-bytes=33554432", "--set", "process.keep-bytes=33554432").wire
    blocks, chance = 2000, random.Random(1)
    streams = {"stdout": b"", "stderr": b""}
    reconnects, end = 0, None
    stream = wire.start(PYTHON, "-c", WRITER, str(blocks))
    pid, at = stream.pid, 0
    while end is None:
        budget = chance.choice([0, 1, 3, 10, 60])
        with stream:
            for kind, value in stream.events():     # checks that the offsets have no gap
                if kind in streams:
                    streams[kind] += value
                else:
                    assert kind == "end", (kind, value)
                    end = value
                at = stream.offset
                budget -= 1
                if budget < 0 and end is None:
                    break
        if end is None:
            stream = wire.follow(pid, offset=at)
            assert stream.offset == at
            reconnects += 1
    wanted = {"stdout": b"", "stderr": b""}
    for block in range(blocks):
        wanted["stderr" if block % 7 == 3 else "stdout"] += b"".join(
            b"%09d\n" % i for i in range(block * 500, block * 500 + 500))
    assert end == {"exitCode": 0, "exited": True, "status": "exit status 0"}
    assert reconnects >= 10
    assert {k: hashlib.sha256(v).digest() for k, v in streams.items()} == \
        {k: hashlib.sha256(v).digest() for k, v in wanted.items()}
    assert at == 5000 * blocks


@core
def test_any_offset_still_held_can_be_read_again(wire):
    with wire.start("/bin/bash", "-c", "seq 1000; sleep 3") as stream:
        wanted = b"".join(b"%d\n" % i for i in range(1, 1001))
        got = b""
        for _, data in stream.events():
            got += data
            if len(got) == len(wanted):
                break
        for offset in (0, 1, 5, len(wanted) - 1, len(wanted)):
            with wire.follow(stream.pid, offset=offset) as again:
                assert again.offset == offset
                if offset < len(wanted):
                    kind, data = next(again.events())
                    assert kind == "stdout" and wanted[offset:].startswith(data)
        wire.kill(stream.pid)
        assert stream.collect().end["status"] == "signal: killed"


@pytest.mark.parametrize("offset", ["1", "99999999999999999999", "-1", "x", ""])
def test_an_offset_that_cannot_be_is_refused(wire, offset):
    with wire.start("/bin/sleep", "501") as stream:
        with pytest.raises(RpcError) as caught:
            wire.follow(stream.pid, headers={"Cove-Output-Offset": offset})
        assert caught.value.code == "invalid_argument"
        assert "Cove-Output-Offset" in caught.value.message
        wire.kill(stream.pid)
        stream.collect()


@core
def test_bytes_that_fell_out_are_counted(start_guest):
    wire = start_guest("--set", "process.output-bytes=131072").wire
    stream = wire.start("/bin/bash", "-c", "read x; seq 100000", stdin=True)
    stream.close()                      # nobody reads: the oldest bytes fall out
    proc.wait_until(lambda: wire.process("SendInput", {
        "process": {"pid": stream.pid}, "input": {"stdin": "Cg=="}}).status == 200, "input")
    proc.wait_until(lambda: stream.pid not in wire.running(), "the end", 10)
    out = wire.follow(stream.pid, offset=0, gaps=True).collect()
    wanted = b"".join(b"%d\n" % i for i in range(1, 100001))
    assert out.lost > 0
    assert out.lost + len(out.stdout) == len(wanted)
    assert wanted.endswith(out.stdout)
    assert 64 << 10 <= len(out.stdout) <= 128 << 10
    assert out.end["exitCode"] == 0


def test_the_sdk_passes_over_what_was_lost(start_guest, open_sandbox):
    guest = start_guest("--set", "process.output-bytes=131072")
    sandbox = open_sandbox(guest)
    handle = sandbox.commands.run("sleep 0.3; seq 100000; echo end", background=True)
    handle.disconnect()
    proc.wait_until(lambda: handle.pid not in guest.wire.running(), "the end", 10)
    result = sandbox.commands.connect(handle.pid).wait()
    assert result.stdout.endswith("100000\nend\n")
    assert len(result.stdout) < 140_000


# --- several readers -------------------------------------------------------------------------

@core
def test_several_readers_each_get_everything(wire):
    first = wire.start(PYTHON, "-c", "input()\n" + WRITER, "400", stdin=True)
    others = [wire.follow(first.pid, offset=0) for _ in range(4)]
    outputs = {}

    def read(number, stream):
        outputs[number] = stream.collect()

    threads = [threading.Thread(target=read, args=item)
               for item in enumerate([first, *others])]
    for thread in threads:
        thread.start()
    assert wire.process("SendInput", {"process": {"pid": first.pid},
                                      "input": {"stdin": "Cg=="}}).status == 200
    for thread in threads:
        thread.join()
    assert len(outputs) == 5
    for out in outputs.values():
        assert len(out.stdout) + len(out.stderr) == 400 * 5000
        assert out.lost == 0
        assert (out.data, out.end) == (outputs[0].data, outputs[0].end)


def test_a_reader_beside_another_begins_with_what_is_new(wire):
    with wire.start("/bin/bash", "-c", "echo old; read x; echo new", stdin=True) as first:
        assert next(first.events()) == ("stdout", b"old\n")
        with wire.follow(first.pid) as second:
            wire.process("SendInput", {"process": {"pid": first.pid}, "input": {"stdin": "Cg=="}})
            assert second.collect().stdout == b"new\n"


@core
def test_a_slow_reader_loses_nothing(wire):
    """The process waits for it instead."""
    stream = wire.start("/usr/bin/seq", "600000", kind=SmallBuffers)
    out, count = b"", 0
    for kind, value in stream.events():
        assert kind in ("stdout", "end"), kind
        if kind == "stdout":
            out += value
            count += 1
            if count % 40 == 0:
                time.sleep(0.1)
    assert hashlib.sha256(out).digest() == hashlib.sha256(
        b"".join(b"%d\n" % i for i in range(1, 600001))).digest()


@core
def test_a_reader_is_told_of_what_came_while_it_was_written_to(start_guest):
    """Process and reader would otherwise wait for each other."""
    wire = start_guest().wire
    wanted = b"".join(b"%d\n" % i for i in range(1, 1_000_001))
    for _ in range(5):
        stream = wire.start("/usr/bin/seq", "1000000", kind=SmallBuffers)
        out = stream.collect()          # a read that has to wait 30 s fails
        assert out.lost == 0
        assert out.stdout == wanted


def test_a_slow_reader_of_many_small_pieces_loses_nothing(wire):
    """Short lines by turns on both streams take far more room than their bytes."""
    script = "for i in range(40000): os.write(1 + i % 2, b'%d\\n' % i)"
    stream = wire.start(PYTHON, "-c", "import os\n" + script, kind=SmallBuffers)
    time.sleep(2)
    out = stream.collect()
    assert out.lost == 0
    assert out.stdout == b"".join(b"%d\n" % i for i in range(0, 40000, 2))
    assert out.stderr == b"".join(b"%d\n" % i for i in range(1, 40000, 2))


# --- after the end ---------------------------------------------------------------------------

@core
def test_the_end_is_kept_for_a_while_and_then_forgotten(start_guest):
    wire = start_guest("--set", "process.keep-ms=2000").wire
    with wire.start("/bin/sh", "-c", "echo words; exit 4") as stream:
        pid = stream.pid
        assert stream.collect().end["exitCode"] == 4
    ended = time.monotonic()
    with wire.follow(pid) as late:
        out = late.collect()
    assert (out.stdout, out.end["exitCode"]) == (b"", 4)
    with wire.follow(pid, offset=0) as late:
        assert late.collect().stdout == b"words\n"
    assert pid not in wire.running()

    def forgotten():
        try:
            wire.follow(pid).close()
        except RpcError as error:
            assert error.code == "not_found"
            assert f"process with pid {pid} not found" in error.message
            return True
        return False

    proc.wait_until(forgotten, "the process to be forgotten", 10)
    assert time.monotonic() - ended > 1.8


@pytest.mark.bare("asks the guest's own help")
def test_the_end_is_kept_30_seconds_unless_told_otherwise():
    text = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    line, = [line for line in text.splitlines() if "process.keep-ms" in line]
    assert line.split()[1] == "30000"


def test_output_of_ended_processes_is_bounded(start_guest):
    guest = start_guest("--set", "process.keep-bytes=1000000")
    wire, pids = guest.wire, []
    for _ in range(40):
        stream = wire.start("/bin/bash", "-c", "seq 50000")
        stream.close()
        pids.append(stream.pid)
    proc.wait_until(lambda: not wire.running(), "the processes to end", 20 * SLOWER)
    time.sleep(2.5)                     # the guest looks once a second
    kept = sum(len(wire.follow(pid, offset=0, gaps=True).collect().stdout) for pid in pids)
    assert 0 < kept <= 1_000_000 + 300_000
