"""Sandboxes that stay as they are through a history: what is done to their files on the machine must not end them, and
they must be as before when it was undone."""

import contextlib
import subprocess
import time

from helpers.cove import CLEAR
from world import TROUBLE, wait_for

BACK_S = 60                             # a file is looked at again twice a minute, or when somebody asks
TEMPLATE = "of-a-test"


def cove(world, *words):
    done = subprocess.run([world.program(), *words, "--data", world.data], capture_output=True, text=True, env=CLEAR,
                          cwd=world.folder, timeout=60)
    assert done.returncode == 0, done


def set_aside(world, make):
    """What make() made, and the database does not know: a copy from before is in its place."""
    copy = world.data.parent / "before"
    cove(world, "backup", copy)
    boxes = make()
    world.down("end")
    cove(world, "restore", copy)
    world.start()
    world.set_aside = {box.id for box in boxes}
    for ident in set(world.aside()) - world.set_aside:
        world.end_aside(ident)          # the pool's
    assert set(world.aside()) == world.set_aside, world.told()
    return boxes


class Residents:
    def __init__(self, world, shared):
        """shared: a directory of the machine that `--allow-mount` names."""
        self.world, self.shared = world, shared
        self.aside, = set_aside(world, self.one_asleep)
        (shared / "word").write_text("shared")
        done = subprocess.run([world.program(), "template", "add", TEMPLATE, "host", "--data-dir", world.data],
                              capture_output=True, text=True, env=CLEAR, cwd=world.folder)
        assert done.returncode == 0, done
        self.running, self.paused, self.files = world.box(), world.box(network="open"), world.box()
        self.mounted = world.box(mounts=[{"host": str(shared), "guest": "/mnt/shared", "ro": True}])
        self.templated = world.box(template=TEMPLATE)
        self.asleep = [self.files, self.mounted, self.templated]        # of these only the files are kept
        self.boxes = [self.running, self.paused, *self.asleep]
        for box in self.boxes:
            box.write("file", self.word(box))
        self.pid = self.running.pid()
        self.pause()
        self.older = self.remember()

    def one_asleep(self):
        box = self.world.box()
        box.write("file", self.word(box))
        self.world.ok("POST", f"/v1/sandboxes/{box.id}/pause", {"memory": False})
        return [box]

    @property
    def ids(self):
        return {box.id for box in self.boxes}

    @staticmethod
    def word(box):
        return f"file of {box.id}\n".encode() * 1000

    def note(self, box):
        return self.world.data / "paused" / box.id

    def record(self, box):
        return self.world.keep_dir() / "boxes" / box.id

    def remember(self):
        """What the keeper has written of them by now."""
        return {path: path.read_bytes() for path in [self.note(self.files), self.note(self.paused), self.record(self.running)]}

    def pause(self):
        for box in [self.paused, *self.asleep]:
            self.world.ok("POST", f"/v1/sandboxes/{box.id}/pause", {} if box is self.paused else {"memory": False})

    @contextlib.contextmanager
    def awake(self):
        """All of them run meanwhile."""
        for box in self.boxes:
            wait_for(lambda box=box: self.resumed(box), lambda box=box: self.told(box), BACK_S, 0.2)
        yield
        self.pause()

    def goes_on(self, box):
        wait_for(lambda: self.resumed(box), lambda: self.told(box), BACK_S, 0.2)
        assert box.read("file") == self.word(box), box.id
        self.world.ok("POST", f"/v1/sandboxes/{box.id}/pause", {"memory": False})

    def not_ended(self):
        """Whatever is hurt meanwhile: each has its files, and nobody says that one has ended."""
        for box in self.boxes:
            said = self.world.call("GET", f"/v1/sandboxes/{box.id}")
            assert said.status != 200 or said.json["state"] != "ended", f"{said.json}\n{self.world.log_of(box.id)}"
        for box in [*self.boxes, self.aside]:
            layers = self.world.data / "volume/layers"
            assert any(box.id in path.name for path in layers.iterdir()), \
                f"the files of {box.id} are gone\n{self.world.log_of(box.id)}"

    def check(self):
        """All are there, with what they had; those that stood still can go on, and stand still again."""
        for box in self.boxes:
            wait_for(lambda box=box: self.resumed(box), lambda box=box: self.told(box), BACK_S, 0.2)
            assert box.read("file") == self.word(box), box.id
            assert box.run("echo $((6 * 7))") == "42\n"
        assert self.mounted.run("cat /mnt/shared/word") == "shared"
        assert self.record(self.running).exists(), "no keeper would find it"
        if self.pid:
            assert self.running.pid() == self.pid, "it was started anew"
        assert self.aside.id in self.world.aside(), f"what was set aside is gone\n{self.world.log_of(self.aside.id)}"
        self.pause()
        self.older = self.older or self.remember()

    def told(self, box):
        with contextlib.suppress(*TROUBLE):
            return f"{box.id} is not back: {box.state()}\n{self.world.log_of(box.id)}"
        return f"{box.id} is not back"

    def resumed(self, box):
        with contextlib.suppress(*TROUBLE):
            return self.world.call("POST", f"/sandboxes/{box.id}/connect", {"timeout": 3600}).status in (200, 201)
        return False

    def machine_was_restarted(self):
        """What ran has ended, and another takes its place; of what stood still there are the files."""
        def ended():
            state = self.running.state()
            return state["state"] == "ended" and state["reason"]

        wait_for(ended, lambda: f"{self.running.id} has not ended: {self.running.state()}", 20)
        self.boxes.remove(self.running)
        self.running = self.world.box()
        self.running.write("file", self.word(self.running))
        self.boxes.insert(0, self.running)
        self.pid = self.running.pid()
        self.older = {}

    def resume_refused(self, box):
        """It cannot go on now, is told why, and stays what it is."""
        until = time.monotonic() + 20
        while True:
            reply = self.world.call("POST", f"/v1/sandboxes/{box.id}/resume", {})
            assert reply.status >= 400 and reply.message, reply
            if reply.status != 503 or "stays paused" in reply.message:      # not: the keeper has just begun
                assert box.state()["state"] == "paused"
                return
            assert time.monotonic() < until, reply
            time.sleep(0.2)
