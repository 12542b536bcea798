"""The way to a port of a sandbox through `cove serve`: by host name, by headers, by path; streams and
WebSockets; what is said when there is no way; the same over TLS with a private CA."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import time

import pytest

from helpers.cove import CLEAR, COVE
from helpers.guest import SLOWER
from helpers.proc import wait_until
from helpers.serve import Reply, Serve

pytestmark = pytest.mark.sdk

ENVD = 49983
PORT = 8000
NOBODYS = "i" + "0" * 20
BROWSER = {"User-Agent": "Mozilla/5.0 (X11)", "Accept": "text/html,*/*"}
NODE = os.environ.get("COVE_NODE")

# What runs inside: mirrors a request as JSON, streams, and echoes after an upgrade.
INSIDE = textwrap.dedent("""
    import http.server, json, time
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do_GET(self):
            if self.path == "/stream":
                return self.stream()
            if self.headers.get("Upgrade") == "echo":
                return self.echo()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            said = json.dumps({"path": self.path, "method": self.command, "body": body,
                               "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.send_header("Set-Cookie", "a=b")
            self.end_headers()
            self.wfile.write(said)
        do_POST = do_GET
        def stream(self):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(600):
                self.wfile.write(b"4\\r\\ntick\\r\\n")
                time.sleep(0.1)
        def echo(self):
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            while piece := self.connection.recv(65536):
                self.connection.sendall(piece)
            self.close_connection = True
        def log_message(self, *args):
            pass
    http.server.ThreadingHTTPServer(("", %d), Handler).serve_forever()
""" % PORT)


def connection(server, tls=None, port=None):
    address, limit = ("127.0.0.1", port or server.port), 30 * SLOWER
    if tls:
        return http.client.HTTPSConnection(*address, timeout=limit, context=tls)
    return http.client.HTTPConnection(*address, timeout=limit)


def ask(server, path="/", method="GET", body=None, tls=None, port=None, **headers):
    """One request; header names are given with _ for -."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection(server, tls, port)) as c:
        c.request(method, path, body, headers)
        answer = c.getresponse()
        return Reply(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())


def by_host(box, port=PORT):
    return {"Host": f"{port}-{box['id']}.localhost"}


def by_e2b(box, port=PORT):
    return {"E2b_Sandbox_Id": box["id"], "E2b_Sandbox_Port": str(port)}


def by_cluster(box, port=PORT):
    return {"X_Sandbox_ID": box["id"], "X_Sandbox_Port": str(port)}


def start_inside(server, box, tls=None):
    """Starts the web server in it by the guest's own protocol."""
    message = json.dumps({"process": {"cmd": "python3", "args": ["-c", INSIDE]}}).encode()
    c = connection(server, tls)
    c.request("POST", "/process.Process/Start", b"\0" + len(message).to_bytes(4, "big") + message,
              {"Content-Type": "application/connect+json", "E2b-Sandbox-Id": box["id"],
               "E2b-Sandbox-Port": str(ENVD), "X-Access-Token": box["token"]})
    assert c.getresponse().status == 200
    token = {"E2b_Traffic_Access_Token": box["traffic_token"]} if not box["public"] else {}
    wait_until(lambda: ask(server, tls=tls, **by_e2b(box), **token).status == 200,
               "no server inside", 20 * SLOWER)
    return c


@pytest.fixture(scope="module")
def box(server):
    made = server.create(timeout=600)
    with contextlib.closing(start_inside(server, made)):
        yield made
    server.call("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.fixture(scope="module")
def closed(server):
    """A private one, which its own traffic token opens."""
    made = server.create(timeout=600, public=False)
    assert made["traffic_token"]
    with contextlib.closing(start_inside(server, made)):
        yield made
    server.call("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.fixture(scope="module")
def preview(server):
    return int(json.loads((server.data / "server.json").read_text())["preview_url"].rpartition(":")[2])


# ---- there and back

@pytest.mark.parametrize("way", [by_host, by_e2b, by_cluster])
def test_a_request_gets_there_without_what_is_ours(server, box, way):
    reply = ask(server, "/a?b=%20c", "POST", b"body", X_API_Key=server.key, Cookie="c=d",
                E2b_Traffic_Access_Token="t", **way(box))
    assert reply.status == 200
    assert reply.headers.get("set-cookie") == ("a=b" if way is by_host else None)      # else it is the API's origin
    seen = reply.json
    assert (seen["path"], seen["method"], seen["body"]) == ("/a?b=%20c", "POST", "body")
    assert server.key not in json.dumps(seen)
    ours = ("x-api-key", "e2b-", "x-sandbox-")
    assert not [name for name in seen["headers"] if name.startswith(ours)]
    assert seen["headers"]["x-forwarded-for"] == "127.0.0.1"
    assert seen["headers"]["x-forwarded-proto"] == "http" and seen["headers"]["cookie"] == "c=d"


def test_credentials_pass_unless_they_are_ours_or_the_clusters(server, box):
    basic = "Basic " + base64.b64encode(b"user:").decode()
    assert ask(server, Authorization=basic, **by_host(box)).json["headers"]["authorization"] == basic
    ours = ask(server, Authorization=f"Bearer {server.key}", **by_host(box)).json
    assert "authorization" not in ours["headers"]
    assert "authorization" not in ask(server, Authorization=basic, **by_cluster(box)).json["headers"]


def test_ids_are_short_ones_or_uuids(server, box):
    assert ask(server, **by_e2b({"id": box["uuid"]})).status == 200
    assert ask(server, **by_cluster({"id": box["uuid"]})).status == 200


def test_a_large_body_goes_both_ways(server, box):
    text = "x" * (3 << 20)
    assert ask(server, "/", "POST", text.encode(), **by_host(box)).json["body"] == text


def test_a_stream_arrives_while_it_is_made(server, box):
    with contextlib.closing(connection(server)) as c:
        c.request("GET", "/stream", headers=by_host(box))
        answer = c.getresponse()
        began = time.monotonic()
        assert answer.read(4) == b"tick" and answer.read(4) == b"tick"
        assert time.monotonic() - began < 20 * SLOWER


def test_an_upgraded_connection_carries_bytes_both_ways(server, box):
    with server.upgraded(by_host(box)) as s:
        for text in (b"hello", b"y" * 100_000):
            s.sendall(text)
            back = b""
            while len(back) < len(text):
                back += s.recv(65536)
            assert back == text
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""


# ---- no way

def test_unknown_and_ended_sandboxes_were_not_found(server):
    ended = server.create()
    server.ok("DELETE", f"/v1/sandboxes/{ended['id']}", status=204)
    for one in (ended, {"id": NOBODYS}):
        for way in (by_host, by_e2b):
            reply = ask(server, "/health", **way(one, ENVD))
            assert reply.status == 502 and reply.json["code"] == 502, reply
            assert reply.headers["content-type"] == "application/json; charset=utf-8"
            assert reply.json["sandboxId"] == one["id"] and "was not found" in reply.message
        reply = ask(server, **by_cluster(one))
        assert reply.status == 502
        assert reply.json == {"detail": f"Could not connect to the backend sandbox: {one['id']}"}


def test_a_closed_port_is_told_as_such(server, box):
    reply = ask(server, **by_host(box, 9))
    assert reply.status == 502 and reply.json["port"] == 9 and "port is not open" in reply.message
    page = ask(server, **by_host(box, 9), **{k.replace("-", "_"): v for k, v in BROWSER.items()})
    assert page.status == 502 and page.headers["content-type"].startswith("text/html")
    assert b"port is not open" in page.body


@pytest.mark.parametrize("headers, words", [
    ({"E2b_Sandbox_Id": NOBODYS}, "missing header"),
    ({"E2b_Sandbox_Port": "1"}, "missing header"),
    ({"E2b_Sandbox_Id": "../etc", "E2b_Sandbox_Port": "1"}, "Invalid sandbox ID"),
    ({"E2b_Sandbox_Id": NOBODYS, "E2b_Sandbox_Port": "99999"}, "Invalid port"),
    ({"Host": f"99999-{NOBODYS}.localhost"}, "Invalid port"),
])
def test_a_request_that_names_no_port_of_a_sandbox_is_refused(server, headers, words):
    reply = ask(server, **headers)
    assert reply.status == 400 and words in reply.message, reply


@pytest.mark.parametrize("path", ["/init", "/%69nit", "//init", "/./init", "/x/../init", "/freeze"])
def test_the_guests_control_routes_are_not_for_clients(server, box, preview, path):
    for way in (by_host, by_e2b, by_cluster):
        assert ask(server, path, "POST", b"{}", **way(box, ENVD)).status == 404
    assert ask(server, f"/{box['id']}/{ENVD}{path}", "POST", b"{}", port=preview).status == 404


def test_the_guest_asks_for_its_own_token(server, box):
    assert ask(server, "/envs", **by_host(box, ENVD)).status == 401
    assert ask(server, "/envs", X_Access_Token=box["token"], **by_host(box, ENVD)).status == 200


# ---- private ones

def test_a_private_sandbox_wants_its_token(server, closed, preview):
    token = {"E2b_Traffic_Access_Token": closed["traffic_token"]}
    for way in (by_host, by_e2b):
        for given in ({}, {"E2b_Traffic_Access_Token": "wrong"}, {"X_API_Key": "e2b_0"}):
            reply = ask(server, **way(closed), **given)
            assert reply.status == 403 and reply.json["code"] == 403, reply
            assert reply.json["sandboxId"] == closed["id"]
        assert ask(server, **way(closed), X_API_Key=server.key).status == 200
        seen = ask(server, **way(closed), **token)
        assert seen.status == 200 and closed["traffic_token"].encode() not in seen.body
    assert ask(server, f"/{closed['id']}/{PORT}/", port=preview).status == 403
    assert ask(server, "/health", **by_host(closed, ENVD)).status == 204


def test_the_clusters_form_takes_keys_of_who_may_see_it(server, closed):
    other = server.user("passer-by")
    for given, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401),
                          ({"Authorization": f"Bearer {other}"}, 401),
                          ({"Authorization": f"Bearer {server.key}"}, 200),
                          ({"X_API_Key": server.key}, 200),
                          ({"Authorization": f"Bearer {closed['traffic_token']}"}, 200)):
        reply = ask(server, **by_cluster(closed), **given)
        assert reply.status == status, (given, reply)
        assert status == 200 or reply.json["detail"]


def test_the_clusters_router_is_healthy(server):
    reply = ask(server, "/healthz")
    assert reply.status == 200 and reply.json == {"status": "ok"}


# ---- previews

def test_a_preview_goes_by_path_and_carries_no_cookie(server, box, preview):
    reply = ask(server, f"/{box['id']}/{PORT}/a?b=c", port=preview, Cookie="c=d")
    assert reply.status == 200 and "set-cookie" not in reply.headers
    assert reply.json["path"] == "/a?b=c" and "cookie" not in reply.json["headers"]
    assert reply.json["headers"]["x-forwarded-prefix"] == f"/{box['id']}/{PORT}"
    reply = ask(server, f"/{box['id']}/{PORT}?x", port=preview)
    assert reply.status == 307 and reply.headers["location"] == f"/{box['id']}/{PORT}/?x"
    page = f"http://127.0.0.1:{preview}/{box['id']}/{PORT}/page"
    reply = ask(server, "/style.css", port=preview, Referer=page)
    assert reply.headers["location"] == f"/{box['id']}/{PORT}/style.css"


def test_the_preview_listener_has_no_API(server, box, preview):
    for path in ("/", "/health", "/v1/sandboxes", "/sandboxes", "/metrics", f"/{box['id']}"):
        assert ask(server, path, port=preview, X_API_Key=server.key).status == 404
    assert ask(server, port=preview, **by_e2b(box)).status == 404


# ---- browsers

def cove_url(server, *words):
    return subprocess.run([COVE, "url", *map(str, words)], env=CLEAR | server.variables(), capture_output=True, text=True)


def test_the_command_line_gives_a_browser_a_link(server, box):
    done = cove_url(server, box["id"], 8765)
    assert done.returncode == 0, done.stderr
    host, _, link = done.stdout.strip().removeprefix("http://").partition("/")
    assert host == f"8765-{box['id']}.localhost:{server.port}" and link.startswith("?cove_token=")
    assert ask(server, "/" + link, Host=host).status == 303
    assert ask(server, "/" + link, Host=host).status == 403
    said = json.loads(cove_url(server, box["id"], PORT, "--path", "/a?b", "--json").stdout)
    assert "/a?b&cove_token=" in said["url"] and said["expires"].endswith("Z")
    for words, why in (((NOBODYS, 80), "doesn't exist"), ((box["id"], "x"), "1 to 65535"), ((box["id"], ENVD), "X-Access-Token"),
                       ((box["id"], 80, "--path", "a b"), "must begin with '/'"), ((box["id"], 80, "--path", "/ "), "%XX")):
        failed = cove_url(server, *words)
        assert failed.returncode == 1 and why in failed.stderr, failed


def test_one_more_name_is_ours_when_its_operator_says_so(workspace):
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    started = Serve(pathlib.Path(workspace) / "named", "--ephemeral", env={"COVE_HOSTS": "cove.corp.example,other.example"})
    try:
        for name, status in (("cove.corp.example", 200), ("a.other.example:80", 200), ("corp.example", 421)):
            assert ask(started, "/v1/me", Host=name, X_API_Key=started.key).status == status
        assert ask(started, "/health", Host="balancer.example").status == 200
    finally:
        started.close()


# ---- ends

def test_a_sandbox_that_ends_resets_what_leads_there(server):
    made = server.create(timeout=600)
    with contextlib.closing(start_inside(server, made)), server.upgraded(by_host(made)) as s, \
            contextlib.closing(connection(server)) as c:
        c.request("GET", "/stream", headers=by_host(made))
        answer = c.getresponse()
        assert answer.read(4) == b"tick"
        server.ok("DELETE", f"/v1/sandboxes/{made['id']}", status=204)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(200):        # it may see an end first, as the sandbox's own
                s.sendall(b"are you there?")
                time.sleep(0.02)


# ---- TLS

@pytest.fixture(scope="module")
def secure(workspace):
    """A server with a private CA; .ca is its file, .context trusts it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    folder = pathlib.Path(workspace) / "secure"
    folder.mkdir()
    made = json.loads(subprocess.run(
        [COVE, "tls", "init", "--json", "--data", folder / "tls-data", "--domain", "cove.localhost"],
        env=CLEAR, check=True, capture_output=True).stdout)
    started = Serve(folder, "--ephemeral", "--domain", "cove.localhost", "--tls-cert",
                    made["certificate"], "--tls-key", made["key"])
    started.ca, started.made = made["ca"], made
    started.context = ssl.create_default_context(cafile=made["ca"])
    yield started
    started.close()


def create_secure(secure):
    reply = ask(secure, "/v1/sandboxes", "POST", b'{"timeout": 600}', tls=secure.context,
                X_API_Key=secure.key, Content_Type="application/json")
    assert reply.status == 201, reply
    return reply.json


def test_over_TLS_a_browsers_cookie_is_secure_and_of_that_host_alone(secure):
    box = create_secure(secure)
    reply = ask(secure, f"/v1/sandboxes/{box['id']}/ports/8765/url", "POST", b'{"path": "/health?a=b"}', tls=secure.context,
                X_API_Key=secure.key, Content_Type="application/json")
    name, _, link = reply.json["url"].removeprefix("https://").partition("/")
    assert name == f"8765-{box['id']}.cove.localhost" and link.startswith("health?a=b&cove_token=")
    first = ask(secure, "/" + link, tls=secure.context, Host=name)
    assert first.status == 303 and first.headers["location"] == f"//{name}/health?a=b"
    cookie, *flags = first.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-cove-door=") and {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= {*flags}
    assert ask(secure, "/health", tls=secure.context, Host=name, Cookie=cookie).status == 200
    assert ask(secure, "/health", tls=secure.context, Host=name).status == 403


def test_hosts_below_the_domain_are_reached_over_TLS(secure):
    box = create_secure(secure)
    with contextlib.closing(start_inside(secure, box, secure.context)):
        name = f"{PORT}-{box['id']}.cove.localhost"
        with socket.create_connection(("127.0.0.1", secure.port), 20 * SLOWER) as plain, \
                secure.context.wrap_socket(plain, server_hostname=name) as s:
            assert s.version() == "TLSv1.3"
            s.sendall(f"GET /a HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            text = b"".join(iter(lambda: s.recv(65536), b""))
        assert b'"x-forwarded-proto": "https"' in text and b'"path": "/a"' in text
        body = b"z" * (2 << 20)
        reply = ask(secure, "/", "POST", body, tls=secure.context, **by_e2b(box))
        assert reply.json["body"] == body.decode()


def test_who_does_not_trust_the_CA_or_speaks_plainly_is_told(secure):
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(secure, "/health", tls=ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError), \
            socket.create_connection(("127.0.0.1", secure.port), 20 * SLOWER) as plain:
        secure.context.wrap_socket(plain, server_hostname="elsewhere.test")
    reply = ask(secure, "/health")
    assert reply.status == 400 and b"https://" in reply.body


SDK = textwrap.dedent("""
    from e2b import Sandbox
    box = Sandbox.create(timeout=60)
    box.files.write("a.txt", "x" * 300000)
    assert len(box.files.read("a.txt")) == 300000
    print(box.commands.run("echo hello").stdout, end="")
    assert box.kill()
""")

JS = textwrap.dedent("""
    const { Sandbox } = require("e2b");
    (async () => {
      const box = await Sandbox.create({ timeoutMs: 60000 });
      await box.files.write("a.txt", "x".repeat(300000));
      if ((await box.files.read("a.txt")).length !== 300000) throw new Error("short");
      process.stdout.write((await box.commands.run("echo hello")).stdout);
      await box.kill();
    })();
""")


@pytest.mark.parametrize("program", [[sys.executable, "-c", SDK], [NODE, "-e", JS]],
                         ids=["python", "javascript"])
def test_the_SDKs_trust_the_private_CA_by_their_variable(secure, program):
    if not program[0]:
        pytest.skip("COVE_NODE names no Node")
    env = os.environ | {"E2B_API_KEY": secure.key, "E2B_API_URL": secure.url,
                        "E2B_SANDBOX_URL": secure.url, "SSL_CERT_FILE": secure.ca,
                        "NODE_EXTRA_CA_CERTS": secure.ca}
    run = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60 * SLOWER)
    assert run.returncode == 0 and run.stdout == "hello\n", run


def certificate(secure):
    return ssl.get_server_certificate(("127.0.0.1", secure.port), ca_certs=secure.ca)


def test_a_new_certificate_is_taken_over_while_it_runs(secure):
    before = certificate(secure)
    subprocess.run([COVE, "tls", "init", "--force", "--data", secure.folder / "tls-data",
                    "--domain", "cove.localhost"], env=CLEAR, check=True, capture_output=True)
    secure.process.send_signal(signal.SIGHUP)
    wait_until(lambda: certificate(secure) != before, "the old certificate is still there",
               20 * SLOWER)
    assert ask(secure, "/health", tls=secure.context).status == 200
