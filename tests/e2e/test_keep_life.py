"""Keepers come and go: sandboxes outlive them, the next one adopts what lives and takes away what
does not. As a subreaper these tests are what init is elsewhere: orphaned guests are theirs."""

import os
import pathlib
import select
import signal
import struct
import subprocess
import time

import pytest

from helpers import boxfile
from helpers.cove import CLEAR, COVE
from helpers.guest import ROOT
from helpers.keeper import (
    ENDED,
    FILES_ONLY,
    OPEN,
    TIED,
    Names,
    Refused,
    create_body,
    full,
    limits_body,
    request,
)
from helpers.machine import cgroups_named, collect_orphans, left_over, traces
from helpers.proc import alive, wait_until

pytestmark = pytest.mark.core

MIB = 1 << 20
OLD_RECORD = pathlib.Path(ROOT) / "tests/data/46eceed/boxes/plain"


def killed(keeper):
    """kill -9, and another one takes its place."""
    keeper.kill()
    keeper.start()
    return keeper.client()


def gone(pid):
    collect_orphans()
    return not alive(pid)


def test_a_sandbox_outlives_the_keeper_and_is_adopted(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        before = client.create("one", memory_bytes=300 * MIB, pids=123).state
        guest = client.wire("one")
        guest.run("sh", "-c", "echo kept > file")
        started = guest.start("sh", "-c", "while :; do date +%s%N > /tmp/new; mv /tmp/new /tmp/now; sleep 0.01; done")
        started.close()
        wait_until(lambda: "now" in guest.run("ls", "/tmp").split(), "the command has begun")
        keeper.kill()
        first = time.monotonic()
        assert alive(before["pid"])
    keeper.start()
    with keeper.client() as client:
        assert client.list() == ["one"]
        after = client.call("adopt", "one").state
        assert {name: after[name] for name in ("pid", "memory_bytes", "pids", "network")} == {
            name: before[name] for name in ("pid", "memory_bytes", "pids", "network")}
        assert after["left_ms"] <= before["left_ms"]
        guest = client.wire("one")
        assert guest.run("cat", "file") == "kept\n"
        ran_on = int(guest.run("cat", "/tmp/now"))
        wait_until(lambda: int(guest.run("cat", "/tmp/now")) > ran_on, "the command goes on")
        client.call("limits", "one", limits_body(pids=50))
        client.call("freeze", "one")
        client.call("thaw", "one")
        client.call("snapshot", "one", full("adopted"))
        client.kill("one")
        assert client.event(ENDED, "one").reason == "request"
        assert client.list() == []
    wait_until(lambda: gone(before["pid"]), "it has ended")
    assert time.monotonic() - first < 30


def test_sigterm_leaves_sandboxes_running_too(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one").state["pid"]
    keeper.stop()
    assert alive(pid)
    keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["pid"] == pid
        assert client.wire("one").run("echo", "on") == "on\n"


def test_the_lifetime_holds_across_keepers(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one", lifetime_ms=3000).state["pid"]
        began = time.monotonic()
    with killed(keeper) as client:
        assert client.stat("one")["left_ms"] <= 3000
        client.call("adopt", "one")
        assert client.event(ENDED, "one").reason == "lifetime"
    assert 2.5 < time.monotonic() - began < 6
    wait_until(lambda: gone(pid), "it has ended")


def test_a_lifetime_that_ran_out_meanwhile_ends_it_at_once(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one", lifetime_ms=1500).state["pid"]
    keeper.kill()
    time.sleep(1.7)
    assert alive(pid)                   # nobody was there to end it
    keeper.start()
    wait_until(lambda: gone(pid), "it has ended")
    with keeper.client() as client:
        wait_until(lambda: client.list() == [], "it is forgotten")


def test_a_frozen_one_is_still_frozen(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        client.create("one")
        client.call("freeze", "one")
    with killed(keeper) as client:
        assert client.stat("one")["frozen"] == 1
        client.call("snapshot", "one", full("frozen"))
        assert client.stat("one")["frozen"] == 1
        client.call("thaw", "one")
        assert client.wire("one").run("echo", "on") == "on\n"


def test_what_died_meanwhile_is_taken_away(start_keeper, cove):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one").state["pid"]
    layer = cove.data / "volume" / "layers" / ("box-" + full("one").decode())
    assert layer.exists()
    keeper.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), "it has ended")
    keeper.start()
    with keeper.client() as client:
        assert client.list() == []
        wait_until(lambda: not layer.exists(), "its layer is deleted")
        client.create("one")            # the name is free, its cgroups are new


def test_an_adopted_one_that_dies_is_told(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one").state["pid"]
    with killed(keeper) as client:
        client.call("adopt", "one")
        os.kill(pid, signal.SIGKILL)
        assert client.event(ENDED, "one").reason == "itself"
        assert client.list() == []


def test_a_tied_one_does_not_outlive_its_client_and_keeper(start_keeper):
    """It is tied to the process that asked for it, and lives as long as that one."""
    keeper = start_keeper()
    made, there = os.pipe()
    pid_of_client = os.fork()
    if not pid_of_client:
        with keeper.client() as client:
            os.write(there, str(client.create("one", flags=TIED).state["pid"]).encode())
            signal.pause()
    pid = int(os.read(made, 20))
    os.close(made), os.close(there)
    keeper.kill()
    keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["pid"] == pid and not gone(pid)
        assert client.list() == []      # it is nobody else's business
        os.kill(pid_of_client, signal.SIGKILL)
        os.waitpid(pid_of_client, 0)
        wait_until(lambda: gone(pid), "it has ended")
        wait_until(lambda: not cgroups_named(f"box-{full('one').decode()}"), "it is forgotten")


def test_a_tied_one_lives_on_when_it_cannot_be_told_whether_its_client_does(start_keeper):
    """The keeper had no descriptor to look when its client began; until somebody can tell, nobody else gets it."""
    keeper = start_keeper()
    made, there = os.pipe()
    pid_of_client = os.fork()
    if not pid_of_client:
        with keeper.client() as client:
            os.write(there, str(client.create("one", flags=TIED).state["pid"]).encode())
            signal.pause()
    pid = int(os.read(made, 20))
    os.close(made), os.close(there)
    keeper.kill()
    record = keeper.place / "boxes" / full("one").decode()
    schema, kind, items = boxfile.read(record)
    kept = [(tag, value) for tag, value in items if tag != boxfile.CLIENT_STARTED]
    assert len(kept) == len(items) - 1
    boxfile.write(record, schema, kind, kept)
    keeper.start()
    with keeper.client() as client:
        time.sleep(1.2)                 # and looks again
        assert client.stat("one")["pid"] == pid and not gone(pid)
        assert client.list() == []
        with pytest.raises(Refused, match="tied to another program"):
            client.call("adopt", "one")
    with keeper.client() as client:
        assert not gone(pid)            # whoever asked for it has left
        os.kill(pid_of_client, signal.SIGKILL)
        os.waitpid(pid_of_client, 0)
        wait_until(lambda: gone(pid), "it has ended")
        wait_until(lambda: not record.exists(), "it is forgotten")


def test_one_whose_client_died_with_the_keeper_has_ended(start_keeper):
    keeper = start_keeper()
    made, there = os.pipe()
    pid_of_client = os.fork()
    if not pid_of_client:
        with keeper.client() as client:
            os.write(there, str(client.create("one", flags=TIED).state["pid"]).encode())
            signal.pause()
    pid = int(os.read(made, 20))
    os.close(made), os.close(there)
    keeper.kill()
    os.kill(pid_of_client, signal.SIGKILL)
    os.waitpid(pid_of_client, 0)
    assert not gone(pid)
    keeper.start()
    wait_until(lambda: gone(pid), "it has ended")


@pytest.mark.parametrize("how", ["killed", "stopped", "killed for good"])
def test_cove_run_goes_on_when_its_keeper_is_restarted(start_keeper, cove, how):
    """Its output is whole, its status right, and its sandbox ends with it: by the next keeper, or by itself."""
    keeper = start_keeper()
    words = [COVE, "run", "--data-dir", cove.data, "--run-dir", keeper.run_dir, "sh", "-c",
             "echo up; sleep 1; echo down; exit 7"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAR)
    assert process.stdout.readline() == b"up\n"
    id, = os.listdir(keeper.place / "boxes")
    keeper.stop() if how == "stopped" else keeper.kill()
    pids = [int(pid) for path in cgroups_named(f"box-{id}") for pid in (path / "cgroup.procs").read_text().split()]
    assert pids
    if how != "killed for good":
        keeper.start()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (7, b"down\n", b"")
    wait_until(lambda: all(gone(pid) for pid in pids), "its processes have ended")
    if how == "killed for good":
        keeper.start()
    wait_until(lambda: not os.listdir(keeper.place / "boxes"), "it is forgotten")


def test_ports_of_an_adopted_one_are_reached(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        client.create("one")
        stream = client.wire("one").start("python3", "-m", "http.server", "7000")
        stream.close()
    with killed(keeper) as client:
        def fetch():
            s, = client.sockets("one", port=7000)
            with s:
                try:
                    s.connect(("127.0.0.1", 7000))
                    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    return s.recv(100)
                except OSError:
                    return None
        assert wait_until(fetch, "an answer").startswith(b"HTTP/1.0 200")


def test_an_open_network_survives_its_keeper(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        try:
            client.create("one", network=OPEN)
        except Refused as refused:
            pytest.skip(f"no open network here: {refused.message}")
        before = client.wire("one").run("cat", "/proc/net/route")
    with killed(keeper) as client:
        assert client.stat("one")["network"] == OPEN
        assert client.wire("one").run("cat", "/proc/net/route") == before
        client.create("two", network=OPEN)


def test_keepers_may_die_again_and_again(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pids = {f"s{n}": client.create(f"s{n}").state["pid"] for n in range(5)}
    for _ in range(5):
        with killed(keeper) as client:
            assert {id: client.stat(id)["pid"] for id in client.list()} == pids
            assert client.wire("s3").run("echo", "on") == "on\n"


def check_nothing_left(keeper, cove, ids):
    """A kill is answered when nothing runs any more; the rest goes behind that, and the cgroup of one
    whose processes the kernel was not done with when the next reaper looks round, within 70 s."""
    mine = f"box-{ids}{Names.suffix()}"
    layers, notes = cove.data / "volume" / "layers", cove.data / "paused"

    def left():
        return [*cgroups_named(mine), *layers.glob(mine), *keeper.place.glob("*/*"),
                *notes.glob(f"{ids}{Names.suffix()}")]

    collect_orphans()
    wait_until(lambda: not left(), lambda: f"nothing is left: {left()} {keeper.log.read_text()}", 90)


@pytest.mark.timeout(180)
def test_a_keeper_killed_while_it_builds_leaves_nothing_half(start_keeper, cove):
    """Whatever was under way is either adopted and works, or gone."""
    keeper = start_keeper()
    for n in range(12):
        with keeper.client() as client:
            for i in range(4):
                client.send(request("create", f"h{n}-{i}", create_body()))
            time.sleep(0.001 * n)
            keeper.kill()
        keeper.start()
        with keeper.client() as client:
            for id in client.list():
                assert client.wire(id).run("echo", "on") == "on\n"
                client.kill(id)
    check_nothing_left(keeper, cove, "h*")


def was_told(sock):
    """A keeper that is killed before it has read what it was sent tells nothing."""
    try:
        return select.select([sock], [], [], 0)[0] and sock.recv(1)
    except ConnectionResetError:
        return False


@pytest.mark.timeout(180)
@pytest.mark.parametrize("was", ["running", "frozen", "asleep"])
def test_a_keeper_killed_while_one_ends_leaves_nothing(start_keeper, cove, was):
    """However far it was: the next one finishes it, or it is still there, unless its end was told."""
    keeper = start_keeper()
    for n in range(20):
        id = f"e{n}"
        with keeper.client() as client:
            client.create(id)
            if was != "running":
                client.call("freeze", id, FILES_ONLY if was == "asleep" else b"")
            client.send(request("kill", id))
            time.sleep(0.0003 * n)
            keeper.kill()
            told = was_told(client.sock)
        keeper.start()
        with keeper.client() as client:
            assert not told or not client.list()
            for id in client.list():
                client.kill(id)
    check_nothing_left(keeper, cove, "e*")


def namespaces(pid, kind):
    """Those that a process holds open."""
    found = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            link = os.readlink(fd)
        except OSError:
            continue                    # closed meanwhile
        found |= {link} if link.startswith(kind) else set()
    return found


def test_wired_namespaces_are_made_ahead_once_somebody_asked_for_one(start_keeper):
    keeper = start_keeper("--set", "keep.stock=2")
    held = (lambda: len(namespaces(keeper.process.pid, "net:")))
    wait_until(lambda: held() == 2, "a stock of those without a network, and nothing else")
    with keeper.client() as client:
        try:
            client.create("one", network=OPEN)
        except Refused as refused:
            pytest.skip(f"no open network here: {refused.message}")
        wait_until(lambda: held() == 5, "its own, and two more")
        client.create("two", network=OPEN)
        wait_until(lambda: held() == 6, "one was taken and made again")
        client.kill("one")
        wait_until(lambda: held() == 5, "an ended one's is not used again")


def test_mounts_of_an_ended_sandbox_are_taken_down(start_keeper):
    keeper = start_keeper()
    children = (lambda: pathlib.Path(f"/proc/{keeper.process.pid}/task/{keeper.process.pid}/children").read_text())
    with keeper.client() as client:
        pid = client.create("one").state["pid"]
        client.wire("one").run("sh", "-c", "echo some > /dev/shm/thing")
        mounts = os.readlink(f"/proc/{pid}/ns/mnt")
        wait_until(lambda: mounts in namespaces(keeper.process.pid, "mnt:"), "the keeper holds them")
        client.kill("one")
        wait_until(lambda: not any(mounts in namespaces(p, "mnt:") for p in [keeper.process.pid, *children().split()]),
                   "nobody holds them")


def test_records_that_cannot_be_read_are_set_aside_and_stay(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        client.create("one")
    boxes = keeper.place / "boxes"
    record = (boxes / full("one").decode()).read_bytes()
    keeper.kill()
    (boxes / "short").write_bytes(b"x")
    (boxes / "empty").write_bytes(b"")          # of a keeper that was killed before it wrote it
    (boxes / "half").write_bytes(OLD_RECORD.read_bytes()[:4096])    # ... or while one of 46eceed did
    (boxes / "other").write_bytes(record)       # says that it is another's
    (boxes / "Bad_Name").write_bytes(record)
    keeper.start()
    with keeper.client() as client:
        assert client.list_all() == [full("one"), b"other", b"short"]
        for id, why in (b"short", "it does not begin as such a file does"), (b"other", "it is of sandbox 'one'"):
            with pytest.raises(Refused, match=f"its record cannot be read: {why}"):
                client.stat(id)
        assert sorted(os.listdir(boxes)) == sorted(
            ["Bad_Name", full("one").decode(), "other", "other.damaged", "short", "short.damaged"])
        client.kill(b"short")
        client.kill(b"other")
        assert client.list() == ["one"]
    assert sorted(os.listdir(boxes)) == sorted(
        ["Bad_Name", full("one").decode(), "other.damaged", "short.damaged"])
    assert "a sandbox's file is damaged" in keeper.log.read_text()


def test_a_sandbox_whose_record_cannot_be_read_lives_on_and_comes_back(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        pid = client.create("one").state["pid"]
        client.wire("one").run("sh", "-c", "echo kept > /home/user/file")
    file = keeper.place / "boxes" / full("one").decode()
    record = file.read_bytes()
    keeper.kill()
    file.write_bytes(record[:-1] + bytes([record[-1] ^ 1]))
    keeper.start()
    with keeper.client() as client:
        assert client.list() == ["one"]
        with pytest.raises(Refused, match="its record cannot be read: its sum is wrong"):
            client.stat("one")
        with pytest.raises(Refused, match="cannot be reached"):
            client.sockets("one")
        assert alive(pid)
        file.write_bytes(record)
        assert client.stat("one")["pid"] == pid
        assert client.wire("one").run("cat", "/home/user/file") == "kept\n"
        keeper.kill()
    file.write_bytes(b"")               # and what is gone can still be ended by its name
    file.write_bytes(b"nonsense")
    keeper.start()
    with keeper.client() as client:
        client.kill("one")
        assert client.list() == []
    wait_until(lambda: not alive(pid), "its processes are ended")


def test_what_release_46eceed_says_is_understood_and_answered_in_its_own_form(start_keeper):
    """helpers/keeper.py is a client of that release; what it may not know is not said to it."""
    keeper = start_keeper()
    with keeper.client() as client:
        client.create("one")
        assert client.stat("one")["template"] == "host"
        answer = client.ask(13)
        assert answer.message == "no verb 13"


def test_a_client_of_a_newer_release_is_answered_in_ours(start_keeper):
    keeper = start_keeper()
    with keeper.client() as client:
        client.send(b"Cove" + struct.pack("=IIIQ", 9, 13, 0, 5))        # hello, in version 9
        data = client.sock.recv(4096)
        assert data[:4] == b"Cove" and struct.unpack_from("=IIIQ", data, 4) == (3, 1, 13, 5)
        hello = tags(tags(data[24:])[10])
        assert (hello[1], hello[2]) == (b"\x03", b"\x02")      # from version 2 to 3


def tags(data):
    found = {}
    while data:
        tag, length = struct.unpack_from("<HH", data)
        found[tag] = data[4:4 + length]
        data = data[4 + length:]
    return found


def test_helpers_of_the_keeper_may_die(start_keeper):
    keeper = start_keeper()

    def helpers(name):
        found = subprocess.run(
            ["pgrep", "-P", str(keeper.process.pid), "-x", name], capture_output=True, text=True
        )
        return [int(pid) for pid in found.stdout.split()]

    with keeper.client() as client:
        client.create("one")
        for name in "cove-reaper", "cove-zygote":
            victims = [pid for pid in helpers(name) if pid != client.stat("one")["pid"]]
            assert victims, name
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            if (answer := client.ask("create", name, create_body())).code:
                assert answer.message == "the zygote has died"  # it was asked in its last moment
                name += "-again"
                client.create(name)
            assert client.wire(name).run("echo", "on") == "on\n"
            client.kill(name)
        assert client.wire("one").run("echo", "on") == "on\n"
        client.kill("one")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_keeper_with_its_sandboxes_leaves_nothing(start_keeper, cove):
    cove.run("true")
    collect_orphans()
    before = traces(cove.data)
    keeper = start_keeper()
    with keeper.client() as client:
        for n in range(50):
            client.create(f"one{n}", network=OPEN if n % 10 == 0 else 0)
            client.kill(f"one{n}")
        client.events.clear()
    keeper.stop()
    left = left_over(before, cove, "-n", "open")
    assert not left, sorted(left)
    keeper.start()                      # for the fixture, which ends it
