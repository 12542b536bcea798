"""What /proc shows of the machine, outside of the directories of processes: each file that can be read inside is
in the table below, which docs/security.md tells people of. A new one of another kernel's is noticed here."""

import fnmatch
import json

import pytest

# Everything that can be read: {where: what it tells}. Masked files read as empty, and are not in it.
SHOWN = {
    "the machine's processors, memory and load": (
        "cpuinfo meminfo stat loadavg uptime vmstat zoneinfo buddyinfo pagetypeinfo interrupts softirqs swaps"
        " schedstat"),
    "its disks, and how much each moves": "diskstats partitions mdstat",
    "what its kernel is and can": (
        "version filesystems devices misc crypto execdomains cgroups consoles dma modules tty/drivers tty/ldiscs"
        " tty/driver/* dynamic_debug/control mtrr driver/* asound/* fb bootconfig"),
    "addresses, all of them zeros": "iomem ioports",
    "its settings, which cannot be changed": (
        "sys/abi/* sys/crypto/* sys/debug/* sys/dev/* sys/fs/* sys/kernel/* sys/user/* sys/vm/* sys/sunrpc/*"),
    "the sandbox's own": "sys/net/* sysvipc/*",
}
ALLOWED = [pattern for patterns in SHOWN.values() for pattern in patterns.split()]
# Of the masked ones, those that every supported kernel has: without the masks they are seen.
MASKED = ["cmdline", "kallsyms", "locks", "fs/*", "irq/*"]
WALK = """
import json, os, stat
found = []
for where, folders, files in os.walk("/proc"):
    if where == "/proc":
        folders[:] = [name for name in folders if not name.isdigit()]
    for name in files:
        path = os.path.join(where, name)
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                continue            # a link into a process' directory; a mask, which is a device
            with open(path, "rb", buffering=0, opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)) as file:
                file.read(1)
        except OSError:
            continue
        found.append(path.removeprefix("/proc/"))
print(json.dumps(found))
"""


def readable(world, **how):
    done = world.run("python3", "-c", WALK, **how)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "meminfo" in found, found
    return found


def in_table(path):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in ALLOWED)


@pytest.mark.parametrize("user", ["user", "root"])
def test_proc_shows_what_the_table_says_and_nothing_else(world, user):
    unknown = [path for path in readable(world, user=user) if not in_table(path)]
    assert not unknown, f"readable inside, and in no table: {unknown}"


def test_without_the_masks_more_is_seen(world):
    """The control: the same look finds each of those that are masked."""
    found = [path for path in readable(world, user="root", weaken="masks") if not in_table(path)]
    assert [pattern for pattern in MASKED if not fnmatch.filter(found, pattern)] == [], found
