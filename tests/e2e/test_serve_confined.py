"""What the part of `cove serve` that strangers talk to could do if it were theirs: it is nobody, it
sees almost nothing, and nobody can look into it. (The system calls that it may make are a unit
test's business.)"""

import ctypes
import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import tempfile
import time

import pytest

from helpers import machine, proc
from helpers.cove import CLEAR, for_anybody
from helpers.guest import SANITIZED, SLOWER
from helpers.proc import wait_until
from helpers.serve import Serve

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up"),
              pytest.mark.skipif(SANITIZED, reason="a sanitizer's build is not confined"),
              pytest.mark.timeout(120)]

NOBODYS_ID, CLONE_NEWNS, PTRACE_ATTACH = 64200, 0x20000, 16
LIBC = ctypes.CDLL(None, use_errno=True)
CODE = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")


@pytest.fixture(scope="module")
def confined(workspace):
    path = tempfile.mkdtemp(dir=workspace, prefix="confined-")
    started = Serve(path, "--ephemeral")
    started.create(timeout=600)
    yield started
    started.close()
    shutil.rmtree(path)


@pytest.fixture
def pid(confined):
    return confined.worker()


def in_its_place(server, work):
    """work() in its root and as its user, in a child; what it returns."""
    pid, (left, right) = server.worker(), os.pipe()
    child = os.fork()
    if not child:
        try:
            namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
            if LIBC.setns(namespace, CLONE_NEWNS):
                raise OSError(ctypes.get_errno(), "setns")
            os.setgroups([])
            os.setresgid(*3 * [NOBODYS_ID])
            os.setresuid(*3 * [NOBODYS_ID])
            os.write(right, json.dumps(work()).encode())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent has to see it
            os.write(right, json.dumps(f"failed: {error!r}").encode())
        finally:
            os._exit(0)
    os.close(right)
    with open(left) as f:
        text = f.read()
    os.waitpid(child, 0)
    return json.loads(text)


def outcome(work, *args):
    """The name of the error, or "ok"."""
    try:
        work(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"


def test_it_is_nobody_and_can_become_nobody_else(pid):
    for name in "Uid", "Gid":
        assert proc.status_words(pid, name) == 4 * [str(NOBODYS_ID)]
    assert proc.status_words(pid, "Groups") == []
    for name in "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
        assert int(proc.status_words(pid, name)[0], 16) == 0, name
    assert proc.status_words(pid, "NoNewPrivs") == ["1"]
    assert proc.status_words(pid, "Seccomp") == ["2"]


def test_only_it_is_reached_from_outside(confined, pid):
    """The privileged part has no socket of a network."""
    inodes = {line.split()[9] for name in ("tcp", "tcp6", "udp", "udp6")
              for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]}

    def reached(one):
        return {target for target in proc.descriptors(one).values()
                if target.startswith("socket:[") and target[8:-1] in inodes}

    keeper, = (one for one in proc.children(confined.process.pid)
               if machine.comm(one) == "cove-keep")
    assert reached(pid) and not reached(keeper)


def test_its_root_holds_little_and_nothing_of_others(confined, pid):
    root = pathlib.Path(f"/proc/{pid}/root")
    top = {"etc", "usr", "lib", "lib64"} | {path.parts[1] for path in (confined.data, confined.run_dir)}
    assert set(os.listdir(root)) <= top
    assert set(os.listdir(root / "etc")) <= {
        "hosts", "resolv.conf", "nsswitch.conf", "host.conf", "gai.conf", "services", "localtime",
        "ssl", "ld.so.cache"}
    assert set(os.listdir(root / "etc/ssl")) <= {"certs", "openssl.cnf"}
    assert set(os.listdir(root / "usr")) <= {"lib", "lib64", "share", "local"}
    inside = root / confined.data.relative_to("/")
    assert os.listdir(inside) == ["serve"]
    assert (confined.data / "admin.key").exists() and (confined.data / "volume").exists()
    for above in (inside.parent, inside.parent.parent):
        assert set(os.listdir(above)) <= {*confined.data.parts, *confined.place.parts}


def test_nothing_can_be_written_but_its_state(confined, pid):
    mounts = {}
    for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        words = line.split()
        mounts[words[4]] = set(words[5].split(","))
    state = str(confined.data / "serve")
    assert {place for place, flags in mounts.items() if "rw" in flags} == {state}
    for place, flags in mounts.items():
        assert {"nosuid", "nodev"} <= flags, place
        assert "noexec" in flags or place in CODE, place


def test_what_it_could_do_with_files(confined):
    data, run = confined.data, confined.place

    def attempt():
        make = os.O_CREAT | os.O_WRONLY

        def connect():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(f"{run}/keep.sock")

        return {
            "root": outcome(os.open, "/new", make),
            "etc": outcome(os.open, "/etc/hosts", os.O_WRONLY),
            "lib": outcome(os.open, "/usr/lib/new", make),
            "run": outcome(os.open, f"{run}/new", make),
            "records": outcome(os.listdir, f"{run}/boxes"),
            "data": outcome(os.open, f"{data}/new", make),
            "key": outcome(os.open, f"{data}/admin.key", os.O_RDONLY),
            "volume": outcome(os.listdir, f"{data}/volume"),
            "passwords": outcome(os.open, "/etc/shadow", os.O_RDONLY),
            "processes": outcome(os.listdir, "/proc"),
            "home": outcome(os.listdir, "/root"),
            "state": outcome(os.open, f"{data}/serve/new", make),
            "gone": outcome(os.unlink, f"{data}/serve/new"),
            "keeper": outcome(connect),
        }

    done = in_its_place(confined, attempt)
    assert {name for name, error in done.items() if error == "ok"} == {"state", "gone", "keeper"}, done
    assert {done[name] for name in ("key", "volume", "passwords", "processes", "home")} == {"ENOENT"}
    assert {done[name] for name in ("root", "lib", "run")} <= {"EROFS", "EACCES"}


def test_it_holds_no_descriptor_of_what_it_cannot_see(confined, pid):
    kinds = ("socket:", "anon_inode:", "pipe:", "/dev/null")
    own = (str(confined.data / "serve"), str(confined.data / "serve.lock"), str(confined.log))
    for fd, target in proc.descriptors(pid).items():
        assert target.startswith(kinds + own), (fd, target)


def test_nobody_can_look_into_it(confined, pid):
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    assert os.stat(f"/proc/{pid}/mem").st_uid == 0  # not dumpable
    script = (f"import ctypes, os; l = ctypes.CDLL(None, use_errno=True); "
              f"r = l.ptrace({PTRACE_ATTACH}, {pid}, 0, 0); print(r, ctypes.get_errno());\n"
              f"for name in 'environ', 'mem', 'maps':\n"
              f"    try: open(f'/proc/{pid}/{{name}}', 'rb').read(1); print('read', name)\n"
              f"    except OSError as e: print(e.errno)")
    said = subprocess.run(["/usr/bin/python3", "-c", script], user=NOBODYS_ID, group=NOBODYS_ID,
                          extra_groups=[], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["-1", "1", "13", "13", "13"], said


def test_a_stranger_does_not_reach_the_keeper(confined):
    mode = (confined.place / "keep.sock").stat()
    assert mode.st_uid == NOBODYS_ID
    script = (f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              f"s.connect('{confined.place}/keep.sock'); s.send(b'x'); print(s.recv(1))")
    done = subprocess.run(["/usr/bin/python3", "-c", script], user=65534, group=65534,
                          extra_groups=[], capture_output=True, text=True)
    assert done.returncode != 0 and "PermissionError" in done.stderr, done


# ---- the certificate

@pytest.fixture
def certified(folder):
    """A data directory with a certificate whose key only root can read."""
    data = pathlib.Path(folder) / "data"
    data.mkdir(mode=0o700)
    for _ in range(2):
        subprocess.run([for_anybody(folder), "tls", "init", "--force", "--data", data], check=True,
                       env=CLEAR, capture_output=True)
    key = data / "tls/server.key"
    key.chmod(0o600)
    assert key.stat().st_uid == 0
    return data / "tls"


def serial(server, tls):
    """Of the certificate that a client is shown now."""
    context = ssl.create_default_context(cafile=tls / "ca.pem")
    with socket.create_connection(("127.0.0.1", server.port), 10) as plain, \
            context.wrap_socket(plain, server_hostname="localhost") as s:
        return s.getpeercert()["serialNumber"]


def test_a_key_that_only_root_can_read_serves_and_is_followed(folder, certified):
    server = Serve(folder, "--ephemeral", "--tls-cert", "data/tls/server.pem", "--tls-key",
                   "data/tls/server.key", "--set", "pool.size=0")
    try:
        assert server.url.startswith("https://")
        first = serial(server, certified)
        copy = server.place / "tls/key.pem"
        mode = copy.stat()
        assert (stat.S_IMODE(mode.st_mode), mode.st_uid, mode.st_gid) == (0o440, 0, NOBODYS_ID)
        assert not any(one.startswith(str(certified)) for one in
                       proc.descriptors(server.worker()).values())
        subprocess.run([for_anybody(folder), "tls", "init", "--force", "--data", server.data],
                       check=True, env=CLEAR, capture_output=True)
        wait_until(lambda: serial(server, certified) != first, "the new one is not taken",
                   15 * SLOWER, 0.5)
        second = serial(server, certified)
        os.kill(server.worker(), signal.SIGKILL)  # its follower reads the same copy
        time.sleep(0.3)
        assert serial(server, certified) == second
    finally:
        server.process.terminate()
        server.process.wait(30)
        server.process.stdout.close()
        server.unmount()
    assert not copy.exists()
