"""The power goes at any moment: what was acknowledged as written for good is there at the next start."""

import sqlite3

import pytest
import tally
from history import History
from power import Device, power_loss
from residents import Residents
from test_histories import report
from nemesis import torment

CUTS = 6


@pytest.fixture
def device(folder, boot):
    made = Device(folder, folder / "data", 2 << 30)
    yield made
    made.close()


@pytest.fixture
def world(device, start, folder):
    shared = folder / "shared"
    shared.mkdir()
    made = start("--set", "pool.size=1", "--allow-mount", shared)
    made.residents, made.device = Residents(made, shared), device
    return made


def keys_hold(world, known):
    """Users and keys wait for the disk: each that was handed out is good."""
    for key in known:
        assert world.call("GET", "/v1/sandboxes", key=key).status == 200


def whole(world):
    store = sqlite3.connect(f"file:{world.data}/serve/cove.db?mode=ro", uri=True)
    try:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        store.close()


def test_a_power_loss_ends_what_ran_and_nothing_that_stood_still(world):
    """While 16 clients work, pauses among it, and users are made."""
    chance, known = tally.chance("power"), []
    with History(world, "power", 16, world.residents.ids, each=2) as history:
        done = 0
        for number in range(CUTS):
            known.append(world.user(f"user-{number}"))
            done += torment(world, chance, [power_loss])
            history.others |= world.residents.ids
            keys_hold(world, known)
            whole(world)
    report(history, done)
