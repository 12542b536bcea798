"""WebSocket from outside: raw frames for a few rules of RFC 6455 (tests/unit/test_ws_rules.c has them
all), the websockets package for what a decent peer does, and the Autobahn suite where it is at hand.

The peer is ws-echo (ws_echo.c) in the build directory that COVE_BUILD names."""

import base64
import json
import os
import pathlib
import shlex
import socket
import struct
import subprocess
import threading

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

ROOT = pathlib.Path(__file__).resolve().parents[2]
ECHO = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build")) / "tests/e2e/ws-echo"

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MIB = 1 << 20


@pytest.fixture(scope="module")
def port():
    with subprocess.Popen([ECHO, "0"], stdout=subprocess.PIPE, text=True) as process:
        word, number = process.stdout.readline().split()
        assert word == "ready"
        yield int(number)
        assert process.poll() is None, "the server ended during the tests"
        process.terminate()


# ---- raw frames ----


def frame(op, payload=b"", fin=True, rsv=0, mask=b"\x37\xfa\x21\x3d", size=None):
    """One frame; size lets its header lie."""
    size = len(payload) if size is None else size
    bit = 0x80 if mask else 0
    head = bytes([fin << 7 | rsv << 4 | op])
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if mask:
        head += mask
        payload = bytes(c ^ mask[i % 4] for i, c in enumerate(payload))
    return head + payload


def closing(code, reason=b""):
    return struct.pack(">H", code) + reason


class Raw:
    """A client that says what it is told to, right or wrong."""

    def __init__(self, port, path="/", headers=()):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")
        lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)).decode(), *headers]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode())
        self.status = self.file.readline().split()[1]
        while self.file.readline() != b"\r\n":
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()

    def send(self, data, step=None):
        for at in range(0, len(data), step or len(data) or 1):
            self.sock.sendall(data[at : at + (step or len(data))])

    def take(self):
        """(first byte, payload) of the next frame; None at the end of the stream."""
        head = self.file.read(2)
        if not head:
            return None
        size = head[1]
        assert size < 128, "a server does not mask"
        if size >= 126:
            size = int.from_bytes(self.file.read(2 if size == 126 else 8), "big")
        return head[0], self.file.read(size)


def final(op):
    return 0x80 | op


GOOD = {  # what is sent, and the frames that come back
    "size-65536": ([frame(BINARY, b"*" * 65536)], [(final(BINARY), b"*" * 65536)]),
    "ping between": (
        [frame(TEXT, b"a", fin=False), frame(PING, b"1"), frame(CONT, b"b", fin=False),
         frame(PING, b"2"), frame(CONT, b"c")],
        [(final(PONG), b"1"), (final(PONG), b"2"), (final(TEXT), b"abc")]),
    "after close": ([frame(CLOSE, closing(1000)), frame(TEXT, b"late"), frame(PING)],
                    [(final(CLOSE), closing(1000)), None]),
}


@pytest.mark.core
@pytest.mark.parametrize("step", [None, 1], ids=["whole", "bytewise"])
@pytest.mark.parametrize("name", GOOD)
def test_what_the_rfc_allows(port, name, step):
    sent, expected = GOOD[name]
    if step and sum(map(len, sent)) > 1000:
        step = 997
    with Raw(port) as raw:
        raw.send(b"".join(sent), step)
        for want in expected:
            assert raw.take() == want


BAD = {  # what is sent, and the code it is refused with
    "no mask": (frame(TEXT, b"x", mask=None), 1002),
    "bad over fragments": (frame(TEXT, b"\xf4", fin=False) + frame(CONT, b"\x90", fin=False), 1007),
    "too large": (frame(BINARY, size=16 * MIB + 1), 1009),
}


@pytest.mark.core
@pytest.mark.parametrize("step", [None, 1], ids=["whole", "bytewise"])
@pytest.mark.parametrize("name", BAD)
def test_what_the_rfc_forbids(port, name, step):
    sent, code = BAD[name]
    with Raw(port) as raw:
        raw.send(sent, step)
        first, payload = raw.take()
        while first == final(TEXT):  # a whole message went before
            first, payload = raw.take()
        assert (first, payload[:2]) == (final(CLOSE), closing(code))
        assert payload[2:].decode()
        assert raw.take() is None


@pytest.mark.core
def test_our_close_survives_input_that_nobody_reads(port):
    with Raw(port) as raw:
        raw.send(frame(TEXT, b"\xff") + frame(BINARY, b"x" * 100_000) * 5)
        assert raw.take()[1][:2] == closing(1007)


def test_a_client_that_just_leaves_disturbs_nobody(port):
    for cut in range(1, 12):
        with Raw(port) as raw:
            raw.send(frame(TEXT, b"Hello")[:cut])
    with Raw(port) as raw:
        raw.send(frame(TEXT, b"still here"))
        assert raw.take() == (final(TEXT), b"still here")


@pytest.mark.core
def test_extensions_are_not_negotiated(port):
    with Raw(port, headers=["Sec-WebSocket-Extensions: permessage-deflate"]) as raw:
        assert raw.status == b"101"
        raw.send(frame(TEXT, b"x", rsv=4))
        assert raw.take()[1][:2] == closing(1002)


# ---- the websockets package as client ----


# This client does not read while it sends; /pieces answers before it has all, and would wait for
# ever with more than the sockets can hold.
@pytest.mark.parametrize("path, size", [
    *(pytest.param(path, size, marks=[pytest.mark.core] if size == 65536 else [])
      for path in ("/", "/pieces") for size in (0, 1, 125, 126, 65535, 65536, MIB)),
    ("/", 15 * MIB)])
def test_echo(port, path, size):
    with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as ws:
        ws.send("ä" * (size // 2))
        assert ws.recv() == "ä" * (size // 2)
        data = os.urandom(size)
        ws.send(data)
        assert ws.recv() == data


@pytest.mark.core
@pytest.mark.parametrize("path", ["/", "/pieces"])
def test_fragments(port, path):
    parts = ["Grü", "", "ße ", "aus ", "vielen " * 10_000, "Teilen"]
    with connect(f"ws://127.0.0.1:{port}{path}") as ws:
        ws.send(iter(parts))
        assert ws.recv() == "".join(parts)
        ws.send(iter([b"\0", b"\xff" * 70_000]))
        assert ws.recv() == b"\0" + b"\xff" * 70_000


@pytest.mark.core
def test_pieces_arrive_before_the_message_ends(port):
    with Raw(port, "/pieces") as raw:
        raw.send(frame(TEXT, b"now", fin=False))
        assert raw.take() == (TEXT, b"now")
        raw.send(frame(CONT, b"then"))
        assert raw.take() == (final(CONT), b"then")


def test_many_messages_in_flight_keep_their_order(port):
    with connect(f"ws://127.0.0.1:{port}/") as ws:
        for i in range(2000):
            ws.send(str(i))
        assert [ws.recv() for _ in range(2000)] == [str(i) for i in range(2000)]


@pytest.mark.parametrize("offered, agreed", [
    (["echo"], "echo"), pytest.param(["echo", "echo.v2"], "echo.v2", marks=pytest.mark.core),
    (["ECHO", "none"], None), (None, None)])
def test_subprotocols(port, offered, agreed):
    with connect(f"ws://127.0.0.1:{port}/", subprotocols=offered) as ws:
        assert ws.subprotocol == agreed


@pytest.mark.core
def test_ping_and_close(port):
    with connect(f"ws://127.0.0.1:{port}/") as ws:
        assert ws.ping(b"are you there").wait(5)
        ws.close(1001, "leaving")
        assert ws.close_code == 1001


@pytest.mark.core
def test_the_server_closes_first(port):
    with connect(f"ws://127.0.0.1:{port}/close") as ws:
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(timeout=5)
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "enough")
    assert closed.value.sent.code == 4001


@pytest.mark.core
def test_other_paths_are_no_websocket(port):
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{port}/nothing")
    assert refused.value.response.status_code == 404


# ---- our client, the websockets package as server ----


@pytest.mark.parametrize("size", [0, 5, 126, pytest.param(65536, marks=pytest.mark.core), MIB])
def test_our_client(size):
    seen = []

    def talk(ws):
        ws.send(iter(["x" * size, "y"]))
        seen.append(ws.recv())
        data = os.urandom(size)
        ws.send(data)
        seen.append(ws.recv() == data)
        seen.append(ws.ping().wait(5))
        ws.close(1000, "done")
        seen.append(ws.close_code)

    with serve(talk, "127.0.0.1", 0, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.socket.getsockname()[1]
        done = subprocess.run([ECHO, "connect", str(port), "/"], timeout=20)
        server.shutdown()
    assert done.returncode == 0
    assert seen == ["x" * size + "y", True, True, 1000]


# ---- Autobahn ----


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif("COVE_WSTEST" not in os.environ,
                    reason="COVE_WSTEST does not name Autobahn's wstest (it needs Python 2.7)")
def test_autobahn(port, tmp_path):
    """Nothing but compression is left out, and of the performance cases all but a sample."""
    spec = {"outdir": str(tmp_path),
            "servers": [{"agent": "cove", "url": f"ws://127.0.0.1:{port}"}],
            "cases": ["*"], "exclude-agent-cases": {},
            "exclude-cases": ["12.*", "13.*", *(f"9.{n}.*" for n in range(3, 9)), "9.1.6", "9.2.6"]}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    subprocess.run([*shlex.split(os.environ["COVE_WSTEST"]), "-m", "fuzzingclient",
                    "-s", tmp_path / "spec.json"],
                   check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    cases = json.loads((tmp_path / "index.json").read_text())["cove"]
    fine = {"OK", "NON-STRICT", "INFORMATIONAL"}
    wrong = {name: case for name, case in cases.items()
             if case["behavior"] not in fine or case["behaviorClose"] not in fine}
    assert len(cases) > 240 and not wrong
