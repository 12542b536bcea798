"""A running cove-guest: started, watched, and ended with everything it owes checked."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

from . import proc
from .wire import Wire

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = pathlib.Path(os.environ.get("COVE_GUEST", ROOT / "build/cove-guest"))
CODE = BINARY.read_bytes()
SANITIZED = b"__asan_init" in CODE or b"__tsan_init" in CODE
THREADED = b"co_thread.c" in CODE       # -Dcoroutines=threads: a stack for each connection
FRUGAL = not SANITIZED and not THREADED  # idle it has the memory it had before: others' allocators keep what is freed
SLOWER = 4 if SANITIZED else 1          # how much longer a sanitized guest may take
COMPLAINTS = ("Sanitizer", "runtime error", "assertion", "Assertion")

running = set()                         # pids of all guests that we started


class Guest:
    """prefix is a command that the guest is started by, which may put it in another namespace."""

    def __init__(self, directory, *options, listen="127.0.0.1:0", prefix=(), token=None, fds=(),
                 user=None, env=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "guest.log"
        self.before = proc.children(os.getpid())
        ready, theirs = os.pipe()
        command = [*prefix, BINARY, "--ready-fd", str(theirs)]
        command += ["--listen", listen] if listen else []
        ids = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, *map(str, options)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[theirs, *fds], cwd=self.directory, env=env or os.environ, **ids)
        running.add(self.process.pid)
        os.close(theirs)
        try:
            said = os.read(ready, 1)    # nothing when the guest dies instead
        except BaseException:           # a time-out: leave nothing behind
            self.process.kill()
            self.process.wait()
            running.discard(self.process.pid)
            raise
        finally:
            os.close(ready)
        if said != b"\n":
            status = self.process.wait(10)
            running.discard(self.process.pid)
            raise GuestFailed(status, self.log.read_text())
        self.pid = self.process.pid
        if prefix:                      # the guest is the child of what started it
            self.pid = proc.wait_until(lambda: proc.children(self.process.pid),
                                       "the guest below its prefix").pop()
        self.port = None
        found = re.search(r"address=\S*?:(\d+)\b", self.log.read_text())
        if found:
            self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.token, self.wire = token, Wire(port=self.port, token=token)

    def init(self, **body):
        """What the control plane tells a new guest; what it does not name is reset."""
        reply = self.wire.request("POST", "/init", json.dumps(body),
                                  {"Content-Type": "application/json"})
        assert reply.status == 204, reply.text

    def rss_kib(self):
        return proc.status_kib(self.pid, "VmRSS")

    def peak_rss_kib(self):
        return proc.status_kib(self.pid, "VmHWM")

    def forget_peak(self):
        proc.forget_peak(self.pid)

    own_watches = 0                     # that no client asked for

    def descriptors(self):
        return proc.descriptors(self.pid)

    def settle(self, wanted, timeout):
        """Waits until the guest has no more descriptors than that, with nobody connected."""
        if self.port:
            proc.hang_up(self.port)
        until = time.monotonic() + timeout
        while len(self.descriptors()) > wanted and time.monotonic() < until:
            time.sleep(0.05)
        return self.descriptors()

    def stop(self, signal_number=signal.SIGTERM):
        """Ends the guest: cleanly, soon, without a complaint and without leaving a process."""
        assert self.process.poll() is None, f"the guest ended by itself\n{self.log.read_text()}"
        os.kill(self.pid, signal_number)
        try:
            status = self.process.wait(8 * SLOWER)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait(10)
            raise AssertionError(f"the guest did not end\n{self.log.read_text()}") from None
        finally:
            running.discard(self.process.pid)
        text = self.log.read_text(errors="replace")
        assert status == 0, f"the guest's exit status is {status}\n{text}"
        complaints = [line for line in text.splitlines() if any(c in line for c in COMPLAINTS)]
        assert not complaints, text
        self.check_nothing_left()

    def check_nothing_left(self):
        def left():
            found = proc.children(os.getpid()) - self.before - running
            for pid in list(found):
                if proc.state(pid) == "Z":
                    os.waitpid(pid, 0)
                    found.discard(pid)
            return found

        until = time.monotonic() + 3
        while left() and time.monotonic() < until:
            time.sleep(0.02)
        lines = {pid: b" ".join(proc.command_line(pid)) for pid in left()}
        for pid in lines:
            os.kill(pid, signal.SIGKILL)
        assert not lines, f"processes outlive the guest: {lines}"


class GuestFailed(Exception):
    """The guest ended instead of serving."""

    def __init__(self, status, output):
        super().__init__(f"exit status {status}: {output}")
        self.status, self.output = status, output
