"""The name server relay, which reads what sandboxes and name servers send, seen from this machine: it could
do nothing if it were somebody else's; nor could the one that waits for its turn."""

import contextlib
import os
import time

NOBODY = "65534"
PATIENCE_S = 10
OPEN = {"options": ("--network", "open")}


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def relays():
    """The pids of those in our network."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if status_of(pid)["Name"] == "cove-dns" and \
                    os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                found.append(pid)
    return sorted(found, key=int)


def wait_for(look):
    until = time.monotonic() + PATIENCE_S
    while not (seen := look()) and time.monotonic() < until:
        time.sleep(0.02)
    return seen


@contextlib.contextmanager
def two_keepers(world, weaken=""):
    """The pids of the relay that works and of the one that waits."""
    words = ("sh", "-c", "echo up; read x")
    before = set(relays())
    with world.running(*words, weaken=weaken, **OPEN) as one:
        assert one.stdout.readline() == "up\n"
        first = wait_for(lambda: set(relays()) - before)
        with world.running(*words, weaken=weaken, **OPEN) as two:
            assert two.stdout.readline() == "up\n"
            both = wait_for(lambda: len(set(relays()) - before) == 2 and set(relays()) - before)
            yield sorted(first), sorted(both - first)


def is_confined(pid):
    status = status_of(pid)
    empty = {name: status[name] == "0000000000000000" for name in ("CapEff", "CapPrm", "CapInh", "CapBnd")}
    return all(empty.values()) and status["Uid"].split() == [NOBODY] * 4 and \
        status["Gid"].split() == [NOBODY] * 4 and not status["Groups"].strip() and \
        status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"


def sees(pid):
    """What its root holds, and which mounts there are."""
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
        return os.listdir(f"/proc/{pid}/root"), [line.split()[4] for line in file]


def test_neither_has_anything_to_lose(world):
    with two_keepers(world) as (working, waiting):
        assert len(working) == len(waiting) == 1
        for pid in (*working, *waiting):
            assert wait_for(lambda pid=pid: is_confined(pid)), status_of(pid)
            assert sees(pid) == ([], ["/"])
            with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
                assert "ro," in file.read()
            opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            named = [path for path in opened if path.startswith("/") and path != "/dev/null"]
            assert all(path.endswith(".lock") for path in named if path != opened_log(pid)), opened


def opened_log(pid):
    """Where its messages go."""
    return os.readlink(f"/proc/{pid}/fd/2")


def test_without_its_walls_it_is_seen(world):
    """The control: the whole of root."""
    with two_keepers(world, weaken="relay") as (working, waiting):
        for pid in (*working, *waiting):
            status = status_of(pid)
            assert status["Uid"].split()[0] == "0" and status["Seccomp"] == "0"
            assert int(status["CapEff"], 16) and "etc" in sees(pid)[0]


def test_the_one_that_waits_takes_over(world):
    """With the ports of the one before, which it could not have bound itself."""
    with two_keepers(world) as (working, waiting):
        assert wait_for(lambda: is_confined(waiting[0]))
        assert sockets_of(working[0]) and not sockets_of(waiting[0])
        os.kill(int(working[0]), 9)
        assert wait_for(lambda: sockets_of(waiting[0]))
        assert is_confined(waiting[0])


def sockets_of(pid):
    """How many of its sockets are bound to port 53."""
    with contextlib.suppress(OSError):
        own = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        found = 0
        for kind in ("udp", "tcp"):
            with open(f"/proc/net/{kind}", encoding="ascii") as file:
                rows = [line.split() for line in file.read().splitlines()[1:]]
            found += sum(row[1].endswith(":0035") and f"socket:[{row[9]}]" in own for row in rows)
        return found
    return 0
