"""The test's side of shim.c: one failing call of libc, and a wall clock that jumps, told to the processes of
a server by a file that all of them share."""

import mmap
import os
import pathlib
import re
import struct
from dataclasses import dataclass

MAGIC, SITES = 0x46415553, 4096
OFF, RECORD, FAIL = range(3)
ROLES = ("anybody", "monitor", "server", "keeper", "netmaker", "reaper")
HEAD = struct.Struct("=II6qIIIIQIIII")      # struct block of shim.c, without its sites
SITE = struct.Struct("=IIQII")
MODE_AT, SHIFT_AT, PLAN_AT, SEEN_AT, NSITES_AT = 4, 8, 56, 80, 88
CALLS = pathlib.Path(__file__).with_name("calls.def")
LIBRARY = pathlib.Path(os.environ["COVE_BUILD"]) / "tests/faults/faults.so"
FUNCTIONS = re.findall(r"^CALL\((\w+), ", CALLS.read_text(), re.M)

# What each function may fail with on a machine in trouble; others: EIO.
EIO, EAGAIN, ENOMEM, EMFILE, ENOSPC, EPERM, EINTR = 5, 11, 12, 24, 28, 1, 4
ERRORS = {
    ENOSPC: "write writev pwrite64 pwrite mkdir mkdirat symlinkat link rename renameat renameat2 fallocate64 "
            "ftruncate64 ftruncate fsetxattr mknodat bind fsync fdatasync",
    EMFILE: "open open64 __open64_2 openat64 __openat64_2 socket socketpair accept4 pipe2 eventfd memfd_create "
            "opendir fdopendir fsopen fsmount open_tree dup2 dup3 fcntl64",
    ENOMEM: "mmap mmap64 mount mount_setattr move_mount fsconfig setns unshare epoll_ctl ioctl syscall",
    EAGAIN: "fork pthread_create",
    EPERM: "chown fchown fchownat chmod fchmod fchmodat setsockopt",
}
ERROR_OF = {name: error for error, names in ERRORS.items() for name in names.split()}


@dataclass(frozen=True, order=True)
class Site:
    """One call in the program: who calls which function from where."""
    role: str
    function: str
    offset: int

    def __str__(self):
        return f"{self.role} {self.function} at {self.offset:#x}"


class Shim:
    def __init__(self, path):
        self.path = str(path)
        with open(self.path, "wb") as file:
            file.write(struct.pack("=I", MAGIC).ljust(HEAD.size + SITES * SITE.size, b"\0"))
        os.chmod(self.path, 0o666)          # the server is another user
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.variables = {"LD_PRELOAD": str(LIBRARY), "COVE_FAULTS_BLOCK": self.path}

    def put(self, form, at, *values):
        struct.pack_into("=" + form, self.memory, at, *values)

    def get(self, form, at):
        return struct.unpack_from("=" + form, self.memory, at)

    def shift(self, seconds, *roles):
        for role in roles:
            self.put("q", SHIFT_AT + 8 * ROLES.index(role), int(seconds * 1000))

    def off(self):
        self.put("I", MODE_AT, OFF)

    def record(self):
        self.put("I", NSITES_AT, 0)
        self.put("I", MODE_AT, RECORD)

    def sites(self):
        """Site: how often it was called."""
        found = {}
        count = min(self.get("I", NSITES_AT)[0], SITES)
        for i in range(count):
            role, function, offset, times, _ = SITE.unpack_from(self.memory, HEAD.size + i * SITE.size)
            site = Site(ROLES[role], FUNCTIONS[function], offset)
            found[site] = found.get(site, 0) + times
        return found

    def fail(self, site, occurrence=1, error=None):
        self.off()
        error = error or ERROR_OF.get(site.function, EIO)
        self.put("IIIIQII", PLAN_AT, ROLES.index(site.role), FUNCTIONS.index(site.function), occurrence, error,
                 site.offset, 0, 0)
        self.put("I", MODE_AT, FAIL)

    def failed(self):
        """How often the call that was to fail has failed."""
        return self.get("II", SEEN_AT)[1]
