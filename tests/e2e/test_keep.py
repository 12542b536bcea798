"""The keeper as a service, verb by verb: what a client asks for happens, and it hears of the
rest."""

import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from helpers.cove import CLEAR, COVE
from helpers.keeper import (
    DURABLE,
    EAGER,
    ENDED,
    LIMIT_MET,
    READ_ONLY,
    REQUEST_SIZE,
    STRICT,
    TIED,
    Keeper,
    Refused,
    create_body,
    full,
    limits_body,
    request,
)
from helpers.proc import alive, wait_until

pytestmark = pytest.mark.core

MIB = 1 << 20
FORKS = """
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(0.3)
            os._exit(0)
except OSError:
    time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def keeper(cove, workspace):
    allowed = pathlib.Path(workspace, "allowed")
    allowed.mkdir()
    started = Keeper(cove.data, os.path.join(workspace, "keep-run"), "--allow-mount", allowed)
    started.allowed = allowed
    yield started
    started.end_all()


@pytest.fixture
def client(keeper):
    """A connection; afterwards none of its sandboxes is left and the keeper holds what it held."""
    with keeper.client() as connected:
        yield connected
        connected.end_all()


def refused(client, verb, id="", body=b""):
    with pytest.raises(Refused) as caught:
        client.call(verb, id, body)
    return caught.value.message


# --- life ------------------------------------------------------------------------------------

def test_create_stat_list_kill(client):
    state = client.create("one", memory_bytes=256 * MIB, pids=77).state
    assert (state["memory_bytes"], state["pids"], state["frozen"]) == (256 * MIB, 77, 0)
    assert state["lifetime_ms"] == 86_400_000 and 0 < state["left_ms"] <= 86_400_000
    pid = state["pid"]
    assert alive(pid)
    assert client.list() == ["one"]
    assert client.wire("one").get("/health").status == 204
    used = client.stat("one")
    assert used["memory"] > 0 and used["cpu_us"] > 0 and used["processes"] >= 1 and used["disk"] > 0
    last = client.kill("one").state
    assert last["cpu_us"] >= used["cpu_us"]
    assert not alive(pid)
    ended = client.event(ENDED, "one")
    assert ended.reason == "request" and ended.status == 9
    assert client.list() == []
    assert refused(client, "stat", "one") == "no sandbox one"


def test_commands_run_in_it(client):
    client.create("one")
    guest = client.wire("one")
    assert guest.run("id", "-un") == "user\n"
    assert guest.run("id", "-un", user="root") == "root\n"
    assert guest.run("hostname") == full("one").decode() + "\n"


def test_a_name_is_used_once(client):
    client.create("one")
    assert refused(client, "create", "one", create_body()) == "sandbox one exists"
    client.kill("one")
    wait_until(
        lambda: client.ask("create", "one", create_body()).code == 0,
        "it is free when its layer is gone",
    )


def test_a_list_is_read_in_parts(client):
    ids = sorted(f"b{n:03}" for n in range(70))
    for id in ids:
        client.send(request("create", id, create_body(pids=16, memory_bytes=32 * MIB)))
    answers = [client.answer() for _ in ids]
    assert {answer.code for answer in answers} == {0}
    first = client.list()
    assert first == ids[:64]
    assert client.list(after=full(first[-1])) == ids[64:]
    assert client.list(after=b"zzz") == []


def test_many_requests_may_be_under_way(client):
    for n in range(8):
        client.send(request("create", f"p{n}", create_body(), serial=100 + n))
    answers = {answer.serial: answer for answer in (client.answer() for _ in range(8))}
    assert {serial: answer.id for serial, answer in answers.items()} == {
        100 + n: f"p{n}" for n in range(8)
    }
    assert all(answer.code == 0 for answer in answers.values())


def test_killing_twice_is_answered_twice(client):
    client.create("one")
    client.send(request("kill", "one", serial=1))
    client.send(request("kill", "one", serial=2))
    answers = {answer.serial: answer for answer in (client.answer(), client.answer())}
    assert answers[1].code == 0
    assert answers[2].message in ("sandbox one is being ended", "no sandbox one")


def test_what_is_still_being_built_can_be_killed(client):
    for n in range(10):
        client.send(request("create", f"k{n}", create_body(), serial=2 * n + 1))
        client.send(request("kill", f"k{n}", serial=2 * n + 2))
        answers = {answer.serial: answer for answer in (client.answer(), client.answer())}
        assert answers[2 * n + 2].code == 0, answers
    assert client.list() == []


def test_eager_is_answered_with_a_connection(client):
    reply = client.create("one", flags=EAGER)
    assert len(reply.fds) == 1
    with socket.socket(fileno=reply.fds[0]) as s:
        s.settimeout(10)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 204 ")


def test_eager_tells_of_a_failure_later(client, keeper):
    """The mount point cannot be made: /proc is no place for it."""
    reply = client.ask(
        "create", "one", create_body(flags=EAGER, mounts=[(str(keeper.allowed), "/proc/x")])
    )
    if reply.code == 0:
        os.close(reply.fds[0])
        ended = client.event(ENDED, "one")
        assert ended.reason == "failed" and "/proc/x" in ended.message
    else:
        assert "/proc/x" in reply.message
    wait_until(lambda: client.list() == [], "gone")


# --- limits ----------------------------------------------------------------------------------

def test_limits_change_while_it_runs(client):
    client.create("one", memory_bytes=256 * MIB, pids=100)
    state = client.call("limits", "one", limits_body(memory_bytes=128 * MIB)).state
    assert (state["memory_bytes"], state["pids"]) == (128 * MIB, 100)
    state = client.call(
        "limits", "one", limits_body(pids=20, disk_bytes=50 * MIB, memory_bytes=512 * MIB)
    ).state
    assert (state["memory_bytes"], state["pids"], state["disk_bytes"]) == (512 * MIB, 20, 50 * MIB)
    out = client.wire("one").start("sh", "-c", "head -c 100M /dev/zero > x; stat -c %s x").collect()
    assert b"quota" in out.stderr or b"space" in out.stderr
    assert client.stat("one")["pids"] == 20


def test_a_limit_below_the_use_is_refused_and_the_old_ones_hold(client):
    client.create("one", memory_bytes=512 * MIB)
    guest = client.wire("one")
    hold = guest.start(
        "python3",
        "-c",
        "b = bytearray(200 << 20); print('held', flush=True); import time; time.sleep(60)",
    )
    assert next(hold.events())[1] == b"held\n"
    before = client.stat("one")
    reply = client.ask("limits", "one", limits_body(memory_bytes=32 * MIB))
    if reply.code:                      # version 1 refuses; version 2 would end what is too much
        assert "'memory'" in reply.message
        assert client.stat("one")["memory_bytes"] == before["memory_bytes"]
        assert client.wire("one").run("echo", "on") == "on\n"
    hold.close()


def test_a_new_lifetime_counts_from_now(client):
    client.create("one", lifetime_ms=60_000)
    time.sleep(0.05)
    left = client.call("limits", "one", limits_body(lifetime_ms=5_000)).state["left_ms"]
    assert 4_000 < left <= 5_000
    left = client.call("limits", "one", limits_body(pids=100)).state["left_ms"]
    assert left <= 5_000


def test_the_lifetime_ends_it_and_says_so(client):
    client.create("one", lifetime_ms=300)
    met = client.event(LIMIT_MET, "one")
    assert (
        met.limit["limit"] == "lifetime_ms"
        and met.limit["value"] == 300
        and met.limit["use"] >= 300
    )
    assert client.event(ENDED, "one").reason == "lifetime"


def test_the_memory_limit_is_told(client):
    state = client.create("one", memory_bytes=64 * MIB).state
    if state["unenforced"] & 1:
        pytest.skip("this machine cannot limit memory")
    out = client.wire("one").start("python3", "-c", "b = bytearray(1 << 30)").collect()
    assert out.end["signal"] == 9
    met = client.event(LIMIT_MET, "one").limit
    assert met["limit"] == "memory_bytes" and met["value"] == 64 * MIB and met["use"] > 60 * MIB
    assert client.stat("one")["oom_kills"] >= 1
    assert client.wire("one").run("echo", "on") == "on\n"


def test_the_process_and_disk_limits_are_told(client):
    client.create("one", pids=30, disk_bytes=8 * MIB)
    client.wire("one").start("python3", "-c", FORKS).collect()
    assert client.event(LIMIT_MET, "one").limit["limit"] == "pids"
    client.wire("one").start("sh", "-c", "head -c 20M /dev/urandom > x; sync").collect()
    while (met := client.event(LIMIT_MET, "one").limit)["limit"] == "pids":
        pass                            # it may be told more than once
    assert met["limit"] == "disk_bytes" and met["value"] == 8 * MIB


# --- freezing --------------------------------------------------------------------------------

def counter(guest):
    """A command that is counting by the time this returns."""
    stream = guest.start("sh", "-c", "i=0; while :; do i=$((i+1)); [ $i = 100 ] && echo counting; done")
    assert next(stream.events())[1] == b"counting\n"
    return stream


def test_frozen_it_stands_still_and_thawed_it_goes_on(client):
    client.create("one")
    with counter(client.wire("one")):
        client.call("freeze", "one")
        first = client.stat("one")
        assert first["frozen"] == 1
        time.sleep(0.2)
        assert client.stat("one")["cpu_us"] == first["cpu_us"]
        client.call("freeze", "one")    # again is fine
        client.call("thaw", "one")
        assert client.stat("one")["frozen"] == 0
        wait_until(lambda: client.stat("one")["cpu_us"] > first["cpu_us"], "it goes on")


def test_a_frozen_one_can_be_killed(client):
    client.create("one")
    client.call("freeze", "one")
    client.kill("one")
    assert client.list() == []


def test_time_stands_still_for_a_frozen_one(client):
    client.create("one", lifetime_ms=2000)
    client.call("freeze", "one")
    left = client.stat("one")["left_ms"]
    assert 0 < left <= 2000
    time.sleep(0.5)
    assert client.stat("one")["left_ms"] == left
    client.call("thaw", "one")
    assert client.event(ENDED, "one").reason == "lifetime"


def test_a_thaw_may_give_it_a_new_lifetime(client):
    client.create("one", lifetime_ms=5000)
    client.call("freeze", "one")
    assert 59_000 < client.call("thaw", "one", limits_body(lifetime_ms=60_000)).state["left_ms"] <= 60_000


# --- sockets ---------------------------------------------------------------------------------

def test_several_connections_to_the_guest_at_once(client):
    client.create("one")
    sockets = client.sockets("one", count=8)
    assert len(sockets) == 8
    for s in sockets:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for s in sockets:
        assert s.recv(1000).startswith(b"HTTP/1.1 204 ")
        s.close()


@pytest.mark.parametrize("v6", [False, True])
def test_a_port_inside_is_reached_by_a_socket_from_there(client, v6):
    client.create("one")
    family, address = ("AF_INET6", "::1") if v6 else ("AF_INET", "127.0.0.1")
    script = (
        f"import socket\ns = socket.socket(socket.{family})\n"
        f"s.bind(('{address}', 7000))\ns.listen()\n"
        "print('up', flush=True)\nc, _ = s.accept()\nc.sendall(c.recv(100).upper())"
    )
    stream = client.wire("one").start("python3", "-c", script)
    assert next(stream.events())[1] == b"up\n"
    s, = client.sockets("one", port=7000, v6=v6)
    with s:
        s.connect((address, 7000))
        s.sendall(b"through")
        assert s.recv(100) == b"THROUGH"
    stream.close()


def test_a_socket_of_one_does_not_reach_another(client):
    for id in "one", "two":
        client.create(id)
    stream = client.wire("one").start("python3", "-m", "http.server", "7000")
    s, = client.sockets("two", port=7000)
    with s, pytest.raises(ConnectionRefusedError):
        s.connect(("127.0.0.1", 7000))
    stream.close()


# --- snapshots -------------------------------------------------------------------------------

def test_a_snapshot_becomes_another_sandbox(client):
    client.create("one")
    guest = client.wire("one")
    guest.run("sh", "-c", "echo kept > file; head -c 3M /dev/urandom > big; sha256sum big > sum")
    guest.run("sh", "-c", "echo changed >> /usr/share/new; chmod 4755 /usr/share/new", user="root")
    client.call("snapshot", "one", b"shot-1")
    guest.run("sh", "-c", "echo later > file")
    client.call("restore", "two", create_body(snapshot="shot-1"))
    copy = client.wire("two")
    assert copy.run("sh", "-c", "cat file; sha256sum -c --quiet sum && id -un") == "kept\nuser\n"
    assert copy.run("stat", "-c", "%U %a", "/usr/share/new") == "root 4755\n"
    assert copy.run("hostname") == full("two").decode() + "\n"
    assert guest.run("cat", "file") == "later\n"
    client.kill("one")
    assert copy.run("cat", "file") == "kept\n"
    client.call("restore", "three", create_body(snapshot="shot-1"))    # as often as one likes
    assert client.wire("three").run("cat", "file") == "kept\n"


def test_a_snapshot_of_a_frozen_one_leaves_it_frozen(client):
    client.create("one")
    client.call("freeze", "one")
    client.call("snapshot", "one", b"shot-2")
    assert client.stat("one")["frozen"] == 1
    client.call("thaw", "one")
    assert client.wire("one").run("echo", "on") == "on\n"


def test_others_are_served_while_a_snapshot_is_taken(client):
    client.create("one")
    client.wire("one").run("sh", "-c", "head -c 100M /dev/urandom > big")
    client.send(request("snapshot", "one", b"shot-3", serial=7))
    client.send(request("stat", "one", serial=8))
    assert {client.answer().serial, client.answer().serial} == {7, 8}


def test_snapshot_names_are_used_once_and_must_exist(client):
    client.create("one")
    client.call("snapshot", "one", b"shot-4")
    assert "shot-4" in refused(client, "snapshot", "one", b"shot-4")
    said = refused(client, "restore", "two", create_body(snapshot="none-such"))
    assert "snapshot none-such" in said
    assert client.list() == ["one"]
    assert client.wire("one").run("echo", "on") == "on\n"


# --- events and owners -----------------------------------------------------------------------

def test_a_guest_that_is_killed_is_told(client):
    pid = client.create("one").state["pid"]
    os.kill(pid, 9)
    ended = client.event(ENDED, "one")
    assert (ended.reason, ended.status) == ("itself", 9)
    assert client.list() == []


def test_events_go_to_whom_adopted_it_last(client, keeper):
    client.create("one")
    with keeper.client() as other:
        assert other.call("adopt", "one").state["pid"] == client.stat("one")["pid"]
        client.kill("one")
        assert other.event(ENDED, "one").reason == "request"
    assert not [event for event in client.events if event.kind == ENDED]


def test_sandboxes_outlive_their_client(client, keeper):
    with keeper.client() as other:
        other.create("one")
    assert client.list() == ["one"]
    assert client.wire("one").run("echo", "on") == "on\n"


def test_tied_ones_do_not(client, keeper):
    with keeper.client() as other:
        other.create("tied", flags=TIED)
        other.create("free")
    wait_until(lambda: client.list() == ["free"], "the tied one is gone")


def test_a_tied_one_adopted_by_another_stays(client, keeper):
    with keeper.client() as other:
        other.create("one", flags=TIED)
        client.call("adopt", "one")
    time.sleep(0.3)
    assert client.list() == ["one"]


def test_a_client_that_leaves_at_once_leaves_nothing(client, keeper):
    for n in range(10):
        with keeper.client() as other:
            other.send(request("create", f"q{n}", create_body(flags=TIED)))
    wait_until(lambda: client.list() == [], "all are gone")


# --- flags and mounts ------------------------------------------------------------------------

def test_strict_and_durable(client):
    client.create("one", flags=STRICT | DURABLE)
    assert "NoNewPrivs:\t1" in client.wire("one").run("cat", "/proc/self/status")
    assert "volatile" not in client.wire("one").run("grep", " / ", "/proc/mounts")
    client.create("two")
    assert "NoNewPrivs:\t0" in client.wire("two").run("cat", "/proc/self/status")


def test_an_allowed_directory_is_shown(client, keeper):
    inner = keeper.allowed / "inner"
    inner.mkdir(exist_ok=True)
    (inner / "file").write_text("shown\n")
    client.create("one", mounts=[(str(inner), "/data", READ_ONLY), (str(keeper.allowed), "/all")])
    assert client.wire("one").run("cat", "/data/file", "/all/inner/file") == "shown\nshown\n"
    out = client.wire("one").start("touch", "/data/x").collect()
    assert b"Read-only" in out.stderr


@pytest.mark.parametrize("says", ["", ":group"])
def test_a_group_of_the_machine_is_a_sandboxes_where_the_keeper_says_so(start_keeper, folder, says):
    """Group `disk`: the sandbox's user may write into its directory only where the keeper says `:group`."""
    shared = pathlib.Path(folder, "shared")
    shared.mkdir()
    os.chown(shared, 1234, 6)
    shared.chmod(0o770)
    keeper = start_keeper("--allow-mount", f"{folder}{says}")
    with keeper.client() as client:
        client.create("one", mounts=[(str(shared), "/m")])
        done = client.wire("one").start("sh", "-c", "touch /m/x && chmod 2755 /m/x").collect()
    assert (done.end["exitCode"] == 0) == bool(says)
    assert [(p.name, p.stat().st_uid, p.stat().st_gid) for p in shared.iterdir()] == \
        ([("x", 1234, 6)] if says else [])


def test_cove_run_uses_a_keeper_that_runs(client, keeper, cove):
    words = [COVE, "run", "--data-dir", cove.data, "--run-dir", keeper.run_dir]
    process = subprocess.Popen(
        [*words, "sh", "-c", "echo up; sleep 60"], stdout=subprocess.PIPE, env=CLEAR
    )
    assert process.stdout.readline() == b"up\n"
    records = keeper.place / "boxes"
    assert len(os.listdir(records)) == 1
    assert client.list() == []          # it is another's, and goes with it
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until(lambda: os.listdir(records) == [], "it went with its client")
    done = subprocess.run(
        [*words, "-v", "/etc:/x", "true"], capture_output=True, text=True, env=CLEAR
    )
    assert done.returncode == 125 and "--allow-mount" in done.stderr


def test_a_client_that_does_not_read_loses_its_connection_and_nobody_else_anything(client, keeper):
    client.create("one")
    with keeper.client() as deaf, pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(20000):
            deaf.send(request("stat", "one"))
    assert client.stat("one")["pid"]
    with keeper.client() as other:
        assert other.list() == ["one"]


def test_the_keeper_leaks_nothing(client, keeper):
    client.create("warm")
    client.kill("warm")
    before = keeper.idle()
    for n in range(20):
        client.create(f"one{n}")
        client.kill(f"one{n}")
        client.ask("create", f"bad{n}", create_body(mounts=[(str(keeper.allowed), "/proc/x")]))
        client.ask("create", "bad", create_body(template="none"))
        client.ask("stat", "none")
        client.events.clear()
    wait_until(lambda: keeper.descriptors() <= before, "as many descriptors as before", 5)


def test_a_create_whose_server_died_leaks_nothing(start_keeper):
    """It is to be answered with a connection, and there is nobody to answer when it is built."""
    keeper = start_keeper("--set", "keep.stock=0")
    netmaker = keeper.child("cove-net")
    with keeper.client() as client:
        client.create("warm", flags=EAGER)
        client.kill("warm")
        before = keeper.idle()
        for n in range(5):
            os.kill(netmaker, signal.SIGSTOP)
            with keeper.client() as dies:
                dies.send(request("create", f"one{n}", create_body(flags=EAGER)))
                wait_until(lambda: client.list() == [f"one{n}"], "it waits for a network")
            client.list()               # the keeper has seen that the other is gone
            os.kill(netmaker, signal.SIGCONT)
            wait_until(lambda: client.ask("stat", f"one{n}").code == 0, "it is built")
            client.kill(f"one{n}")
        wait_until(lambda: keeper.descriptors() <= before, "as many descriptors as before", 5)


def test_the_size_of_a_record_is_what_the_tests_think(client):
    client.send(b"x" * 10)
    assert client.answer().message == f"a record of 10 bytes; they have {REQUEST_SIZE}"
