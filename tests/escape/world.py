"""world - a place of our own to make sandboxes in, and the canaries of the host beside it.

Attacks run inside sandboxes only. A sandbox from the weakened build still has every namespace; what
it lacks is the one defence that COVE_WEAKEN names."""

import contextlib
import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["COVE_BUILD"]
WEAK_BUILD = os.environ["COVE_WEAK_BUILD"]
ATTACKER = os.path.join(BUILD, "tests/escape/attacker")
PATIENCE_S = 30
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER, IPC_CREAT, IPC_RMID = 36, 0o1000, 0

# A sandbox with little: what an attempt is told about it, and the options that make it so.
LIMITS = {"PIDS": (64, "--pids=64"), "MEMORY": (64 << 20, "--memory=64M"),
          "DISK": (4 << 20, "--disk=4M")}


def become_subreaper():
    """Whatever a sandbox leaves behind becomes our child, and is found."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def attempts():
    """Every attempt the attacker knows. Only the list: nothing is tried out here."""
    done = subprocess.run([ATTACKER, "list"], check=True, capture_output=True, text=True)
    return done.stdout.split()


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def children():
    """{pid: command line} of the processes below us, zombies too."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if parent_of(name) == os.getpid():
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    found[int(name)] = file.read().replace(b"\0", b" ").decode(errors="replace")
    return found


def descendants(pid):
    """The pids below this one, the nearest first."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents.setdefault(parent_of(name), []).append(int(name))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in parents.get(parent, [])]
        found += front
    return found


def results(output):
    """{attempt: "held: EPERM"} of what the attacker printed."""
    return dict(line.split("\t", 1) for line in output.splitlines() if "\t" in line)


class Canaries:
    """Things of the host that nobody inside may find."""

    def __init__(self, directory):
        self.token = "canary-" + secrets.token_hex(8)
        self.file = os.path.join(directory, "canary")
        with open(self.file, "w", encoding="ascii") as file:
            file.write(self.token)
        sleeper = "import time; time.sleep(900)"
        self.process = subprocess.Popen([sys.executable, "-c", sleeper, self.token])
        self.sockets = [self._listen(socket.AF_UNIX, "\0" + self.token),
                        self._listen(socket.AF_INET, ("0.0.0.0", 0))]
        self.port = self.sockets[1].getsockname()[1]
        with contextlib.suppress(OSError):
            self.sockets.append(self._listen(socket.AF_INET6, ("::", self.port)))
        self.key = secrets.randbits(31) | 1
        self.shm = LIBC.shmget(self.key, 4096, IPC_CREAT | 0o666)
        assert self.shm >= 0

    @staticmethod
    def _listen(family, address):
        sock = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(64)                 # a connection in the queue is one that was made
        return sock

    def environment(self):
        ours = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True).stdout
        addresses = {"127.0.0.1", "::1"}
        addresses |= {line.split()[3].partition("/")[0] for line in ours.splitlines()}
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return {"CANARY_BOOT": boot, "CANARY_FILE": self.file, "CANARY_PROCESS": self.token,
                "CANARY_PID": str(self.process.pid), "CANARY_SOCKET": self.token,
                "CANARY_SHM": str(self.key),
                "CANARY_TCP": " ".join(f"{a} {self.port}" for a in sorted(addresses))}

    def close(self):
        self.process.kill()
        self.process.wait()
        LIBC.shmctl(self.shm, IPC_RMID, None)
        for sock in self.sockets:
            sock.close()


class World:
    """A data directory, the directory that is shown inside as /attack, and the canaries."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="cove-escape-")
        os.chmod(self.directory, 0o755)
        self.data = os.path.join(self.directory, "data")
        self.shown = os.path.join(self.directory, "shown")
        self._fill_shown()
        self.canaries = Canaries(self.directory)
        self.environment = self.canaries.environment()

    def _fill_shown(self):
        """The programs, and what must mean nothing inside: a device, a setuid file and so on."""
        os.mkdir(self.shown)
        os.chmod(self.shown, 0o755)
        for name in ("attacker", "setuid", "capability"):
            shutil.copy(ATTACKER, os.path.join(self.shown, name))
        shutil.copy(os.path.join(BUILD, "tests/escape/syscall-probe"), self.shown)
        os.chmod(os.path.join(self.shown, "setuid"), 0o4755)
        sys_admin = (0x02000001).to_bytes(4, "little") + (1 << 21).to_bytes(4, "little") + bytes(12)
        os.setxattr(os.path.join(self.shown, "capability"), "security.capability", sys_admin)
        os.mknod(os.path.join(self.shown, "zero"), 0o020666, os.makedev(1, 5))
        os.chmod(os.path.join(self.shown, "zero"), 0o666)
        with open(os.path.join(self.shown, "stranger"), "w", encoding="ascii"):
            pass
        os.chown(os.path.join(self.shown, "stranger"), 70000, 70000)

    def command(self, *words, user="user", strict=False, weakened=False, options=(),
                environment=None):
        variables = {**self.environment, **(environment or {})}
        if strict:
            variables["STRICT"] = "1"
        return [os.path.join(WEAK_BUILD if weakened else BUILD, "cove"), "run", "--private",
                "--data-dir", self.data, "--mount", f"{self.shown}:/attack:ro", "--user", user,
                *(["--strict"] if strict else []), *options,
                *(f"--env={name}={value}" for name, value in variables.items()), "--", *words]

    def run(self, *words, weaken="", timeout=PATIENCE_S, **more):
        """The finished `cove run`. With `weaken` it is the weakened build's."""
        command = self.command(*words, weakened=bool(weaken), **more)
        done = subprocess.run(command, env={**os.environ, "COVE_WEAKEN": weaken},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=timeout)
        assert done.returncode != 125, f"no sandbox: {done.stderr}"
        return done

    def attack(self, names, **how):
        """{attempt: outcome}, all of them in one sandbox."""
        done = self.run("/attack/attacker", "run", *names, **how)
        found = results(done.stdout)
        none = f"no answer, exit {done.returncode}: {done.stderr}"
        return {name: found.get(name, none) for name in names}

    @contextlib.contextmanager
    def running(self, *words, weaken="", stdout=subprocess.PIPE, pass_fds=(), **more):
        """A sandbox that goes on while the block runs; its standard input ends with it."""
        command = self.command(*words, weakened=bool(weaken), **more)
        process = subprocess.Popen(command, env={**os.environ, "COVE_WEAKEN": weaken}, text=True,
                                   stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.DEVNULL,
                                   pass_fds=pass_fds)
        try:
            yield process
        finally:
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            if process.stdout:
                process.stdout.close()

    def first_process(self, process):
        """The host's pid of a running sandbox's pid 1."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for pid in descendants(process.pid):
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                        numbers = next(line for line in file if line.startswith("NSpid")).split()
                    if len(numbers) > 2 and numbers[-1] == "1":
                        return pid
            time.sleep(0.01)
        raise AssertionError("no first process")

    def layers(self):
        """Names of the writable layers there are."""
        with contextlib.suppress(FileNotFoundError):
            volume = os.path.join(self.data, "volume")
            return [os.path.join(root, name) for root, names, _ in os.walk(volume)
                    for name in names if name.startswith("run-")]
        return []

    def close(self):
        self.canaries.close()
        subprocess.run(["umount", os.path.join(self.data, "volume")], check=False)
        shutil.rmtree(self.directory)
