"""What a user of the server who is no admin is told and may take: paths of the machine, its ports, and whose
requests count as whose behind a proxy."""

import json
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest

from helpers.cove import CLEAR, COVE
from helpers.serve import Serve

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to limit, map and mount")
PATH = re.compile(r"(?<![\w:/])/[\w.-]")        # where an absolute path begins
STATE_BYTES = 4 << 20


@pytest.fixture(scope="module")
def server(workspace):
    """Its database has a disk of its own, which is soon full."""
    folder = pathlib.Path(workspace) / "tenants"
    state = folder / "data/serve"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES}", "state", state], check=True)
    started = Serve(folder, "--ephemeral", "--forward-ports", "21000-21009", "--trusted-proxy", "127.0.0.1",
                    "--set", "auth.login-rate=2")
    yield started
    started.stop()
    subprocess.run(["umount", state], check=True)
    started.unmount()


@pytest.fixture(scope="module")
def tenant(server):
    return server.user("tenant")


@pytest.fixture
def full(server):
    """Not a byte is left for the database."""
    filler = server.data / "serve/filler"
    with open(filler, "wb", buffering=0) as file:
        for step in 1 << 16, 1:
            try:
                while file.write(b"x" * step):
                    pass
            except OSError:
                pass
    yield
    filler.unlink()


def test_a_full_database_is_told_without_its_path(server, tenant, full):
    body = {"metadata": {"k": "v" * 8000}, "timeout": 60}
    for path, ask in ("/v1/sandboxes", body), ("/v2/sandboxes", {"templateID": "base"} | body), ("/v1/keys", {}):
        replies = [server.call("POST", path, ask, key=tenant) for _ in range(3)]
        failed = [reply for reply in replies if reply.status == 507]
        assert failed, replies
        for reply in failed:
            assert not PATH.search(reply.message), reply
            assert "a file of the server: no space is left" in reply.message, reply
    # The control: who runs the machine is told, and so is the log.
    told = [server.call("POST", "/v1/sandboxes", body) for _ in range(3)]
    path = f"{server.data}/serve/cove.db"
    assert any(reply.status == 507 and path in reply.message for reply in told), told
    log = server.log.read_text()
    assert "a client was told an error without the paths in it" in log and path in log
    assert "user=tenant" in log


# ---- ports of the machine

def forwarded(server, key, host_port, port, **more):
    return server.call("POST", "/v1/sandboxes", key=key, body={
        "timeout": 60, "forwards": [{"host_port": host_port, "port": port} | more]})


def test_a_port_of_the_machine_is_not_everybodys(server, tenant):
    reply = forwarded(server, tenant, 25432, 5432)
    assert reply.status == 403 and "--forward-ports" in reply.message and "25432" in reply.message
    assert forwarded(server, tenant, 0, 5432).status == 201
    assert forwarded(server, tenant, 21003, 5432).status == 201     # the operator's range
    assert forwarded(server, None, 21003, 5432).status == 401
    assert forwarded(server, ..., 25432, 5432).status == 201        # the control: an admin may


def execute(port):
    """As any account of the machine can: without a credential."""
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/execute", b'{"code": "print(6 * 7)"}',
                                 {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(ask, timeout=60) as answer:
        return json.load(answer)


def test_a_forward_to_a_door_is_refused_or_public(server, tenant):
    for port in 8765, 8888, 49999:
        reply = forwarded(server, tenant, 0, port)
        assert reply.status == 400 and '"public": true' in reply.message, reply
    made = forwarded(server, tenant, 0, 8765, public=True)
    assert made.status == 201 and made.json["forwards"][0]["public"] is True
    assert server.ok("GET", f"/v1/sandboxes/{made.json['id']}", key=tenant)["forwards"] == made.json["forwards"]
    # What that opens; so that the refusals above are about something.
    assert "42" in json.dumps(execute(made.json["forwards"][0]["host_port"]))
    assert forwarded(server, tenant, 0, 49983).status == 201        # the guest asks for its token itself
    assert server.call("POST", "/v1/sandboxes", key=tenant, body={
        "timeout": 60, "secure": False, "forwards": [{"host_port": 0, "port": 8765}]}).status == 201


def test_the_command_line_says_public(server, tenant):
    def create(forward):
        return subprocess.run([COVE, "create", "--timeout", "1m", "--forward", forward, "--json"], env=CLEAR | {
            "COVE_URL": server.url, "COVE_API_KEY": tenant}, capture_output=True, text=True)
    made = create("0:8765:public")
    assert made.returncode == 0 and json.loads(made.stdout)["forwards"][0]["public"], made
    assert "public" in create("0:8765").stderr
    assert "HOST-PORT:PORT:public" in create("0:8765:open").stderr


# ---- behind a proxy

def log_in(server, client):
    return server.call("POST", "/api/v1/auth/login", {"username": "nobody", "password": "x"}, key=None,
                       headers={"X-Forwarded-For": client}).status


def test_clients_of_a_trusted_proxy_are_counted_apart(server):
    assert [log_in(server, "192.0.2.1") for _ in range(3)] == [404, 404, 429]
    assert log_in(server, "192.0.2.1, 192.0.2.2") == 404            # the right one is the proxy's word
    assert [log_in(server, f"2001:db8:1:1::{n}") for n in range(3)] == [404, 404, 429]
    assert log_in(server, "2001:db8:1:2::1") == 404


def test_a_proxy_brings_nobody_to_the_metrics(server):
    assert server.call("GET", "/metrics", key=None).status == 401   # it is one, whatever it says
    assert server.call("GET", "/metrics", key=server.user("other")).status == 403
    assert server.call("GET", "/metrics").status == 200


@pytest.mark.parametrize("words, said", [
    (["--trusted-proxy", "10.0.0.1/8"], "bits behind its prefix"),
    (["--trusted-proxy", "localhost"], "--trusted-proxy: 'localhost' is no address prefix"),
    (["--forward-ports", "2000"], "--forward-ports: '2000' is no range"),
    (["--forward-ports", "0-70000"], "--forward-ports"),
    (["--forward-ports", "3000-2000"], "--forward-ports"),
])
def test_a_wrong_option_is_named(words, said, folder):
    done = subprocess.run([COVE, "serve", "--data", folder, *words], env=CLEAR, capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr, done
