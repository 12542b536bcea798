"""Fixtures of the escape tests: the place sandboxes are made in, and the look back at the end."""

import contextlib
import os
import time

import pytest
from world import World, become_subreaper, children

CGROUPS = "/sys/fs/cgroup"
SETTLE_S = 5


def cgroups():
    """Directories of sandboxes, of ours and others'."""
    found = set()
    for where in [CGROUPS] + [entry.path for entry in os.scandir(CGROUPS) if entry.is_dir()]:
        with contextlib.suppress(OSError):
            found |= {entry.path for entry in os.scandir(os.path.join(where, "cove"))
                      if entry.is_dir()}
    return found


def is_empty(cgroup):
    try:
        with open(os.path.join(cgroup, "cgroup.procs"), encoding="ascii") as file:
            return not file.read()
    except OSError:
        return False                    # gone by now


def lines_with(path, text):
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line for line in file if text in line]


def settled(look):
    """What is still there after a moment: layers are deleted in the background."""
    until = time.monotonic() + SETTLE_S
    while (left := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return left


@pytest.fixture(scope="session")
def world():
    """Afterwards nothing is left: no process, mount, cgroup, layer, loop device."""
    if os.geteuid():
        pytest.skip("sandboxes with every defence need root")
    become_subreaper()
    before = cgroups()
    place = World()
    own = {place.canaries.process.pid}
    try:
        yield place
        assert not settled(lambda: [f"{pid} {text}" for pid, text in children().items()
                                    if pid not in own])
        assert not settled(place.layers)
        made = cgroups() - before       # those of other checkouts come and go, ours have to be gone
        assert not settled(lambda: [path for path in made if is_empty(path)])
        mounts = lines_with("/proc/self/mountinfo", place.directory)
        assert len(mounts) <= 1, "besides the volume: " + "".join(mounts)
    finally:
        place.close()
    assert not lines_with("/proc/self/mountinfo", place.directory)
    assert not settled(lambda: lines_with("/proc/mounts", place.directory))
    assert not settled(lambda: [d for d in os.listdir("/sys/block") if d.startswith("loop") and
                                backing_file(d).startswith(place.directory)])


def backing_file(device):
    try:
        with open(f"/sys/block/{device}/loop/backing_file", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
