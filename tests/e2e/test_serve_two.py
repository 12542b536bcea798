"""Servers with a data directory each, on the run directory that all have by default; servers that cannot start; and
SIGTERM whatever they are at."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import pytest

from helpers import machine, proc
from helpers.cove import CLEAR, COVE, for_anybody
from helpers.guest import SLOWER
from helpers.place import identity, place
from helpers.proc import wait_until
from helpers.serve import READY, VOLUME, Serve

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"), pytest.mark.timeout(180)]
BOXES = 3
SMALL = [word for name, bytes in VOLUME.items() for word in ("--set", f"{name}={bytes}")]
ENDS_S = 3 * SLOWER                     # of a start that cannot succeed, and of what is told to end


class Shared(Serve):
    """On a run directory that others use, too."""

    def __init__(self, folder, run_dir, *options):
        self.shared = run_dir
        super().__init__(folder, "--preview-listen", "none", "--set", "pool.size=1", *options)

    def start(self):
        self.run_dir = pathlib.Path(self.shared)
        super().start()

    def part(self, name):
        return next((pid for pid in proc.children(self.process.pid) if machine.comm(pid) == name), None)

    def ids(self):
        return {one["id"] for one in self.ok("GET", "/v1/sandboxes")["sandboxes"]}

    def kill_all(self):
        for pid in [self.process.pid, self.part("cove-serve"), self.part("cove-keep")]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(20)
        self.process.stdout.close()


def first_of(id):
    """Its first process, on the host."""
    pids = {int(pid) for path in machine.cgroups_named(f"box-{id}") for pid in (path / "cgroup.procs").read_text().split()}
    return min(pids, key=proc.begun)


def owner_and_address(pid):
    """What no two sandboxes may have alike."""
    ids = pathlib.Path(f"/proc/{pid}/uid_map").read_text().split()[1]
    text = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "-j", "-4", "address", "show", "scope", "global"],
                          capture_output=True, check=True).stdout
    return [ids, *(one["local"] for link in json.loads(text) for one in link["addr_info"])]


def alike(servers):
    found = [value for server in servers for id in server.ids() for value in owner_and_address(first_of(id))]
    return sorted(value for value in set(found) if found.count(value) > 1)


@pytest.fixture(scope="module")
def pair():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cove-two-"))
    folder.chmod(0o755)
    servers = [Shared(folder / name, folder / "run") for name in ("one", "two")]
    yield servers
    for server in servers:
        server.stop()
        server.unmount()
    shutil.rmtree(folder)


@pytest.fixture
def two(pair):
    """They run, before and after, and have no sandbox."""
    def settle():
        for server in pair:
            if not server.running():
                server.start()
            server.ok("DELETE", "/v1/sandboxes?all=true")
            server.log.write_text("")
    settle()
    yield pair
    settle()


@pytest.mark.parametrize("how", ["kill", "end"])
def test_two_data_directories_on_one_run_directory(two, how):
    """Each has its own, over restarts of either, and nothing of theirs is the same."""
    mine = {server: {server.create(timeout=600, network="open")["id"] for _ in range(BOXES)} for server in two}
    pids = {id: first_of(id) for ids in mine.values() for id in ids}
    for turn, server in enumerate([*two, two[0]]):
        server.stop() if how == "end" else server.kill_all()
        other = two[server is two[0]]
        mine[other].add(other.create(timeout=600, network="open")["id"])    # while the first one's keeper is away
        server.start()
        mine[server].add(server.create(timeout=600, network="open")["id"])
        assert all(one.ids() == mine[one] for one in two), turn
    assert {id: first_of(id) for id in pids} == pids
    assert alike(two) == []
    assert identity(two[0].data) != identity(two[1].data)


def test_a_copy_of_a_data_directory_is_refused(two, folder):
    """It has the same identity as the other; once that is removed it is one of its own."""
    first, second = two
    id = first.create(timeout=600)["id"]
    pid = first_of(id)
    second.stop()
    shutil.copy(first.data / "id", second.data / "id")
    said = refused([*words(second.folder), "--run-dir", first.run_dir])
    assert str(first.data) in said and str(second.data) in said and "copy" in said, said
    assert first_of(id) == pid and first.ids() == {id}
    (second.data / "id").unlink()
    second.start()
    assert second.ids() == set() and first.ids() == {id}


def test_a_copy_is_refused_while_the_sandboxes_of_the_other_live(two):
    """Its keeper need not run: the layers of what lives are there, not in the copy."""
    first, second = two
    id = first.create(timeout=600)["id"]
    pid = first_of(id)
    first.stop()
    second.stop()
    own = (second.data / "id").read_text()
    try:
        shutil.copy(first.data / "id", second.data / "id")
        said = refused([*words(second.folder), "--run-dir", first.run_dir])
        assert str(first.data) in said and str(second.data) in said and "sandboxes live" in said, said
    finally:
        (second.data / "id").write_text(own)
    assert first_of(id) == pid
    first.start()
    assert first.ids() == {id} and first_of(id) == pid


def test_an_identity_that_was_lost_is_found_again(two):
    first, _ = two
    id, was = first.create(timeout=600)["id"], identity(first.data)
    first.kill_all()
    (first.data / "id").unlink()
    first.start()
    assert identity(first.data) == was and first.ids() == {id}


def test_the_keeper_that_somebody_runs_is_used(folder):
    """Until it ends: then it is one of the server's own."""
    data, run = pathlib.Path(folder) / "data", pathlib.Path(folder) / "run"
    with open(os.path.join(folder, "keep.log"), "wb") as log:
        keeper = subprocess.Popen([COVE, "keep", "--data-dir", data, "--run-dir", run, "--client", "nobody", *SMALL],
                                  env=CLEAR, stdout=log, stderr=log)
    wait_until(lambda: (place(run, data) / "keep.sock").exists(), "a keeper", 30 * SLOWER)
    server = Shared(folder, run, "--user", "nobody")
    try:
        id = server.create(timeout=600)["id"]
        time.sleep(1.5)                     # its monitor looks once a second
        assert server.part("cove-serve") and server.told().count("works for this data directory") == 1
        keeper.terminate()
        assert keeper.wait(20) == 0
        wait_until(lambda: server.part("cove-keep") and server.call("GET", "/health", key=None).status == 200,
                   "one of its own", 20 * SLOWER)
        wait_until(lambda: server.call("POST", "/v1/sandboxes", {"timeout": 60}).status == 201, "it works", 20 * SLOWER)
        assert id in server.ids()
        server.ok("DELETE", "/v1/sandboxes?all=true")
    finally:
        keeper.kill()
        keeper.wait()
        server.stop()
        server.unmount()


# ---- starts that cannot succeed

def words(folder, listen="127.0.0.1:0"):
    return [for_anybody(folder), "serve", "--data", folder / "data", "--preview-listen", "none", *SMALL, "--listen", listen]


def refused(command, **more):
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=CLEAR, **more)
    took = time.monotonic() - begun
    assert done.returncode == 1 and READY not in done.stdout, done
    assert took < ENDS_S, (took, done.stderr)
    return done.stderr


def bad_volume(data):
    (data / "volume.img").write_bytes(os.urandom(1 << 20))


def no_place_for_notes(data):
    (data / "paused-3").write_text("")


def bad_identity(data):
    (data / "id").write_text("short\n")


def bad_store(data):
    (data / "serve").mkdir()
    (data / "serve/cove.db").write_bytes(os.urandom(8192))


def newer(data):
    (data / "schema").write_text("99\n")


@pytest.mark.parametrize("prepare, reason", [
    (bad_volume, "volume.img"), (no_place_for_notes, "paused"), (bad_identity, "id is damaged"), (bad_store, "cove.db"),
    (newer, "newer release")])
def test_a_start_that_cannot_succeed_ends_at_once(folder, prepare, reason):
    folder = pathlib.Path(folder)
    (folder / "data").mkdir()
    prepare(folder / "data")
    said = refused([*words(folder), "--run-dir", folder / "run"], cwd=folder)
    assert reason in said, said
    assert "did not end" not in said
    subprocess.run(["umount", folder / "data/volume"], capture_output=True)


def test_a_taken_data_directory_is_left_alone(two):
    """And the sentence advises nothing that another server could come to harm by."""
    first, _ = two
    said = refused([*words(first.folder), "--run-dir", first.run_dir])
    assert str(first.data) in said and "--data" not in said, said
    said = refused([*words(first.folder), "--run-dir", first.folder / "elsewhere"])
    assert str(first.data) in said


def test_a_run_directory_by_another_name_and_another_one(two):
    """What is paused is found by either; what runs can be reached by its own only."""
    server, _ = two
    home, link = server.run_dir, server.folder / "link"
    ids = [server.create(timeout=900)["id"] for _ in range(3)]
    server.ok("POST", f"/v1/sandboxes/{ids[1]}/pause")
    server.ok("POST", f"/v1/sandboxes/{ids[2]}/pause", {"memory": False})
    link.symlink_to(home)

    def states():
        return [server.ok("GET", f"/v1/sandboxes/{id}")["state"] for id in ids]

    try:
        for other in f"{home}/", link:
            server.stop()
            server.shared = other
            server.start()
            assert states() == ["running", "paused", "paused"]
        server.stop()
        said = refused([*words(server.folder), "--run-dir", server.folder / "elsewhere"])
        assert f"--run-dir {home}," in said, said
        server.shared = home
        server.start()
        assert states() == ["running", "paused", "paused"]
        for id in ids[:2]:
            server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)
        server.stop()
        server.shared = server.folder / "elsewhere"
        server.start()                      # files are in the data directory
        assert states() == ["ended", "ended", "paused"]
        server.ok("POST", f"/v1/sandboxes/{ids[2]}/resume", {})
        server.ok("DELETE", f"/v1/sandboxes/{ids[2]}", status=204)
    finally:
        if server.running():
            server.stop()
        server.shared = home
        link.unlink()


@pytest.mark.parametrize("how", ["is damaged", "cannot be read"])
def test_what_cannot_be_read_may_live_by_another_run_directory(two, how):
    server, _ = two
    id = server.create(timeout=900)["id"]
    server.stop()
    boxes = (server.place / "boxes").resolve()
    record = boxes / id
    said, away = record.read_bytes(), boxes.with_name("away")
    if how == "is damaged":
        record.write_bytes(b"damaged")
    else:
        boxes.rename(away)
        boxes.symlink_to(boxes.name)        # a loop
    try:
        told = refused([*words(server.folder), "--run-dir", server.folder / "elsewhere"])
        assert ("live by the run directory" if how == "is damaged" else "cannot be read: they may live") in told, told
    finally:
        if how == "is damaged":
            record.write_bytes(said)
        else:
            boxes.unlink()
            away.rename(boxes)
        server.start()
    assert server.ok("GET", f"/v1/sandboxes/{id}")["state"] == "running"
    server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)


def test_a_taken_port_ends_the_start(two):
    first, second = two
    second.stop()
    listen = f"127.0.0.1:{first.port}"
    said = refused([*words(second.folder, listen), "--run-dir", second.run_dir])
    assert listen in said, said


# ---- told to end

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_obeyed_however_far_a_start_is(folder, number):
    """At moments of a first start, and of one after that."""
    folder = pathlib.Path(folder)
    for delay in (0, 0.02, 0.1, 0.3, 0.6, 0.05) if number == signal.SIGTERM else (0.05, 0.3):
        process = subprocess.Popen([*words(folder), "--run-dir", folder / "run"], env=CLEAR, cwd=folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
        time.sleep(delay)
        process.send_signal(number)
        begun = time.monotonic()
        said = process.communicate(timeout=30)[1]
        assert process.returncode in (0, -number), said
        assert time.monotonic() - begun < ENDS_S, (delay, said)
        assert "did not end" not in said, said
    subprocess.run(["umount", folder / "data/volume"], capture_output=True)


def stopped(server, name):
    pid = wait_until(lambda: server.part(name), f"a {name}", 20 * SLOWER)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("state", ["the keeper is away", "no keeper comes", "the server is away"])
def test_a_signal_is_obeyed_while_parts_are_restarted(two, state):
    server, other = two
    if state == "no keeper comes":          # every try of it fails from now on, and so does the server's own
        (server.data / "paused-3").rename(server.data / "aside")
        (server.data / "paused-3").write_text("")
    stopped(server, "cove-serve" if state == "the server is away" else "cove-keep")
    if state == "no keeper comes":
        stopped(server, "cove-serve")
        time.sleep(0.5)
    server.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    assert server.process.wait(30) == 0
    assert time.monotonic() - begun < ENDS_S, server.told()
    assert "did not end" not in server.told()
    server.process.stdout.close()
    if state == "no keeper comes":
        (server.data / "paused-3").unlink()
        (server.data / "aside").rename(server.data / "paused-3")


# ---- beside `cove run`

@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_restart_does_not_end_a_cove_run_beside_it(two, how):
    server, _ = two
    process = subprocess.Popen([COVE, "run", "--data-dir", server.data, "--run-dir", server.run_dir, "sh", "-c",
                                "echo up; for i in $(seq 15); do echo $i; sleep 0.1; done; exit 7"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAR, bufsize=0)
    assert process.stdout.readline() == b"up\n"
    assert any(name.startswith("r") for name in os.listdir(server.place / "boxes"))
    server.stop() if how == "end" else server.kill_all()
    server.start()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.split(), err) == (7, [b"%d" % i for i in range(1, 16)], b"")
    wait_until(lambda: not any(name.startswith("r") for name in os.listdir(server.place / "boxes")), "it is gone")
    assert server.ids() == set()


# ---- without root

def test_the_same_without_root(folder):
    """XDG_RUNTIME_DIR is what both have by default."""
    folder = pathlib.Path(folder)
    os.chown(folder, 65534, 65534)
    run = folder / "run"
    run.mkdir()
    os.chown(run, 65534, 65534)
    env = CLEAR | {"XDG_RUNTIME_DIR": str(run), "HOME": str(folder)}
    who = {"user": 65534, "group": 65534, "extra_groups": []}
    copy = for_anybody(folder)
    processes, asks = {}, {}

    def start(name):
        processes[name] = subprocess.Popen(
            [copy, "serve", "--data", folder / name, "--listen", "127.0.0.1:0", "--preview-listen", "none",
             "--set", "pool.size=0"], env=env, cwd=folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, **who)
        while not (line := processes[name].stdout.readline()).startswith(READY):
            assert line, "it has ended"
        asks[name] = Remote(line.strip().removeprefix(READY), (folder / name / "admin.key").read_text().strip())

    try:
        for name in ("one", "two"):
            start(name)
        made = {name: asks[name].create() for name in asks}
        for name in ("one", "two", "one"):
            processes[name].send_signal(signal.SIGTERM)
            assert processes[name].wait(30) == 0
            start(name)
            assert {one: asks[one].ids() for one in asks} == {one: {made[one]} for one in made}
        assert {path.name for path in (run / "cove").iterdir()} == {identity(folder / name) for name in made}
    finally:
        for name, process in processes.items():
            with contextlib.suppress(Exception):
                asks[name].call("DELETE", "/v1/sandboxes?all=true")
            process.terminate()
            process.wait(30)


class Remote:
    """The API of a server by its address."""

    def __init__(self, url, key):
        self.url, self.key = url, key

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, data=json.dumps(body).encode() if body else None,
                                         headers={"X-API-Key": self.key, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            text = reply.read()
            return json.loads(text) if text else None

    def create(self):
        return self.call("POST", "/v1/sandboxes", {"timeout": 600, "network": "none"})["id"]

    def ids(self):
        return {one["id"] for one in self.call("GET", "/v1/sandboxes")["sandboxes"]}
