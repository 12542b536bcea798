"""What is done to a server. Each function hurts it, makes it whole again and returns; the history goes on meanwhile.
spoil.py has those that hurt its files, power.py those that restart the machine."""

import contextlib
import os
import resource
import signal
import threading
import time

import tally
from crowd import at_once, made, much_output
from helpers import machine, proc
from kernels import context, said
from world import TROUBLE, World, Wrong, machine_cgroups, wait_for

HOUR, YEAR = 3600, 365 * 86400
MANY_CREATES, MANY_COMMANDS, MANY_KERNELS = 100, 20, 10     # test_crowds.py has ten times as many


def kill(*parts):
    def hurt(world, _chance):
        world.kill(*parts)
    hurt.__name__ = "kill " + "+".join(parts)
    return hurt


def stop(part, least, most):
    def hurt(world, chance):
        pid = world.part(part)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(least, most))
        finally:
            if proc.alive(pid):
                os.kill(pid, signal.SIGCONT)
        world.wait_well()
    hurt.__name__ = f"stop {part}"
    return hurt


def jump(seconds, *roles):
    """The wall clock, there and, after a restart in between, back."""
    def hurt(world, _chance):
        world.shim.shift(seconds, *roles)
        time.sleep(0.3)
        world.kill("server", "keeper")
        time.sleep(0.3)
        world.shim.shift(0, *roles)
        tally.injected("kill server+keeper")
    hurt.__name__ = f"clock {'+' if seconds > 0 else ''}{seconds} s"
    return hurt


# ---- any of its processes, whatever its name is

def family(world):
    """All processes of a server but those inside sandboxes. Some last for a moment only."""
    here, found = os.readlink("/proc/self/ns/pid"), []
    for pid in sorted(machine.family(world.process.pid) | {world.process.pid}):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == here and machine.comm(pid).startswith("cove-"):
                found.append(pid)
    return found


def send(number, pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_any(world, chance):
    pids = family(world)
    pids = chance.sample(pids, min(len(pids), chance.choice([1, 1, 2, 3])))
    send(signal.SIGKILL, pids)
    wait_for(lambda: not any(proc.alive(pid) for pid in pids), "the killed are gone", 20)
    world.revive()


def stop_any(world, chance):
    pids = family(world)
    pids = chance.sample(pids, min(len(pids), chance.choice([1, 1, 2, 3])))
    send(signal.SIGSTOP, pids)
    try:
        time.sleep(chance.uniform(0.1, 1.5))
    finally:
        send(signal.SIGCONT, pids)
    world.wait_well()


def slow(world, chance):
    """All of them work for a fifth of the time."""
    until = time.monotonic() + chance.uniform(0.5, 2)
    while time.monotonic() < until:
        pids = family(world)
        send(signal.SIGSTOP, pids)
        try:
            time.sleep(0.04)
        finally:
            send(signal.SIGCONT, pids)
        time.sleep(0.01)
    world.wait_well()


# ---- the machine around it

class Packages:
    """A directory of the machine's that template `host` watches, replaced by one of ours for as long as the scope lives:
    what is put there looks like a package that was installed. To be made before the server."""

    def __init__(self, folder):
        self.ours, self.count = folder / "packages", 0
        self.ours.mkdir()
        tops = [one for one in os.scandir("/usr/local") if one.is_dir(follow_symlinks=False)]
        self.where = min(tops, key=lambda one: (len(os.listdir(one.path)), one.name)).path
        World.command("mount", "--bind", self.ours, self.where)

    def change(self):
        self.count += 1
        (self.ours / f"package-{self.count}").write_text("installed")

    def close(self):
        World.command("umount", self.where)


def host_changes(world, chance):
    """A package is installed; the next create has a generation of template `host` made, and then somebody dies."""
    world.packages.change()
    made = None
    with contextlib.suppress(*TROUBLE):
        made = world.call("POST", "/v1/sandboxes", {"timeout": 3600, "network": "none"})
    time.sleep(chance.choice([0, 0.05, 0.15, 0.3, 0.6, 1.2]))
    world.kill(*chance.choice([("keeper",), ("keeper",), ("server", "keeper"), ("monitor", "server", "keeper")]))
    if made and made.status == 201:
        wait_for(lambda: ended(world, made.json["id"]), "it does not end", 60, 0.1)


def ended(world, ident):
    with contextlib.suppress(*TROUBLE):
        return world.call("DELETE", f"/v1/sandboxes/{ident}").status in (204, 404)
    return False


# ---- what it needs runs out

def few_descriptors(world, count, seconds):
    """From one moment to the next its processes may not open any more. New ones of it ask for as many as they can have."""
    before = {}
    for pid in family(world):
        with contextlib.suppress(OSError):
            soft, hard = before[pid] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(count, hard), hard))
    time.sleep(seconds)
    for pid, limits in before.items():
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def descriptors(count):
    """Of that number of descriptors each of its processes must make do: all of a sudden, or from its start on. Perhaps it
    cannot start with them."""
    def hurt(world, chance):
        if chance.random() < 0.5:
            few_descriptors(world, count, chance.uniform(0.2, 1))
            world.revive()
            return
        world.down(chance.choice(["kill", "end"]))
        world.descriptors = count
        try:
            if not world.tried():
                time.sleep(chance.uniform(0.2, 1))
                world.down("kill")
        finally:
            world.descriptors = None
        world.start()
        world.wait_well(60)
    hurt.__name__ = f"{count} descriptors"
    return hurt


class Squeeze:
    """A cgroup of little memory."""

    def __init__(self):
        top = next(top for top in sorted(machine_cgroups())
                   if any(os.path.exists(f"{top}/{name}") for name in ("memory.limit_in_bytes", "cove/memory.max")))
        self.old = os.path.exists(f"{top}/memory.limit_in_bytes")
        self.top, self.path = top, f"{top}/squeeze"
        os.makedirs(self.path, exist_ok=True)

    def put(self, name, value, path=None):
        with open(f"{path or self.path}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))

    def get(self, name):
        with open(f"{self.path}/{name}", encoding="ascii") as file:
            return file.read()

    def limit(self, size):
        with contextlib.suppress(OSError):      # less than what can be taken away at once
            self.put("memory.limit_in_bytes" if self.old else "memory.max", size)

    def used(self):
        return int(self.get("memory.usage_in_bytes" if self.old else "memory.current"))

    def close(self):
        home = self.top if self.old else f"{self.top}/scope"
        self.limit(-1 if self.old else "max")

        def empty():
            for pid in self.get("cgroup.procs").split():
                with contextlib.suppress(OSError):
                    self.put("cgroup.procs", pid, home)
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)

        wait_for(empty, f"{self.path} stays", 20)


def little_memory(world, chance):
    """For a moment there is none to be had: whoever wants some waits, is told so, or is ended by the kernel."""
    squeeze = Squeeze()
    try:
        for pid in family(world):
            with contextlib.suppress(OSError):
                squeeze.put("cgroup.procs", pid)
        for part in ("server", "keeper"):       # what they have now is charged to where they were: new ones are charged here
            if chance.random() < 0.5:
                send(signal.SIGKILL, [world.parts().get(part, 1 << 30)])
        time.sleep(chance.uniform(0.2, 0.6))
        for _ in range(chance.randrange(2, 6)):
            squeeze.limit(squeeze.used() + chance.choice([0, 64 << 10, 1 << 20]))
            time.sleep(chance.uniform(0.1, 0.5))
    finally:
        squeeze.close()
    world.revive()


# ---- many at once

def many_creates(world, chance):
    """And the keeper dies in the middle of it, or nobody."""
    killer = threading.Timer(chance.uniform(0, 0.5), lambda: send(signal.SIGKILL, [world.part("keeper")]))
    if chance.random() < 0.5:
        killer.start()
    boxes = [box for box, _ in at_once(MANY_CREATES, lambda _: made(world))]
    if killer.is_alive():
        killer.join()
    world.wait_well()
    gone = {box.id for box in boxes} - set(world.listed())
    if gone:
        raise Wrong(f"{len(gone)} of {MANY_CREATES} are gone: {world.log_of(min(gone))}")
    for box in boxes:
        wait_for(lambda box=box: ended(world, box.id), f"{box.id} does not end", 60, 0.1)


def much_output_of_many(world, _chance):
    boxes = [made(world)[0] for _ in range(2)]
    at_once(MANY_COMMANDS, lambda number: much_output(boxes[number % 2], f"many{number:04}", 10_000_000, 60))
    for box in boxes:
        wait_for(lambda box=box: ended(world, box.id), f"{box.id} does not end", 60, 0.1)


def many_kernels(world, _chance):
    """Of which each knows what it was told, and one what it was told before."""
    if not world.kernels:
        return False
    box, _ = made(world)
    known = {context(box): "elder"}
    for ident, word in known.items():
        said(box, ident, f"kept = '{word}'")

    def one(number):
        ident = context(box)
        said(box, ident, f"kept = '{number}'")
        return ident, str(number)

    known |= at_once(MANY_KERNELS, one)
    for ident, word in known.items():
        if (found := said(box, ident, "print(kept)")) != f"{word}\n":
            raise Wrong(f"{box.id}: a kernel knows {found}, not {word}")
    wait_for(lambda: ended(world, box.id), f"{box.id} does not end", 60, 0.1)


# ---- somebody else

class Neighbour(World):
    """A server of another data directory on the same run directory. To be made after the first; it has one sandbox."""

    def __init__(self, folder, first):
        self.first = first
        super().__init__(folder)
        self.asleep = self.with_a_file()
        self.ok("POST", f"/v1/sandboxes/{self.asleep.id}/pause", {"memory": False})
        self.resident = self.with_a_file()

    def with_a_file(self):
        made = self.box()
        made.write("file", b"of another")
        return made

    def start(self):
        self.run_dir = self.first.run_dir
        super().start()

    def check(self):
        self.wait_well(60)
        wait_for(lambda: reachable(self.resident), lambda: f"{self.resident.state()}\n{self.log_of(self.resident.id)}", 30)
        assert self.resident.read("file") == b"of another"
        assert self.resident.run("echo $((6 * 7))") == "42\n"
        assert set(self.listed()) == {self.resident.id, self.asleep.id}

    def machine_was_restarted(self):
        self.wait_well(60)
        wait_for(lambda: set(self.listed()) == {self.asleep.id}, lambda: f"there are {self.listed()}", 20)
        self.ok("POST", f"/v1/sandboxes/{self.asleep.id}/resume", {})
        self.resident, self.asleep = self.asleep, self.with_a_file()
        self.ok("POST", f"/v1/sandboxes/{self.asleep.id}/pause", {"memory": False})
        self.check()


def reachable(box):
    with contextlib.suppress(*TROUBLE):
        return box.wire().get("/health").status == 204
    return False


def neighbour(world, chance):
    """The other server is killed, or ended and started, and has and does what is its own."""
    other = world.neighbour
    if chance.random() < 0.5:
        other.kill(*chance.choice([("keeper",), ("server", "keeper"), ("monitor", "server", "keeper")]))
    else:
        other.down("end")
        other.start()
    other.check()
    assert other.resident.id not in world.listed()


KILLS = [kill("server"), kill("keeper"), kill("server", "keeper"), kill("monitor"),
         kill("monitor", "server", "keeper"), kill("monitor", "keeper")]
HELPERS = [kill("netmaker"), kill("reaper"), kill("zygote"), kill("keeper", "netmaker"), kill("keeper", "zygote")]
STOPS = [stop("server", 0.5, 3), stop("keeper", 0.2, 1.5)]
JUMPS = [jump(sign * by, "server", "keeper", "monitor") for by in (HOUR, YEAR) for sign in (1, -1)]
ANY = [kill_any, stop_any, slow]
CROWDS = [many_creates, much_output_of_many, many_kernels]
SHORT = [descriptors(count) for count in (64, 256, 1024)] + [little_memory]


def torment(world, chance, faults, until=None):
    """Does those to it one after the other, at moments that the seed decides. One that says False has done nothing yet."""
    done = 0
    for hurt in faults:
        if until is not None and time.monotonic() > until:
            break
        if getattr(world, "history", None) and world.history.failed():
            break                       # it will say why
        time.sleep(chance.choice([0, 0.01, 0.05, 0.2, 0.5]))
        try:
            hurt_it = hurt(world, chance) is not False
        except Exception as error:
            before = ", ".join(one.__name__ for one in faults[max(0, done - 5):done])
            raise AssertionError(f"fault {done + 1}, {hurt.__name__}, after {before}: {error}") from error
        done += 1
        if hurt_it:
            tally.injected(hurt.__name__.replace("_", " "))
    return done
