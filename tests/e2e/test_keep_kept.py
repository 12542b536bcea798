"""What a keeper has of a sandbox is kept when something on the way to it is missing or fails: a network, a
mount's directory, a descriptor, a layer, what it was built on. It is tried again, and nothing was lost."""

import os
import select
import signal

import pytest

from helpers.keeper import FILES_ONLY, NONE, Refused, full, request
from helpers.machine import collect_orphans, comm
from helpers.proc import alive, children, wait_until

pytestmark = pytest.mark.core

NOT_FOUND = 4


def name(id):
    return full(id).decode()


@pytest.fixture
def layer(cove):
    return lambda id: cove.data / "volume" / "layers" / ("box-" + name(id))


@pytest.fixture
def note(cove):
    return lambda id: cove.data / "paused" / name(id)


def child(keeper, called):
    return next(pid for pid in children(keeper.process.pid) if comm(pid) == called)


def make_asleep(client, id="one", **more):
    client.create(id, **more)
    client.wire(id).run("sh", "-c", "echo kept > file")
    assert client.call("freeze", id, FILES_ONLY).state["asleep"] == 1


def check_asleep(client, note, layer, id="one"):
    assert client.stat(id)["asleep"] == 1
    assert note(id).exists() and layer(id).exists()


def check_wakes(client, id="one"):
    assert client.call("thaw", id).state["fresh"] == 1
    assert client.wire(id).run("cat", "file") == "kept\n"


def test_one_whose_network_cannot_be_made_sleeps_on(start_keeper, note, layer):
    """The netmaker ends while it waits for one; the keeper does then, and another begins."""
    keeper = start_keeper("--set", "keep.stock=0")
    with keeper.client() as client:
        make_asleep(client, network=NONE)
        netmaker = child(keeper, "cove-net")
        os.kill(netmaker, signal.SIGSTOP)
        client.send(request("thaw", "one", serial=7))
        client.send(request("list", serial=8))
        assert client.answer().serial == 8
        os.kill(netmaker, signal.SIGKILL)
        said = client.answer()
        assert said.serial == 7 and said.code not in (0, NOT_FOUND), said
    keeper.process.wait(10)
    assert note("one").exists()
    keeper.start()
    with keeper.client() as client:
        check_asleep(client, note, layer)
        check_wakes(client)


def test_one_whose_mount_is_gone_sleeps_until_it_is_back(start_keeper, folder, note, layer):
    source, away = os.path.join(folder, "src"), os.path.join(folder, "away")
    os.mkdir(source)
    keeper = start_keeper("--allow-mount", folder)
    with keeper.client() as client:
        make_asleep(client, mounts=[(source, "/mnt/src")])
        os.rename(source, away)
        for _ in range(2):
            with pytest.raises(Refused, match="No such file") as refused:
                client.call("thaw", "one")
            assert refused.value.code != NOT_FOUND      # releases before end what they hear that of
            check_asleep(client, note, layer)
        assert not client.events
        os.rename(away, source)
        check_wakes(client)
