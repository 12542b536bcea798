"""`cove serve` without root: the same server in the caller's own user namespace; what is missing is
said, and nothing else is."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile

import httpx
import pytest
from e2b import Sandbox
from e2b.exceptions import SandboxException

from helpers import machine, proc
from helpers.cove import CLEAR, for_anybody
from helpers.guest import SANITIZED, SLOWER
from helpers.place import place as own
from helpers.proc import wait_until
from helpers.serve import Serve

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else"),
              pytest.mark.timeout(120)]
NOBODY = 65534


class Rootless(Serve):
    """A server of the user nobody."""

    caller = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def start(self):
        os.chown(self.folder, NOBODY, NOBODY)
        self.env["HOME"] = str(self.folder)
        super().start()

    def part(self, name):
        return wait_until(lambda: next((one for one in proc.children(self.process.pid)
                                        if machine.comm(one) == name), None), f"no {name}")


@pytest.fixture(scope="module", autouse=True)
def namespaces():
    done = subprocess.run(["/usr/bin/unshare", "-U", "true"], user=NOBODY, group=NOBODY,
                          extra_groups=[], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no user namespaces for ordinary users: {done.stderr.strip()}")


@pytest.fixture(scope="module")
def place(workspace):
    return pathlib.Path(tempfile.mkdtemp(dir=workspace, prefix="rootless-"))


@pytest.fixture
def start(place):
    started, before = [], machine.strays()

    def begin(*options):
        started.append(Rootless(place, *options))
        return started[-1]

    yield begin
    if started and not started[-1].running():
        begin()
    if started:
        started[-1].end_all()
        started[-1].stop()

        def left():
            machine.collect_orphans()
            return machine.strays() - before

        wait_until(lambda: not left(), f"left behind: {left()}", 20 * SLOWER)


def test_it_starts_and_says_what_is_missing(start, place):
    server = start()
    told = server.log.read_text()
    assert "limits that are not enforced here" in told and "memory" in told
    assert "no network" in told
    assert "level=error" not in told
    for name in "admin.key", "admin.password":
        path = place / "data" / name
        assert path.stat().st_mode & 0o777 == 0o600 and path.stat().st_uid == NOBODY


def test_the_sdk_creates_runs_and_ends(start):
    server = start()
    sandbox = Sandbox.create(**server.sdk(timeout=120))
    done = sandbox.commands.run(
        "id -u; python3 -c 'import socket; print([name for _, name in socket.if_nameindex()])'")
    assert done.stdout == "0\n['lo']\n"
    sandbox.files.write("/root/note", "x")
    assert sandbox.files.read("/root/note") == "x"
    assert sandbox.kill() and not sandbox.is_running()


def port_status(server, id, port):
    """Status and text of a request to a port of a sandbox."""
    reply = httpx.get(server.url, headers={"e2b-sandbox-id": id, "e2b-sandbox-port": str(port)},
                      trust_env=False)
    return reply.status_code, reply.text


def test_ports_can_be_reached(start):
    server = start()
    sandbox = Sandbox.create(**server.sdk(timeout=120))
    assert port_status(server, sandbox.sandbox_id, 8080)[0] == 502, "nobody listens yet"
    for address, port in ("127.0.0.1", 8080), ("::1", 8081):
        sandbox.commands.run(f"cd / && python3 -m http.server --bind {address} {port}",
                             background=True)
        wait_until(lambda port=port: port_status(server, sandbox.sandbox_id, port)[0] == 200,
                   f"port {port} is not reached", 30 * SLOWER)
    before = len(os.listdir(f"/proc/{server.part('cove-keep')}/fd"))
    for _ in range(20):
        port_status(server, sandbox.sandbox_id, 8080)
    assert len(os.listdir(f"/proc/{server.part('cove-keep')}/fd")) <= before + 2
    os.kill(server.part("cove-keep"), signal.SIGKILL)

    def refused():
        status, text = port_status(server, sandbox.sandbox_id, 8080)
        return status == 501 and "older than the keeper" in text

    wait_until(refused, "it is not said why", 20 * SLOWER)
    assert Sandbox.connect(sandbox.sandbox_id, **server.sdk()).commands.run("echo on").stdout == "on\n"


def test_what_cannot_be_paused_goes_on(start):
    server = start()
    id = server.create(timeout=60)["id"]
    reply = server.call("POST", f"/v1/sandboxes/{id}/pause")
    assert reply.status == 501 and "cgroup v2" in reply.message, reply
    assert server.ok("GET", f"/v1/sandboxes/{id}")["state"] == "running"
    assert Sandbox.connect(id, **server.sdk()).commands.run("echo on").stdout == "on\n"


def test_a_network_is_none_unless_asked_for_and_then_refused(start):
    server = start()
    assert server.create(timeout=60)["network"] == "none"
    assert server.create(timeout=60, network="none")["network"] == "none"
    reply = server.call("POST", "/v1/sandboxes", {"network": "open"})
    assert reply.status == 501 and "needs root" in reply.message
    with pytest.raises(SandboxException, match="needs root"):
        Sandbox.create(**server.sdk(timeout=60, network={"allow_out": ["0.0.0.0/0"]}))


def test_a_sandbox_is_kept_ready(start):
    server = start("--set", "pool.size=2")
    before = server.create(timeout=60)
    assert before["state"] == "running"
    text = server.call("GET", "/metrics", key=None).body.decode()
    assert "level=warn msg=\"no sandbox can be kept ready\"" not in server.log.read_text(), text


@pytest.mark.parametrize("victims", [[], ["cove-serve"], ["cove-keep"], ["monitor"]],
                         ids=lambda names: "+".join(names) or "stop")
def test_sandboxes_go_on(start, victims):
    server = start()
    sandbox = Sandbox.create(**server.sdk(timeout=120))
    handle = sandbox.commands.run("echo $$; exec sleep 100", background=True)
    sandbox.files.write("/root/note", "kept")
    if not victims:
        server.stop()
        server = start()
    elif victims == ["monitor"]:
        server.process.kill()
        server.process.wait()
        server = start()
    else:
        os.kill(server.part(victims[0]), signal.SIGKILL)

    def answers():
        try:
            again = Sandbox.connect(sandbox.sandbox_id, **server.sdk())
            return again.files.read("/root/note") == "kept" and again
        except (OSError, SandboxException, httpx.TransportError):
            return None

    again = wait_until(answers, "the sandbox is not there again", 10 * SLOWER)
    assert handle.pid in [one.pid for one in again.commands.list()]


def test_one_whose_record_is_damaged_ends_when_its_processes_can_be_found(start, place):
    """Its cgroup would tell which they are; here there is none."""
    server = start()
    sandbox = Sandbox.create(**server.sdk(timeout=120))
    id = sandbox.sandbox_id
    record = own(place / "run", place / "data") / "boxes" / id
    keeper = server.part("cove-keep")
    os.kill(keeper, signal.SIGSTOP)     # it may still have something to write there
    good = record.read_bytes()
    record.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    os.kill(keeper, signal.SIGKILL)

    wait_until(lambda: "unreachable" in server.ok("GET", f"/v1/sandboxes/{id}"), "the damage is not seen",
               10 * SLOWER)
    reply = server.call("DELETE", f"/v1/sandboxes/{id}")
    assert reply.status == 503 and "cannot be found" in reply.message, reply
    assert record.exists() and list((place / "data/volume/layers").glob(f"*{id}"))
    record.write_bytes(good)            # and now they can: it was asked for
    wait_until(lambda: not record.exists(), "it does not end", 60 * SLOWER)
    record.with_name(f"{id}.damaged").unlink()


def test_an_ephemeral_one_leaves_nothing(place):
    before = machine.strays()
    server = Rootless(place, "--ephemeral")
    server.create(timeout=60)
    server.stop()

    def left():
        machine.collect_orphans()
        return machine.strays() - before

    wait_until(lambda: not left(), f"left behind: {left()}", 10 * SLOWER)
    assert not list((place / "data/volume/layers").iterdir())
    assert not list((own(place / "run", place / "data") / "boxes").iterdir())


def test_the_server_gives_up_what_it_can(start):
    server = start()
    pid = server.part("cove-serve")
    assert proc.status_words(pid, "NoNewPrivs") == ["1"]
    assert int(proc.status_words(pid, "CapEff")[0], 16) == 0
    if not SANITIZED:
        assert proc.status_words(pid, "Seccomp") == ["2"]
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0


def test_privileges_it_does_not_have_are_refused(place):
    done = subprocess.run([for_anybody(place), "serve", "--data", place / "data", "--user", "nobody"],
                          user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
                          env=CLEAR)
    assert done.returncode == 1 and done.stderr == "cove serve: --user needs root\n"
    done = subprocess.run([for_anybody(place), "config", "--json"], user=NOBODY, group=NOBODY,
                          extra_groups=[], capture_output=True, text=True,
                          env=CLEAR | {"HOME": "/home/somebody"}, cwd="/")
    rows = {row["name"]: row["value"] for row in json.loads(done.stdout)}
    assert rows["data"] == "/home/somebody/.local/share/cove"
