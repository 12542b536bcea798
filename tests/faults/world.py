"""A server to be hurt: its processes one by one, its sandboxes as clients see them, and what each of them has
on the machine."""

import contextlib
import http.client
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import time

from helpers import machine, proc
from helpers.cove import CLEAR, COVE
from helpers.serve import Serve
from helpers.wire import Connection, RpcError, Wire

ENVD = "49983"
STATES = "creating,running,pausing,paused,resuming,ending"
PARTS = {"server": "cove-serve", "keeper": "cove-keep"}
HELPERS = {"netmaker": "cove-net", "reaper": "cove-reaper", "zygote": "cove-zygote"}
VOLUME = ("--set", f"volume.initial-bytes={256 << 20}", "--set", f"volume.step-bytes={256 << 20}",
          "--set", f"volume.low-bytes={128 << 20}")
# What a client meets while a part is down. Who asks in a loop passes over it, and so over an assertion: a promise that was
# broken is a Wrong.
TROUBLE = (OSError, http.client.HTTPException, AssertionError, RpcError)


def free_port():
    """None of those that the kernel gives to clients: between two servers one of them could have it."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(20000, 32000))) as listener:
            return listener.getsockname()[1]


class Wrong(Exception):
    """A promise was broken. Nothing passes over this one."""


class Lost(Wrong):
    """Bytes that were promised did not come."""


class Told(Lost):
    """And the server said so: where that may be, somebody passes over it."""


def wait_for(look, what, seconds, step=0.02, error=AssertionError):
    until = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() >= until:
            raise error(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(step)
    return found


class World(Serve):
    """Keeps its port over restarts, so that clients only have to try again."""

    known_place = None
    device = None                       # the disk of its data directory, if it has one of its own
    usual = None                        # the run directory that it has by default, if it is not told another
    set_aside = frozenset()             # ids of what its database does not know, and that is to stay
    kernels = False                     # its sandboxes have a Python layer
    descriptors = None                  # how many its processes may have; None: the usual number
    host = "127.0.0.1"                  # what it listens on

    def __init__(self, folder, *options, env=None):
        self.fixed = free_port()
        super().__init__(folder, "--preview-listen", "none", *VOLUME, *options, env=env,
                         listen=f"{self.host}:{self.fixed}")
        self.api_key = self.key             # the file may be out of reach later
        self.boot = 0                       # how often the machine was started anew meanwhile
        self.last_power = 0                 # which of them began with a loss of power
        self.given_up = False               # the test has failed

    def program(self):
        return self.folder / "cove"

    @staticmethod
    def command(*words):
        subprocess.run(words, check=True, capture_output=True)

    def start(self):
        self.run_dir = self.usual or self.run_dir
        if not self.program().exists():
            shutil.copy(COVE, self.program())
        self.wait_for_port()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program(), "serve", "--data", self.data, *([] if self.usual else ["--run-dir", self.run_dir]), *self.options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=CLEAR | self.env, cwd=self.folder,
                preexec_fn=self.limit if self.descriptors else None)
        self.said = self.read_until_ready()
        self.url, self.port = f"http://127.0.0.1:{self.fixed}", self.fixed

    def wait_for_port(self):
        """A server that its monitor had just started when that was killed ends by itself."""
        wait_for(self.port_is_free, f"somebody still listens on {self.fixed}", 30)

    def port_is_free(self):
        with contextlib.suppress(OSError), socket.create_server((self.host, self.fixed)):
            return True
        return False

    def limit(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

    def left(self):
        """A disk that the test has made for it is not its own."""
        return [trace for trace in super().left()
                if f"{self.folder}/image" not in trace and f" {self.data} " not in trace]

    def log_of(self, ident):
        """What it has said about one sandbox, and about itself just before."""
        lines, found = self.log.read_text(errors="replace").splitlines(), []
        for number, line in enumerate(lines):
            if ident in line:
                found += lines[max(0, number - 3):number + 1]
        return "\n".join(list(dict.fromkeys(found))[-30:])

    # ---- its processes

    def parts(self):
        """The monitor, its children, and those of the keeper: by parent, as a process has another one's name until
        it takes its own."""
        found = {"monitor": self.process.pid}
        with contextlib.suppress(OSError):      # one may just have ended
            for pid in proc.children(self.process.pid):
                found |= {part: pid for part, comm in PARTS.items() if machine.comm(pid) == comm}
            for pid in sorted(proc.children(found.get("keeper", 0)), key=proc.begun, reverse=True):    # the oldest wins
                if proc.status_words(pid, "Uid")[0] == "0":     # the others are sandboxes
                    found |= {part: pid for part, comm in HELPERS.items() if machine.comm(pid) == comm}
        return found

    def part(self, name):
        return wait_for(lambda: self.parts().get(name), f"no {name}", 20)

    def signal(self, number, *names):
        """All of them before one can see what became of another."""
        while True:
            pids = {name: self.part(name) for name in names}
            try:
                for pid in pids.values():
                    os.kill(pid, signal.SIGSTOP)
                break
            except ProcessLookupError:      # one has just ended, and another takes its place
                time.sleep(0.05)
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):   # it went with the one before
                os.kill(pid, number)
        if number == signal.SIGKILL and "monitor" in names:
            self.process.wait(20)
            self.process.stdout.close()
        return pids

    def kill(self, *names):
        pids = self.signal(signal.SIGKILL, *names)
        wait_for(lambda: not any(proc.alive(pid) for pid in pids.values()), "the killed are gone", 20)
        if "monitor" in names:
            self.start()
        self.wait_well()

    def down(self, how):
        """Nothing of it runs any more but its sandboxes."""
        if how == "kill":
            pids = self.signal(signal.SIGKILL, "monitor", "server", "keeper")
            wait_for(lambda: not any(proc.alive(pid) for pid in pids.values()), "the killed are gone", 20)
            return
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.told()
        self.process.stdout.close()

    def tried(self):
        """Starts it. None, or what it said when it did not want to."""
        before = self.log.stat().st_size
        try:
            self.start()
            return None
        except AssertionError:
            assert self.process.wait(60) not in (0, None), self.told()      # still there: it neither serves nor ends
            self.process.stdout.close()
        with open(self.log, "rb") as file:
            file.seek(before)
            return file.read().decode(errors="replace")

    def revive(self):
        """Whatever part was killed, all of it serves again."""
        def well():
            if self.process.poll() is not None:
                self.process.stdout.close()
                self.start()
            return self.answers() and self.process.poll() is None

        wait_for(well, lambda: f"it does not answer: {self.told()}", 90, 0.1)

    def answers(self):
        try:
            return self.call("GET", "/health", key=None).status == 200
        except TROUBLE:
            return False

    def wait_well(self, seconds=40):
        wait_for(self.answers, lambda: f"it does not answer: {self.told()}", seconds)

    # ---- its sandboxes

    def call(self, method, path, body=None, key=..., headers=None):
        return super().call(method, path, body, self.api_key if key is ... else key, headers)

    def box(self, **body):
        return Box(self, self.create(**({"timeout": 3600, "network": "none"} | body)))

    def listed(self):
        """Ids of all that have not ended."""
        found, after = {}, ""
        while after is not None:
            page = self.ok("GET", f"/v1/sandboxes?state={STATES}&limit=100{after}")
            found |= {one["id"]: one for one in page["sandboxes"]}
            after = f"&after={page['next']}" if "next" in page else None
        return found

    def aside(self):
        """Ids of what lives or lies there and is in no record."""
        return [one["id"] for one in self.ok("GET", "/v1/orphans")["orphans"]]

    def end_aside(self, ident):
        self.ok("DELETE", f"/v1/orphans/{ident}", status=204)

    def metric(self, name):
        lines = self.call("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def keep_dir(self):
        """Where its keeper writes down what runs, also while a test has spoilt what says so."""
        with contextlib.suppress(OSError, ValueError):
            self.known_place = self.place
        return self.known_place

    def traces(self, ident, but=None):
        """Everything on the machine that carries the name of one sandbox. but: how those end that may."""
        places = [self.keep_dir() / "boxes", self.keep_dir() / "sockets", self.data / "paused", self.data / "volume/layers"]
        places += [pathlib.Path(path) for top in machine_cgroups() for path in (f"{top}/cove",)]
        found = []
        for place in places:
            with contextlib.suppress(OSError):
                found += [str(place / name) for name in os.listdir(place) if ident in name]
        return [path for path in found if not but or not path.endswith(but)]

    def nothing_left_of(self, ident, but=None):
        wait_for(lambda: not self.traces(ident, but),
                 lambda: f"left of {ident}: {self.traces(ident, but)}\n{self.log_of(ident)}", 20)

    def finish(self):
        """Ends what lives and itself; nothing of it is on the machine then."""
        if not self.running():
            self.start()
        self.wait_well()
        self.ok("DELETE", "/v1/sandboxes?all=true")
        self.stop()
        orphans = self.recorded()
        for ident in orphans:               # whatever it is, it must not outlive the test
            for pid in self.inside(ident):
                os.kill(pid, signal.SIGKILL)
        self.close()
        assert not orphans, f"a server without sandboxes has left {orphans}"

    def abandon(self):
        """Takes everything of it off the machine, whatever state it is in."""
        for pid in self.parts().values():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for ident in self.recorded():
            for pid in self.inside(ident):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        machine.collect_orphans()
        self.unmount()

    def close(self):
        if self.running():
            self.stop()
        self.unmount()
        wait_for(lambda: not self.left(), lambda: f"left behind: {self.left()}", 20, 0.1)

    def recorded(self):
        """Sandboxes that the next keeper would find; a damaged file is nobody's."""
        try:
            return [name for name in os.listdir(self.keep_dir() / "boxes") if not name.endswith(".damaged")]
        except OSError:
            return []

    @staticmethod
    def inside(ident):
        for top in machine_cgroups():
            with contextlib.suppress(OSError):
                return [int(pid) for pid in pathlib.Path(top, "cove", f"box-{ident}", "cgroup.procs").read_text().split()]
        return []


class Usual(World):
    """Where a server has its run directory by default. The keeper hides it from itself, and it is the machine's, too."""
    usual = pathlib.Path("/run/cove")

    @classmethod
    def empty(cls):
        for path in cls.usual.iterdir():
            path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)


def machine_cgroups():
    lines = pathlib.Path("/proc/mounts").read_text().splitlines()
    return {line.split()[1] for line in lines if line.split()[2] in ("cgroup", "cgroup2")}


class Box:
    """A sandbox as a client sees it."""

    def __init__(self, world, made):
        self.world, self.id, self.token = world, made["id"], made.get("token")

    def wire(self, timeout=10):
        routing = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": ENVD}
        if self.token:
            routing["X-Access-Token"] = self.token
        return Wire(port=self.world.port, routing=routing, timeout=timeout)

    def state(self):
        return self.world.ok("GET", f"/v1/sandboxes/{self.id}")

    def pid(self):
        """Its first process, on the host."""
        pids = self.world.inside(self.id)
        return next(pid for pid in pids if proc.parent(pid) not in pids)

    def write(self, name, data):
        reply = self.wire().upload(f"/home/user/{name}", data)
        assert reply.status == 200, reply

    def read(self, name):
        reply = self.wire().get(f"/files?path=/home/user/{name}")
        assert reply.status == 200, reply
        return reply.body

    def run(self, script):
        with self.wire(30).start("/bin/sh", "-c", script) as stream:
            out = stream.collect()
        assert out.end, out
        return out.stdout.decode()

    def ended(self):
        return self.world.call("DELETE", f"/v1/sandboxes/{self.id}")

    def end(self):
        return self.ended().status


FORGOTTEN_S = 25                        # process.keep-ms is 30: so long the end of a process can be asked for


class Follower:
    """Reads the output of one command to its end, whatever happens on the way: each byte once, in order.

    pace: called with the number of bytes that each event brought; it may sleep, or say that the reader goes away for
    so many seconds."""

    def __init__(self, box, *argv, pace=None, kind=Connection, timeout=5):
        self.box, self.timeout, self.data, self.offset, self.reconnects = \
            box, timeout, bytearray(), 0, 0
        self.pace, self.kind, self.boot = pace or (lambda _: None), kind, box.world.boot
        self.away = False               # between two connections: what a process has written meanwhile may have fallen out
        self.stream = box.wire(timeout).start(*argv, kind=kind)
        self.pid, self.heard = self.stream.pid, time.monotonic()

    def read(self, until=None):
        """To the end, or until that many bytes are there. The exit status, or None."""
        while True:
            with contextlib.suppress(*TROUBLE), self.stream:
                away = None
                for kind, value in self.stream.events():
                    if kind == "end":
                        return value
                    if kind == "lost":
                        raise Lost(f"{self.box.id}: {value} bytes at {self.offset} of {self.pid}")
                    if kind == "stdout":
                        self.data += value
                    self.offset, self.heard = self.stream.offset, time.monotonic()
                    if until is not None and len(self.data) >= until:
                        return None
                    away = self.pace(len(value) if kind == "stdout" else 0)
                    if away:
                        break
                if not away:
                    self.check_error(self.stream.error)
            if away:
                time.sleep(away)
            self.again()

    def check_error(self, error):
        if error and error.get("code") == "data_loss":
            raise Told(f"{self.box.id}: {error} at {self.offset} of {self.pid}")

    def give_up_after(self, until, error):
        if time.monotonic() > until:
            raise Lost(f"no way back to {self.pid} of {self.box.id}: {error}")

    def again(self):
        until, self.away = time.monotonic() + 120, True
        while True:
            assert self.box.world.boot == self.boot and not self.box.world.given_up, "its machine was started anew"
            try:
                self.stream = self.box.wire(self.timeout).follow(self.pid, offset=self.offset, kind=self.kind)
                break
            except RpcError as error:
                self.check_error({"code": error.code, "message": error.message})
                if error.code == "not_found" and time.monotonic() - self.heard < FORGOTTEN_S:
                    raise Lost(f"{self.box.id} does not know its process {self.pid}: {error}") from error
                self.give_up_after(until, error)
            except TROUBLE as error:
                self.give_up_after(until, error)
            time.sleep(0.02)
        if self.stream.offset != self.offset:
            raise Lost(f"{self.box.id}: {self.pid} goes on at {self.stream.offset}, not at {self.offset}")
        self.reconnects, self.heard, self.away = self.reconnects + 1, time.monotonic(), False
