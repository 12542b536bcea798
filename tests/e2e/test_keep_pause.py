"""Paused sandboxes lose nothing: not when their processes are killed, not when the keeper is, and
not when the machine is restarted. (A restart is: everything killed, and another boot id.)"""

import contextlib
import os
import pathlib
import select
import signal
import struct
import time

import pytest

from helpers import boxfile
from helpers.keeper import ENDED, FILES_ONLY, OPEN, STAY, Refused, create_body, full, limits_body, request
from helpers.machine import cgroups_named, collect_orphans
from helpers.proc import alive, children, wait_until

pytestmark = pytest.mark.core

MIB = 1 << 20
FORMER = b"00000000-0000-0000-0000-000000000000"


def name(id):
    return full(id).decode()


@pytest.fixture
def client(start_keeper):
    with start_keeper().client() as connected:
        yield connected


@pytest.fixture
def layer(cove):
    return lambda id: cove.data / "volume" / "layers" / ("box-" + name(id))


@pytest.fixture
def note(cove):
    return lambda id: cove.data / "paused" / name(id)


def end(pid):
    ended = os.pidfd_open(pid)          # tells when the last thread has ended; /proc, when the first has
    os.kill(pid, signal.SIGKILL)
    assert select.select([ended], [], [], 60)[0], "it has ended"
    os.close(ended)
    wait_until(lambda: collect_orphans() or not alive(pid), "it is collected")


def make_paused(client, id="one", **more):
    pid = client.create(id, **more).state["pid"]
    client.wire(id).run("sh", "-c", "echo kept > file; mkdir -p d/e; ln -s file link; sudo touch /usr/new")
    client.call("freeze", id)
    return pid


def check_files(client, id="one"):
    said = client.wire(id).run("sh", "-c", "cat link; ls -d d/e /usr/new; stat -c %U file")
    assert said == "kept\n/usr/new\nd/e\nuser\n"


def set_former_boot(path):
    path.write_bytes(FORMER + path.read_bytes()[len(FORMER):])


def restart_machine(keeper, data, pids, keep_run=True):
    """keep_run: the run directory is not on a tmpfs."""
    keeper.kill()
    for pid in pids:
        end(pid)
    records = list(pathlib.Path(keeper.place, "boxes").iterdir())
    set_former_boot(data / "boot")
    for path in [*(data / "paused").iterdir(), *records]:
        boxfile.set_boot(path, FORMER)
    for path in records if not keep_run else ():
        path.unlink()
        for group in cgroups_named(f"box-{path.name}"):
            group.rmdir()               # no cgroup survives a restart either
    keeper.start()


def test_one_whose_processes_are_killed_keeps_its_files(client, layer, note):
    pid = make_paused(client, network=OPEN, memory_bytes=300 * MIB)
    assert note("one").exists()
    end(pid)
    wait_until(lambda: client.stat("one")["asleep"], "it is seen")
    state = client.stat("one")
    assert state["frozen"] == 1 and state["pid"] == 0 and state["processes"] == 0
    assert state["disk"] > 0 and layer("one").exists() and "one" in client.list()
    assert not client.events
    with pytest.raises(Refused, match="is paused"):
        client.sockets("one")
    client.call("freeze", "one")        # it is
    woken = client.call("thaw", "one", limits_body(lifetime_ms=60_000)).state
    assert woken["fresh"] == 1 and woken["asleep"] == woken["frozen"] == 0
    assert woken["memory_bytes"] == 300 * MIB and 59_000 < woken["left_ms"] <= 60_000
    assert client.call("thaw", "one").state["fresh"] == 1       # who lost the answer hears it again
    assert not note("one").exists()
    check_files(client)
    client.call("freeze", "one")
    assert client.call("thaw", "one").state["fresh"] == 0
    check_files(client)


def test_a_request_that_overtakes_the_end_of_its_processes_finds_its_files(start_keeper):
    """The keeper hears of both in one turn, of the request first."""
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make_paused(client)
        keeper.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, keeper.process.pid, os.WSTOPPED | os.WNOWAIT)
        client.send(request("thaw", "one"))
        end(pid)
        keeper.process.send_signal(signal.SIGCONT)
        assert client.answer().state["fresh"] == 1
        check_files(client)
        assert not client.events


@pytest.mark.parametrize("frozen_before", [False, True])
def test_one_may_keep_its_files_alone(client, layer, note, frozen_before):
    pid = make_paused(client)
    if not frozen_before:
        client.call("thaw", "one")
    state = client.call("freeze", "one", FILES_ONLY).state
    assert state["asleep"] == state["frozen"] == 1 and state["pid"] == 0
    assert not alive(pid) and layer("one").exists() and note("one").exists() and not client.events
    client.call("freeze", "one", FILES_ONLY)    # it is
    assert client.stat("one")["asleep"] == 1
    assert client.call("thaw", "one").state["fresh"] == 1
    check_files(client)


def test_a_word_that_is_none_is_refused(client):
    client.create("one")
    with pytest.raises(Refused, match="files_only"):
        client.call("freeze", "one", struct.pack("=2I", 2, 0))
    assert client.stat("one")["frozen"] == 0


def test_it_sleeps_and_wakes_as_often_as_one_likes(client):
    make_paused(client)
    for _ in range(5):
        end(client.stat("one")["pid"])
        wait_until(lambda: client.stat("one")["asleep"], "it is seen")
        client.call("thaw", "one")
        check_files(client)
        client.call("freeze", "one")


def test_its_limit_of_disk_stays(client):
    pid = make_paused(client, disk_bytes=64 * MIB)
    end(pid)
    wait_until(lambda: client.stat("one")["asleep"], "it is seen")
    client.call("limits", "one", limits_body(memory_bytes=200 * MIB))
    assert client.call("thaw", "one").state["memory_bytes"] == 200 * MIB
    said = client.wire("one").run("sh", "-c", "head -c 100M /dev/zero > big || true; stat -c %s big")
    assert int(said) < 64 * MIB


def test_one_that_sleeps_can_be_killed(client, layer, note):
    end(make_paused(client))
    wait_until(lambda: client.stat("one")["asleep"], "it is seen")
    client.kill("one")
    assert client.event(ENDED, "one").reason == "request"
    assert "one" not in client.list() and not note("one").exists()
    wait_until(lambda: not layer("one").exists(), "its files are deleted")


def test_one_that_runs_keeps_nothing(client, layer, note):
    pid = make_paused(client)
    client.call("thaw", "one")
    assert not note("one").exists()
    end(pid)
    assert client.event(ENDED, "one").reason == "itself"
    wait_until(lambda: not layer("one").exists(), "its files are deleted")


def test_its_processes_die_while_no_keeper_runs(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make_paused(client)
    keeper.kill()
    end(pid)
    keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["asleep"] == 1
        client.call("thaw", "one")
        check_files(client)


@pytest.mark.parametrize("machine", [False, True], ids=["keeper", "machine"])
def test_its_note_is_lost_while_no_keeper_runs(start_keeper, cove, layer, note, machine):
    """Its record says that it was paused."""
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make_paused(client)
    keeper.kill()
    note("one").unlink()
    if machine:
        restart_machine(keeper, cove.data, [pid])
    else:
        end(pid)
        keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["asleep"] == 1
        assert note("one").exists() and layer("one").exists()
        client.call("thaw", "one")
        check_files(client)


def test_a_layer_of_a_release_before_says_whose_it_is(start_keeper, layer, note):
    """From the first start of this release on: then the note may be lost."""
    keeper = start_keeper()
    with keeper.client() as client:
        make_paused(client)
        client.call("freeze", "one", FILES_ONLY)
    keeper.kill()
    os.removexattr(layer("one"), "trusted.cove.record")
    keeper.start()
    keeper.kill()
    note("one").unlink()
    keeper.start()
    assert note("one").exists()
    with keeper.client() as client:
        client.call("thaw", "one")
        check_files(client)


@pytest.mark.parametrize("keep_run", [True, False])
def test_a_restart_of_the_machine(start_keeper, cove, layer, note, keep_run):
    keeper = start_keeper()
    with keeper.client() as client:
        pids = [make_paused(client), client.create("two").state["pid"]]
    restart_machine(keeper, cove.data, pids, keep_run)
    with keeper.client() as client:
        assert client.list() == ["one"]
        assert client.stat("one")["asleep"] == 1
        wait_until(lambda: not layer("two").exists(), "what ran then has left nothing")
        keeper.kill()                   # and it still sleeps
    keeper.start()
    with keeper.client() as client:
        client.call("thaw", "one")
        check_files(client)
        client.kill("one")
    assert not note("one").exists()
    wait_until(lambda: not layer("one").exists(), "its files are deleted")


def test_a_keeper_killed_at_any_moment_of_a_pause(start_keeper, note):
    """What it had not finished is undone; what it had is so."""
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one").state["pid"]
        client.wire("one").start("sh", "-c", "while :; do echo x >> /tmp/x; done").close()
    seen = set()
    for moment in [i * 0.0005 for i in range(20)] + [0.02, 0.05, 0.5]:
        with keeper.client() as client:
            client.send(request("freeze", "one", serial=9))
            time.sleep(moment)
            keeper.kill()
        keeper.start()
        with keeper.client() as client:
            state = client.stat("one")
            assert state["pid"] == pid and state["frozen"] == note("one").exists()
            seen.add(state["frozen"])
            time.sleep(0.02)
            used = client.stat("one")["cpu_us"]
            if state["frozen"]:
                time.sleep(0.05)
                assert client.stat("one")["cpu_us"] == used
            else:
                wait_until(lambda: client.stat("one")["cpu_us"] > used, "it runs", 20)
            client.call("thaw", "one")
    assert 1 in seen


def test_a_draft_of_a_keeper_that_was_killed_goes(start_keeper, cove):
    """Not that of another one, which may be writing it."""
    keeper, other = start_keeper(), start_keeper(run_dir="other")
    with keeper.client() as client, other.client() as elsewhere:
        client.create("one")
        elsewhere.create("two")
    drafts = {id: cove.data / "paused" / f".{name(id)}" for id in ("one", "two", "none")}
    for path in drafts.values():
        path.write_text("half a no")
    keeper.kill()
    keeper.start()
    assert [id for id, path in drafts.items() if path.exists()] == ["two"]
    drafts["two"].unlink()


def test_a_keeper_killed_while_one_is_woken(start_keeper):
    """Half woken it is nobody's: its guest knows no token. It sleeps on."""
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make_paused(client)
        end(pid)
        wait_until(lambda: client.stat("one")["asleep"], "it is seen")
    for i in range(12):
        with keeper.client() as client:
            client.send(request("thaw", "one", serial=9))
            time.sleep(i * 0.0005)
            keeper.kill()
        keeper.start()
        with keeper.client() as client:
            state = client.stat("one")
            assert state["asleep"] or state["fresh"], state
            assert client.call("thaw", "one").state["fresh"] == 1
            check_files(client)
            client.call("freeze", "one")
            end(client.stat("one")["pid"])
            wait_until(lambda: client.stat("one")["asleep"], "it is seen")


def test_many_are_paused_at_once(client):
    """Writing out is done for all of them together."""
    ids = [f"m{i}" for i in range(12)]
    for id in ids:
        client.create(id)
        client.wire(id).run("sh", "-c", f"head -c 2M /dev/urandom > f; echo {id} > name")
    for serial, id in enumerate(ids, 100):
        client.send(request("freeze", id, serial=serial))
    answers = [client.answer() for _ in ids]
    assert not any(one.code for one in answers)
    assert {one.serial for one in answers} == set(range(100, 100 + len(ids)))
    assert all(one.state["flush_us"] > 0 for one in answers)
    for id in ids:
        client.call("thaw", id)
        assert client.wire(id).run("cat", "name") == id + "\n"


FILLER = """
import os, socket, struct, time
message = struct.pack("=IHHII", 16000, 0x7ff, 5, 0, 0).ljust(16000, b"-")      # asks for nothing that exists, for an answer
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
held = []
while len(held) < 3000:                 # of 200 KiB each
    held.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0))
    try:
        for _ in range(32):
            held[-1].send(message)
    except OSError:
        time.sleep(0.001)
time.sleep(60)
"""


SYNCFS = {"x86_64": 306, "aarch64": 267}.get(os.uname().machine)


def writing_out(keeper):
    """The keeper's child that does, while it does."""
    def is_it(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == str(SYNCFS)
    return next(filter(is_it, children(keeper.process.pid)), None)


def stop_writing_out(keeper, client, other):
    """Has it paused until a child is stopped in the middle of it: somebody else may have written all out before."""
    for serial in range(7, 27):
        client.wire("one").run("sh", "-c", "head -c 300M /dev/zero > dirty")
        client.send(request("freeze", "one", serial=serial))
        child = wait_until(lambda: writing_out(keeper) or other.stat("one")["frozen"], "it is paused", step=0.001)
        if child != 1:
            os.kill(child, signal.SIGSTOP)
            if not other.stat("one")["frozen"]:
                return child
        client.answer()
        client.call("thaw", "one")
    raise AssertionError("its files are written out at once")


def test_one_that_is_being_paused_is_looked_at(start_keeper):
    """Writing out may take long, and it runs meanwhile: what it fills is seen."""
    keeper = start_keeper()
    with keeper.client() as client, keeper.client() as other:
        client.create("one", memory_bytes=128 * MIB, disk_bytes=1024 * MIB)
        if client.stat("one")["memory_bytes"] != 128 * MIB:
            pytest.skip("this machine cannot limit memory")
        client.wire("one").run("sh", "-c", f"cat > fill.py <<'END'\n{FILLER}\nEND\n"
                               "(python3 fill.py & ) > said 2>&1; until grep -q ready said; do sleep 0.05; done")
        child = stop_writing_out(keeper, client, other)
        try:
            other.wire("one").run("touch", "go")
            ended = client.event(ENDED, "one")
            assert ended.reason == "memory"
        finally:
            os.kill(child, signal.SIGCONT)


def test_a_boot_id_lives_as_long_as_the_processes(client):
    """A pause keeps it; what starts anew on files, a wake or a restore, has another."""
    def boot_id(id):
        return client.wire(id).run("cat", "/proc/sys/kernel/random/boot_id").strip()

    client.create("one")
    first = boot_id("one")
    client.call("freeze", "one")
    client.call("thaw", "one")
    assert boot_id("one") == first
    client.call("snapshot", "one", b"boot-shot")
    client.call("restore", "two", create_body(snapshot="boot-shot"))
    client.call("freeze", "one", FILES_ONLY)
    client.call("thaw", "one")
    assert len({first, boot_id("one"), boot_id("two")}) == 3


def test_a_snapshot_and_a_pause_wait_for_each_other(client):
    client.create("one")
    client.send(request("snapshot", "one", full("shot"), serial=5))
    client.send(request("freeze", "one", serial=6))
    answers = {one.serial: one for one in (client.answer(), client.answer())}
    assert answers[5].code == 0
    assert "a snapshot of sandbox" in answers[6].message
    client.call("freeze", "one")
    client.call("snapshot", "one", full("shot-2"))


def make_staying(client):
    pid = client.create("one", flags=STAY, network=OPEN, memory_bytes=300 * MIB).state["pid"]
    client.wire("one").run("sh", "-c", "echo kept > file; mkdir -p d/e; ln -s file link; sudo touch /usr/new")
    return pid


def check_started_again(client, note):
    woken = client.call("thaw", "one", limits_body(lifetime_ms=60_000)).state
    assert woken["fresh"] == 1 and woken["asleep"] == woken["frozen"] == 0
    assert woken["memory_bytes"] == 300 * MIB and not note("one").exists()
    check_files(client)


def test_one_that_is_to_stay_keeps_its_files_when_it_dies(client, layer, note):
    for _ in range(3):                  # and again
        pid = make_staying(client) if "one" not in client.list() else client.stat("one")["pid"]
        end(pid)
        told = client.event(ENDED, "one")
        assert told.state["asleep"] == 1 and layer("one").exists() and note("one").exists()
        check_started_again(client, note)
    client.kill("one")
    wait_until(lambda: not layer("one").exists(), "its files are deleted")
    assert not note("one").exists()


def test_also_when_no_keeper_sees_it_die(start_keeper, cove, layer, note):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = make_staying(client)
    keeper.kill()
    end(pid)
    keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["asleep"] == 1 and layer("one").exists()
        check_started_again(client, note)
        client.kill("one")
    wait_until(lambda: not layer("one").exists(), "its files are deleted")


def test_one_that_is_to_stay_can_be_killed_asleep(client, layer, note):
    end(make_staying(client))
    client.event(ENDED, "one")
    client.kill("one")
    wait_until(lambda: not layer("one").exists(), "its files are deleted")
    assert not note("one").exists() and "one" not in client.list()
