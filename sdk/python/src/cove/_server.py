"""A private server for this process: started when nobody named another, and gone with the process.

What it writes is nobody else's business: its directory is 0700, and what is made in it here is 0600. (It
gives its privileges up after it has bound what it needs to places of its own, so it need not get through.)

It is tied to us by a pipe (--lifeline): when we end, also by kill -9, the kernel closes our end and the
server ends its sandboxes and itself. A shell waits for it and takes its directory away, since after
kill -9 nobody else can."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO, Dict, List, Optional, Sequence, Tuple

from .errors import ServerStartError

START_S = 90.0
STOP_S = 30.0
_READY = "cove: ready on "

# A server that ends while another one starts may leave its volume mounted: that one has a copy of the mount
# for a moment. One file system: what is still mounted then is not ours to delete. Nor is what sandboxes of an
# ordinary user wrote under other ids: a child of the server's deletes that, and may do so a moment longer.
_SHELL = """
dir=$1; shift
trap : HUP INT TERM
"$@"
tries=0
while mountpoint -q "$dir/data/volume" && [ $tries -lt 100 ]; do
    umount "$dir/data/volume" 2>/dev/null || sleep 0.1
    tries=$((tries + 1))
done
tries=0
until rm -rf --one-file-system -- "$dir" 2>/dev/null || [ $tries -ge 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
"""


def find_layers() -> Optional[str]:
    """COVE_LAYERS, else those of this machine's own data directory: where `cove layer add` puts them."""
    named = os.environ.get("COVE_LAYERS")
    if named and not os.path.isdir(named):
        raise ServerStartError(f"COVE_LAYERS={named} is not a directory")
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    usual = "/var/lib/cove" if os.geteuid() == 0 else f"{home}/cove"
    found = os.path.abspath(named or f"{usual}/layers")
    return found if os.access(found, os.R_OK | os.X_OK) else None


def find_binary() -> str:
    """COVE_BINARY, else the one in this package, else the one on the PATH."""
    named = os.environ.get("COVE_BINARY")
    packaged = Path(__file__).parent / "_bin" / "cove"
    if named and os.access(named, os.X_OK):
        return os.path.abspath(named)  # the server's working directory is another
    if named:
        raise ServerStartError(f"COVE_BINARY={named} is not a program that can be run")
    if os.access(packaged, os.X_OK):
        return str(packaged)
    found = shutil.which("cove")
    if found:
        return found
    raise ServerStartError(
        "there is no server: set COVE_URL and COVE_API_KEY to use one that runs, or put the program "
        "`cove` on the PATH (or its path into COVE_BINARY) to have a private one started"
    )


def _make_file(path: Path) -> BinaryIO:
    """A new one, for nobody else from its first byte on."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b")


class PrivateServer:
    """Running when made."""

    def __init__(self, allow_mount: Sequence[str] = ()) -> None:
        binary, layers = find_binary(), find_layers()
        self.dir = Path(tempfile.mkdtemp(prefix="cove-private-"))  # 0700, whatever the umask
        # Read by this descriptor: the name goes away with the directory, what it said must not.
        self._log = _make_file(self.dir / "log")  # closed by stop()
        lifeline, self._line = os.pipe()
        try:
            self._process = self._start(binary, layers, lifeline, allow_mount)
        except BaseException:  # there is no shell that would take the directory away
            self._log.close()
            self.forget()
            shutil.rmtree(self.dir, ignore_errors=True)
            raise
        finally:
            os.close(lifeline)
        try:
            self.url = self._wait_ready()
            self.api_key = (self.dir / "data" / "admin.key").read_text().strip()
        except BaseException:
            self.stop()
            raise

    def _start(
        self, binary: str, layers: Optional[str], lifeline: int, allow_mount: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        if layers:  # read only, and locked while in use, so a link is as good as a copy
            (self.dir / "data").mkdir(mode=0o700)
            (self.dir / "data" / "layers").symlink_to(layers)
        command: List[str] = [binary, "serve", "--ephemeral", "--lifeline", str(lifeline)]
        command += ["--data", str(self.dir / "data"), "--run-dir", str(self.dir / "run")]
        command += ["--listen", "127.0.0.1:0", "--preview-listen", "none", "--log-level", "warn"]
        for folder in allow_mount:
            command += ["--allow-mount", folder]
        # A COVE_ variable meant for another server must not change this one; what sandboxes may
        # reach is the machine's business.
        kept = ("COVE_NETWORK_ALLOW",)
        env = {k: v for k, v in os.environ.items() if not k.startswith("COVE_") or k in kept}
        _make_file(self.dir / "config").close()  # and neither must a file it would look for
        command += ["--config", str(self.dir / "config")]
        return subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "cove-private", str(self.dir), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[lifeline],
            start_new_session=True,  # Ctrl-C at a prompt is for the program, not the server
            env=env,
            cwd="/",
        )

    def _wait_ready(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for line in self._lines():
                if line.startswith(_READY):
                    return line[len(_READY) :].strip()
            if self._process.poll() is not None:
                raise ServerStartError(f"the private server did not start: {self._said()}")
            time.sleep(0.02)
        raise ServerStartError(
            f"the private server was not ready in {START_S:.0f} s: {self._said()}"
        )

    def _lines(self) -> List[str]:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode("utf-8", "replace").splitlines()

    def _said(self) -> str:
        secret = ("password", "key")  # of the administrator, said once
        return " / ".join(x for x in self._lines()[-5:] if not any(word in x for word in secret))

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Cut the line and wait until server, sandboxes and directory are gone. Twice is once."""
        if self._line >= 0:
            os.close(self._line)
            self._line = -1
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on ending by itself
            self._process.wait(STOP_S)
        self._log.close()

    def forget(self) -> None:
        """In a child after fork: the line is the parent's, or the server would outlive it."""
        if self._line >= 0:
            os.close(self._line)
            self._line = -1


_lock = threading.Lock()
_servers: Dict[Tuple[str, ...], PrivateServer] = {}


def private(allow_mount: Sequence[str] = ()) -> PrivateServer:
    """The private server of this process for those directories; started at the first call."""
    key = tuple(sorted(allow_mount))
    with _lock:
        server = _servers.get(key)
        if server is None or not server.alive():
            server = _servers[key] = PrivateServer(key)
        return server


def stop_all() -> None:
    """End the private servers now instead of at the end of the process."""
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
        for server in servers:
            server.stop()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        server.forget()


def running() -> Optional[PrivateServer]:
    """The one that plain `Sandbox.create()` uses, if it has been started."""
    return _servers.get(())


atexit.register(stop_all)
os.register_at_fork(after_in_child=_after_fork)
