"""Sandboxes come and go by the thousand, and the machine is as it was before: mounts, cgroups, namespaces, interfaces,
processes, subvolumes, quota groups, files, descriptors, and the memory of each process."""

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import time

import pytest
from helpers import machine, proc
from helpers.serve import descendants
from world import machine_cgroups, wait_for

ROUNDS = int(os.environ.get("COVE_FAULTS_ROUNDS") or 600)
LONG = 20000
WARM_UP, AT_ONCE = 200, 4
RSS_KIB = 2048                          # what a process may have more than at the baseline
SETTLE_S = 60


@pytest.fixture
def world(start):
    return start("--set", "pool.size=2", "--log-level", "warn")


def rounds(world, count):
    def one(number):
        box = world.box(network=("open", "none")[number % 2])
        if number % 50 == 0:
            box.write("file", b"x" * 10000)
            assert box.run("echo $((6 * 7))") == "42\n"
        assert box.end() == 204
        return box.id

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        ids = list(pool.map(one, range(count)))
    assert len(set(ids)) == count, "an id was given twice"


def lines(path):
    return len(pathlib.Path(path).read_text().splitlines())


def namespaces(pids):
    found = set()
    for pid in pids:
        for kind in machine.KINDS:
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return len(found)


def main_parts(world):
    return {name: pid for name, pid in world.parts().items() if name != "zygote"}   # memory of each of the rest


def census(world):
    """Everything that could be left, counted. The pool and the stock are refilled to the same numbers."""
    family = descendants(world.process.pid) | {world.process.pid}
    found = collections.Counter()
    for pid in family:
        found[f"processes {machine.comm(pid)}"] += 1
    for name, pid in main_parts(world).items():
        found[f"descriptors of {name}"] = len(os.listdir(f"/proc/{pid}/fd"))
        if name != "monitor":           # that one is in the machine's own namespace: see below
            found[f"mounts of {name}"] = lines(f"/proc/{pid}/mountinfo")
    found["namespaces"] = namespaces(family)
    found["mounts"] = sum(str(world.folder) in line for line in machine.mounts())
    found["loops"] = sum(str(world.folder) in name for name in machine.loops())
    layers = os.listdir(world.data / "volume/layers")
    found["layers"] = len(layers)
    found["subvolumes"] = len(machine.output("btrfs", "subvolume", "list", str(world.data / "volume")))
    found["quota groups"] = len(machine.quotas(world.data / "volume"))
    for top in machine_cgroups():
        with contextlib.suppress(OSError):
            found["cgroups"] += len(set(os.listdir(f"{top}/cove")) & set(layers))
    found["files of the run directory"] = sum(len(files) for _, _, files in os.walk(world.run_dir))
    found["files of the data directory"] = sum(1 for path in world.data.rglob("*") if "volume" not in path.parts)
    found["interfaces"] = len([name for name in os.listdir("/sys/class/net") if name.startswith("cove")])
    found["numbers"] = len(os.listdir("/run/cove/ids"))
    found["cgroups of all"] = sum(len(os.listdir(f"{top}/cove")) for top in machine_cgroups()
                                  if os.path.isdir(f"{top}/cove"))
    return +found


def memory(world):
    return {name: proc.status_kib(pid, "VmRSS") for name, pid in main_parts(world).items()}


def cleaned(found):
    """The kernel's cleaner has been there: it may come to the quota groups of a layer half a minute after its end."""
    return found["quota groups"] <= 2 * (found["subvolumes"] + 1)


def settled(world, wanted=None):
    """The census once nothing moves any more, or once it is what is wanted."""
    last, until = None, time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        now = census(world)
        if (now == wanted) if wanted else (now == last and cleaned(now)):
            return now
        last = now
        time.sleep(1)
    return census(world)


def check(world, count):
    rounds(world, WARM_UP)
    wait_for(lambda: world.metric("cove_pool_ready") == 4, "the pool is not full", 20, 0.2)
    time.sleep(8)                       # unused memory and threads are given back
    before, rss = settled(world), memory(world)
    begun = time.monotonic()
    rounds(world, count)
    took = time.monotonic() - begun
    wait_for(lambda: world.metric("cove_pool_ready") == 4, "the pool is not full", 20, 0.2)
    time.sleep(8)
    after = settled(world, before)
    grown = {name: kib - rss[name] for name, kib in memory(world).items()}
    print(f"{count} rounds, {count / took:.0f} a second; memory {rss} KiB, grown by {grown}; {dict(before)}")
    differs = {name: (before[name], after[name]) for name in before | after if before[name] != after[name]}
    assert not differs, differs
    assert max(grown.values()) <= RSS_KIB, grown


def test_rounds_leave_nothing(world):
    check(world, ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("COVE_FAULTS_LONG"), reason="takes minutes: COVE_FAULTS_LONG=1 (make faults)")
def test_20000_rounds_leave_nothing(world):
    check(world, LONG)
