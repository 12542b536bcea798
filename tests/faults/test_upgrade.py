"""From one release to another and back: what the server before has started goes on under the next one, which finds
its records and speaks to its guests. See releases.py and variants.py for which releases, household.py for what is
looked at."""

import os
import shutil
import signal
import time

import pytest
import releases
import tally
import variants
from helpers.cove import COVE
from history import History
from household import Household

HOWS = ("end", "kill")
LOAD_S = 0.5                            # before and after


def program(name):
    """current, raw (the release of raw structs), released, or a variant of this tree."""
    if name == "current":
        return COVE
    if name == "raw":
        return releases.program(releases.RAW)
    return releases.previous() if name == "released" else variants.program(name)


@pytest.fixture
def begin(start, folder):
    """A server of one release, with a household."""
    def begin(name, *options):
        shutil.copy(program(name), folder / "cove")
        shared = folder / "shared"
        shared.mkdir()
        os.chown(shared, 1000, 1000)    # what the sandbox's user writes there is its owner's
        world = start("--set", "pool.size=1", "--allow-mount", shared, *options)
        return world, Household(world, shared)
    return begin


def stop(world, how):
    if how == "kill":
        world.signal(signal.SIGKILL, "monitor", "server", "keeper")
    else:
        world.process.send_signal(signal.SIGTERM)
        assert world.process.wait(30) == 0
        world.process.stdout.close()


def upgrade(world, name, how):
    """As an installation does: another file of the same name, and a restart."""
    new = world.folder / "cove.new"
    shutil.copy(program(name), new)
    os.replace(new, world.program())
    stop(world, how)
    world.start()
    tally.injected("upgrade")


def upgrade_under_load(world, house, name, how):
    program(name)                       # built before anything waits for it
    house.stream()
    with History(world, f"to-{name}-{how}", workers=2, others=house.ids):
        time.sleep(LOAD_S)
        upgrade(world, name, how)
        time.sleep(LOAD_S)
    house.all_as_it_was()
    house.stream_came_whole()


def check_all(world, house):
    house.paused_resume()
    house.dead_one_restarts()
    fresh = world.box()
    assert fresh.run("echo new") == "new\n"
    house.can_end()


FORTH = ["raw"] if releases.released() == releases.RAW else ["raw", "released"]
SLICE = ("raw", "kill")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("before", [*FORTH, "current"])
def test_the_next_release_takes_over(begin, before, how):
    world, house = begin(before)
    upgrade_under_load(world, house, "current", how)
    check_all(world, house)
