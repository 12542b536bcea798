"""Files between sandboxes and URLs: both ways, whole or not at all; and that this server is nobody's way to
its own machine or network."""

import contextlib
import http.server
import os
import pathlib
import threading

import pytest

from helpers.contract import Contract, add_user
from helpers.serve import Serve

SIGNATURE = "X-Signature=do-not-log-me"


class Far(http.server.BaseHTTPRequestHandler):
    """A server of files: what is PUT can be had, some paths misbehave."""

    protocol_version = "HTTP/1.1"
    files, seen = {}, []

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        self.seen.append(("GET", path))
        if path == "/redirect":
            return self.answer(302, Location=self.path.split("to=")[1])
        if path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            return self.connection.close()
        body = self.files.get(path)
        return self.answer(404) if body is None else self.answer(200, body)

    def do_PUT(self):
        path = self.path.split("?")[0]
        self.seen.append(("PUT", path))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if path == "/forbidden":
            return self.answer(403, b"<Error>SignatureDoesNotMatch</Error>")
        self.files[path] = body
        return self.answer(200)

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def far_server():
    Far.files.clear()
    Far.seen.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Far)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def far():
    with far_server() as url:
        yield url


@pytest.fixture(scope="module")
def reaching(workspace):
    """A server whose operator lets it reach this machine, and a user of it with a sandbox."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    started = Serve(pathlib.Path(workspace) / "contract-urls", "--ephemeral", "--log-level", "debug",
                    "--fetch-allow", "127.0.0.0/8", "--set", "contract.upload-bytes=3000000")
    user = Contract(started, add_user(started, "ursula"))
    user.box = user.create()["sandbox_id"]
    yield user
    started.close()


def pull(user, url, path="/tmp/pulled"):
    return user.call("POST", "upload-file-from-url", {"sandbox_id": user.box, "file_path": path, "url": url})


def push(user, path, url, **more):
    return user.call("POST", "download-to-presigned-url",
                     {"sandbox_id": user.box, "sandbox_path": path, "presigned_url": url} | more)


@pytest.mark.core
def test_a_file_goes_there_and_comes_back(reaching, far):
    user, raw = reaching, os.urandom(2_000_000)
    Far.files["/in"] = raw
    reply = pull(user, f"{far}/in?{SIGNATURE}", "/tmp/deep/in")
    assert reply.status == 200 and "/tmp/deep/in" in reply.json["data"]["message"], reply
    for number, format in enumerate(("text", "bytes")):
        reply = push(user, "/tmp/deep/in", f"{far}/out{number}?{SIGNATURE}", format=format)
        assert reply.status == 200 and reply.json["data"]["success"] is True, reply
        assert Far.files[f"/out{number}"] == raw
    Far.files["/empty"] = b""
    assert pull(user, f"{far}/empty").status == 200
    assert user.read(user.box, "/tmp/pulled")["content"] == ""
    assert push(user, "/tmp/pulled", f"{far}/empty-out").status == 200 and Far.files["/empty-out"] == b""
    assert b"do-not-log-me" not in user.server.log.read_bytes()


def test_redirects_are_followed_and_failures_leave_no_file(reaching, far):
    user = reaching
    Far.files["/in"] = b"moved"
    assert pull(user, f"{far}/redirect?to={far}/in").status == 200
    assert user.read(user.box, "/tmp/pulled")["content"] == "moved"
    for url, status in ((f"{far}/none", 500), (f"{far}/short", 500), ("http://127.0.0.1:1/", 500),
                        ("ftp://example.com/x", 422), ("nonsense", 422), ("file:///etc/passwd", 422),
                        (f"{far}/redirect?to=file:///etc/passwd", 422),
                        (f"{far}/redirect?to=http://10.0.0.1/", 403),
                        (f"{far}/redirect?to=http://169.254.169.254/latest/", 403)):
        reply = pull(user, url, "/tmp/absent")
        assert reply.status == status, (url, reply)
        assert "do-not-log-me" not in reply.json["msg"]
    assert user.run(user.box, "test -e /tmp/absent")["success"] is False
    assert push(user, "/tmp/none", f"{far}/x").status == 404
    assert push(user, "/tmp", f"{far}/x").status == 422
    user.write(user.box, "/tmp/some", "some")
    assert push(user, "/tmp/some", f"{far}/forbidden").status == 500
    assert pull(user, f"{far}/in", "/tmp").status == 422


def test_what_is_too_large_is_refused(reaching, far):
    user = reaching
    Far.files["/large"] = b"x" * 3_000_001
    assert pull(user, f"{far}/large", "/tmp/absent").status == 413
    assert user.run(user.box, "test -e /tmp/absent")["success"] is False
    user.run(user.box, "truncate -s 3000001 /tmp/large")
    reply = push(user, "/tmp/large", f"{far}/x")
    assert reply.status == 413 and "contract.upload-bytes" in reply.json["msg"]


def test_without_leave_nothing_of_this_machine_or_its_networks_is_reached(server, far):
    user = Contract(server, add_user(server, "ssrf"))
    user.box = user.create()["sandbox_id"]
    port = far.rsplit(":")[-1]
    user.write(user.box, "/tmp/secret", "leaves")
    try:
        for host in ("127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0",
                     "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "169.254.169.254",
                     "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "[fe80::1]", "[fd00::1]",
                     "[64:ff9b::7f00:1]", "0.0.0.0", "255.255.255.255", "224.0.0.1"):
            url = f"http://{host}:{port}/in"
            for reply in (pull(user, url), push(user, "/tmp/secret", url)):
                assert reply.status in (403, 404, 422), (host, reply)
        assert Far.seen == []           # nobody has even knocked
    finally:
        user.delete(user.box)
