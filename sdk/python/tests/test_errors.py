"""What goes wrong outside a sandbox: no server, a strange one, one that fails for a moment."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import tempfile
import threading

import pytest

import cove
from cove import _config, _server


class Double(http.server.BaseHTTPRequestHandler):
    """Answers as its class says, and remembers what it was asked."""

    protocol_version = "HTTP/1.1"
    answers: list = []
    asked: list = []

    def handle_one(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        self.asked.append((self.command, self.path, dict(self.headers), body))
        status, headers, answer = self.answers.pop(0)
        raw = json.dumps(answer).encode() if not isinstance(answer, bytes) else answer
        self.send_response(status)
        for name, value in headers.items():
            if name != "Content-Length":
                self.send_header(name, value)
        self.close_connection = "Content-Length" in headers  # more than there is: it breaks off
        self.send_header("Content-Length", headers.get("Content-Length", str(len(raw))))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = handle_one

    def log_message(self, *_):
        pass


@pytest.fixture
def double():
    Double.answers, Double.asked = [], []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Double)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    connection = _config.Connection(f"http://127.0.0.1:{server.server_port}", "key")
    with cove.Client(connection) as client:
        yield client
    server.shutdown()
    server.server_close()
    thread.join()


MADE = {"id": "iabc", "state": "running"}


def test_a_create_is_repeated_with_one_key(double):
    Double.answers = [(503, {}, {"message": "busy"}), (201, {}, MADE)]
    assert cove.Sandbox.create(client=double).id == "iabc"
    keys = {headers["Idempotency-Key"] for _, _, headers, _ in Double.asked}
    assert len(Double.asked) == 2 and len(keys) == 1


def test_what_must_not_be_done_twice_is_not(double):
    Double.answers = [(201, {}, MADE), (503, {}, {"message": "busy"})]
    made = cove.Sandbox.create(client=double)
    with pytest.raises(cove.ServerError, match="busy"):
        made.pause()
    assert len(Double.asked) == 2


def test_a_file_that_shrinks_while_it_is_read_is_read_again(double):
    broken = (200, {"Content-Length": "2"}, b"")
    Double.answers = [(201, {}, MADE), broken, broken, (200, {}, b"12")]
    made = cove.Sandbox.create(client=double)
    assert made.files.read("at") == "12"
    Double.answers = [broken] * 20
    with pytest.raises(cove.ConnectionLostError):
        made.files.read("at")


def test_a_server_that_says_do_not_retry_is_believed(double):
    Double.answers = [(503, {"Should-Retry": "false"}, {"message": "it happened"})]
    with pytest.raises(cove.ServerError, match="it happened"):
        cove.Sandbox.create(client=double)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, cove.InvalidRequestError),
        (401, cove.AuthenticationError),
        (403, cove.PermissionError_),
        (404, cove.NotFoundError),
        (409, cove.ConflictError),
        (429, cove.LimitError),
        (501, cove.NotSupportedError),
        (507, cove.DiskFullError),
        (500, cove.ServerError),
    ],
)
def test_every_status_is_an_error_of_its_own(double, status, kind):
    Double.answers = [(status, {"X-Request-ID": "r1"}, {"code": status, "message": "why"})] * 9
    with pytest.raises(kind, match="why") as caught:
        double.json("POST", "/x", json={})
    assert (caught.value.status, caught.value.request_id) == (status, "r1")
    assert isinstance(caught.value, cove.CoveError)


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[1]", b'{"message": 3}', b'"x"'])
def test_a_body_that_is_anything_is_an_error_all_the_same(double, body):
    Double.answers = [(500, {}, body)]
    with pytest.raises(cove.ServerError):
        double.json("POST", "/x", json={})


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\0\0\5hello",
        b"\0\xff\xff\xff\xff",
        b"\0\0\0\0\2[]",
        b"\0\0\0",
        b"",
        b'\0\0\0\0\x2b{"event":{"data":{"stdout":"not base64!!"}}}',
        b'\2\0\0\0\x35{"error":{"code":"internal","message":"fell over"}}   ',
    ],
)
def test_a_guest_that_sends_garbage_is_an_error(double, body):
    Double.answers = [(201, {}, MADE), (200, {}, body)]
    made = cove.Sandbox.create(client=double)
    with pytest.raises(cove.CoveError):
        made.commands.run("true")


@pytest.mark.parametrize(
    "problem",
    [
        cove.CommandError("false", cove.CommandResult(1, "", "why")),
        cove.DeadlineError("late", status=504),
        cove.DiskFullError("full", status=507, request_id="r1"),
    ],
)
def test_errors_go_through_a_pool_of_processes(problem):
    again = pickle.loads(pickle.dumps(problem))
    assert (type(again), str(again), vars(again)) == (type(problem), str(problem), vars(problem))


def test_a_port_of_a_server_that_is_gone(double):
    Double.answers = [(201, {}, MADE)]
    made = cove.Sandbox.create(client=double)
    object.__setattr__(double.connection, "url", "http://127.0.0.1:1")
    with pytest.raises(cove.ConnectionLostError, match=r"127\.0\.0\.1:1"):
        made.ports.get(80)


def test_no_server_there(tmp_path):
    with pytest.raises(cove.ConnectionLostError, match=r"127\.0\.0\.1:1"):
        cove.Sandbox.create(url="http://127.0.0.1:1", api_key="x")


def test_a_wrong_key(server):
    with pytest.raises(cove.AuthenticationError):
        cove.Sandbox.create(url=server.url, api_key="wrong")


def test_variables_name_the_server(server, monkeypatch):
    monkeypatch.setenv("COVE_URL", server.url + "/")
    monkeypatch.setenv("COVE_API_KEY", server.api_key)
    with cove.Client.open() as client:
        assert client.connection.url == server.url and client.me()["admin"]


def test_no_program_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("COVE_BINARY", raising=False)
    with pytest.raises(cove.ServerStartError, match="COVE_URL"):
        _server.find_binary()
    monkeypatch.setenv("COVE_BINARY", "/nowhere/cove")
    with pytest.raises(cove.ServerStartError, match="/nowhere/cove"):
        _server.find_binary()


def test_a_server_that_cannot_start_says_why(monkeypatch, tmp_path):
    fake = tmp_path / "cove"
    fake.write_text("#!/bin/sh\necho cove serve: no room >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("COVE_BINARY", str(fake))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with pytest.raises(cove.ServerStartError, match="no room"):
        _server.PrivateServer()
    assert os.listdir(tmp_path / "tmp") == []


def test_a_server_that_was_not_even_started_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("COVE_BINARY", "/bin/true")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setenv("COVE_LAYERS", "/nowhere/layers")
    with pytest.raises(cove.ServerStartError, match="/nowhere/layers"):
        _server.PrivateServer()
    monkeypatch.delenv("COVE_LAYERS")
    monkeypatch.setattr(_server.subprocess, "Popen", lambda *_a, **_k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _server.PrivateServer()
    assert os.listdir(tmp_path) == [] and set(os.listdir("/proc/self/fd")) == before
