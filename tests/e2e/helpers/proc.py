"""Processes as /proc shows them, and waiting for something to become true."""

import ctypes
import os
import pathlib
import socket
import time

PR_SET_CHILD_SUBREAPER = 36


def wait_until(condition, what, timeout=20.0, step=0.02):
    """Returns the first true value of condition(); fails with `what` when there is none in time.
    It may be a function that says what is there instead."""
    until = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"not within {timeout} s: {what() if callable(what) else what}"
        time.sleep(step)


def become_subreaper():
    """Orphans of everything below us become our children, so that none can hide."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def children(pid):
    found = set()
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= {int(word) for word in task.read_text().split()}
        except OSError:
            continue                    # a thread that has just ended
    return found


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def state(pid):
    """The letter of /proc/PID/stat: R, S, T, Z ...; None when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def begun(pid):
    """When it began, in clock ticks; one that has ended comes last."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 1 << 63


def alive(pid):
    return state(pid) not in (None, "Z", "X")


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def with_argument(text):
    """The pids of processes one of whose arguments is exactly text."""
    return {int(entry.name) for entry in pathlib.Path("/proc").iterdir()
            if entry.name.isdigit() and text.encode() in command_line(entry.name)
            and alive(entry.name)}


def status_words(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split()[1:]
    raise KeyError(name)


def status_kib(pid, name):
    return int(status_words(pid, name)[0])


def forget_peak(pid):
    """VmHWM begins anew."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def descriptors(pid):
    """What each descriptor of a process is open on. Not its eventfds: on threads each coroutine has
    one, and some sleep for long."""
    found = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[int(entry.name)] = os.readlink(entry)
        except OSError:
            continue
    return {fd: target for fd, target in found.items() if target != "anon_inode:[eventfd]"}


def hang_up(port):
    """Ends every connection of this process to a port: those that a client's pool keeps, too."""
    for fd, target in descriptors("self").items():
        if not target.startswith("socket:"):
            continue
        try:
            with socket.socket(fileno=os.dup(fd)) as s:
                if s.family == socket.AF_INET and s.getpeername()[1] == port:
                    s.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue                    # closed meanwhile, or not connected
