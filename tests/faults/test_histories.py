"""Clients work while the server's processes are killed, stopped and given another time. See history.py for what
has to hold in the end."""

import time

import pytest
import tally
from history import History
from nemesis import HELPERS, JUMPS, KILLS, STOPS, torment
from residents import set_aside
from shim import LIBRARY, Shim

shimmed = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built (sanitizers)")


def mixed(chance, faults, count):
    return [chance.choice(faults) for _ in range(count)]


def report(history, faults):
    print(f"{history.name}: {history.steps()} steps, {faults} faults, {len(history.kept)} sandboxes, "
          f"{history.strangers} unheard of, {history.reconnects} reconnects, {history.held} held back, refused: {dict(history.refused)}")


@pytest.mark.parametrize("number", range(3))
def test_whoever_is_killed_nothing_is_lost(start, number):
    world, chance = start("--set", "pool.size=2"), tally.chance("kills", number)
    with History(world, f"kills-{number}") as history:
        done = torment(world, chance, mixed(chance, KILLS, 40))
    report(history, done)


def test_the_keepers_helpers_may_die_too(start):
    world, chance = start("--set", "pool.size=2"), tally.chance("helpers")
    with History(world, "helpers") as history:
        done = torment(world, chance, mixed(chance, HELPERS, 40))
    report(history, done)


def test_whoever_is_stopped_nothing_is_lost(start):
    world, chance = start("--set", "pool.size=2"), tally.chance("stops")
    with History(world, "stops") as history:
        done = torment(world, chance, mixed(chance, STOPS, 12))
    report(history, done)


@shimmed
def test_whatever_the_time_is_nothing_ends_before_its_time(start, folder):
    shim = Shim(folder / "block")
    world, chance = start("--set", "pool.size=2", env=shim.variables), tally.chance("clock")
    world.shim = shim
    with History(world, "clock") as history:
        done = torment(world, chance, JUMPS)
    report(history, done)


@shimmed
def test_a_deadline_comes_when_it_is_due_whatever_the_time_is(start, folder):
    shim = Shim(folder / "block")
    world = start("--set", "pool.size=0", env=shim.variables)
    world.shim = shim
    boxes, begun = {}, time.monotonic()
    for seconds in (6, 3600):
        boxes[seconds] = world.box(timeout=seconds)
    for hurt in JUMPS[:2]:
        torment(world, tally.chance("due"), [hurt])
    while boxes[6].id in world.listed():
        assert time.monotonic() - begun < 14
        time.sleep(0.05)
    assert time.monotonic() - begun > 5.9
    assert "lifetime" in boxes[6].state()["reason"]
    assert boxes[3600].run("echo here") == "here\n"


@shimmed
def test_what_was_set_aside_is_kept_whatever_the_time_is(start, folder):
    """Its retention is counted while a server is there, and not by the clock of the wall."""
    shim = Shim(folder / "block")
    world = start("--set", "pool.size=0", env=shim.variables)
    world.shim = shim

    def make():
        boxes = [world.box(), world.box()]
        for box in boxes:
            box.write("file", b"kept")
        world.ok("POST", f"/v1/sandboxes/{boxes[1].id}/pause", {"memory": False})
        return boxes

    runs, asleep = set_aside(world, make)
    first = runs.pid()
    torment(world, tally.chance("aside"), JUMPS)
    assert set(world.aside()) == {runs.id, asleep.id}, world.log_of(runs.id) + world.log_of(asleep.id)
    assert runs.pid() == first
    for box in (runs, asleep):
        box.token = world.ok("POST", f"/v1/orphans/{box.id}", {"owner": "admin"}).get("token")
    world.ok("POST", f"/v1/sandboxes/{asleep.id}/resume", {})
    for box in (runs, asleep):
        box.token = box.state().get("token", box.token)
        assert box.read("file") == b"kept"
