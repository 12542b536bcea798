"""Two servers with a data directory each on one run directory: neither takes from the other, whatever is killed, and
whichever release the other is of."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess

import pytest
import releases
import tally
from helpers import machine, proc
from helpers.cove import COVE
from world import World, wait_for

BOXES, TURNS, CREATES = 100, 6, 4
ROOM = ("--set", "pool.size=1", "--set", "keep.stock=2")


class Beside(World):
    """On the run directory of another."""
    shared, release = None, None

    def start(self):
        self.run_dir = pathlib.Path(self.shared)
        self.folder.mkdir(exist_ok=True)
        if self.release and not self.program().exists():
            shutil.copy(self.release, self.program())
        super().start()

    def upgrade(self, program):
        shutil.copy(program, self.folder / "cove.new")
        os.replace(self.folder / "cove.new", self.program())

    def left(self):
        return []                       # the run directory is both's: looked at by the fixture, at the end


@pytest.fixture
def servers(folder):
    made = []

    def start(name, release=None):
        kind = type(name, (Beside,), {"shared": folder / "run", "release": release})
        made.append(kind(folder / name, *ROOM))
        return made[-1]
    try:
        yield start
        for world in made:
            world.finish()
    except BaseException:
        for world in made:
            world.abandon()
        raise


def first_of(world, ids):
    found = {}
    for id in ids:
        pids = world.inside(id)
        assert pids, f"{id} is gone: {world.log_of(id)}"
        found[id] = min(pids, key=proc.begun)
    return found


def owner_and_address(pid):
    ids = pathlib.Path(f"/proc/{pid}/uid_map").read_text().split()[1]
    text = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "-j", "-4", "address", "show", "scope", "global"],
                          capture_output=True, check=True).stdout
    return [ids, *(one["local"] for link in json.loads(text) for one in link["addr_info"])]


def nothing_alike(pids):
    found = [value for pid in pids for value in owner_and_address(pid)]
    assert len(found) == 2 * len(pids) and len(set(found)) == len(found), sorted(
        value for value in set(found) if found.count(value) > 1)


def make(world, count):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return {one["id"] for one in pool.map(lambda _: world.create(timeout=3600, network="open"), range(count))}


def restart(world, how):
    if how == "end":
        world.process.send_signal(signal.SIGTERM)
        assert world.process.wait(30) == 0
        world.process.stdout.close()
    else:
        world.signal(signal.SIGKILL, "monitor", "server", "keeper")


@pytest.mark.timeout(900)
def test_a_hundred_sandboxes_each_over_restarts_in_any_order(servers):
    worlds = [servers("one"), servers("two")]
    mine = {world: make(world, BOXES) for world in worlds}
    pids = {world: first_of(world, mine[world]) for world in worlds}
    for turn in range(TURNS):
        away = random.sample(worlds, random.choice((1, 1, 2)))
        for world in away:
            restart(world, random.choice(("kill", "end")))
            tally.injected("restart beside another")
        for world in worlds:
            if world not in away:       # whose numbers are noted, and nobody holds their locks
                mine[world] |= make(world, CREATES)
        for world in away:
            world.start()
            mine[world] |= make(world, CREATES)
        for world in worlds:
            world.wait_well()
            assert set(world.listed()) == mine[world], turn
    for world in worlds:
        now = first_of(world, mine[world])
        assert {id: now[id] for id in pids[world]} == pids[world]
    nothing_alike([pid for world in worlds for pid in first_of(world, mine[world]).values()])


OLD = list(dict.fromkeys([releases.RAW, releases.UNDIVIDED, releases.released()]))


def records_of(world, commit):
    return (world.run_dir if commit in (releases.RAW, releases.UNDIVIDED) else world.place) / "boxes"


@pytest.mark.parametrize("commit", OLD)
@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_server_of_a_release_before_is_left_alone(servers, commit, how):
    """Its records are where they were; it is served by its own keeper, and takes over when it is upgraded itself."""
    old = servers("old", releases.program(commit))
    records = records_of(old, commit)
    mine = make(old, CREATES)
    pids = first_of(old, mine)
    new = servers("new")
    its = make(new, CREATES)
    assert set(old.listed()) == mine and set(new.listed()) == its
    restart(old, how)                   # now nobody holds the lock of that place
    restart(new, how)
    new.start()
    tally.injected("upgrade")
    assert set(os.listdir(records)) >= mine and not set(os.listdir(new.place / "boxes")) & mine
    its |= make(new, CREATES)
    old.start()
    assert set(old.listed()) == mine and set(new.listed()) == its
    restart(old, how)
    old.upgrade(COVE)
    old.start()
    mine |= make(old, CREATES)
    assert set(old.listed()) == mine and set(new.listed()) == its
    assert {id: pid for id, pid in first_of(old, mine).items() if id in pids} == pids
    nothing_alike([*first_of(old, mine).values(), *first_of(new, its).values()])
    assert set(os.listdir(old.place / "boxes")) >= mine
    assert records == old.place / "boxes" or not set(os.listdir(records)) & mine


def test_a_takeover_that_is_killed_at_any_moment_is_finished(servers):
    old = servers("old", releases.program(releases.UNDIVIDED))
    mine = make(old, 12)
    pids = first_of(old, mine)
    restart(old, "kill")
    old.upgrade(COVE)
    for delay in (0.01, 0.03, 0.05, 0.08, 0.12, 0.2):
        process = subprocess.Popen([old.program(), "keep", "--data-dir", old.data, "--run-dir", old.run_dir],
                                   stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        process.kill()
        process.wait()
        tally.injected("takeover killed")
        machine.collect_orphans()
        there = set(os.listdir(old.run_dir / "boxes"))
        with contextlib.suppress(FileNotFoundError):
            there |= set(os.listdir(old.place / "boxes"))
        assert there >= mine
    old.start()
    assert set(old.listed()) == mine and first_of(old, mine) == pids
    wait_for(lambda: set(os.listdir(old.place / "boxes")) >= mine, "they are in their place", 10)
