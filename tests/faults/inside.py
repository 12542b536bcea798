"""What is done to the processes inside a sandbox: its first one, a command, its services, a kernel and the parent of kernels
are killed, stopped or slow. The sandbox is one of the nemesis, which knows what has to come of each."""

import contextlib
import os
import signal
import time

from crowd import made
from helpers import machine, proc
from kernels import REST, ask, context, lines, said
from nemesis import ended
from world import TROUBLE, wait_for

MOMENT_S = 0.05                         # of the first process: one that a client sees stopped twice has failed
WAITS = "until [ -e go ]; do sleep 0.05; done; echo word; exit 7"


class Insider:
    """A sandbox in which everything runs that can: `kernel` is known where there is a Python layer."""

    def __init__(self, world, restart):
        self.world, (self.box, _), self.kernel = world, made(world, restart=restart), None
        self.box.write("file", b"of before")
        self.stream = self.box.wire(60).start("/bin/sh", "-c", WAITS, cwd="/home/user")
        self.rest_answers()
        if world.kernels:
            self.kernel = context(self.box)
            self.pid = int(said(self.box, self.kernel, "import os; kept = 5; print(os.getpid())"))

    def parts(self):
        """Pids on the host by what they are."""
        known, words = {}, {}
        for pid in self.world.inside(self.box.id):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):   # it has just ended
                known[int(proc.status_words(pid, "NSpid")[-1])] = pid
                words[pid] = proc.command_line(pid)
        found = {"first": known[1], "command": known[self.stream.pid],
                 "rest": next(pid for pid in words if words[pid][1:3] == [b"services", b"rest"])}
        if self.kernel:
            warm = [pid for pid in words if any(word.endswith(b"/warm.py") for word in words[pid])]
            found |= {"kernels": next(pid for pid in words if words[pid][1:3] == [b"services", b"kernels"]),
                      "parent": min(warm, key=proc.begun), "kernel": known[self.pid]}
        return found

    # ---- what has to hold

    def rest_answers(self):
        reply = ask(self.box, REST, "POST", "/execute", {"code": "print(6 * 7)"})
        assert reply.status == 200 and reply.json["stdout"] == "42\n", reply

    def command_ends(self, **wanted):
        self.box.write("go", b"")
        with self.stream:
            out = self.stream.collect()
        assert out.end and {name: out.end.get(name) for name in wanted} == wanted, out
        assert out.stdout == (b"word\n" if wanted == {"exitCode": 7} else b""), out

    def command_is_gone(self):
        """With its machine: no end of it is made up."""
        out = None
        with contextlib.suppress(*TROUBLE), self.stream:
            out = self.stream.collect()
        assert out is None or not out.end, out

    def after(self, what, how, restart):
        """What has to come of it that this process was killed, or stopped for good."""
        if what != "first":
            if what == "command":
                self.command_ends(signal=signal.SIGKILL)
            self.rest_of_it_goes_on(what)
        elif restart == "always":
            self.command_is_gone()
            self.is_started_again()
        else:                           # one that is stopped fails whatever is to come of those that die
            self.has_ended("killed from outside by signal 9" if how == "killed" else "stopped from outside")
            self.command_is_gone()

    def rest_of_it_goes_on(self, hurt):
        """All but what was killed."""
        if hurt != "command":
            self.command_ends(exitCode=7)
        self.rest_answers()
        assert self.box.read("file") == b"of before"
        if self.kernel and hurt not in ("kernels", "kernel"):
            assert said(self.box, self.kernel, "print(kept)") == "5\n"
        if self.kernel and hurt == "kernel":    # it is started again, and knows nothing
            wait_for(lambda: "NameError" in str(lines(self.box, self.kernel, "print(kept)")),
                     lambda: lines(self.box, self.kernel, "print(kept)"), 60, 0.1)
        if self.kernel:
            assert said(self.box, context(self.box), "print(6 * 7)") == "42\n"

    def has_ended(self, word):
        state = wait_for(self.ended, lambda: f"it has not ended: {self.box.state()}", 60)
        assert word in state["reason"], state
        self.world.nothing_left_of(self.box.id)

    def ended(self):
        with contextlib.suppress(*TROUBLE):
            self.box.wire().get("/health")      # it is looked at when somebody asks for it
        state = self.box.state()
        return state if state["state"] == "ended" else None

    def is_started_again(self):
        def back():
            kinds = [event["kind"] for event in self.world.ok("GET", f"/v1/sandboxes/{self.box.id}/events")["events"]]
            return "restarted" in kinds and self.box.state()["state"] == "running"

        wait_for(back, lambda: f"it is not started again: {self.box.state()}", 60)
        assert self.box.read("file") == b"of before"
        self.rest_answers()
        if self.kernel:
            assert said(self.box, context(self.box), "print(6 * 7)") == "42\n"


@contextlib.contextmanager
def little_time(ident):
    """All of a sandbox works for a twentieth of the time."""
    paths = [path / name for path in machine.cgroups_named(f"box-{ident}") for name in ("cpu.cfs_quota_us", "cpu.max")]
    before = {path: path.read_text() for path in paths if path.exists()}
    assert before, f"no time can be taken from {ident}"
    for path in before:
        path.write_text("5000")
    try:
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


def inside(what, how, restart=None):
    def hurt(world, chance):
        if what in ("kernels", "parent", "kernel") and not world.kernels:
            return False
        one = Insider(world, restart or chance.choice(["no", "always"]))
        pid = one.parts()[what]
        if how == "slow":
            with little_time(one.box.id):
                one.rest_of_it_goes_on(None)
        elif how == "stopped for a moment":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(MOMENT_S if what == "first" else chance.uniform(0.05, 1))
            os.kill(pid, signal.SIGCONT)
            one.rest_of_it_goes_on(None)
        else:
            os.kill(pid, signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
            one.after(what, how, restart)
        wait_for(lambda: ended(world, one.box.id), "it does not end", 60, 0.1)
        world.nothing_left_of(one.box.id)
    hurt.__name__ = f"inside {what} {how}{f' {restart}' if restart else ''}"
    return hurt


INSIDE = [inside("first", "killed", "no"), inside("first", "killed", "always"), inside("first", "stopped"),
          inside("first", "slow")]
INSIDE += [inside(what, "killed") for what in ("command", "rest", "kernels", "parent", "kernel")]
INSIDE += [inside(what, "stopped for a moment") for what in ("first", "command", "rest", "kernels", "parent", "kernel")]
