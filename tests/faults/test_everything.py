"""Sixteen clients work while everything happens that we know of: who is killed, stopped or slow, what is installed, which
file is missing, how little there is of what, who else is there, and a machine that restarts. See history.py for what has to
hold in the end."""

import os
import time

import pytest
import tally
from helpers import python_layer
from history import History
from inside import INSIDE
from nemesis import ANY, CROWDS, HELPERS, JUMPS, KILLS, SHORT, STOPS, Neighbour, host_changes, neighbour, torment
from power import Device, power_loss, reboot
from residents import Residents
from shim import LIBRARY, Shim
from spoil import SPOILS
from test_histories import report

CLIENTS = 16
FAULTS = int(os.environ.get("COVE_FAULTS_COUNT") or 40)         # of one history
LONG, TIMES = 8, 4                      # more of them, and how much longer each is: tools/check has that number, too


@pytest.fixture
def device(request, folder, boot):
    """Every other history has a disk of which the power can be lost."""
    params = getattr(request.node, "callspec", None)
    if not params or params.params.get("number", 0) % 2 == 0:
        yield None
        return
    made = Device(folder, folder / "data", 4 << 30)
    yield made
    made.close()


@pytest.fixture
def world(device, start, packages, folder):
    """A server with residents that stay, where the host can change, and with a clock that can jump."""
    shared = folder / "shared"
    shared.mkdir()
    shim = Shim(folder / "block") if LIBRARY.exists() else None
    kernels = python_layer.why_not() is None
    if kernels:
        python_layer.put(folder / "data")
    made = start("--set", "pool.size=2", "--allow-mount", shared, env=shim.variables if shim else None)
    made.shim, made.packages, made.residents, made.device = shim, packages, Residents(made, shared), device
    made.kernels = kernels
    return made


def kinds(world):
    """Each family as often as another, whatever number of kinds it has."""
    found = [KILLS, HELPERS, STOPS, ANY, ANY, SHORT, SPOILS, SPOILS, CROWDS, INSIDE, [host_changes], [host_changes],
             [reboot]]
    if hasattr(world, "neighbour"):
        found.append([neighbour])
    if world.device:
        found.append([power_loss])
    if world.shim:
        found.append(JUMPS)
    return found


def go_through(world, name, count, until=None):
    chance = tally.chance(name)
    families = kinds(world)
    faults = [chance.choice(chance.choice(families)) for _ in range(count)]
    others = set(world.residents.ids)
    history = History(world, name, CLIENTS, others, each=2)
    with history:
        done = torment(world, chance, faults, until)
        world.residents.check()
        history.others |= world.residents.ids
    report(history, done)


@pytest.mark.parametrize("number", range(2))
def test_whatever_happens_nothing_is_lost(world, start, folder, number):
    world.neighbour = start(kind=lambda path, *_, **__: Neighbour(path, world), folder=folder / "neighbour")
    go_through(world, f"everything-{number}", FAULTS)
    world.neighbour.check()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("COVE_FAULTS_LONG"), reason="takes minutes: COVE_FAULTS_LONG=1 (make faults)")
@pytest.mark.parametrize("number", range(LONG), ids=lambda number: f"{number}-of-{LONG}")
def test_whatever_happens_for_long_nothing_is_lost(world, start, folder, number):
    world.neighbour = start(kind=lambda path, *_, **__: Neighbour(path, world), folder=folder / "neighbour")
    go_through(world, f"long-{number}", FAULTS * TIMES)
    world.neighbour.check()


@pytest.mark.slice
def test_a_history_of_everything(world):
    """The slice of `make check`: as much as fits, with a seed of its own each time."""
    if not tally.SECONDS:
        pytest.skip("the tests before have longer ones")
    go_through(world, "everything", 1000, time.monotonic() + tally.SECONDS * 0.3)


# ---- each of them alone: a history that fails says which it was by this

EACH = [hurt for family in (ANY, SHORT, SPOILS, CROWDS, INSIDE, [host_changes, reboot]) for hurt in family]


@pytest.mark.parametrize("hurt", EACH, ids=lambda hurt: hurt.__name__.replace("_", " "))
def test_one_of_them_loses_nothing(world, hurt):
    with History(world, f"alone-{hurt.__name__}", 3, world.residents.ids, each=2) as history:
        done = torment(world, tally.chance("alone", hurt.__name__), [hurt] * 2)
        world.residents.check()
        history.others |= world.residents.ids
    report(history, done)
