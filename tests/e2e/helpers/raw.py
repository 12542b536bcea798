"""A client that can be as wrong as it likes: bytes go out as they are, and the socket can be closed
or reset at any moment. refused() is what every answer to bad input must look like."""

import json
import re
import socket
import struct
import time
from dataclasses import dataclass

from .guest import SLOWER
from .wire import END, envelope

WAIT_S = 10 * SLOWER
CODES = {                               # of Connect, with the HTTP status of a unary answer
    "invalid_argument": 400, "failed_precondition": 400, "unauthenticated": 401, "not_found": 404,
    "already_exists": 409, "resource_exhausted": 413, "unimplemented": 501,
    "deadline_exceeded": 504,
}


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Raw:
    """One connection."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.input = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def leave(self, how):
        getattr(self, how)()

    def fill(self):
        data = self.sock.recv(65536)
        assert data, f"the guest closed after {self.input!r}"
        self.input += data

    def take(self, size):
        while len(self.input) < size:
            self.fill()
        data, self.input = self.input[:size], self.input[size:]
        return data

    def line(self):
        while b"\r\n" not in self.input:
            self.fill()
        data, self.input = self.input.split(b"\r\n", 1)
        return data

    def head(self):
        version, status, _ = self.line().split(b" ", 2)
        assert version == b"HTTP/1.1"
        headers = {}
        while line := self.line():
            name, value = line.decode("latin-1").split(": ", 1)
            headers[name.lower()] = value
        return int(status), headers

    def answer(self):
        """One whole answer, as its framing says."""
        status, headers = self.head()
        if status == 204:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") != "chunked":
            return Answer(status, headers, self.take(int(headers["content-length"])))
        body = b""
        while size := int(self.line(), 16):
            body += self.take(size)
            assert self.line() == b""
        assert self.line() == b""
        return Answer(status, headers, body)

    def closed(self):
        """Does the guest end the connection, with nothing more said?"""
        try:
            return not self.input and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def request(method, target, body=None, *headers):
    """The bytes of a request; body None: none, and no length either."""
    lines = [f"{method} {target} HTTP/1.1", "Host: guest", *headers]
    lines += [] if body is None else [f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def head(method, target, *headers):
    return request(method, target, None, *headers)


def ask(port, data):
    """One request and its answer, over a connection of their own."""
    with Raw(port) as raw:
        raw.send(data)
        return raw.answer()


def end_of(body):
    """The error in the last envelope of a stream that told nothing else."""
    flags, size = struct.unpack(">BI", body[:5])
    assert flags == END and len(body) == 5 + size, body
    return json.loads(body[5:])["error"]


def refused(answer, kind, code, *words):
    """Is this the refusal it must be? kind is rest, unary or stream; code is a status for rest and
    Connect's name for the others; each word is in the message. Returns the message."""
    if kind == "stream":
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/connect+json"
        error = end_of(answer.body)
    else:
        assert answer.status == (code if kind == "rest" else CODES[code]), answer
        assert answer.headers["content-type"] == "application/json"
        error = answer.json
    assert error.keys() == {"code", "message"}, error
    assert error["code"] == code, error
    for word in words:
        assert word in error["message"], error
    assert re.search(r"\w{3}", error["message"]), error
    return error["message"]


class Checked:
    """Sees that a guest is after each test as it was before: it serves, with the same descriptors."""

    def __init__(self, guest):
        self.guest = guest
        self.idle = len(guest.settle(wanted=0, timeout=0.3))

    def check(self, timeout=5):
        # Connections are accepted in their order: behind this one, none is still to come.
        assert ask(self.guest.port, head("GET", "/health")).status == 204
        until = time.monotonic() + timeout * SLOWER
        while len(now := self.guest.descriptors()) != self.idle:
            assert time.monotonic() < until, f"{len(now)} descriptors, {self.idle} before: {now}"
            time.sleep(0.005)
        assert self.guest.process.poll() is None


PLAIN = "Content-Type: application/json"
STREAM = "Content-Type: application/connect+json"
OCTET = "Content-Type: application/octet-stream"


def call(name, message, *headers):
    """A unary call of Connect; the message is JSON text, or what becomes it."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return request("POST", "/" + name, body, PLAIN, *headers)


def stream(name, message, *headers):
    """A stream's request: its one envelope."""
    return request("POST", "/" + name, envelope(message), STREAM, *headers)
