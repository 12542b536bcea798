"""The life of a sandbox, its ports, and what is known about it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.server
import socket
import threading
import time

import pytest
from marks import needs_root

import cove


def test_a_context_manager_ends_it(client):
    with cove.Sandbox.create(client=client) as made:
        assert made.is_running()
    assert not made.is_running()
    assert made.kill() is False


def test_an_error_in_the_block_ends_it_too(client):
    with pytest.raises(RuntimeError, match="mine"):
        with cove.Sandbox.create(client=client) as made:
            raise RuntimeError("mine")
    assert not made.is_running()


@needs_root
def test_everything_that_can_be_said_at_creation(client):
    with cove.Sandbox.create(
        client=client,
        timeout=100,
        metadata={"who": "me"},
        env={"A": "1"},
        network="none",
        limits=cove.Limits(memory_bytes=256 << 20, pids=50),
        forwards=[cove.Forward(0, 8080)],
        label="mine",
    ) as made:
        info = made.info()
        assert (info.metadata, info.network, info.label) == ({"who": "me"}, "none", "mine")
        assert (info.limits.memory_bytes, info.limits.pids) == (256 << 20, 50)
        assert 90 < (info.ends - info.started).total_seconds() <= 101
        assert made.commands.run("echo $A").stdout == "1\n"
        assert made.forwards[8080] > 0
        assert "token" not in info.raw


def test_list_filters(client):
    with cove.Sandbox.create(client=client, metadata={"n": "1"}) as one:
        with cove.Sandbox.create(client=client, metadata={"n": "2"}):
            assert len(cove.Sandbox.list(client=client)) == 2
            assert [i.id for i in cove.Sandbox.list(client=client, metadata={"n": "1"})] == [one.id]
            assert cove.Sandbox.list(client=client, state="paused") == []


def test_connect_finds_it_again(sandbox, client):
    sandbox.files.write("x", "kept")
    again = cove.Sandbox.connect(sandbox.id, client=client, timeout=1000)
    assert again.files.read("x") == "kept"
    assert (again.info().ends - again.info().started).total_seconds() > 900


def test_connect_to_nothing(client):
    with pytest.raises(cove.NotFoundError, match="doesn't exist"):
        cove.Sandbox.connect("inothing", client=client)
    with pytest.raises(cove.InvalidRequestError, match="not the id"):
        cove.Sandbox.connect("../../users", client=client)


def test_one_that_has_ended_says_so(client):
    with cove.Sandbox.create(client=client) as made:
        pass
    with pytest.raises(cove.SandboxGoneError):
        made.commands.run("true")
    with pytest.raises(cove.SandboxGoneError, match="ended"):
        cove.Sandbox.connect(made.id, client=client)


def test_an_unknown_template_is_named(client):
    with pytest.raises(cove.NotFoundError, match="no template 'zz'"):
        cove.Sandbox.create("zz", client=client)


def test_a_bad_value_names_the_field(client):
    with pytest.raises(cove.InvalidRequestError, match="timeout") as caught:
        cove.Sandbox.create(client=client, timeout=-1)
    assert caught.value.status == 400


@needs_root
def test_its_time_and_limits_change(sandbox):
    assert sandbox.set_timeout(50).ends < sandbox.set_timeout(5000).ends
    sandbox.set_limits(cove.Limits(pids=77))
    assert sandbox.usage().limits.pids == 77


def test_pause_and_resume(sandbox, client):
    counting = sandbox.commands.start("while :; do date +%s%N; sleep 0.05; done")
    try:
        sandbox.pause()
    except cove.NotSupportedError as problem:
        pytest.skip(f"this machine cannot pause: {problem}")
    assert sandbox.info().state == "paused"
    with pytest.raises(cove.SandboxGoneError):
        sandbox.commands.run("true")
    again = cove.Sandbox.connect(sandbox.id, client=client)
    assert again.info().state == "running"
    assert again.commands.run("echo awake").stdout == "awake\n"
    assert next(iter(counting)).text
    counting.close()


@needs_root
def test_usage_metrics_and_events(sandbox):
    sandbox.commands.run("true")
    usage = sandbox.usage()
    assert usage.pids >= 1 and usage.memory_peak_bytes > 0
    assert sandbox.metrics()[-1].memory_max_bytes == usage.limits.memory_bytes
    assert [e.kind for e in sandbox.events()][:2] == ["created", "started"]
    seen = []
    for event in sandbox.follow_events():
        seen.append(event.kind)
        if event.kind == "started":
            sandbox.kill()
    assert seen[-1] == "ended"


def test_templates_and_identity(client):
    assert "host" in [t.name for t in client.templates()]
    assert client.me()["admin"] is True
    assert client.health()["status"] == "healthy"


def test_a_user_inside_is_at_home(sandbox):
    """Also on the server of an ordinary user, whose templates have no owners."""
    line = "touch x && mkdir y && echo >> .bashrc && stat -c %U . .bashrc x && id -un"
    assert len(set(sandbox.commands.run(line, check=True).stdout.split())) == 1


def test_a_port_by_http(sandbox):
    sandbox.files.write("index.html", "served")
    server = sandbox.commands.start("python3 -m http.server 8080")
    sandbox.ports.wait(8080)
    assert sandbox.ports.get(8080, "/index.html").text == "served"
    assert sandbox.ports.url(8080, "x").startswith(f"http://8080-{sandbox.id}.")
    server.kill()
    server.close()


def test_a_closed_port(sandbox):
    with pytest.raises(cove.DeadlineError, match="port 9"):
        sandbox.ports.wait(9, timeout=0.2)
    with pytest.raises(cove.PortClosedError, match="not open"):
        sandbox.ports.get(9)


def test_a_port_that_listens_and_says_nothing(sandbox):
    silent = sandbox.commands.start(
        'python3 -c \'import socket, time; s = socket.create_server(("", 9000)); '
        "print(1, flush=True); time.sleep(1000)'"
    )
    next(iter(silent))
    begun = time.monotonic()
    with pytest.raises(cove.DeadlineError, match="port 9000"):
        sandbox.ports.wait(9000, timeout=1)
    assert time.monotonic() - begun < 30  # and not as long as a request may take
    silent.kill()
    silent.close()


def test_the_key_is_not_shown_to_code_inside(sandbox):
    with sandbox.ports.http(8080) as http:
        assert "x-api-key" not in http.headers
    assert "e2b_" not in repr(sandbox.client.connection) + repr(sandbox)


REDIRECTS = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", self.path[1:] or "/there")
        self.end_headers()
http.server.HTTPServer(("", 8081), Handler).serve_forever()
"""


def test_a_redirect_takes_no_credential_along(sandbox):
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append({name.lower() for name in self.headers})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    elsewhere = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
    sandbox.files.write("redirects.py", REDIRECTS)
    program = sandbox.commands.start("python3 redirects.py")
    sandbox.ports.wait(8081)
    url = f"http://127.0.0.1:{elsewhere.server_port}/"
    with sandbox.ports.http(8081) as port:
        assert "x-access-token" not in port.headers  # the other token is enough
        assert port.get("/" + url, follow_redirects=True).status_code == 204
        sent = {name.lower() for name in port.get("/").request.headers}
    assert "e2b-traffic-access-token" in sent
    ours = {"e2b-sandbox-id", "e2b-sandbox-port", "e2b-traffic-access-token", "x-access-token"}
    assert not seen[0] & ours

    async def by_the_other_client():
        same = await cove.AsyncSandbox.connect(sandbox.id)
        async with same.ports.http(8081) as port:
            reply = await port.get("/" + url, follow_redirects=True)
        await same.aclose()
        return reply

    with concurrent.futures.ThreadPoolExecutor(1) as apart:  # from the loop of other tests
        assert apart.submit(asyncio.run, by_the_other_client()).result().status_code == 204
    assert len(seen) == 2 and not seen[1] & ours
    elsewhere.shutdown()
    elsewhere.server_close()
    program.kill()
    program.close()


def test_any_tcp_by_a_forwarded_port(sandbox):
    echo = sandbox.commands.start(
        'python3 -c \'import socket; s=socket.create_server(("127.0.0.1",7000))\nwhile 1:\n'
        " c,_=s.accept(); d=c.recv(99)\n c.sendall(d[::-1]); c.close()'"
    )
    with sandbox.ports.forward(7000) as tunnel:
        found, deadline = b"", time.monotonic() + 60
        while not found and time.monotonic() < deadline:  # until the program inside listens
            with contextlib.suppress(ConnectionError):
                with socket.create_connection((tunnel.host, tunnel.port), 10) as s:
                    s.sendall(b"abc")
                    found = s.recv(99)
        assert found == b"cba"
    with pytest.raises(OSError):
        socket.create_connection((tunnel.host, tunnel.port), 1)
    echo.kill()
    echo.close()


def test_notebooks_show_it(sandbox):
    assert sandbox.id in sandbox._repr_html_()
    html = sandbox.commands.run("echo '<b>'; exit 2")._repr_html_()
    assert "&lt;b&gt;" in html and "exit status 2" in html
