"""Forwarded ports: why there is no connection, and two threads on one encrypted one."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading

import pytest

import cove
from cove import _server
from cove._config import Connection
from cove._tunnel import Tunnel, _Secure

ANSWER = b"y" * 200_000


def test_why_there_is_no_connection_is_told(sandbox, caplog):
    with sandbox.ports.forward(7999) as tunnel:
        assert tunnel.problem is None
        with socket.create_connection((tunnel.host, tunnel.port), 60) as outer:
            with pytest.raises(ConnectionResetError):  # not an end, as of an empty answer
                outer.recv(1)
        assert isinstance(tunnel.problem, cove.PortClosedError)
    assert "7999" in caplog.text and "not open" in caplog.text


def test_a_connection_that_breaks_is_no_end():
    heard = threading.Event()

    def break_off(listener):
        inner, _ = listener.accept()
        while b"\r\n\r\n" not in inner.recv(65536):
            pass
        inner.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\nhalf")
        heard.wait(10)
        inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        inner.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=break_off, args=(listener,), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Tunnel(Connection(url, "key"), "i1", 7000, "127.0.0.1", 0) as tunnel:
            with socket.create_connection((tunnel.host, tunnel.port), 10) as outer:
                assert outer.recv(4) == b"half"
                heard.set()
                with pytest.raises(ConnectionResetError):
                    outer.recv(1)
        server.join(10)


@pytest.fixture
def certificate(tmp_path):
    binary = _server.find_binary()
    subprocess.run([binary, "tls", "init", "--data", tmp_path], check=True, capture_output=True)
    return tmp_path / "tls"


class Turns:
    """A lock of one thread's, which lets another one in whenever it is free."""

    def __init__(self, lock, other):
        self._lock, self._other, self._own = lock, other, threading.get_ident()

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_exc):
        self._lock.release()
        other, self._other = self._other, None
        if other and threading.get_ident() == self._own:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(10)


def test_an_end_of_ours_loses_nothing_of_the_answer(certificate):
    """Bytes that are there and not decrypted yet would be in the way of our end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "server.pem", certificate / "server.key")

    def answer(listener):
        with context.wrap_socket(listener.accept()[0], server_side=True) as inner:
            inner.sendall(ANSWER)
            while inner.recv(65536):
                pass
            inner.unwrap()  # without an end of its own the answer is one that broke off

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer, args=(listener,), daemon=True)
        server.start()
        raw = socket.create_connection(listener.getsockname(), 10)
        with _Secure(raw, "127.0.0.1", str(certificate / "ca.pem")) as secure:
            found = bytearray(secure.recv(10_000))
            secure._state = Turns(secure._state, lambda: secure.shutdown(socket.SHUT_WR))
            while piece := secure.recv(65536):
                found += piece
        assert bytes(found) == ANSWER
        server.join(10)
