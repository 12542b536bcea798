"""The ports of sandboxes by the names that the SDK gives: get_host() as the Host of a request, whatever
resolves it. HTTP, streams, WebSockets, signed URLs, tokens. test_serve_tls.py does it over TLS, with
names that are really looked up."""

import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import socket
import textwrap
import time
import urllib.parse

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from helpers.guest import ROOT, SLOWER
from helpers.sdk import create, sdk                 # noqa: F401: fixtures

pytestmark = pytest.mark.sdk

core = pytest.mark.core
ECHO = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build")) / "tests/e2e/ws-echo"
MIB = 1 << 20

# Tells what it was asked; /slow sends a line each half second, /bytes/N that many bytes.
WEB = textwrap.dedent("""
    import hashlib, http.server, json, sys, time

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            size = int(self.headers.get("Content-Length", 0))
            digest = hashlib.sha256(self.rfile.read(size)).hexdigest()
            if self.path == "/slow":
                return self.slow()
            body = json.dumps({"method": self.command, "path": self.path, "size": size,
                               "sha256": digest, "headers": dict(self.headers)}).encode()
            if self.path.startswith("/bytes/"):
                body = b"0123456789abcdef" * (int(self.path.split("/")[2]) // 16)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

        def slow(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(4):
                line = b"data: %d\\n\\n" % i
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(line), line))
                time.sleep(0.5)
            self.wfile.write(b"0\\r\\n\\r\\n")

        def log_message(self, *_):
            pass

    address, port = sys.argv[1], int(sys.argv[2])
    http.server.ThreadingHTTPServer((address, port), Handler).serve_forever()
""")


class Port:
    """One port of a sandbox, asked for by its host name."""

    def __init__(self, server, sandbox, port):
        self.server, self.host = server, sandbox.get_host(port)

    def request(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30 * SLOWER)
        headers = {"Host": self.host} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def ask(self, method="GET", path="/", body=None, **headers):
        reply = self.request(method, path, body, **headers)
        return reply.status, json.loads(reply.read())


@pytest.fixture
def web(server, create):
    """Starts the web server in a new sandbox and waits until it answers."""
    def start(address="0.0.0.0", port=8000, **options):
        sandbox = create(**options)
        sandbox.files.write("web.py", WEB)
        sandbox.commands.run(f"python3 web.py {address} {port}", background=True, timeout=0)
        # seen from inside: what the router says is what is tested
        probe = f"until bash -c '>/dev/tcp/127.0.0.1/{port}' 2>/dev/null; do sleep 0.02; done"
        sandbox.commands.run(probe, timeout=20)
        return sandbox, Port(server, sandbox, port)

    return start


# --- HTTP -------------------------------------------------------------------------------------

@core
def test_the_host_names_the_port_and_the_sandbox(web):
    sandbox, port = web()
    assert port.host == f"8000-{sandbox.sandbox_id}.{sandbox.sandbox_domain}"
    status, seen = port.ask("GET", "/a/b?c=d%20e")
    assert (status, seen["method"], seen["path"]) == (200, "GET", "/a/b?c=d%20e")
    assert seen["headers"]["Host"] == port.host


@core
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_body_arrives_whole(web, method):
    _, port = web()
    body = os.urandom(3 * MIB)
    status, seen = port.ask(method, "/upload", body, Content_Type="application/x-mine")
    assert (status, seen["size"], seen["sha256"]) == (
        200, len(body), hashlib.sha256(body).hexdigest())
    assert seen["headers"]["Content-Type"] == "application/x-mine"


def test_a_large_answer_arrives_whole(web):
    _, port = web()
    reply = port.request("GET", f"/bytes/{64 * MIB}")
    size = 0
    while piece := reply.read(MIB):
        assert piece == b"0123456789abcdef" * (len(piece) // 16)
        size += len(piece)
    assert size == 64 * MIB


@core
def test_a_stream_arrives_as_it_is_made(web):
    _, port = web()
    reply, times = port.request("GET", "/slow"), []
    while line := reply.readline():
        if line.startswith(b"data:"):
            times.append(time.monotonic())
    assert len(times) == 4
    assert all(0.3 < later - earlier < 1.5 * SLOWER for earlier, later in zip(times, times[1:]))


@core
def test_a_server_on_localhost_is_reached_too(web):
    _, port = web(address="127.0.0.1")
    assert port.ask()[0] == 200


def test_a_sandbox_without_the_internet_can_be_reached(web):
    _, port = web(allow_internet_access=False)
    assert port.ask()[0] == 200


def test_hosts_do_not_mix(web):
    (one, first), (two, second) = web(), web()
    one.files.write("web.py", "")
    assert first.ask()[1]["headers"]["Host"] != second.ask()[1]["headers"]["Host"]
    assert two.kill()
    assert second.ask()[0] == 502 and first.ask()[0] == 200


@core
def test_a_closed_port_is_told_from_a_sandbox_that_is_gone(server, create):
    sandbox = create()
    port = Port(server, sandbox, 4321)
    status, told = port.ask()
    assert (status, told["code"], told["sandboxId"]) == (502, 502, sandbox.sandbox_id)
    assert "port is not open" in told["message"] and told["port"] == 4321
    sandbox.kill()
    status, told = port.ask()
    assert (status, told["code"]) == (502, 502) and "was not found" in told["message"]


def test_a_browser_gets_a_page(server, create):
    port = Port(server, create(), 4321)
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130 Safari/537.36"
    reply = port.request("GET", "/", User_Agent=agent, Accept="text/html")
    assert reply.status == 502 and reply.headers["Content-Type"].startswith("text/html")


@core
def test_a_private_sandbox_wants_its_traffic_token(web):
    sandbox, port = web(network={"allow_public_traffic": False})
    assert sandbox.traffic_access_token
    assert port.ask()[0] == 403
    assert port.ask(E2B_Traffic_Access_Token="wrong")[0] == 403
    status, seen = port.ask(E2B_Traffic_Access_Token=sandbox.traffic_access_token)
    assert status == 200
    assert sandbox.commands.run("echo here").stdout == "here\n"


def test_an_open_request_ends_with_the_sandbox(web):
    sandbox, port = web()
    reply = port.request("GET", "/slow")
    assert reply.readline() == b"data: 0\n"
    assert sandbox.kill()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        reply.read()


# --- WebSocket --------------------------------------------------------------------------------

@pytest.fixture
def echo(server, create):
    """A WebSocket server in a sandbox: connects to it by its host."""
    sandbox = create()
    with ECHO.open("rb") as program:
        sandbox.files.write("ws-echo", program)
    handle = sandbox.commands.run("chmod +x ws-echo; exec ./ws-echo 9000", background=True, timeout=0)
    assert next(iter(handle))[0] == "ready 9000\n"
    handle.disconnect()

    def open_one(path="/", **options):
        uri = f"ws://{sandbox.get_host(9000)}{path}"
        return connect(uri, sock=socket.create_connection(("127.0.0.1", server.port)), **options)

    open_one.sandbox = sandbox
    return open_one


@core
def test_websocket_messages_go_both_ways(echo):
    with echo(max_size=None) as ws:
        for message in ("text", "žluť 🐎", "", b"\x00\xff", os.urandom(125), os.urandom(65536),
                        os.urandom(4 * MIB)):
            ws.send(message)
            assert ws.recv(30 * SLOWER) == message
        assert ws.ping(b"p").wait(10 * SLOWER)


@core
def test_many_websockets_at_once_do_not_mix(echo):
    def talk(number):
        with echo() as ws:
            for i in range(50):
                ws.send(f"{number}-{i}")
                assert ws.recv(30 * SLOWER) == f"{number}-{i}"
        return number

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert list(pool.map(talk, range(20))) == list(range(20))


def test_a_quiet_websocket_stays_open(echo):
    with echo(ping_interval=None) as ws:
        time.sleep(5)
        ws.send("still here")
        assert ws.recv(10 * SLOWER) == "still here"


@core
def test_the_end_of_a_websocket_reaches_the_other_side(echo):
    with echo(path="/close") as ws, pytest.raises(ConnectionClosed) as caught:
        ws.recv(10 * SLOWER)
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4001, "enough")
    with echo() as ws:
        assert echo.sandbox.kill()
        with pytest.raises(ConnectionClosed) as caught:
            ws.recv(10 * SLOWER)
    assert caught.value.rcvd is None            # it broke off
    with pytest.raises(InvalidStatus, match="502"):
        echo()


# --- signed URLs ------------------------------------------------------------------------------

@core
def test_the_sdks_signed_urls_work_at_the_sandboxs_host(server, create):
    """The SDK signs; only the origin is replaced by the name that it would have without
    E2B_SANDBOX_URL."""
    sandbox = create()
    port = Port(server, sandbox, 49983)

    def ask(method, url, body=None, **headers):
        parts = urllib.parse.urlsplit(url)
        reply = port.request(method, f"{parts.path}?{parts.query}", body, **headers)
        return reply.status, reply.read()

    sandbox.files.write("a b+ž.txt", "content")
    for options in ({}, {"use_signature_expiration": 60}, {"user": "user"}):
        url = sandbox.download_url("a b+ž.txt", **options)
        assert "signature=" in url
        assert ask("GET", url) == (200, b"content")
        changed = url.replace("a%20b", "b%20b") if "a%20b" in url else url.replace("a+b", "b+b")
        assert changed != url and ask("GET", changed)[0] == 401
    form = (b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
            b"uploaded\r\n--b--\r\n")
    kind = {"Content_Type": "multipart/form-data; boundary=b"}
    url = sandbox.upload_url("up.txt", use_signature_expiration=60)
    assert ask("POST", url, form, **kind)[0] == 200
    assert sandbox.files.read("up.txt") == "uploaded"
    assert ask("GET", url)[0] == 401                    # it is for writing
    assert ask("GET", sandbox.download_url("up.txt").partition("&signature")[0])[0] == 401


@core
def test_a_signed_url_runs_out(server, create):
    sandbox = create()
    sandbox.files.write("file", "x")
    port = Port(server, sandbox, 49983)

    def ask(seconds, later=0):
        parts = urllib.parse.urlsplit(sandbox.download_url("file", use_signature_expiration=seconds))
        time.sleep(later)
        return port.request("GET", f"{parts.path}?{parts.query}")

    assert ask(60).status == 200
    late = ask(1, later=2.2)
    assert late.status == 401 and "expired" in json.loads(late.read())["message"]
