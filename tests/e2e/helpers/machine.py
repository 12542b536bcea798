"""What a sandbox could leave on a machine, to be compared before and after. The machine is the scope that the tests
run in (tools/scope): nobody else makes anything in it. Only loop devices are of all scopes."""

import fcntl
import fnmatch
import json
import os
import pathlib
import re
import subprocess

from .proc import children, state

KINDS = ("net", "mnt", "user", "pid", "ipc", "uts", "cgroup")


def output(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def mounts():
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return {" ".join(line.split()[3:]) for line in lines}


def family(*tops):
    """The descendants of processes, of ours without any. As the subreaper of the tests we are the
    ancestor of whatever they began."""
    found, todo = set(), list(tops) or [os.getpid()]
    while todo:
        try:
            more = children(todo.pop())
        except OSError:
            continue                    # it has just ended
        found |= more
        todo += more
    return found


def comm(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def processes():
    return {
        f"{comm(pid)} {pid}" for pid in family() if comm(pid).startswith(("cove", "memfd:cove"))
    }


def strays():
    """Those that belong to no server that runs."""
    ours = family()
    monitors = {pid for pid in ours if comm(pid) == "cove-monitor"}
    served = monitors | family(*monitors) if monitors else set()
    return {name for name in processes() if int(name.split()[1]) not in served}


def namespaces():
    found = set()
    for pid in family():
        for kind in KINDS:
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                continue
    return found - {os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}


def cgroups():
    """Those that come and go meanwhile are no error, which they are for pathlib's glob."""
    tops = {line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()
            if line.split()[2] in ("cgroup", "cgroup2")}
    return {path for top in tops for path, _, _ in os.walk(top)}


def cgroups_named(pattern):
    return [pathlib.Path(path) for path in cgroups()
            if fnmatch.fnmatch(os.path.basename(path), pattern)]


def is_locked(path):
    try:
        with open(path) as f:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def numbers():
    """Files of numbers that nobody holds."""
    return {str(path) for path in pathlib.Path("/run/cove/ids").glob("*") if not is_locked(path)}


def quotas(volume):
    """Groups of the volume; a line is "id referenced exclusive", and only the id stays the same."""
    return {
        line.split()[0]
        for line in output("btrfs", "qgroup", "show", str(volume))
        if line[:1].isdigit()
    }


def loops():
    found = set()
    for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found.add(path.read_text())
        except OSError:
            continue
    return found


def rules():
    """What the packet filter holds, one by one. Handles and counters change by themselves; of
    addresses that opened a flow (seen4, seen6) the kernel remembers the flow, too, for as long as it
    likes, and they are cleared with it before the next owner comes."""
    text = "".join(output("nft", "-j", "list", "ruleset")) or '{"nftables": []}'
    found = set()
    for entry in json.loads(text)["nftables"]:
        (kind, what), = entry.items()
        what.pop("handle", None)
        elements = what.pop("elem", [])
        name = " ".join(str(what.get(key)) for key in ("family", "table", "name"))
        line = re.sub(r'"(packets|bytes)": \d+', r'"\1": 0', json.dumps(what, sort_keys=True))
        found.add(f"{kind} {line}")
        if what.get("name") not in ("seen4", "seen6"):
            found |= {f"{kind} {name} has {json.dumps(one)}" for one in elements}
    return found


def traces(data):
    """Everything, by kind. The volume's own files are its layers: their contents are not walked. Its stamp stays with it,
    and is made by whichever keeper lives long enough to look at it."""
    volume, stamp = pathlib.Path(data, "volume"), pathlib.Path(data, "volume.swept")
    kinds = {
        "mounts": mounts(),
        "cgroups": cgroups(),
        "namespaces": namespaces(),
        "processes": processes(),
        "links": set(os.listdir("/sys/class/net")),
        "rules": rules(),
        "files": numbers()
        | {str(path) for path in pathlib.Path("/run/cove").rglob("*") if path.parent.name != "ids"}
        | {str(path) for path in pathlib.Path(data).glob("*") if path != stamp}
        | {str(path) for path in volume.glob("*/*")},
        "subvolumes": {
            line.split(" path ")[-1] for line in output("btrfs", "subvolume", "list", str(volume))
        },
        "quotas": quotas(volume),
        "loops": {name for name in loops() if str(data) in name},
    }
    return {f"{kind}: {item}" for kind, items in kinds.items() for item in items}


def collect_orphans():
    """What a killed keeper leaves becomes our child: we are the subreaper of the tests. To be
    called when no process of ours is just being waited for."""
    for pid in children(os.getpid()):
        if state(pid) == "Z":
            os.waitpid(pid, 0)


def left_over(before, cove, *options):
    """What is there and was not, and stays although keepers come, with these options, and sweep.
    What comes and goes meanwhile is of the sweepers themselves. A cgroup is as old as the first look at it: the
    fifth of them, three seconds apart, finds each more than ten seconds old."""
    collect_orphans()
    left = traces(cove.data) - before
    for _ in range(6):
        if not left:
            break
        cove.run(*options, "sleep", "3")
        collect_orphans()
        left &= traces(cove.data)
    return left
