"""The keeper's protocol by hand, and a keeper as a service. The layout of the records stands here
once for all tests; tests/unit/test_record.c holds the C structs to the same numbers."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass, field

from . import wire
from .cove import CLEAR, COVE
from .machine import comm
from .place import place
from .proc import children, wait_until

MAGIC, VERSION = 0x65766F43, 2
VERBS = (
    "create",
    "freeze",
    "thaw",
    "kill",
    "snapshot",
    "restore",
    "limits",
    "socket",
    "stat",
    "list",
    "adopt",
    "templates",
)
VERB = {name: number for number, name in enumerate(VERBS, 1)}
REPLY, LIMIT_MET, ENDED = 1, 2, 3
REASONS = ("request", "itself", "lifetime", "memory", "left", "failed")
STRICT, DURABLE, TIED, EAGER, STAY = 1, 2, 4, 8, 16
NONE, OPEN = 0, 1
READ_ONLY, GROUP = 1, 4               # flags of a mount
LIMITS = ("memory_bytes", "cpu_milli", "pids", "io_weight", "open_files", "disk_bytes", "log_bytes",
          "lifetime_ms")
STATE = (
    *LIMITS,
    "memory",
    "memory_peak",
    "cpu_us",
    "processes",
    "disk",
    "oom_kills",
    "memory_cache",
    "net_rx",
    "net_tx",
    "left_ms",
    "pid",
    "frozen",
    "network",
    "unenforced",
    "outdated",
    "stopped",
    "template",
    "asleep",
    "fresh",
    "flush_us",
)

HEAD = struct.Struct("=4IQ40s")         # magic version verb unused serial id
LIMITS_BODY = struct.Struct("=8Q")
CREATE = struct.Struct("=128s40s8Q4I")  # template snapshot limits network flags nmounts unused
MOUNT = struct.Struct("=256s256s2I")    # host guest flags unused
MOUNTS = 8
SOCKET = struct.Struct("=4I")           # port count v6 unused
ID = struct.Struct("=40s")
REQUEST_SIZE = HEAD.size + CREATE.size + MOUNTS * MOUNT.size
REPLY_HEAD = struct.Struct("=4IQ40s2I256s")  # magic version kind verb serial id code unused message
STATE_BODY = struct.Struct("=8Q9Qqi5I128s2IQ")
LIMIT_BODY = struct.Struct("=2I2Q")     # limit unused value use
LIST_BODY = struct.Struct("=2I" + 64 * "40s")
TEMPLATE = struct.Struct("=72s72s256s2I8Q")  # name user workdir kind unused limits
LIST_COUNT = struct.Struct("=2I")       # count unused
TEMPLATE_KINDS = ("host", "directory", "archive")
REPLY_TAIL = struct.Struct("=2I")       # reason status
REPLY_SIZE = REPLY_HEAD.size + LIST_BODY.size + REPLY_TAIL.size


class Names:
    """Ids of this session and test alone: cgroups have their names machine-wide, where others may
    run these tests too, and a layer's name is free only when the reaper has deleted it."""
    session, test = os.urandom(3).hex(), 0

    @classmethod
    def renew(cls):
        cls.test += 1

    @classmethod
    def suffix(cls):
        return f"-{cls.session}{cls.test}"

    @classmethod
    def strip(cls, text):
        return re.sub(rf"-{cls.session}\d+", "", text)


FILES_ONLY = struct.pack("=2I", 1, 0)   # of a freeze


def full(id):
    """The id that the keeper knows; bytes are as they are."""
    return id if isinstance(id, bytes) else (id and id + Names.suffix()).encode()


def head(verb, id="", serial=1, magic=MAGIC, version=VERSION):
    number = VERB[verb] if isinstance(verb, str) else verb
    return HEAD.pack(magic, version, number, 0, serial, full(id))


def request(verb, id="", body=b"", **more):
    """A whole record, filled up with zeroes."""
    return (head(verb, id, **more) + body).ljust(REQUEST_SIZE, b"\0")


def limits_body(**limits):
    return LIMITS_BODY.pack(*(limits.get(name, 0) for name in LIMITS))


def create_body(
    template="host", snapshot="", network=NONE, flags=0, mounts=(), nmounts=None, **limits
):
    """mounts: (host, guest) or (host, guest, flags)."""
    def raw(text):
        return text if isinstance(text, bytes) else text.encode()

    body = CREATE.pack(
        raw(template),
        raw(snapshot),
        *(limits.get(name, 0) for name in LIMITS),
        network,
        flags,
        len(mounts) if nmounts is None else nmounts,
        0,
    )
    for host, guest, *rest in mounts[:MOUNTS]:
        body += MOUNT.pack(raw(host), raw(guest), rest[0] if rest else 0, 0)
    return body


def text(raw):
    return Names.strip(raw.split(b"\0", 1)[0].decode())


@dataclass
class Answer:
    kind: int
    verb: int
    serial: int
    id: str
    code: int
    message: str
    state: dict
    limit: dict
    ids: list
    templates: list
    reason: str
    status: int
    fds: list = field(default_factory=list)


def template(data, i):
    name, user, workdir, kind, _, *limits = TEMPLATE.unpack_from(
        data, REPLY_HEAD.size + LIST_COUNT.size + i * TEMPLATE.size)
    return {"name": text(name), "user": text(user), "workdir": text(workdir),
            "kind": TEMPLATE_KINDS[kind], **dict(zip(LIMITS, limits))}


def parse(data, fds):
    assert len(data) == REPLY_SIZE, len(data)
    magic, version, kind, verb, serial, id, code, _, message = REPLY_HEAD.unpack_from(data)
    assert (magic, version) == (MAGIC, VERSION)
    reason, status = REPLY_TAIL.unpack_from(data, REPLY_HEAD.size + LIST_BODY.size)
    said = Answer(
        kind, verb, serial, text(id), code, text(message), {}, {}, [], [], REASONS[reason], status, fds
    )
    if kind == LIMIT_MET:
        limit, _, value, use = LIMIT_BODY.unpack_from(data, REPLY_HEAD.size)
        said.limit = {"limit": LIMITS[limit], "value": value, "use": use}
    elif kind == REPLY and verb == VERB["list"]:
        count, _, *ids = LIST_BODY.unpack_from(data, REPLY_HEAD.size)
        said.ids = [raw.rstrip(b"\0") for raw in ids[:count]]
    elif kind == REPLY and verb == VERB["templates"]:
        said.templates = [template(data, i) for i in range(LIST_COUNT.unpack_from(
            data, REPLY_HEAD.size)[0])]
    else:
        said.state = dict(zip(STATE, STATE_BODY.unpack_from(data, REPLY_HEAD.size)))
        said.state["template"] = text(said.state["template"])
    return said


class Refused(Exception):
    def __init__(self, answer):
        super().__init__(answer.message)
        self.code, self.message = answer.code, answer.message


class Client:
    """One connection to a keeper."""

    def __init__(self, run_dir, timeout=15):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        try:
            self.sock.connect(str(pathlib.Path(run_dir, "keep.sock")))
        except BaseException:
            self.sock.close()
            raise
        self.serial = 0
        self.events = []                # those that came while an answer was awaited

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data, fds=()):
        if fds:
            socket.send_fds(self.sock, [data], fds)
        else:
            self.sock.send(data)

    def receive(self):
        """The next record of any kind."""
        data, fds, _, _ = socket.recv_fds(self.sock, REPLY_SIZE + 1, 16)
        assert data, "the keeper hung up"
        return parse(data, fds)

    def answer(self):
        while True:
            one = self.receive()
            if one.kind == REPLY:
                return one
            self.events.append(one)

    def event(self, kind, id):
        """The next event of this kind about this sandbox; others are forgotten."""
        while True:
            one = self.events.pop(0) if self.events else self.receive()
            if (one.kind, one.id) == (kind, id):
                return one

    def ask(self, verb, id="", body=b""):
        self.serial += 1
        self.send(request(verb, id, body, serial=self.serial))
        reply = self.answer()
        assert reply.serial == self.serial
        return reply

    def call(self, verb, id="", body=b""):
        reply = self.ask(verb, id, body)
        if reply.code:
            raise Refused(reply)
        assert reply.verb == VERB[verb] and reply.id == text(full(id)), reply
        return reply

    def create(self, id, **more):
        return self.call("create", id, create_body(**more))

    def kill(self, id):
        return self.call("kill", id)

    def stat(self, id):
        return self.call("stat", id).state

    def list_all(self, after=b""):
        """As the keeper knows them."""
        reply = self.ask("list", after)
        assert reply.code == 0, reply
        return reply.ids

    def list(self, after=b""):
        return [text(id) for id in self.list_all(after)]

    def templates(self, after=""):
        reply = self.ask("templates", "", after.encode().ljust(72, b"\0"))
        assert reply.code == 0, reply
        return reply.templates

    def end_all(self):
        self.events.clear()
        while ids := self.list_all():
            for id in ids:
                with contextlib.suppress(Refused):  # it may be ending already
                    self.kill(id)

    def sockets(self, id, port=0, count=1, v6=False):
        reply = self.call("socket", id, SOCKET.pack(port, count, v6, 0))
        sockets = [socket.socket(fileno=fd) for fd in reply.fds]
        for one in sockets:
            one.settimeout(10)
        return sockets

    def wire(self, id):
        return Guest(self, id)


class Guest(wire.Wire):
    """The guest of a sandbox, over connections that the keeper gives."""

    def __init__(self, client, id):
        super().__init__()
        self.client, self.id = client, id

    def connect(self, kind=None):
        connection = wire.http.client.HTTPConnection("guest", timeout=self.timeout)
        connection.sock, = self.client.sockets(self.id)
        connection.sock.settimeout(self.timeout)
        return connection

    def run(self, *argv, user=None, **more):
        """What a command prints; it has to succeed."""
        headers = (
            {"Authorization": "Basic " + wire.base64.b64encode(f"{user}:".encode()).decode()}
            if user
            else None
        )
        with self.start(*argv, headers=headers, **more) as stream:
            out = stream.collect()
        assert out.end.get("exitCode", 0) == 0 and out.end["exited"], (argv, out)
        return out.stdout.decode()


class Keeper:
    """`cove keep` on a data directory and a run directory."""

    def __init__(self, data, run_dir, *options):
        self.data, self.run_dir, self.options = data, pathlib.Path(run_dir), options
        self.log = self.run_dir.with_suffix(".log")
        self.start()

    @property
    def place(self):
        """What is its own in the run directory."""
        return place(self.run_dir, self.data)

    def child(self, called):
        """One of its processes. It takes its name a moment after it was made."""
        return wait_until(lambda: next((pid for pid in children(self.process.pid) if comm(pid) == called), None), f"no {called}")

    def idle(self):
        """How many descriptors it has when nobody wants anything: the stock is full."""
        while (now := self.descriptors()) != (time.sleep(0.2), self.descriptors())[1]:
            continue
        return now

    def start(self, *before):
        """before: words in front of the command."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [
                    *before,
                    COVE,
                    "keep",
                    "--data-dir",
                    self.data,
                    "--run-dir",
                    self.run_dir,
                    *map(str, self.options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=CLEAR,
            )
        wait_until(self.answers, f"a keeper in {self.run_dir}", 20)

    def answers(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            with self.client() as client:
                client.list()
                return True
        except (OSError, AssertionError):
            return False

    def client(self, **more):
        return Client(self.place, **more)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def stop(self):
        """Ends it as a service manager would; sandboxes go on."""
        assert self.process.poll() is None, self.log.read_text()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(15)
        assert status == 0, f"the keeper ended with {status}: {self.log.read_text()}"

    def end_all(self):
        """No sandbox outlives the tests."""
        if self.process.poll() is not None:
            self.start()
        with self.client() as client:
            client.end_all()
        self.stop()
