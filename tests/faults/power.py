"""A machine that loses its power, as far as a test can have that: a data directory on a file system whose device forgets
what was not written out (`cut`), or of which a copy of one moment exists (`image`), and a boot after which nothing of the
one before is left but that.

Both images are ones that a disk could have. The file system is shut down as xfstests does it: nothing of what is in
memory, or in a transaction that is not committed, reaches the disk any more. The copy is a clone of the loop file, which
holds every write that the device was given by then and none that came later."""

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
import uuid

from helpers import machine, proc
from world import machine_cgroups, wait_for

EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


def unmount(path):
    """The kernel lets go of a device a moment later."""
    until = time.monotonic() + 30
    while os.path.ismount(path) and subprocess.run(["umount", path], capture_output=True).returncode:
        assert time.monotonic() < until, f"{path} is in use: {users(path)}"
        time.sleep(0.1)


def users(path):
    """Which processes see a mount there or have a file open, and which loop devices lie there."""
    found = [line for line in machine.mounts() if str(path) in line]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = open(f"/proc/{pid}/mountinfo", encoding="ascii", errors="replace").read().splitlines()
            found += [f"{pid} {machine.comm(int(pid))}: {line}" for line in lines if str(path) in line]
            for name in [f"fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")] + ["cwd", "root", "exe"]:
                if str(path) in (where := os.readlink(f"/proc/{pid}/{name}")):
                    found.append(f"{pid} {machine.comm(int(pid))}: {name} {where}")
    return found + [name for name in machine.loops() if str(path) in name]


class Device:
    """The file system of a data directory, in a file of one that can clone files."""

    def __init__(self, folder, where, size):
        self.where, self.store = where, folder / "image.d"
        self.disk, self.copy = self.store / "image", self.store / "copy"
        with open(folder / "image", "wb") as file:
            file.truncate(size + (1 << 30))     # sparse: only what is written takes room
        run("mkfs.btrfs", "-q", folder / "image")
        self.store.mkdir()
        where.mkdir()
        run("mount", "-o", "loop", folder / "image", self.store)
        with open(self.disk, "wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", "-F", "-m", "0", self.disk)
        self.mount()

    def mount(self):
        run("mount", "-o", "loop", self.disk, self.where)

    def cut(self):
        """From now on nothing reaches the disk."""
        self.copy.unlink(missing_ok=True)
        fd = os.open(self.where, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def image(self):
        """What the device has been given so far, to be started on instead."""
        self.copy.unlink(missing_ok=True)
        run("cp", "--reflink=always", self.disk, self.copy)

    def again(self):
        """With power."""
        unmount(self.where)
        if self.copy.exists():
            self.copy.rename(self.disk)
        self.mount()

    def close(self):
        unmount(self.where)
        unmount(self.store)


# ---- the machine

def everybody():
    """Every process that is Cove's or inside one of its sandboxes."""
    found = {pid for pid in machine.family() if machine.comm(pid).startswith(("cove", "memfd:cove"))}
    for top in machine_cgroups():
        for place, _, _ in os.walk(f"{top}/cove"):
            with contextlib.suppress(OSError), open(f"{place}/cgroup.procs", encoding="ascii") as file:
                found |= {int(line) for line in file}
    return found


def all_die(world):
    """First who would tell clients of the others' deaths."""
    world.down("kill")
    until = time.monotonic() + 30
    while pids := {pid for pid in everybody() if proc.alive(pid)}:
        assert time.monotonic() < until, f"they do not die: {[(pid, machine.comm(pid)) for pid in pids]}"
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        machine.collect_orphans()
        time.sleep(0.02)
    machine.collect_orphans()


def forget_kernel_state():
    """What no boot finds: cgroups, interfaces, rules, and everything below /run."""
    for top in machine_cgroups():
        for place, _, _ in os.walk(f"{top}/cove", topdown=False):
            wait_for(lambda place=place: removed(place), f"{place} stays", 20)
    for name in os.listdir("/sys/class/net"):
        if name.startswith("cove"):
            subprocess.run(["ip", "link", "del", name], capture_output=True)
    subprocess.run(["nft", "flush", "ruleset"], capture_output=True)
    for name in os.listdir("/run/cove"):
        path = os.path.join("/run/cove", name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def removed(cgroup):
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rmdir(cgroup)
        except OSError:
            return False
    return True


def new_boot(world):
    """Another name of the boot, for whoever starts from now on."""
    if os.path.ismount(BOOT_ID):
        run("umount", BOOT_ID)
    name = world.folder / "boot"
    name.write_text(f"{uuid.uuid4()}\n")
    run("mount", "--bind", name, BOOT_ID)


def true_boot():
    if os.path.ismount(BOOT_ID):
        run("umount", BOOT_ID)


def all_worlds(world):
    return [world, *filter(None, [getattr(world, "neighbour", None)])]


def end_boot(world):
    """All that a machine does not take along."""
    all_die(world)
    world.boot += 1
    forget_kernel_state()
    shutil.rmtree(world.run_dir)
    for each in all_worlds(world):
        each.unmount()


def falls(world, chance, device=None, way="cut"):
    """At once, whatever anybody was about to do; nothing is told to end. What is there when it is switched on again."""
    if history := getattr(world, "history", None):
        history.look()
        time.sleep(chance.uniform(0, 0.5))          # they go on by then
    for other in all_worlds(world)[1:]:
        other.down("kill")
    world.boot += 1                     # what succeeds from now on may do so before everything is dead: one of its own
    if device:
        getattr(device, way)()
    end_boot(world)
    if device:
        device.again()
        world.last_power = world.boot
    new_boot(world)


def rises(world):
    world.start()
    world.wait_well(60)
    for other in all_worlds(world)[1:]:
        other.start()
        other.machine_was_restarted()
    world.residents.machine_was_restarted()
    world.residents.check()


def reboot(world, chance):
    """The disk keeps everything; memory, processes and the run directory are gone."""
    falls(world, chance)
    rises(world)


def power_loss(world, chance):
    falls(world, chance, world.device, chance.choice(["cut", "image"]))
    rises(world)
