"""`cove serve` as a service, on a data directory of its own, and its API over plain HTTP."""

import contextlib
import http.client
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import time
import urllib.parse
from dataclasses import dataclass

from . import machine, proc
from .cove import CLEAR, for_anybody
from .guest import SLOWER
from .place import place
from .proc import alive, children, wait_until

READY = "cove: ready on "
# Of a test's server little is asked: as large as by default, several at once would take much of a disk.
VOLUME = {"volume.initial-bytes": 256 << 20, "volume.step-bytes": 512 << 20, "volume.low-bytes": 128 << 20}
START_S = 90 * SLOWER                   # the first start makes a volume and template host


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def message(self):
        return self.json["message"]


def descendants(pid):
    found, todo = set(), [pid]
    while todo:
        more = set()
        with contextlib.suppress(OSError):  # it may just have ended
            more = children(todo.pop())
        found |= more
        todo += more
    return found


class Serve:
    """Started when made; stop() ends it as a service manager would and looks at what is left."""

    caller = {}                         # who starts it, as Popen wants to know it
    before = []                         # words that start it, as `unshare` does

    def __init__(self, folder, *options, env=None, listen="127.0.0.1:0"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o755)        # the server becomes another user
        self.data, self.run_dir = self.folder / "data", self.folder / "run"
        self.log = self.folder / "serve.log"
        self.family = set()
        self.options, self.env = [*map(str, options)], env or {}
        if not any("volume." in option for option in self.options):
            self.options += [word for name, bytes in VOLUME.items() for word in ("--set", f"{name}={bytes}")]
        if listen:                      # None: where it listens by default
            self.options = ["--listen", listen, *self.options]
        self.start()

    # ---- its life

    @property
    def place(self):
        """What is its own in the run directory."""
        return place(self.run_dir, self.data)

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.before, for_anybody(self.folder), "serve", "--data", self.data, "--run-dir", self.run_dir,
                 *self.options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=CLEAR | self.env,
                cwd=self.folder, **self.caller)
        self.said = self.read_until_ready()
        self.url = self.said[-1].removeprefix(READY)
        self.port = urllib.parse.urlsplit(self.url).port

    def read_until_ready(self):
        """All lines of standard output up to the one that says where it listens."""
        text, until = b"", time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                assert selector.select(max(0, until - time.monotonic())), \
                    f"not ready within {START_S} s: {self.told()}"
                piece = os.read(self.process.stdout.fileno(), 65536)
                assert piece, f"it ended: {self.told()}"
                text += piece
                lines = text.decode().splitlines(keepends=True)
                if lines[-1].startswith(READY) and lines[-1].endswith("\n"):
                    return [line.rstrip("\n") for line in lines]

    def told(self):
        return self.log.read_text(errors="replace")[-4000:]

    def running(self):
        return self.process.poll() is None

    def worker(self):
        """The process that serves, a child of the monitor."""
        pid, = (pid for pid in proc.children(self.process.pid)
                if machine.comm(pid) == "cove-serve")
        return pid

    def stop(self):
        assert self.running(), f"it has ended by itself: {self.told()}"
        self.family = descendants(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60 * SLOWER) == 0, self.told()
        self.process.stdout.close()

    def unmount(self):
        volume = self.data / "volume"
        wait_until(lambda: not os.path.ismount(volume)
                   or subprocess.run(["umount", volume], capture_output=True).returncode == 0,
                   f"{volume} is in use", 20, 0.2)

    def close(self):
        """Ends it, takes its volume off the machine; nothing of it is left then. (Only what is its
        own is looked at: other tests have servers too.)"""
        try:
            if self.running():
                self.stop()
        finally:
            if self.running():
                self.process.kill()
                self.process.wait()
            self.unmount()
        wait_until(lambda: not self.left(), f"left behind: {self.left()}", 20 * SLOWER, 0.1)

    def left(self):
        machine.collect_orphans()
        ours = str(self.folder)
        return ([f"process {pid}: {machine.comm(pid)}" for pid in self.family if alive(pid)]
                + [f"mount {line}" for line in machine.mounts() if ours in line]
                + [f"loop {name}" for name in machine.loops() if ours in name])

    # ---- its API

    @property
    def key(self):
        return (self.data / "admin.key").read_text().strip()

    def call(self, method, path, body=None, key=..., headers=None):
        """One request on a connection of its own. body: JSON, or bytes as they are."""
        headers = dict(headers or {})
        key = self.key if key is ... else key
        if key:
            headers["X-API-Key"] = key
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30 * SLOWER)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def ok(self, method, path, body=None, status=200, **more):
        reply = self.call(method, path, body, **more)
        assert reply.status == status, (method, path, reply)
        return reply.json if reply.body else None

    def create(self, **body):
        """A sandbox by the native API."""
        more = {"key": body.pop("key")} if "key" in body else {}
        return self.ok("POST", "/v1/sandboxes", body, status=201, **more)

    def user(self, name, role="user"):
        """The key of a user who is made if there is none of that name."""
        made = self.call("POST", "/v1/users", {"name": name, "role": role})
        assert made.status in (201, 409), made
        return self.ok("POST", f"/v1/keys?user={name}", {}, status=201)["key"]

    def document(self):
        return self.ok("GET", "/v1/openapi.json", key=None)

    def sdk(self, key=..., **more):
        """Options for the SDKs' calls."""
        key = self.key if key is ... else key
        return {"api_key": key, "api_url": self.url, "sandbox_url": self.url} | more

    def variables(self, key=...):
        """The variables that point the SDKs and the command line at it."""
        key = self.key if key is ... else key
        return {"E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url, "E2B_API_KEY": key,
                "COVE_URL": self.url, "COVE_API_KEY": key}

    def end_all(self):
        self.ok("DELETE", "/v1/sandboxes?all=true")

    def upgraded(self, headers):
        """A connection that speaks the protocol `echo` with whoever these headers lead to."""
        s = socket.create_connection(("127.0.0.1", self.port), 20 * SLOWER)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        s.sendall(f"GET / HTTP/1.1\r\n{lines}Connection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += s.recv(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        return s
