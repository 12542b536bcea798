"""Sandboxes of every kind in one server, and what each of them must still have after whatever was done to it."""

import contextlib
import datetime
import os
import shutil
import signal

from helpers import machine
from terminal import open_terminal, typed
from world import Follower, wait_for

COUNT = 250                             # lines of a stream, which takes about six seconds
FORMER_BOOT = b"00000000-0000-0000-0000-000000000000"
ENDS_S = 3                              # a deadline is the same if it differs by less


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def same(now, was):
    """One sandbox as the API shows it; its deadline may have moved by a moment."""
    assert now | {"ends": ""} == was | {"ends": ""}, (now, was)
    ends = [view.get("ends") for view in (now, was)]
    assert ends[0] == ends[1] or abs((moment(ends[0]) - moment(ends[1])).total_seconds()) < ENDS_S, ends


def repaired(path, data):
    """The file is what it was, from one moment to the next."""
    new = path.with_name(".repaired")
    new.write_bytes(data)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    new.replace(path)


def removed(cgroups):
    """Whether they are all gone. What a process has counted may keep its cgroup a moment longer than it."""
    for cgroup in cgroups:
        with contextlib.suppress(OSError):
            cgroup.rmdir()
    return not any(cgroup.exists() for cgroup in cgroups)


class Terminal:
    """A shell that knows a word; nobody is connected to it while `at` says where to go on."""

    def __init__(self, box):
        self.box, stream = box, open_terminal(box)
        assert typed(box, stream, "stty -echo; export WORD=kept", "echo begun") == "begun"
        self.pid, self.at = stream.pid, stream.offset
        stream.close()

    def check(self):
        stream = self.box.wire(20).follow(self.pid, offset=self.at)
        assert typed(self.box, stream, "echo $WORD $((6 * 7))") == "kept 42"
        self.at = stream.offset
        stream.close()


class Household:
    def __init__(self, world, shared):
        """shared: a directory of the machine that `--allow-mount` names."""
        self.world, self.shared = world, shared
        self.made = {}                  # traffic tokens that no request asked for
        (shared / "word").write_text("shared")
        self.running = world.box(network="open", limits={"memory_bytes": 256 << 20, "pids": 300}, label="a label",
                                 env={"COLOUR": "green"}, metadata={"kind": "running"})
        self.mounted = world.box(strict=True, mounts=[{"host": str(shared), "guest": "/mnt/shared", "ro": True},
                                                      {"host": str(shared), "guest": "/mnt/writable"}])
        self.always = world.box(restart="always")
        self.endless = world.box(timeout=0)
        self.paused, self.files = world.box(), world.box(env={"COLOUR": "blue"})
        self.woken = world.box()        # files-only once, and running on them now
        self.boxes = [self.running, self.mounted, self.always, self.endless, self.paused, self.files, self.woken]
        for box in self.boxes:
            box.write("file", f"file of {box.id}".encode())
        self.terminals = {box.id: Terminal(box) for box in (self.running, self.paused)}
        self.guests = {box.id: box.pid() for box in self.boxes}
        self.pause(self.paused)
        self.pause(self.files, memory=False)
        self.pause(self.woken, memory=False)
        self.resume(self.woken)
        self.guests[self.woken.id] = self.woken.pid()
        self.guests.pop(self.files.id)
        self.look()

    @property
    def ids(self):
        return {box.id for box in self.boxes}

    def pause(self, box, **body):
        self.world.ok("POST", f"/v1/sandboxes/{box.id}/pause", body)

    def resume(self, box):
        self.world.ok("POST", f"/v1/sandboxes/{box.id}/resume", {})

    def look(self):
        """What a later look is compared with."""
        listed = self.world.listed()
        self.views = {ident: listed[ident] for ident in self.ids}

    def stream(self):
        """A command whose output somebody reads meanwhile."""
        self.counting = Follower(self.running, "/bin/sh", "-c",
                                 f"for i in $(seq {COUNT}); do echo $i; sleep 0.02; done")

    def stream_came_whole(self):
        assert self.counting.read()["exitCode"] == 0
        assert self.counting.data == b"".join(b"%d\n" % i for i in range(1, COUNT + 1))

    # ---- checks, in the order in which they disturb

    def processes_live(self):
        for box in self.boxes:
            if box.id in self.guests:
                assert self.guests[box.id] in self.world.inside(box.id), f"{box.id}: its guest is gone"

    def with_token(self, was, now):
        """One that a release made which had no traffic token for it has one in this release, always the same. That
        release, if one goes back to it, shows none, or what was written down meanwhile."""
        if not was.get("token") or "traffic_token" in was or "traffic_token" not in now:
            return was
        return was | {"traffic_token": self.made.setdefault(was["id"], now["traffic_token"])}

    def all_as_it_was(self):
        """State, deadline, limits and the rest as the API shows it; processes and files of what runs."""
        listed = self.world.listed()
        for ident, was in self.views.items():
            assert ident in listed, f"{ident}, {was['state']}, is gone:\n{self.world.log_of(ident)}"
            same(listed[ident], self.with_token(was, listed[ident]))
        self.processes_live()
        for box in self.boxes:
            if self.views[box.id]["state"] == "running":
                self.files_there(box)
        self.terminals[self.running.id].check()
        said = self.mounted.run("cat /mnt/shared/word; touch /mnt/shared/new 2>/dev/null || echo ' no'; echo x "
                                ">/mnt/writable/written; cat /mnt/shared/written")
        assert said == "shared no\nx\n", said

    def files_there(self, box):
        assert box.read("file") == f"file of {box.id}".encode()
        assert box.run("echo $((6 * 7))") == "42\n"
        assert self.world.ok("GET", f"/v1/sandboxes/{box.id}/stat")["pids"] >= 1

    def paused_resume(self):
        """With its memory, or with its files only."""
        self.resume(self.paused)
        self.terminals[self.paused.id].check()
        self.files_there(self.paused)
        assert self.paused.pid() == self.guests[self.paused.id]
        self.resume(self.files)
        self.files_there(self.files)
        assert self.files.run("echo $COLOUR") == "blue\n"

    def pause_again(self):
        self.pause(self.paused)
        self.pause(self.files, memory=False)
        self.look()

    def machine_restarts(self):
        """Between two servers: no process or cgroup survives, nothing is mounted, the run directory is empty, and the
        boot is another one."""
        boot = open("/proc/sys/kernel/random/boot_id", "rb").read().strip()
        world = self.world
        for ident in os.listdir(world.place / "boxes"):
            for pid in world.inside(ident):
                with contextlib.suppress(ProcessLookupError):   # it went with the one before
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not world.inside(ident), f"{ident} does not die", 10)
            wait_for(lambda: removed(machine.cgroups_named(f"box-{ident}")), f"the cgroups of {ident} stay", 10)
        machine.collect_orphans()
        shutil.rmtree(world.run_dir)
        for path in [world.data / "boot", *(world.data / "paused").iterdir()]:
            data = path.read_bytes()
            assert boot in data, path
            path.write_bytes(data.replace(boot, FORMER_BOOT))
        world.unmount()

    def found_after_machine_restart(self):
        """Those that were paused have their files; the others have ended, and say why."""
        for box in self.boxes:
            now = box.state()
            if box in (self.paused, self.files):
                assert now["state"] == "paused", now
                self.resume(box)
                self.files_there(box)
            else:
                assert now["state"] == "ended" and now["reason"], now

    def dead_one_restarts(self):
        os.kill(self.always.pid(), signal.SIGKILL)

        def back():
            pids = self.world.inside(self.always.id)
            return pids and self.guests[self.always.id] not in pids and self.always.state()["state"] == "running"

        wait_for(back, lambda: f"it is not started again: {self.always.state()}", 20)
        self.guests[self.always.id] = self.always.pid()
        self.files_there(self.always)
        self.look()

    def can_end(self, but=None):
        """but: the end of names of files that are never deleted."""
        for box in self.boxes:
            assert box.end() == 204
        for box in self.boxes:
            self.world.nothing_left_of(box.id, but)
