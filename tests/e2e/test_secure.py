"""Secure mode: the access token, and file URLs that are signed with it."""

import base64
import hashlib
import http.server
import json
import threading
import time
import urllib.parse
import urllib.request

import pytest
from e2b import AsyncSandbox, AuthenticationException, Sandbox

from helpers.there import SERVED, get, os, put, pwd
from helpers.wire import Wire, envelope

pytestmark = pytest.mark.sdk

core = pytest.mark.core
TOKEN = "tok123"
KEY = "e2b_" + "0" * 40               # the previous line of the SDK looks at its form


def signature(path, operation, user="", token=TOKEN, expiry=None):
    raw = f"{path}:{operation}:{user}:{token}" + (f":{expiry}" if expiry is not None else "")
    digest = hashlib.sha256(raw.encode()).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


@pytest.fixture
def secure(request, folder):
    """A guest with a token; every sandbox of a server has one."""
    if SERVED:
        return request.getfixturevalue("guest")
    put(f"{folder}/token", TOKEN + "\n")
    guest = request.getfixturevalue("start_guest")("--token-file", f"{folder}/token", token=TOKEN)
    guest.init(envVars={"HOME": request.getfixturevalue("quiet_home")})
    return guest


@pytest.fixture
def stranger(secure):
    """Somebody who knows where the guest is, but not the token."""
    return secure.stranger if SERVED else Wire(port=secure.port)


@pytest.fixture
def sign(secure):
    """signature() with the guest's own token."""
    def make(path, operation, **more):
        return signature(path, operation, **{"token": secure.token} | more)

    return make


@pytest.fixture
def control_plane(request):
    """As little of a control plane as makes the SDK use a token: it creates one sandbox."""
    if SERVED:
        yield request.getfixturevalue("server").url
        return

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):                      # pylint: disable=invalid-name
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps({"templateID": "base", "sandboxID": "isecure", "clientID": "c",
                               "envdVersion": "0.6.4", "envdAccessToken": TOKEN}).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):              # pylint: disable=arguments-differ
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def options(request, secure, control_plane):
    """For Sandbox.create(). Through a server that would make another sandbox: there connect() is meant."""
    key = request.getfixturevalue("server").key if SERVED else KEY
    return {"api_url": control_plane, "sandbox_url": secure.url, "api_key": key, "debug": False}


@pytest.fixture
def open_secure(secure, options):
    return Sandbox.connect(secure.id, **options) if SERVED else Sandbox.create(**options)


# --- the token -------------------------------------------------------------------------------

@core
def test_nothing_but_health_works_without_the_token(stranger, folder):
    assert stranger.get("/health").status == 204
    for reply in (stranger.get("/metrics"), stranger.get("/envs"), stranger.process("List", {}),
                  stranger.filesystem("Stat", {"path": "/"}),
                  stranger.get("/files?path=/etc/passwd"),
                  stranger.upload(f"{folder}/x", b"x"),
                  stranger.request("POST", "/files/compose", "{}",
                                   {"Content-Type": "application/json"})):
        assert reply.status == 401, reply.text
        assert reply.json["code"] in (401, "unauthenticated")
    init = stranger.request("POST", "/init", "{}", {"Content-Type": "application/json"})
    assert init.status == (404 if SERVED else 401)      # a server keeps it from everybody
    body = envelope({"process": {"cmd": "/bin/touch", "args": [f"{folder}/touched"]}})
    reply = stranger.request("POST", "/process.Process/Start", body,
                             {"Content-Type": "application/connect+json"})
    assert b'"code":"unauthenticated"' in reply.body.replace(b": ", b":")
    assert not os.path.exists(f"{folder}/touched") and not os.path.exists(f"{folder}/x")


@core
@pytest.mark.parametrize("token", ["", "tok12", "tok1234", "TOK123", "tok124"])
def test_a_wrong_token_is_refused_even_beside_a_right_signature(stranger, sign, token, folder):
    put(f"{folder}/file", "x")
    headers = {"X-Access-Token": token}
    assert stranger.process("List", {}, headers).status == 401
    query = urllib.parse.urlencode({"path": f"{folder}/file",
                                    "signature": sign(f"{folder}/file", "read")})
    assert stranger.get(f"/files?{query}").status == 200
    assert stranger.get(f"/files?{query}", **headers).status == 401


@core
def test_the_sdk_with_the_token_can_do_everything(open_secure, folder):
    sandbox = open_secure
    assert sandbox.commands.run("echo hi").stdout == "hi\n"
    sandbox.files.write(f"{folder}/file", "content")
    assert sandbox.files.read(f"{folder}/file") == "content"
    assert sandbox.files.exists(f"{folder}/file")
    assert sandbox.is_running()


async def test_the_async_sdk_with_the_token_can_do_everything(secure, options, folder):
    sandbox = await (AsyncSandbox.connect(secure.id, **options) if SERVED
                     else AsyncSandbox.create(**options))
    assert (await sandbox.commands.run("echo hi")).stdout == "hi\n"
    await sandbox.files.write(f"{folder}/file", "content")
    assert await sandbox.files.read(f"{folder}/file") == "content"


@core
@pytest.mark.bare("connect() gives the SDK the token; see test_serve_sdk.py")
def test_the_sdk_without_the_token_is_refused(secure, open_sandbox):
    sandbox = open_sandbox(secure)
    for call in (lambda: sandbox.commands.run("true"), lambda: sandbox.files.read("/etc/hostname"),
                 lambda: sandbox.files.list("/"), lambda: sandbox.files.write("/tmp/x", "x")):
        with pytest.raises(AuthenticationException):
            call()
    assert sandbox.is_running()


def test_init_turns_secure_mode_on_and_changes_the_token(start_guest):
    guest = start_guest()
    wire = guest.wire
    assert wire.request("POST", "/init", '{"accessToken": "first"}',
                        {"Content-Type": "application/json"}).status == 204
    assert wire.process("List", {}).status == 401
    first = Wire(port=guest.port, token="first")
    assert first.process("List", {}).status == 200
    assert wire.request("POST", "/init", '{"accessToken": "mine"}',
                        {"Content-Type": "application/json"}).status == 401
    assert first.request("POST", "/init", '{"accessToken": "second"}',
                         {"Content-Type": "application/json"}).status == 204
    assert first.process("List", {}).status == 401
    assert Wire(port=guest.port, token="second").process("List", {}).status == 200


def test_a_browsers_preflight_needs_no_token(stranger):
    reply = stranger.request("OPTIONS", "/process.Process/Start", headers={
        "Origin": "https://example.com", "Access-Control-Request-Method": "POST"})
    assert reply.status in (200, 204)


# --- signed URLs -----------------------------------------------------------------------------

def test_the_signature_is_the_published_one():
    assert signature("a.txt", "read") == "v1_bpTAo3zQPfgZ/Q18/PKbUXC4njwhHadZON8x0Kv4xhc"


@core
def test_the_published_signature_opens_its_file(start_guest, folder):
    """path a.txt, read, no user, token tok123. In an empty root the home is the root."""
    os.mkdir(f"{folder}/root")
    for name, text in (("token", TOKEN), ("root/a.txt", "right"), ("root/b.txt", "wrong")):
        put(f"{folder}/{name}", text)
    guest = start_guest("--root", f"{folder}/root", "--token-file", f"{folder}/token")
    known = urllib.parse.quote("v1_bpTAo3zQPfgZ/Q18/PKbUXC4njwhHadZON8x0Kv4xhc", safe="")
    assert guest.wire.get(f"/files?path=a.txt&signature={known}").text == "right"
    assert guest.wire.get(f"/files?path=b.txt&signature={known}").status == 401


@core
def test_the_sdks_urls_download_and_upload(secure, open_secure, folder):
    sandbox, path = open_secure, f"{folder}/with space+plus ž"
    routing = secure.wire.routing if SERVED else {}     # E2B_SANDBOX_URL is one for all sandboxes
    routing = {name: value for name, value in routing.items() if name.startswith("E2b-")}
    body = (b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
            b"uploaded\r\n--b--\r\n")
    for expiration in (None, 100):
        url = sandbox.upload_url(path, use_signature_expiration=expiration)
        request = urllib.request.Request(url, body, {
            "Content-Type": "multipart/form-data; boundary=b"} | routing, method="POST")
        with urllib.request.urlopen(request, timeout=20) as reply:
            assert reply.status == 200
        url = sandbox.download_url(path, use_signature_expiration=expiration)
        request = urllib.request.Request(url, headers=routing)
        with urllib.request.urlopen(request, timeout=20) as reply:
            assert reply.read() == b"uploaded"


@pytest.fixture
def signed(stranger, folder):
    """Asks for a file with a query of the test's own; gives the status."""
    path = f"{folder}/file"
    put(path, "secret")

    def ask(method="GET", body=None, headers=None, **query):
        given = {"path": path} | query
        target = "/files?" + urllib.parse.urlencode(
            {k: v for k, v in given.items() if v is not None})
        return stranger.request(method, target, body, headers).status

    ask.path = path
    return ask


@core
def test_an_expired_signature_is_refused(signed, sign):
    for seconds, status in ((-1, 401), (-1000, 401), (60, 200)):
        expiry = int(time.time()) + seconds
        assert signed(signature=sign(signed.path, "read", expiry=expiry),
                      signature_expiration=expiry) == status


@core
def test_a_signature_runs_out(signed, sign):
    def query(seconds):
        expiry = int(time.time()) + seconds
        return {"signature": sign(signed.path, "read", expiry=expiry), "signature_expiration": expiry}

    assert signed(**query(60)) == 200
    soon = query(1)
    time.sleep(2.2)
    assert signed(**soon) == 401


@core
def test_a_signature_holds_for_nothing_else(signed, sign):
    good = sign(signed.path, "read")
    later = int(time.time()) + 1000
    timed = sign(signed.path, "read", expiry=later)
    assert signed(signature=good) == 200
    for query in (
            {"signature": None}, {"signature": ""}, {"signature": good[:-1]},
            {"signature": good + "="}, {"signature": good + "A"}, {"signature": good.lower()},
            {"signature": "v2" + good[2:]}, {"signature": good, "path": "/etc/hostname"},
            {"signature": good, "path": signed.path + "/"},
            {"signature": good, "username": "root"},
            {"signature": good, "signature_expiration": later},
            {"signature": timed}, {"signature": timed, "signature_expiration": later + 1},
            {"signature": timed, "signature_expiration": f"0{later}"},
            {"signature": timed, "signature_expiration": ""},
            {"signature": sign(signed.path, "write")},
            {"signature": sign(signed.path, "read", token="other")}):
        assert signed(**query) == 401, query
    octets = {"Content-Type": "application/octet-stream"}
    assert signed("POST", b"changed", octets, signature=good) == 401
    assert get(signed.path) == b"secret"
    assert signed("POST", b"changed", octets, signature=sign(signed.path, "write")) == 200
    assert get(signed.path) == b"changed"


def test_a_signature_for_writing_a_form_binds_its_path(stranger, sign, folder):
    """Without ?path the parts name their own targets: only a signature of the empty path fits."""
    body = ("--b\r\nContent-Disposition: form-data; name=\"file\"; "
            f"filename=\"{folder}/new\"\r\n\r\nx\r\n--b--\r\n").encode()
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    wrong = urllib.parse.quote(sign(f"{folder}/new", "write"), safe="")
    right = urllib.parse.quote(sign("", "write"), safe="")
    assert stranger.request("POST", f"/files?signature={wrong}", body, headers).status == 401
    assert stranger.request("POST", f"/files?signature={right}", body, headers).status == 200


def test_head_of_a_signed_url_works_too(signed, sign):
    assert signed("HEAD", signature=sign(signed.path, "read")) == 200
    assert signed("HEAD", signature=sign(signed.path, "write")) == 401


def test_a_signature_names_its_user(stranger, sign, folder):
    me = pwd.getpwuid(os.geteuid()).pw_name
    put(f"{folder}/file", "x")
    query = {"path": f"{folder}/file", "username": me,
             "signature": sign(f"{folder}/file", "read", user=me)}
    assert stranger.get("/files?" + urllib.parse.urlencode(query)).status == 200
    del query["username"]
    assert stranger.get("/files?" + urllib.parse.urlencode(query)).status == 401
