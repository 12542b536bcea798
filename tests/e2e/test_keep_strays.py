"""What the keeper cannot look at when it starts is in its list all the same, with the reason, and is looked at
again: who is in no list is taken for ended. Nothing lives on or ends because something could not be read."""

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time

import pytest

from helpers import boxfile
from helpers.cove import CLEAR, COVE
from helpers.keeper import FILES_ONLY, Keeper, Refused, full
from helpers.machine import cgroups_named, collect_orphans
from helpers.proc import alive, wait_until

pytestmark = [pytest.mark.core, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: attributes of its own")]

ATTRIBUTE = "trusted.cove.record"
UNAVAILABLE = 15
SUBVOLUME_CREATE, SUBVOLUME = 0x5000940E, struct.Struct("=q4088s")


def name(id):
    return full(id).decode()


@pytest.fixture
def layer(cove):
    return lambda id: cove.data / "volume" / "layers" / ("box-" + name(id))


@pytest.fixture
def note(cove):
    return lambda id: cove.data / "paused" / name(id)


def make(client, id, **more):
    pid = client.create(id, **more).state["pid"]
    client.wire(id).run("sh", "-c", f"echo {id} > file")
    return pid


def three(keeper):
    """One that runs, one that stands still, one of which there are files only: their pids."""
    with keeper.client() as client:
        pids = {id: make(client, id) for id in ("asleep", "frozen", "runs")}
        client.call("freeze", "frozen")
        client.call("freeze", "asleep", FILES_ONLY)
    return pids | {"asleep": 0}


def lose(keeper, note, *ids, notes=True):
    """Their records, and their notes."""
    for id in ids:
        (keeper.place / "boxes" / name(id)).unlink(missing_ok=True)
        if notes:
            note(id).unlink(missing_ok=True)


def check_unreached(client, pids, why):
    assert client.list() == sorted(pids)
    for id, pid in pids.items():
        with pytest.raises(Refused, match=why) as refused:
            client.stat(id)
        assert refused.value.code == UNAVAILABLE
        assert not pid or alive(pid)
    assert not client.events


def check_reached(client, pids):
    wait_until(lambda: not any(client.ask("stat", id).code for id in pids), "they are reached")
    assert client.list() == sorted(pids)
    for id, pid in pids.items():
        state = client.stat(id)
        assert (state["pid"], state["asleep"], state["frozen"]) == (pid, id == "asleep", id != "runs")
    assert not client.events
    for id in pids:
        client.call("thaw", id)
        assert client.wire(id).run("cat", "file") == f"{id}\n"


@contextlib.contextmanager
def locked(*paths):
    """By somebody who is no keeper, as a child that has outlived one is."""
    fds = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        for fd in fds:
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("named", [True, False])
def test_files_that_somebody_locks_are_waited_for(start_keeper, note, layer, named):
    keeper = start_keeper()
    pids = three(keeper)
    if named:                               # the others' records say more than their layers
        with keeper.client() as client:
            for id in "frozen", "runs":
                client.kill(id)
                del pids[id]
    keeper.kill()
    if not named:
        lose(keeper, note, *pids)
    with locked(*map(layer, pids)):
        keeper.start()
        with keeper.client() as client:
            check_unreached(client, pids, "cannot be locked")
    with keeper.client() as client:
        check_reached(client, pids)


def test_files_that_say_nothing_and_are_locked_are_ended_by_nobody(start_keeper, note, layer):
    """They may be those of a keeper that works by another run directory."""
    keeper = start_keeper()
    with keeper.client() as client:
        pids = {"runs": make(client, "runs")}
    keeper.kill()
    lose(keeper, note, *pids)
    said = os.getxattr(layer("runs"), ATTRIBUTE)
    os.removexattr(layer("runs"), ATTRIBUTE)
    with locked(layer("runs")):
        keeper.start()
        with keeper.client() as client:
            check_unreached(client, pids, "cannot be locked")
            with pytest.raises(Refused, match="in use"):
                client.kill("runs")
            check_unreached(client, pids, "cannot be locked")
    os.setxattr(layer("runs"), ATTRIBUTE, said)
    with keeper.client() as client:
        check_reached(client, pids)


def test_a_note_that_cannot_be_written_anew_is_tried_again(start_keeper, note):
    """Without it a frozen one would be let go on."""
    keeper = start_keeper()
    pids = three(keeper)
    keeper.kill()
    lose(keeper, note, *pids)
    drafts = [note(id).with_name("." + name(id)) for id in ("asleep", "frozen")]
    for draft in drafts:
        draft.mkdir()
    keeper.start()
    with keeper.client() as client:
        assert client.list() == sorted(pids)
        assert client.stat("runs")["pid"] == pids["runs"]
        for id in "asleep", "frozen":
            with pytest.raises(Refused, match="note that sandbox"):
                client.stat(id)
        assert alive(pids["frozen"])
        assert "1" in [(group / "cgroup.freeze").read_text().strip() for group in cgroups_named(f"box-{name('frozen')}")
                       if (group / "cgroup.freeze").exists()]
        for draft in drafts:
            draft.rmdir()
        check_reached(client, pids)


def test_processes_of_the_paused_stay_while_their_files_cannot_be_had(start_keeper, note, layer):
    """An error says nothing of what its layer says."""
    keeper = start_keeper()
    with keeper.client() as client:
        pids = {"frozen": make(client, "frozen")}
        client.call("freeze", "frozen")
    keeper.kill()
    lose(keeper, note, "frozen", notes=False)
    away = layer("frozen").with_name("away")
    layer("frozen").rename(away)
    keeper.start()
    with keeper.client() as client:
        check_unreached(client, pids, "No such file")
        away.rename(layer("frozen"))
        check_reached(client, pids)


def test_they_end_before_its_files_are_woken(start_keeper, note, layer):
    """Nothing says how to take them over; and a keeper that runs does not stand still meanwhile."""
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make(client, "asleep")
        client.call("freeze", "asleep")
    keeper.kill()
    lose(keeper, note, "asleep", notes=False)
    away = layer("asleep").with_name("away")
    layer("asleep").rename(away)
    keeper.start()
    with keeper.client() as client:
        check_unreached(client, {"asleep": pid}, "No such file")
        os.removexattr(away, ATTRIBUTE)
        away.rename(layer("asleep"))
        wait_until(lambda: not client.ask("stat", "asleep").code, "it is reached")
        collect_orphans()
        assert not alive(pid)
        check_reached(client, {"asleep": 0})


def test_whoever_ends_it_meanwhile_ends_them(start_keeper, note, layer):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make(client, "frozen")
        client.call("freeze", "frozen")
    keeper.kill()
    lose(keeper, note, "frozen", notes=False)
    away = layer("frozen").with_name("away")
    layer("frozen").rename(away)
    keeper.start()
    with keeper.client() as client:
        client.kill("frozen")
        assert client.list() == []
        wait_until(lambda: collect_orphans() or not alive(pid), "its processes are ended")
        away.rename(layer("frozen"))
    keeper.kill()
    lose(keeper, note, "frozen")
    keeper.start()
    with keeper.client() as client:
        client.end_all()


@pytest.mark.parametrize("there", [True, False])
def test_those_of_another_run_directory(start_keeper, cove, folder, note, there):
    """While their records are there their own keeper finds them; without these the one that runs does."""
    keeper = start_keeper()
    with keeper.client() as client:
        pids = {"runs": make(client, "runs")}
    keeper.kill()
    if not there:
        shutil.rmtree(keeper.run_dir)
    other = Keeper(cove.data, os.path.join(folder, "other"))
    try:
        with other.client() as client:
            if there:
                check_unreached(client, pids, "in the run directory")
                keeper.start()
                assert keeper.client().stat("runs")["pid"] == pids["runs"]
                wait_until(lambda: client.list() == [], "it is the other's")
            else:
                assert client.stat("runs")["pid"] == pids["runs"]
                client.end_all()
    finally:
        other.stop()


def flag(path, claim, frozen):
    """What a layer says, with another mark and another state."""
    draft = path.parent.parent / "draft"
    draft.write_bytes(os.getxattr(path, ATTRIBUTE))
    schema, kind, items = boxfile.read(draft)
    mark = boxfile.field(boxfile.MARK, boxfile.field(boxfile.CLAIM, bytes([claim])))
    items = [(tag, value + mark if tag == boxfile.ORDER else value) for tag, value in items if tag != boxfile.IS]
    boxfile.write(draft, schema, kind, [*items, (boxfile.IS, bytes([frozen]))])
    os.setxattr(path, ATTRIBUTE, draft.read_bytes())
    draft.unlink()


UNCLAIMED, CLAIMED = 1, 2


@pytest.mark.parametrize("frozen", [1, 0])
def test_a_paused_one_was_told_to_somebody_whatever_its_mark_says(start_keeper, note, layer, frozen):
    """A mark that could not be written behind its pause deletes nothing."""
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make(client, "asleep")
    keeper.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: collect_orphans() or not alive(pid), "its process is gone")
    lose(keeper, note, "asleep")
    flag(layer("asleep"), UNCLAIMED, frozen)
    keeper.start()
    with keeper.client() as client:
        if frozen:
            check_reached(client, {"asleep": 0} if not client.stat("asleep")["pid"] else {})
        else:
            assert client.list() == []
            wait_until(lambda: not layer("asleep").exists(), "nobody was told of it")


def template(cove, *words):
    return subprocess.run([COVE, "template", *words, "--data-dir", cove.data], env=CLEAR, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)


def test_what_was_found_by_its_files_alone_has_a_note(start_keeper, cove, note, layer):
    """That holds what it was built on; and it is found as often as one likes."""
    assert template(cove, "add", "astray", "host").returncode == 0
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make(client, "asleep", template="astray")
    keeper.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: collect_orphans() or not alive(pid), "its process is gone")
    lose(keeper, note, "asleep")
    flag(layer("asleep"), CLAIMED, 0)
    for _ in range(2):
        keeper.start()
        with keeper.client() as client:
            assert client.stat("asleep")["asleep"] == 1
        assert dict(boxfile.read(note("asleep"))[2])[boxfile.IS] == bytes([boxfile.ASTRAY])
        assert "in use by a sandbox" in template(cove, "remove", "astray").stderr
        keeper.kill()
        assert "in use by a sandbox" in template(cove, "remove", "astray").stderr
    keeper.start()
    with keeper.client() as client:
        check_reached(client, {"asleep": 0})
        assert not note("asleep").exists()
        client.end_all()
    assert template(cove, "remove", "astray").returncode == 0


# ---- the end of many


def make_layers(path, ids):
    at = os.open(path, os.O_RDONLY)
    for id in ids:
        fcntl.ioctl(at, SUBVOLUME_CREATE, bytearray(SUBVOLUME.pack(0, f"box-{name(id)}".encode())))
    os.close(at)


@pytest.mark.parametrize("how", ["goes on", "is killed"])
def test_many_ends_at_once_hold_nobody_up(start_keeper, cove, layer, how):
    """More than the queue of the reaper and its socket hold, while that stands still."""
    ids = [f"end-{i}" for i in range(600)]
    keeper = start_keeper()
    keeper.kill()
    make_layers(cove.data / "volume/layers", ids)       # found by their files: the cheapest sandboxes
    keeper.start()
    reaper = keeper.child("cove-reaper")
    os.kill(reaper, signal.SIGSTOP)
    try:
        with keeper.client(timeout=5) as client:
            assert len(client.list()) == 64             # a page of them
            slowest = 0
            for id in ids:
                began = time.monotonic()
                client.kill(id)
                slowest = max(slowest, time.monotonic() - began)
            assert client.list() == [] and slowest < 1, slowest
            make(client, "new")                         # and others are served
        assert all(layer(id).exists() for id in ids)
        if how == "is killed":                          # what was not handed over the next one finds
            keeper.kill()
    finally:
        os.kill(reaper, signal.SIGCONT)
    if how == "is killed":
        keeper.start()
        with keeper.client() as client:
            assert client.list() == ["new"]
    wait_until(lambda: not any(layer(id).exists() for id in ids), "they are deleted", 60, 0.1)
