"""Limits that `cove run` sets: what is beyond them is refused inside, the machine goes on, and who
ran it learns which limit it was, its value and the use."""

import re
import subprocess
import time

import pytest

from helpers.cove import TIMED_OUT
from helpers.proc import wait_until

MIB = 1 << 20
EAT = "b = []\nwhile True: b.append(bytearray(1 << 20))"
FORKS = """
import errno, os, signal, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        n += 1
except OSError as e:
    print(n, errno.errorcode[e.errno])
"""
BOMB = ":(){ :|:& };: 2> /dev/null; sleep 1; echo survived"


@pytest.fixture
def enforced(cove):
    def check(*names):
        missing = set(names) & set(cove.json("true")["not_enforced"])
        if missing:
            pytest.skip(f"this machine cannot enforce {' '.join(missing)}")
    return check


def met(told, name):
    """The one limit that was met."""
    assert [limit["limit"] for limit in told["limits_met"]] == [name], told["limits_met"]
    return told["limits_met"][0]


def line(done, name):
    """The use in the line that names the limit."""
    said = done.stderr.decode().splitlines()
    found = [re.fullmatch(rf"cove run: the limit '{name}' of (.*) was reached \(use (.*)\)", text)
             for text in said]
    assert any(found), said
    return next(match for match in found if match).groups()


def test_time(cove):
    began = time.monotonic()
    done = cove.run("--timeout", "1", "sleep", "60", status=TIMED_OUT)
    assert 0.9 < time.monotonic() - began < 5
    value, use = line(done, "timeout")
    assert value == "1 s" and float(use.split()[0]) >= 1
    told = cove.json("--timeout", "1", "sh", "-c", "echo begun; sleep 60", status=TIMED_OUT)
    assert told["reason"] == "lifetime" and told["stdout"] == "begun\n"
    limit = met(told, "timeout")
    assert limit["value"] == 1000 and 1000 <= limit["use"] < 3000


def test_time_ends_what_ignores_every_signal(cove):
    script = "trap '' TERM INT HUP; while :; do sleep 0.1; done"
    cove.run("--timeout", "1", "bash", "-c", script, status=TIMED_OUT)


def test_memory(cove, enforced):
    enforced("memory")
    done = cove.run("--memory", "64M", "python3", "-c", EAT, status=137)
    value, use = line(done, "memory")
    assert value == "64 MiB" and use == "64 MiB"
    told = cove.json("--memory", "64M", "python3", "-c", EAT, status=137)
    limit = met(told, "memory")
    assert limit["value"] == 64 * MIB and 60 * MIB < limit["use"] <= 64 * MIB
    assert 60 * MIB < told["memory_peak_bytes"] <= 64 * MIB
    assert told["signal"] == "KILL"


def test_memory_kills_the_culprit_and_the_rest_goes_on(cove, enforced):
    enforced("memory")
    done = cove.run("--memory", "64M", "sh", "-c", f'python3 -c "$0"; echo $?; echo on', EAT)
    assert done.stdout == b"137\non\n"
    assert b"limit 'memory'" in done.stderr


def test_files_in_shared_memory_count_as_memory(cove, enforced):
    enforced("memory")
    done = cove.run(
        "--memory",
        "64M",
        "sh",
        "-c",
        "head -c 200M /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x",
        status=None,
    )
    assert int(done.stdout or 0) <= 33 * MIB    # half of it may be shared memory


def test_processes(cove, enforced):
    enforced("pids")
    done = cove.run("--pids", "50", "python3", "-c", FORKS)
    count, error = done.stdout.split()
    assert error == b"EAGAIN" and 30 < int(count) < 50
    value, use = line(done, "pids")
    assert (value, use) == ("50", "50")
    limit = met(cove.json("--pids", "50", "python3", "-c", FORKS), "pids")
    assert (limit["value"], limit["use"]) == (50, 50)


def test_a_fork_bomb_stays_inside(cove, enforced):
    enforced("pids")
    with cove.started(
        "--pids", "100", "--cpus", "0.5", "--timeout", "20", "bash", "-c", BOMB
    ) as process:
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 2:
            subprocess.run(["true"], check=True)          # others can still fork
    assert cove.text("echo", "next") == "next\n"


def test_disk(cove, enforced):
    enforced("disk")
    script = ("head -c 100M /dev/zero > big; echo status $?; rm big; "
              "head -c 1M /dev/zero > small && echo room again")
    done = cove.run("--disk", "20M", "sh", "-c", script)
    assert done.stdout == b"status 1\nroom again\n"
    assert b"Disk quota exceeded" in done.stderr or b"No space left" in done.stderr


def test_a_full_disk_is_told(cove, enforced):
    enforced("disk")
    script = "head -c 100M /dev/urandom > big; sync; sleep 1"
    done = cove.run("--disk", "20M", "sh", "-c", script)
    value, use = line(done, "disk")
    assert value == "20 MiB" and use.endswith("MiB") and 19 <= float(use.split()[0]) <= 20.1
    told = cove.json("--disk", "20M", "sh", "-c", script)
    limit = met(told, "disk")
    assert limit["value"] == 20 * MIB
    assert 19 * MIB < limit["use"] <= 20 * MIB + 65536
    assert 19 * MIB < told["disk_bytes"] <= 20 * MIB + 65536


def test_many_small_files_fill_the_disk_too(cove, enforced):
    enforced("disk")
    done = cove.run(
        "--disk",
        "5M",
        "sh",
        "-c",
        "i=0; while echo $i 2> /dev/null > f$i; do i=$((i+1)); done; "
        "test $i -gt 100 && test $i -lt 40000 && echo bounded",
    )
    assert done.stdout == b"bounded\n"


def test_the_disk_of_one_is_not_the_disk_of_another(cove, enforced):
    enforced("disk")
    with cove.started(
        "--disk", "20M", "sh", "-c", "head -c 100M /dev/zero > x; echo full; sleep 60"
    ) as process:
        assert process.stdout.readline() == b"full\n"
        cove.run("--disk", "20M", "sh", "-c", "head -c 10M /dev/zero > x")


def test_processor_time(cove, enforced):
    enforced("cpus")
    burn = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    slow = cove.json("--cpus", "0.2", "python3", "-c", burn)
    assert slow["cpu_us"] <= 300_000, slow
    assert slow["run_us"] >= 1_000_000
    def free():                         # others may want the processors at this moment
        return cove.json("--cpus", "1", "python3", "-c", burn)["cpu_us"] > slow["cpu_us"] * 1.5
    wait_until(free, "more processor time than with the lower limit", 60)


def test_open_files(cove):
    assert cove.said("ulimit -n; ulimit -Hn", "--files", "100").split() == ["100", "100"]
    script = ("f = []\ntry:\n  while True: f.append(open('/dev/null'))\n"
              "except OSError as e: print(len(f), e.strerror)")
    count, error = cove.text("--files", "100", "python3", "-c", script).split(" ", 1)
    assert 90 < int(count) < 100 and error == "Too many open files\n"


def test_the_defaults_are_in_force(cove):
    told = cove.said("ulimit -n; ulimit -c; nproc; df --output=size -B1 /dev/shm | tail -n 1")
    assert told.split()[:2] == ["4096", "0"]
    assert 1 << 30 <= int(told.split()[3]) <= (1 << 30) + MIB


def test_two_limits_are_told_in_two_lines(cove, enforced):
    enforced("memory", "pids")
    done = cove.run(
        "--memory",
        "64M",
        "--pids",
        "40",
        "sh",
        "-c",
        'python3 -c "$0" > /dev/null; python3 -c "$1"; true',
        FORKS.replace("sleep(60)", "sleep(1)"),
        EAT,
        status=None,
    )
    assert line(done, "memory") and line(done, "pids")


def test_the_sandbox_may_not_raise_its_own_limits(cove):
    said = cove.run("--files", "100", "--user", "root", "bash", "-c", "ulimit -n 200", status=1)
    assert b"cannot modify limit" in said.stderr
    assert cove.said("ls /sys/fs/cgroup 2> /dev/null | wc -l", "--user", "root") == "0"
