"""After `cove run` the machine is as before: also after many, and also when something was killed at
a moment that nobody chose."""

import os
import random
import signal
import subprocess
import time

import pytest

from helpers import proc
from helpers.cove import CLEAR, STRUCK
from helpers.machine import collect_orphans, left_over, traces

LONG = os.environ.get("COVE_LONG") == "1"
GRACE_S = 10                            # what is younger may be somebody's who is just making it


@pytest.fixture
def baseline(cove):
    """The machine when a first run has made what stays: the volume and template host."""
    cove.run("true")
    cove.run("--network", "open", "true", status=None)
    collect_orphans()
    return traces(cove.data)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_runs_leave_nothing(cove, baseline):
    for i in range(2000 if LONG else 200):
        network = "open" if i % 10 == 0 else "none"
        cove.run("-n", network, "sh", "-c", "echo x > file; sleep 0.001 & exit 7", status=7)
    left = left_over(baseline, cove)
    assert not left, sorted(left)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_at_once_leave_nothing(cove, baseline):
    for _ in range(10):
        started = [subprocess.Popen(cove.words("sh", "-c", "head -c 1M /dev/zero > x"), env=CLEAR,
                                    stdin=subprocess.DEVNULL) for _ in range(8)]
        assert [process.wait(60) for process in started] == [0] * 8
    left = left_over(baseline, cove)
    assert not left, sorted(left)


def test_failures_leave_nothing(cove, baseline, folder):
    for words in (
        ["--template", "none", "true"],
        ["-v", f"{folder}:/proc/x", "true"],
        ["-v", f"{folder}:/etc/passwd", "true"],
        ["-v", "/dev/null:/x", "true"],
        ["--user", "nobody-here", "true"],
    ):
        cove.failed(*words)
    cove.failed("no-such-program", status=127)
    left = left_over(baseline, cove)
    assert not left, sorted(left)


def family(pid):
    """A process and its descendants, by the names they have."""
    found, open_pids = [], [pid]
    while open_pids:
        one = open_pids.pop()
        try:
            with open(f"/proc/{one}/comm") as f:
                found.append((f.read().strip(), one))
            open_pids += proc.children(one)
        except OSError:
            continue                    # it has just ended
    return found


def strike(process, rng, window_s):
    """Kills one process of the run, of a random role, after a random time; says which."""
    time.sleep(rng.uniform(0, window_s))
    if process.poll() is not None:
        return "nobody"
    found = family(process.pid)
    role = rng.choice(sorted({name for name, _ in found}))
    name, victim = rng.choice([one for one in found if one[0] == role])
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return "nobody"
    return name


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "network, runs, window_s", [("none", 100, 0.03), ("open", 40, 0.03), ("none", 30, 0.6)]
)
def test_whoever_is_killed_nothing_is_left(cove, baseline, network, runs, window_s):
    seed = int(os.environ.get("COVE_SEED", random.randrange(1 << 32)))
    rng, struck = random.Random(seed), {}
    for _ in range(runs):
        with cove.started(
            "-n",
            network,
            "sh",
            "-c",
            f"echo x > file; sleep {window_s / 2}",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=STRUCK,
        ) as process:
            name = strike(process, rng, window_s)
            struck[name] = struck.get(name, 0) + 1
            code = process.wait(15)
            said = process.stderr.read().decode()
            if code not in (0, 137, -9):
                assert code == 125 and said.startswith("cove run: "), (seed, name, code, said)
    time.sleep(GRACE_S + 1)
    left = left_over(baseline, cove, "-n", network)
    assert not left, f"seed {seed}, killed {struck}: {sorted(left)}"
