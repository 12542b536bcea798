"""The client by way of TLS: requests, streams, and a forwarded port of which each direction ends by itself."""

from __future__ import annotations

import shlex
import socket
import subprocess

import pytest

import cove
from cove import _server

ECHO = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
while True:
    inner, _ = listener.accept()
    count = 0
    while data := inner.recv(65536):
        count += len(data)
    inner.sendall(b"%d" % count + b"y" * 3_000_000)
    inner.close()
"""


@pytest.fixture
def secure(monkeypatch, tmp_path):
    """A private server that speaks TLS, and its CA in the environment."""
    binary, data = _server.find_binary(), tmp_path / "ca"
    subprocess.run([binary, "tls", "init", "--data", data], check=True, capture_output=True)
    words = [binary, '"$@"', "--tls-cert", data / "tls" / "server.pem"]
    words += ["--tls-key", data / "tls" / "server.key"]
    line = " ".join(w if w == '"$@"' else shlex.quote(str(w)) for w in words)
    wrapped = tmp_path / "cove"
    wrapped.write_text(f"#!/bin/sh\nexec {line}\n")
    wrapped.chmod(0o755)
    monkeypatch.setenv("COVE_BINARY", str(wrapped))
    made = _server.PrivateServer()
    monkeypatch.setenv("COVE_URL", made.url)
    monkeypatch.setenv("COVE_API_KEY", made.api_key)
    monkeypatch.setenv("COVE_CA_FILE", str(data / "tls" / "ca.pem"))
    yield made
    made.stop()


def ask(tunnel, data):
    with socket.create_connection((tunnel.host, tunnel.port), 60) as outer:
        outer.sendall(data)
        outer.shutdown(socket.SHUT_WR)
        found = bytearray()
        while piece := outer.recv(65536):
            found += piece
        return bytes(found)


def test_a_server_with_tls(secure, monkeypatch):
    assert secure.url.startswith("https://")
    with cove.Sandbox.create() as sandbox:
        sandbox.files.write("echo.py", ECHO)
        assert sandbox.files.read("echo.py") == ECHO
        echo = sandbox.commands.start("python3 echo.py")
        next(iter(echo))
        with sandbox.ports.forward(7000) as tunnel:
            for _ in range(3):
                assert ask(tunnel, b"z" * 2_000_000) == b"2000000" + b"y" * 3_000_000
        echo.kill()
        echo.close()
    monkeypatch.delenv("COVE_CA_FILE")
    with pytest.raises(cove.ConnectionLostError, match="certificate"):
        cove.Sandbox.create()
