"""How a server's state stands on the machine, to be compared before and after somebody who must not touch it."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile

from helpers.cove import CLEAR

REFUSES_S = 60
SMALL = 1 << 20                         # of larger files name, size and time are enough
LOCKS = ("data/serve.lock",)            # a server that starts writes its pid there, and keeps a second one from starting
# Release 46eceed opens its store and says where it listens before its keeper ends it.
RAW_TOUCHES = ("data/server.json", "data/serve/cove.db", "data/serve/cove.db-wal", "data/serve/cove.db-shm")


def rows(data):
    """What the store says, read from a copy: a look at the original would tidy it up."""
    with tempfile.TemporaryDirectory() as copy:
        for name in os.listdir(data / "serve"):
            if name.startswith("cove.db"):
                shutil.copy(data / "serve" / name, copy)
        store = sqlite3.connect(f"{copy}/cove.db")
        try:
            return list(store.iterdump()) + store.execute("PRAGMA user_version").fetchall()
        finally:
            store.close()


class Stood:
    def __init__(self, world, house, by_raw=False):
        self.world, self.ignored, self.by_raw = world, LOCKS + (RAW_TOUCHES if by_raw else ()), by_raw
        self.files = {}
        for top in (world.data, world.run_dir):
            for place, folders, names in os.walk(top):
                folders[:] = [name for name in folders if name not in ("volume", "host")]   # layers, templates
                for name in ["", *names, *folders]:
                    self.add(os.path.join(place, name))
        self.layers = sorted(os.listdir(world.data / "volume/layers")) if os.path.ismount(world.data / "volume") else None
        self.hosts = sorted(os.listdir(world.data / "host"))
        self.rows = rows(world.data)
        self.bridged = {box.id: uplink(box) for box in house.boxes if house.views[box.id]["network"] == "open"
                        and box.id in house.guests}

    def add(self, path):
        name = os.path.relpath(path.rstrip("/"), self.world.folder)
        if name in self.ignored or name.startswith("data/volume.img"):
            return
        stat = os.lstat(path)
        time = None if self.by_raw and os.path.isdir(path) else stat.st_mtime_ns     # it makes server.json, and removes it
        link = os.readlink(path) if os.path.islink(path) else ""
        self.files[name] = oct(stat.st_mode), 0 if os.path.isdir(path) else stat.st_size, time, link, content(path, stat)

    def compare(self, now):
        names = set(self.files) | set(now.files)
        changed = {name: (self.files.get(name), now.files.get(name)) for name in sorted(names)
                   if self.files.get(name) != now.files.get(name)}
        assert not changed, f"touched: {json.dumps(changed, indent=1)}"
        assert self.rows == now.rows, [row for row in now.rows if row not in self.rows]
        assert (self.hosts, self.bridged) == (now.hosts, now.bridged)
        if self.layers is not None and now.layers is not None:
            assert self.layers == now.layers


def content(path, stat):
    if not os.path.isfile(path) or os.path.islink(path) or stat.st_size > SMALL:
        return ""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def uplink(box):
    """The host's end of its network, and the bridge that it is in."""
    inside = json.loads(subprocess.run(["nsenter", "-t", str(box.pid()), "-n", "ip", "-j", "link"],
                                       capture_output=True, check=True).stdout)
    outside = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    peers = {one.get("link_index") for one in inside}
    return [(one["ifname"], one.get("master"), "UP" in one["flags"]) for one in outside if one["ifindex"] in peers]


def refused(world, program):
    """Starts that program where the world was: it must end by itself, badly. What it said."""
    world.wait_for_port()
    copy = world.folder / "cove.old"
    shutil.copy(program, copy)
    done = subprocess.run([copy, "serve", "--data", world.data, "--run-dir", world.run_dir, *world.options],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, env=CLEAR | world.env,
                          cwd=world.folder, timeout=REFUSES_S)
    copy.unlink()
    assert done.returncode not in (0, None) and "ready on" not in done.stdout, done
    return done.stderr
