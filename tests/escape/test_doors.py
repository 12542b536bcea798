"""Who may come in at a sandbox's ports, tried from the network by somebody who knows nothing but its id, and by another
tenant. Each look is seen to work: the same request at a sandbox without a token, or with the credential, comes in."""

import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import pytest

BUILD = pathlib.Path(os.environ["COVE_BUILD"])
os.environ.setdefault("COVE_GUEST", str(BUILD / "cove-guest"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from helpers.cove import CLEAR, COVE                # noqa: E402
from helpers.guest import SANITIZED, SLOWER         # noqa: E402
from helpers.proc import wait_until                 # noqa: E402
from helpers.serve import Reply, Serve              # noqa: E402

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="sandboxes with every defence need root"),
              pytest.mark.skipif(SANITIZED, reason="a sandbox has no place for a sanitizer's reports")]

REST, JUPYTER, INTERPRETER, GUEST, WEB = 8765, 8888, 49999, 49983, 8080
NEED = (401, 403)
CODE = {"code": "print(6 * 7)"}

# Inside: shows what it was sent, and tries to change what its client keeps.
MIRROR = textwrap.dedent("""
    import http.server, json
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            said = json.dumps({"path": self.path, "headers": self.headers.items()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.send_header("Set-Cookie", "own=1")
            self.send_header("Set-Cookie", "wide=1; Domain=localhost")
            self.send_header("Clear-Site-Data", '"cookies"')
            self.end_headers()
            self.wfile.write(said)
        def log_message(self, *_):
            pass
    http.server.ThreadingHTTPServer(("", %d), Handler).serve_forever()
""" % WEB)


class Box:
    """A sandbox, and the ways to its ports."""

    def __init__(self, server, **create):
        self.server, self.made = server, server.create(timeout=600, **create)
        self.id, self.token = self.made["id"], self.made.get("token")

    def own(self):
        return {"X-Access-Token": self.token} if self.token else {}

    def state(self):
        return self.server.ok("GET", f"/v1/sandboxes/{self.id}")["state"]

    def pause(self, **more):
        self.server.ok("POST", f"/v1/sandboxes/{self.id}/pause", more)

    def services(self):
        """How often each was started."""
        reply = ask(self.server, "GET", "/services", by_host(self, GUEST) | self.own())
        return {one["name"]: one["starts"] for one in reply.json}

    def run(self, program, **env):
        message = json.dumps({"process": {"cmd": "python3", "args": ["-c", program], "envs": env}}).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30 * SLOWER)
        c.request("POST", "/process.Process/Start", b"\0" + len(message).to_bytes(4, "big") + message,
                  {"Content-Type": "application/connect+json"} | by_header(self, GUEST) | self.own())
        c.answer = c.getresponse()
        assert c.answer.status == 200
        return c


def ask(server, method, path, headers=None, body=None, port=None):
    """One request of somebody who has no key."""
    c = http.client.HTTPConnection("127.0.0.1", port or server.port, timeout=60 * SLOWER)
    with contextlib.closing(c):
        body = json.dumps(body).encode() if body is not None else None
        c.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
        answer = c.getresponse()
        reply = Reply(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())
        reply.cookies = answer.headers.get_all("set-cookie") or []
        return reply


def by_host(box, port):
    return {"Host": f"{port}-{box.id}.localhost"}


def by_header(box, port):
    return {"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": str(port)}


def by_cluster(box, port):
    return {"X-Sandbox-ID": box.id, "X-Sandbox-Port": str(port)}


def every_way(server, box, port, method, path, body=None, **more):
    """The same request by all ways there are."""
    more = {name.replace("_", "-"): value for name, value in more.items()}
    for way in (by_host, by_header, by_cluster):
        yield way.__name__, ask(server, method, path, way(box, port) | more, body)
    yield "preview", ask(server, method, f"/{box.id}/{port}{path}", more, body, server.preview)


@pytest.fixture(scope="module")
def server():
    folder = tempfile.mkdtemp(prefix="cove-doors-")
    os.chmod(folder, 0o755)
    started = Serve(pathlib.Path(folder, "server"), "--ephemeral")
    said = json.loads((started.data / "server.json").read_text())
    started.preview = int(said["preview_url"].rpartition(":")[2])
    started.neighbour = started.user("neighbour")
    yield started
    started.close()


@pytest.fixture(scope="module")
def secure(server):
    return Box(server, auto_resume=True)


@pytest.fixture(scope="module")
def unsecured(server):
    """The control: without a token, as its maker wanted it."""
    return Box(server, secure=False, auto_resume=True)


REQUESTS = [(REST, "POST", "/execute", CODE), (JUPYTER, "GET", "/api/kernelspecs", None), (JUPYTER, "GET", "/", None),
            (INTERPRETER, "GET", "/contexts", None), (INTERPRETER, "POST", "/execute", CODE)]


@pytest.mark.parametrize("port, method, path, body", REQUESTS)
def test_who_knows_the_id_alone_reaches_no_service(server, secure, unsecured, port, method, path, body):
    for key in (None, server.neighbour, "e2b_" + "0" * 40):
        more = {"X_API_Key": key} if key else {}
        for way, reply in every_way(server, secure, port, method, path, body, **more):
            assert reply.status in NEED, (way, key, reply)
    for token in ("", "0" * 40, unsecured.id):
        for name in ("X_Access_Token", "E2b_Traffic_Access_Token"):
            for way, reply in every_way(server, secure, port, method, path, body, **{name: token}):
                assert reply.status in NEED, (way, name, reply)
    assert set(secure.services().values()) == {0}, "a service was started"
    for way, reply in every_way(server, unsecured, port, method, path, body):
        assert reply.status not in (*NEED, 502), (way, reply)


def test_code_runs_for_who_shows_a_credential(server, secure, unsecured):
    for box, shown in ((unsecured, {}), (secure, {"X_Access_Token": secure.token}), (secure, {"X_API_Key": server.key}),
                       (secure, {"Authorization": f"Bearer {server.key}"}), (secure, {"Authorization": f"Bearer {secure.token}"})):
        for way, reply in every_way(server, box, REST, "POST", "/execute", CODE, **shown):
            assert reply.status == 200 and reply.json["stdout"] == "42\n", (way, shown, reply)


@pytest.mark.parametrize("made_with, open_to", [("none", 502), ("all", 403)])
def test_a_command_opens_no_port_that_the_sandbox_was_made_without(server, made_with, open_to):
    box = Box(server, env={"COVE_SERVICES": made_with})
    box.run("pass", COVE_SERVICES="none").answer.read()
    box.run("pass", COVE_SERVICES="all").answer.read()
    taken = ask(server, "POST", "/services/rest", by_host(box, GUEST) | box.own())
    assert taken.status == (409 if made_with == "none" else 204), taken
    assert ask(server, "POST", "/execute", by_host(box, REST), CODE).status == open_to
    inside = ask(server, "POST", "/execute", by_host(box, REST) | box.own(), CODE)
    assert inside.status == (502 if made_with == "none" else 200), "the control: what it was made with is there again"


def test_a_preflight_starts_nothing(server):
    asks = {"Origin": "http://page.example", "Access-Control-Request-Method": "POST"}
    box, control = Box(server), Box(server, secure=False)
    assert ask(server, "OPTIONS", "/execute", by_host(box, REST) | asks).status == 204
    assert ask(server, "OPTIONS", "/execute", by_host(box, REST)).status == 403
    assert box.services()["rest"] == 0
    ask(server, "OPTIONS", "/execute", by_host(control, REST) | asks)
    wait_until(lambda: control.services()["rest"] == 1, "the look at starts sees one")


# ---- waking

@pytest.mark.parametrize("port, path", [(GUEST, "/envs"), (GUEST, "/files?path=/etc/passwd&username=root&signature=v1_x"),
                                        (GUEST, "/health"), (REST, "/health"), (JUPYTER, "/")])
def test_a_stranger_wakes_no_secure_sandbox(server, secure, unsecured, port, path):
    for box in (secure, unsecured):
        box.pause()
    for key in (None, server.neighbour):
        for way, reply in every_way(server, secure, port, "GET", path, **({"X_API_Key": key} if key else {})):
            assert reply.status in (*NEED, 502), (way, reply)
            assert secure.state() == "paused", way
    ask(server, "GET", path, by_host(unsecured, port))
    assert unsecured.state() == ("paused" if path == "/health" and port == GUEST else "running")
    ask(server, "GET", "/envs", by_host(secure, GUEST) | secure.own())
    assert secure.state() == "running"
    ask(server, "GET", "/envs", by_host(unsecured, GUEST))


@pytest.mark.parametrize("memory", [True, False])
def test_stray_traffic_does_not_undo_a_pause_of_files_alone(server, memory):
    box = Box(server, auto_resume=True)
    box.pause(memory=memory)
    for _, reply in every_way(server, box, WEB, "GET", "/"):
        assert reply.status in (403, 502)
    assert box.state() == ("running" if memory else "paused")
    if not memory:
        assert ask(server, "GET", "/", by_host(box, WEB) | box.own()).status == 502    # nothing listens: it runs
        assert box.state() == "running"


def test_being_refused_keeps_no_sandbox_awake(server):
    """The idle rule counts use, and to be refused is none."""
    box, control = Box(server, idle=2, on_expiry="pause"), Box(server, idle=2, on_expiry="pause", secure=False)
    for one in (control, box):
        one.pause()
        server.ok("POST", f"/v1/sandboxes/{one.id}/resume", {})         # both begin to be idle now

    def refused_until_paused():
        assert ask(server, "GET", "/envs", by_host(control, GUEST)).status == 200
        return ask(server, "GET", "/envs", by_host(box, GUEST)).status != 401
    wait_until(refused_until_paused, "it is idle", 15 * SLOWER, 0.2)
    assert box.state() in ("pausing", "paused") and control.state() == "running"


# ---- what a hostile sandbox gets to see and to change

@pytest.fixture(scope="module")
def hostile(server):
    box = Box(server)
    with contextlib.closing(box.run(MIRROR)):
        wait_until(lambda: ask(server, "GET", "/", by_host(box, WEB)).status == 200, "it listens", 20 * SLOWER)
        yield box


def test_no_credential_reaches_a_sandbox(server, hostile):
    subprocess.run([COVE, "user", "add", "--test"], env=CLEAR | server.variables(), check=True, capture_output=True)
    login = server.ok("POST", "/api/v1/auth/login/swagger?username=sandbox_test&password=TestPass123!", key=None)["access_token"]
    assert server.call("GET", "/v1/me", key=login).status == 200
    for secret in (login, server.key, hostile.token):
        for more in ({"Authorization": f"Bearer {secret}"}, {"X_API_Key": secret}, {"X_Access_Token": secret},
                     {"Cookie": f"a=b; t={secret}"}, {"Cookie": f"__Host-cove-session={secret}; cove-door={secret}"}):
            for way, reply in every_way(server, hostile, WEB, "GET", "/", **more):
                assert reply.status == 200 and secret.encode() not in reply.body, (way, more, reply)
    for way, reply in every_way(server, hostile, WEB, "GET", "/", Authorization="Bearer its-own", Cookie="a=b"):
        assert (b"its-own" in reply.body) == (way != "by_cluster"), way     # the control: the mirror shows what it gets
        assert (b"a=b" in reply.body) == (way != "preview"), way


def test_an_answer_changes_nothing_of_the_apis_origin(server, hostile):
    for way, reply in every_way(server, hostile, WEB, "GET", "/"):
        if way == "by_host":            # an origin of its own
            assert reply.cookies == ["own=1"] and "clear-site-data" in reply.headers
        else:
            assert not reply.cookies and "clear-site-data" not in reply.headers, way


def test_a_page_does_not_come_by_headers(server, hostile):
    for way in (by_header, by_cluster):
        page = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        assert ask(server, "GET", "/", way(hostile, WEB) | page).status == 403
        assert ask(server, "GET", "/", way(hostile, WEB)).status == 200


@pytest.mark.parametrize("path", ["/", "/v1/sandboxes", "/docs", "/metrics"])
def test_a_name_that_is_not_ours_is_answered_with_nothing(server, hostile, path):
    for name in ("evil.example", f"evil.example:{server.port}", f"{WEB}-{hostile.id}.evil.example", "localhost.evil.example"):
        reply = ask(server, "GET", path, {"Host": name, "X-API-Key": server.key})
        assert reply.status == 421 and "--host" in reply.message, (name, reply)
        assert ask(server, "GET", f"/{hostile.id}/{WEB}/", {"Host": name}, port=server.preview).status == 421
    for name in ("localhost", f"127.0.0.1:{server.port}", "[::1]", "cove", "cove.internal"):
        assert ask(server, "GET", path, {"Host": name, "X-API-Key": server.key}).status != 421, name


# ---- browsers

def mint(server, box, port=REST, key=..., **body):
    return server.call("POST", f"/v1/sandboxes/{box.id}/ports/{port}/url", body, key=key)


def target(url):
    return "/" + url.split("/", 3)[3]


def test_a_link_is_good_once_for_its_sandbox_and_port(server, secure):
    other = Box(server)
    link = target(mint(server, secure).json["url"])
    assert ask(server, "GET", link, by_host(other, REST)).status == 403
    first = ask(server, "GET", link, by_host(secure, REST))
    assert first.status == 303 and first.headers["location"] == f"//{REST}-{secure.id}.localhost/"
    assert ask(server, "GET", link, by_host(secure, REST)).status == 403
    cookie, *flags = first.headers["set-cookie"].split("; ")
    assert set(flags) >= {"HttpOnly", "SameSite=Lax", "Path=/"} and not [f for f in flags if f.startswith("Domain")]
    shown = {"Cookie": cookie}
    assert ask(server, "GET", "/health", by_host(secure, REST) | shown).status == 200
    for box, port in ((secure, JUPYTER), (other, REST)):
        assert ask(server, "GET", "/health", by_host(box, port) | shown).status == 403
    spent = target(mint(server, secure).json["url"])
    assert ask(server, "GET", spent, by_host(secure, JUPYTER)).status == 403      # it was shown at a wrong port ...
    assert ask(server, "GET", spent, by_host(secure, REST)).status == 403         # ... and is none any more
    for forged in ("1.99999999999." + "0" * 64, cookie[10:-1] + "0", "", "1..", "2." + cookie[12:]):
        assert ask(server, "GET", "/health", by_host(secure, REST) | {"Cookie": f"cove-door={forged}"}).status == 403


def test_other_pages_cannot_use_a_browsers_cookie(server, secure):
    cookie = ask(server, "GET", target(mint(server, secure).json["url"]), by_host(secure, REST)).headers["set-cookie"].split(";")[0]
    own = f"http://{REST}-{secure.id}.localhost"
    for page, status in (({"Origin": own}, 200), ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, 200),
                         ({"Origin": f"http://{WEB}-{secure.id}.localhost"}, 403), ({"Origin": "null"}, 403), ({}, 403),
                         ({"Origin": own, "Sec-Fetch-Site": "same-site"}, 403)):
        reply = ask(server, "POST", "/execute", by_host(secure, REST) | {"Cookie": cookie} | page, CODE)
        assert reply.status == status, (page, reply)


def test_nobody_else_gets_a_link(server, secure):
    assert mint(server, secure, key=server.neighbour).status == 404
    assert mint(server, secure, key=None).status == 401
    assert mint(server, secure, port=GUEST).status == 400
    assert mint(server, secure).status == 200


def test_on_the_preview_listener_a_cookie_is_bound_to_the_path(server, secure):
    link = target(mint(server, secure, path="/health").json["url"])
    first = ask(server, "GET", f"/{secure.id}/{REST}{link}", port=server.preview)
    assert first.status == 303 and first.headers["location"].endswith(f"/{secure.id}/{REST}/health")
    assert f"; Path=/{secure.id}/{REST};" in first.headers["set-cookie"]
    shown = {"Cookie": first.headers["set-cookie"].split(";")[0]}
    assert ask(server, "GET", f"/{secure.id}/{REST}/health", shown, port=server.preview).status == 200
    assert ask(server, "GET", f"/{secure.id}/{JUPYTER}/", shown, port=server.preview).status == 403


# ---- what was never a secret

@pytest.mark.parametrize("route, body", [
    ("/v1/sandboxes", {"secure": False, "public": False}),
    ("/sandboxes", {"templateID": "base", "secure": False, "network": {"allowPublicTraffic": False}}),
    ("/sandboxes", {"templateID": "base", "network": {"allowPublicTraffic": False}}),
])
def test_private_ports_with_an_open_guest_are_refused(server, route, body):
    reply = server.call("POST", route, body)
    assert reply.status == 400 and "secure" in reply.message, reply
    assert server.call("POST", route, body | {"secure": True}).status == 201
