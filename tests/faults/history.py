"""What clients do while a server is hurt, and whether it kept its promises.

Each worker goes through a sequence that its seed decides: it makes sandboxes, writes files and runs commands
with values that occur nowhere else, ends some. A request has one of three outcomes: it was acknowledged, refused,
or nobody knows. The checker then compares what was acknowledged with what is there:

    an acknowledged create exists, or has ended with a reason
    an acknowledged write is there; one whose outcome nobody knows is there whole, or not at all
    each byte of a command's output arrived once, in order, however often its reader had to come back
    of one that was acknowledged as ended nothing is left on the machine
    no id was given twice
    what the server counts is what there is
"""

import collections
import contextlib
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field

import tally
from helpers.cove import COVE
from world import TROUBLE, Box, Follower, wait_for

PAUSES = subprocess.run([COVE, "pause", "--help"], capture_output=True).returncode == 0
LINES = 30


def unique(kind):
    return f"{kind}-{uuid.uuid4().hex}"


@dataclass
class Kept:
    """What is known of one sandbox."""
    box: Box
    files: dict = field(default_factory=dict)       # name: values that it may have, the acknowledged one first
    end: str = ""                                   # "", "asked", "acknowledged"
    must_live: bool = True                          # nothing that was done may end it


class Worker(threading.Thread):
    def __init__(self, history, number):
        super().__init__(name=f"worker {number}", daemon=True)
        self.history, self.world = history, history.world
        self.chance = tally.chance(history.name, "worker", number)
        self.kept, self.error, self.counts = [], None, {}

    # ---- steps; each may be cut off anywhere

    def create(self):
        if len([kept for kept in self.kept if not kept.end]) >= 4:
            return self.end()
        reply = self.world.call("POST", "/v1/sandboxes", {
            "timeout": 3600, "network": self.chance.choice(["none", "open"]), "metadata": {"of": self.history.name}})
        if reply.status == 201:
            self.kept.append(Kept(Box(self.world, reply.json)))
        else:
            assert reply.status >= 500 or reply.status == 429, reply
            assert reply.message, reply
            self.history.refused[reply.message] += 1
            time.sleep(0.05)

    def any(self):
        living = [kept for kept in self.kept if not kept.end]
        return self.chance.choice(living) if living else None

    def write(self):
        kept = self.any()
        if kept:
            name, value = f"file{self.chance.randrange(3)}", unique("value") * self.chance.choice([1, 50, 3000])
            kept.files.setdefault(name, [None]).append(value)
            kept.box.write(name, value.encode())
            kept.files[name] = [value]              # acknowledged: nothing else may be there any more

    def read(self):
        kept = self.any()
        if kept and kept.files:
            name = self.chance.choice(sorted(kept.files))
            found = self.get(kept, name)
            assert found in kept.files[name], Wrong(f"{kept.box.id} {name}: {str(found)[:60]}")

    @staticmethod
    def get(kept, name):
        reply = kept.box.wire().get(f"/files?path=/home/user/{name}")
        if reply.status == 404 and b"sandbox" not in reply.body.lower():
            return None
        assert reply.status == 200, reply
        return reply.body.decode()

    def command(self):
        kept = self.any()
        if not kept:
            return
        word = unique("line")
        script = f"for i in $(seq {LINES}); do echo {word}-$i; sleep 0.0{self.chance.randrange(1, 9)}; done; exit 7"
        try:
            follower = Follower(kept.box, "/bin/sh", "-c", script)
        except TROUBLE:
            return                                  # nobody knows whether it runs
        end = follower.read()
        wanted = "".join(f"{word}-{i}\n" for i in range(1, LINES + 1)).encode()
        if follower.data != wanted or end["exitCode"] != 7:
            raise Wrong(f"{kept.box.id}: output {follower.data[-60:]} of {len(wanted)} bytes, {end}")
        self.history.reconnects += follower.reconnects

    def pause(self):
        kept = self.any()
        if not kept or not PAUSES:
            return self.read()
        try:
            reply = self.world.call("POST", f"/sandboxes/{kept.box.id}/pause")
            assert reply.status in (204, 409), reply
        finally:
            # only what runs is used again: whatever the outcome was, it is asked for until it does
            wait_for(lambda: self.resumed(kept.box), f"{kept.box.id} does not resume", 60, 0.1)

    def resumed(self, box):
        with contextlib.suppress(*TROUBLE):
            reply = self.world.call("POST", f"/sandboxes/{box.id}/connect", {"timeout": 3600})
            return reply.status in (200, 201)
        return False

    def end(self):
        kept = self.any()
        if kept:
            kept.end = "asked"
            status = kept.box.end()
            assert status in (204, 404), status     # 404: the first try did it, and nobody heard
            kept.end = "acknowledged"

    # ---- the sequence

    def run(self):
        steps = [self.create] * 4 + [self.write] * 5 + [self.command] * 4 + [self.read] * 3 + [self.end] * 2
        steps += [self.pause] * 2
        try:
            while not self.history.over.is_set():
                step = self.chance.choice(steps)
                try:
                    step()
                    self.counts[step.__name__] = self.counts.get(step.__name__, 0) + 1
                except Wrong:
                    raise
                except TROUBLE as error:
                    if isinstance(error.args[0] if error.args else None, Wrong):
                        raise error.args[0] from error
                    time.sleep(0.05)                # a part is down: the outcome is unknown
        except BaseException as error:              # noqa: BLE001 - the test has to hear of it
            self.error = error


class Wrong(Exception):
    """A promise was broken."""


class History:
    """Some workers, whatever is done to the server meanwhile (`with`), and the check at the end."""

    def __init__(self, world, name, workers=3, others=()):
        """others: ids of sandboxes that are somebody else's."""
        self.world, self.name, self.others = world, name, set(others)
        self.over, self.reconnects, self.strangers = threading.Event(), 0, 0
        self.refused = collections.Counter()
        self.workers = [Worker(self, number) for number in range(workers)]

    def __enter__(self):
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        for worker in self.workers:
            worker.join(120)
        if kind is None:
            for worker in self.workers:
                assert not worker.is_alive(), f"{worker.name} hangs"
                if worker.error:
                    raise worker.error
            self.check()

    @property
    def kept(self):
        return [kept for worker in self.workers for kept in worker.kept]

    def steps(self):
        return sum(sum(worker.counts.values()) for worker in self.workers)

    # ---- the checker

    def check(self):
        world = self.world
        world.wait_well()
        ids = [kept.box.id for kept in self.kept]
        assert len(ids) == len(set(ids)), "an id was given twice"
        wait_for(lambda: not {one["state"] for one in world.listed().values()} - {"running", "paused"},
                 lambda: f"something is half done: {world.listed()}", 30)
        listed = world.listed()
        for kept in self.kept:
            self.check_one(kept, listed)
        self.end_strangers(set(listed) - set(ids) - self.others)
        self.check_sums()

    def check_one(self, kept, listed):
        box = kept.box
        if kept.end == "acknowledged":
            assert box.id not in listed, f"{box.id} was ended, and is there"
        if box.id in listed:
            for name, values in kept.files.items():
                found = Worker.get(kept, name)
                assert found in values, f"{box.id} {name} is {str(found)[:60]}, not {str(values)[:200]}"
            assert box.run("echo $((6 * 7))") == "42\n"
            return
        if kept.end and hasattr(self.world, "shim") and self.forgotten(box):
            self.world.nothing_left_of(box.id)      # it ended a year ago, by a clock that was set
            return
        ended = box.state()
        assert ended["state"] == "ended" and ended["reason"], ended
        assert kept.end or not kept.must_live, f"{box.id} ended: {ended['reason']}\n{self.world.log_of(box.id)}"
        self.world.nothing_left_of(box.id)

    def forgotten(self, box):
        return self.world.call("GET", f"/v1/sandboxes/{box.id}").status == 404

    def end_strangers(self, ids):
        """Those that a client asked for and never heard of are there or not; they can be ended."""
        self.strangers = len(ids)
        for ident in ids:
            assert self.world.call("DELETE", f"/v1/sandboxes/{ident}").status == 204
            self.world.nothing_left_of(ident)

    def check_sums(self):
        world = self.world
        alive = ({kept.box.id for kept in self.kept} | self.others) & set(world.listed())
        assert world.metric('cove_sandboxes{state="running"}') + world.metric('cove_sandboxes{state="paused"}') \
            == len(alive)
        ready = {name.removeprefix("box-") for name in (path.name for path in
                                                        (world.data / "volume/layers").iterdir())} - alive
        assert len(ready) <= world.metric("cove_pool_ready") + 8, ready     # waiting ones, and what is made now
