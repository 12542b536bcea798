"""What clients do while a server is hurt, and whether it kept its promises.

Each worker goes through a sequence that its seed decides: it makes sandboxes, writes files and runs commands
with values that occur nowhere else, ends some. A request has one of three outcomes: it was acknowledged, refused,
or nobody knows. The checker then compares what was acknowledged with what is there:

    an acknowledged create exists, or has ended with a reason
    an acknowledged write is there; one whose outcome nobody knows is there whole, or not at all
    each byte of a command's output arrived once, in order, however often its reader had to come back; of more than is
        kept for who comes back, what fell out while nobody was connected was told
    of one that was acknowledged as ended nothing is left on the machine
    no id was given twice
    what the server counts is what there is
    nothing of the above waits among what was set aside

A machine that is started anew ends what ran on it, and nothing else: such a nemesis says so in `world.boot`.
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
from slow import slowly
from world import TROUBLE, Box, Follower, Told, Wrong, wait_for

PAUSES = subprocess.run([COVE, "pause", "--help"], capture_output=True).returncode == 0
LINES = 30
FLOOD = 900_000                         # bytes; a reader that comes back finds as many: process.output-bytes
MORE = 6_000_000                        # than is kept, and than lies between a command and a reader that is slow
SLOWLY_S = 4                            # then who reads slowly has the rest at once
READERS = ("fast", "slow", "bursts", "gone")


def promised(kept, what):
    if not kept:
        raise Wrong(what)


def unique(kind):
    return f"{kind}-{uuid.uuid4().hex}"


@dataclass
class Kept:
    """What is known of one sandbox."""
    box: Box
    files: dict = field(default_factory=dict)       # name: values that it may have, the acknowledged one first
    end: str = ""                                   # "", "asked", "acknowledged"
    stands: bool = False                            # its pause was acknowledged, and nothing asked for since
    boot: int = 0                                   # which of the machine's it was made in: it need not outlive that one


class Worker(threading.Thread):
    def __init__(self, history, number):
        super().__init__(name=f"worker {number}", daemon=True)
        self.history, self.world = history, history.world
        self.chance = tally.chance(history.name, "worker", number)
        self.kept, self.error, self.counts = [], None, {}
        self.busy = threading.Lock()                # while it takes a step

    # ---- steps; each may be cut off anywhere

    def create(self):
        boot = self.world.boot
        if len([kept for kept in self.kept if not kept.end and kept.boot == boot]) >= self.history.each:
            return self.end()
        reply = self.world.call("POST", "/v1/sandboxes", {
            "timeout": 3600, "network": self.chance.choice(["none", "open"]), "metadata": {"of": self.history.name}})
        if reply.status == 201:
            self.kept.append(Kept(Box(self.world, reply.json), boot=boot))
        else:
            promised(reply.status >= 500 or reply.status == 429, reply)
            promised(reply.message, reply)
            self.history.refused[reply.message] += 1
            time.sleep(0.05)

    def any(self):
        living = [kept for kept in self.kept if not kept.end and kept.boot == self.world.boot]
        assert living, "it has none"    # and comes to make one
        return self.chance.choice(living)

    def write(self):
        kept = self.any()
        name, value = f"file{self.chance.randrange(3)}", unique("value") * self.chance.choice([1, 50, 3000])
        kept.files.setdefault(name, [None]).append(value)
        kept.box.write(name, value.encode())
        kept.files[name] = [value]                  # acknowledged: nothing else may be there any more

    def read(self):
        kept = self.any()
        if kept.files:
            name = self.chance.choice(sorted(kept.files))
            found = self.get(kept, name)
            if found not in kept.files[name]:
                raise Wrong(f"{kept.box.id} {name}: {str(found)[:60]}")

    @staticmethod
    def get(kept, name):
        reply = kept.box.wire().get(f"/files?path=/home/user/{name}")
        if reply.status == 404 and b"sandbox" not in reply.body.lower():
            return None
        assert reply.status == 200, reply
        return reply.body.decode()

    def command(self):
        kept = self.any()
        word = unique("line")
        script = f"for i in $(seq {LINES}); do echo {word}-$i; sleep 0.0{self.chance.randrange(1, 9)}; done; exit 7"
        follower = Follower(kept.box, "/bin/sh", "-c", script)      # refused: nobody knows whether it runs
        end = follower.read()
        wanted = "".join(f"{word}-{i}\n" for i in range(1, LINES + 1)).encode()
        if (follower.data != wanted or end["exitCode"] != 7) and kept.boot == self.world.boot:
            raise Wrong(f"{kept.box.id}: output {follower.data[-60:]} of {len(wanted)} bytes, {end}")
        self.history.reconnects += follower.reconnects

    def pace(self, kind):
        """How such a reader reads: as fast as it can, slowly, in bursts, or now and then not at all."""
        chance = self.chance
        if kind == "slow":              # much slower than it is written, and so that what lies between the two is soon full
            return {"kind": slowly(chance.choice([10 << 10, 100 << 10]), SLOWLY_S)}
        if kind == "bursts":
            return {"pace": lambda _: time.sleep(0.4) if chance.random() < 0.05 else None}
        if kind == "gone":
            return {"pace": lambda _: chance.uniform(0.05, 0.5) if chance.random() < 0.05 else None}
        return {}

    def flood(self, kind=None):
        """The exit status says whether the command had to wait for its reader."""
        kept, word, kind = self.any(), unique("flood"), kind or self.chance.choice(self.history.readers)
        size, line = MORE if kind == "slow" else FLOOD, word.encode() + b"\n"
        text = (line * (size // len(line) + 1))[:size]
        script = f"a=$(date +%s); yes {word} | head -c {size}; [ $(($(date +%s) - a)) -lt {SLOWLY_S - 1} ]; exit $((8 + $?))"
        follower = Follower(kept.box, "/bin/sh", "-c", script, **self.pace(kind))
        end = {}
        try:
            end = follower.read()
        except Told:                    # while nobody was connected it wrote more than is kept
            promised(follower.away and size > FLOOD, f"{kept.box.id}: bytes fell out under a reader that was connected")
            text, end["exitCode"] = text[:len(follower.data)], 8
        if (follower.data != text or end.get("exitCode") not in (8, 9)) and kept.boot == self.world.boot:
            raise Wrong(f"{kept.box.id}: {len(follower.data)} of {len(text)} bytes of a flood, {end}")
        self.history.held += end.get("exitCode") == 9
        self.history.reconnects += follower.reconnects

    def pause(self):
        kept = self.any()
        if not PAUSES:
            return self.read()
        try:
            reply = self.world.call("POST", f"/sandboxes/{kept.box.id}/pause")
            promised(reply.status in (204, 409, 429) or reply.status >= 500 or self.machine_went(kept), reply)
            kept.stands = reply.status == 204 and not self.machine_went(kept)   # or what the disk has is from before it
        finally:
            # only what runs is used again: whatever the outcome was, it is asked for until it does
            wait_for(lambda: self.resumed(kept), f"{kept.box.id} does not resume", 120, 0.1, Wrong)

    def machine_went(self, kept):
        """It ended with the machine, or sleeps."""
        return kept.boot != self.world.boot

    def resumed(self, kept):
        if self.machine_went(kept) or self.world.given_up:
            return True
        kept.stands = False
        with contextlib.suppress(*TROUBLE):
            reply = self.world.call("POST", f"/sandboxes/{kept.box.id}/connect", {"timeout": 3600})
            return reply.status in (200, 201)
        return False

    def end(self):
        kept = self.any()
        kept.end = "asked"
        reply = kept.box.ended()
        promised(reply.status in (204, 404) or reply.status >= 500, f"end of {kept.box.id}: {reply}")
        assert reply.status < 500, reply
        kept.end = "acknowledged"                   # 404: the first try did it, and nobody heard

    # ---- the sequence

    def run(self):
        steps = [self.create] * 4 + [self.write] * 5 + [self.command] * 4 + [self.read] * 3 + [self.end] * 2
        steps += [self.pause] * 2 + [self.flood]
        try:
            while not self.history.over.is_set():
                self.history.go.wait()
                step = self.chance.choice(steps)
                try:
                    with self.busy:
                        step()
                    self.counts[step.__name__] = self.counts.get(step.__name__, 0) + 1
                except TROUBLE:                     # not Wrong, not Lost
                    time.sleep(0.05)                # a part is down: the outcome is unknown
        except BaseException as error:              # noqa: BLE001 - the test has to hear of it
            self.error = error


class History:
    """Some workers, whatever is done to the server meanwhile (`with`), and the check at the end."""

    def __init__(self, world, name, workers=3, others=(), each=4, readers=READERS):
        """others: ids of sandboxes that are somebody else's. each: how many sandboxes a worker has at most."""
        self.world, self.name, self.others, self.each, self.readers = world, name, set(others), each, readers
        self.go = threading.Event()
        self.go.set()
        world.history = self
        self.over, self.reconnects, self.strangers = threading.Event(), 0, 0
        self.held = 0                   # floods that had to wait for their reader
        self.refused = collections.Counter()
        self.workers = [Worker(self, number) for number in range(workers)]

    def __enter__(self):
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, kind, *_):
        self.world.given_up = kind is not None      # nobody waits for what will not come back
        self.over.set()
        self.go.set()
        for worker in self.workers:
            worker.join(180)
        if kind is None:
            for worker in self.workers:
                assert not worker.is_alive(), f"{worker.name} hangs"
                if worker.error:
                    raise worker.error
            self.check()

    @contextlib.contextmanager
    def still(self):
        """Nobody asks for anything meanwhile."""
        self.go.clear()
        with contextlib.ExitStack() as stack:
            stack.callback(self.go.set)
            for worker in self.workers:
                assert worker.busy.acquire(timeout=180), f"{worker.name} does not come to an end"
                stack.callback(worker.busy.release)
            yield

    def look(self):
        """What is to go with the machine is there until then, with what it has: its end hides no earlier one."""
        with self.still():
            listed = self.world.listed()
            for kept in self.kept:
                if kept.end or not (kept.stands or kept.boot == self.world.boot):
                    continue
                promised(kept.box.id in listed, f"{kept.box.id} is gone\n{self.world.log_of(kept.box.id)}")
                if listed[kept.box.id]["state"] == "running":
                    self.compare(kept)

    def failed(self):
        """Somebody has seen a promise broken."""
        return any(worker.error for worker in self.workers)

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
        self.check_aside(set(ids) | self.others)
        self.check_sums()

    def check_aside(self, ours):
        """What nobody was told of may have been set aside, and is ended; nothing else may."""
        aside = self.world.aside()
        assert not ours & set(aside), f"set aside: {ours & set(aside)} of {aside}"
        assert self.world.set_aside <= set(aside), f"of those that were set aside only {aside} are there"
        for ident in set(aside) - self.world.set_aside:
            self.world.end_aside(ident)
            self.world.nothing_left_of(ident)

    @staticmethod
    def compare(kept):
        for name, values in kept.files.items():
            found = Worker.get(kept, name)
            promised(found in values, f"{kept.box.id} {name} is {str(found)[:60]}, not {str(values)[:200]}")

    def check_one(self, kept, listed):
        box = kept.box
        if kept.end == "acknowledged" and not kept.boot < self.world.last_power:
            assert box.id not in listed, f"{box.id} was ended, and is there"
        if box.id in listed and kept.boot < self.world.last_power and not kept.stands:
            assert listed[box.id]["state"] == "paused", listed[box.id]      # as it once was, by what the disk remembers
            assert box.end() == 204
            self.world.nothing_left_of(box.id)
        elif box.id in listed:
            if listed[box.id]["state"] == "paused":         # a pause that outlived its machine
                self.world.ok("POST", f"/v1/sandboxes/{box.id}/resume", {})
            self.compare(kept)
            assert box.run("echo $((6 * 7))") == "42\n"
        else:
            self.check_gone(kept)

    def check_gone(self, kept):
        box = kept.box
        assert not kept.stands or kept.end, f"{box.id} stood still, and is gone"
        may_have_ended, lost_power = kept.end or kept.boot != self.world.boot, kept.boot < self.world.last_power
        if (lost_power or may_have_ended and hasattr(self.world, "shim")) and self.forgotten(box):
            # it ended a year ago, by a clock that was set; or what ran when the power went is in no record ...
            if lost_power and box.id in self.world.aside():
                self.world.end_aside(box.id)        # ... and its files are set aside, where they say whose they are
            self.world.nothing_left_of(box.id)
            return
        ended = box.state()
        assert ended["state"] == "ended" and ended["reason"], ended
        assert may_have_ended, f"{box.id} ended: {ended['reason']}\n{self.world.log_of(box.id)}"
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
                                                        (world.data / "volume/layers").iterdir())} - alive - world.set_aside
        assert len(ready) <= world.metric("cove_pool_ready") + 8, ready     # waiting ones, and what is made now
