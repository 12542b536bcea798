"""The guest's protocol by hand: plain HTTP, and Connect as JSON with its envelopes. For what the
SDK hides (offsets, lost bytes, exact end events) or cannot do (ranges, slow readers)."""

import base64
import http.client
import json
import socket
import struct
import urllib.parse
from dataclasses import dataclass, field

END = 0x02                              # the flag of the envelope that ends a stream


class Connection(http.client.HTTPConnection):
    """Adds to each request the headers that say which sandbox it is for."""

    routing = {}

    def putrequest(self, *args, **kwargs):
        super().putrequest(*args, **kwargs)
        for name, value in self.routing.items():
            self.putheader(name, value)


class UnixConnection(Connection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class SmallBuffers(Connection):
    """A client whose receive buffer holds little, so that the sender soon notices it stalling."""

    def connect(self):
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()


def envelope(message, flags=0):
    payload = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(payload)) + payload


def files_path(path, **query):
    return "/files?" + urllib.parse.urlencode({"path": path, **query}, quote_via=urllib.parse.quote)


class Wire:
    """routing: headers by which a server between us and the guest knows it."""

    def __init__(self, port=None, path=None, token=None, timeout=30, routing=None):
        self.port, self.path, self.token, self.timeout = port, path, token, timeout
        self.routing = routing or {}

    def connect(self, kind=Connection):
        if self.path:
            return UnixConnection(self.path, self.timeout)
        connection = kind("127.0.0.1", self.port, timeout=self.timeout)
        connection.routing = self.routing
        return connection

    def headers(self, given):
        return ({"X-Access-Token": self.token} if self.token else {}) | (given or {})

    def request(self, method, target, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, target, body, self.headers(headers))
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def get(self, target, **headers):
        return self.request("GET", target, headers=headers)

    def upload(self, path, data, headers=None, **query):
        return self.request("POST", files_path(path, **query), data,
                            {"Content-Type": "application/octet-stream"} | (headers or {}))

    def rpc(self, name, message, headers=None):
        """A unary call; name like "process.Process/List"."""
        return self.request("POST", "/" + name, json.dumps(message),
                            {"Content-Type": "application/json"} | (headers or {}))

    def process(self, method, message, headers=None):
        return self.rpc("process.Process/" + method, message, headers)

    def filesystem(self, method, message, headers=None):
        return self.rpc("filesystem.Filesystem/" + method, message, headers)

    def stream(self, name, message, headers=None, kind=Connection):
        connection = self.connect(kind)
        connection.request("POST", "/" + name, envelope(message), self.headers(
            {"Content-Type": "application/connect+json"} | (headers or {})))
        return Stream(connection)

    def start(self, *argv, headers=None, kind=Connection, envs=None, cwd=None,
              **request):
        """Starts a process; request may hold stdin, tag, pty."""
        config = {"cmd": argv[0], "args": list(argv[1:])}
        config |= ({"envs": envs} if envs else {}) | ({"cwd": cwd} if cwd else {})
        stream = self.stream("process.Process/Start", {"process": config, "stdin": False} | request,
                             headers, kind)
        stream.read_start()
        return stream

    def follow(self, pid, offset=None, headers=None, kind=Connection, gaps=False):
        """gaps: bytes that are not kept any more are counted, and no error."""
        headers = dict(headers or {}) | ({"Cove-Output-Lost": "tell"} if gaps else {})
        if offset is not None:
            headers["Cove-Output-Offset"] = str(offset)
        stream = self.stream("process.Process/Connect", {"process": {"pid": pid}}, headers, kind)
        stream.read_start()
        return stream

    def running(self):
        return {p["pid"]: p for p in self.process("List", {}).json.get("processes", [])}

    def kill(self, pid, signal="SIGNAL_SIGKILL"):
        return self.process("SendSignal", {"process": {"pid": pid}, "signal": signal})


@dataclass
class Output:
    """Everything one stream told, with the checks that hold for every stream."""
    data: dict = field(default_factory=lambda: {"stdout": b"", "stderr": b"", "pty": b""})
    lost: int = 0
    end: dict = None
    error: dict = None

    @property
    def stdout(self):
        return self.data["stdout"]

    @property
    def stderr(self):
        return self.data["stderr"]


class Stream:
    """A server stream: iterate over its messages; error is what its last envelope said."""

    def __init__(self, connection):
        self.connection = connection
        self.reply = connection.getresponse()
        self.status, self.headers = self.reply.status, self.reply.headers
        self.ended, self.error, self.pid, self.offset = False, None, None, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.reply.close()
        self.connection.close()

    def read_message(self):
        """The next message; None after the last."""
        if self.ended:
            return None
        flags, size = struct.unpack(">BI", self.exactly(5))
        message = json.loads(self.exactly(size))
        if not flags & END:
            return message
        self.ended, self.error = True, message.get("error")
        assert self.reply.read() == b"", "bytes after the end of the stream"
        return None

    def exactly(self, size):
        data = self.reply.read(size)
        assert len(data) == size, f"the stream broke off after {len(data)} of {size} bytes"
        return data

    def __iter__(self):
        while (message := self.read_message()) is not None:
            yield message

    # --- streams of a process ---

    def read_start(self):
        message = self.read_message()
        if message is None:
            raise RpcError(self.error)
        self.pid = message["event"]["start"]["pid"]
        self.offset = int(message["event"]["offset"])

    def events(self):
        """Events after the start, as (kind, value); checks that the offsets have no gap. Data is
        ("stdout" | "stderr" | "pty", bytes)."""
        for message in self:
            event = message["event"]
            assert int(event["offset"]) == self.offset, "an offset is not where the last ended"
            kinds = event.keys() - {"offset"}
            assert len(kinds) == 1, event
            kind = kinds.pop()
            value = event[kind]
            if kind == "data":
                (kind, text), = value.items()
                value = base64.b64decode(text)
                self.offset += len(value)
            elif kind == "lost":
                value = int(value["bytes"])
                self.offset += value
            yield kind, value

    def collect(self):
        out = Output()
        for kind, value in self.events():
            assert out.end is None, "an event after the end"
            if kind in out.data:
                out.data[kind] += value
            elif kind == "lost":
                out.lost += value
            elif kind == "end":
                out.end = value
            else:
                assert kind == "keepalive", kind
        out.error = self.error
        return out


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(str(error))
        self.code, self.message = error["code"], error["message"]
