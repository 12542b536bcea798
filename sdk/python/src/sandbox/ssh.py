"""Commands and files of a machine, with the calls of an SSH client.

Where the machine has an `sshd` and this one the package paramiko, it is real SSH, with a key made for the
connection and an `sshd` started for it on port 22. Otherwise the same calls go over the guest's API."""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import posixpath
import re
import shlex
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

import cove

from .errors import RemoteCommandError, SSHError

_PROMPT_S = 10.0
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


@dataclass
class SSHConfig:
    hostname: str = "localhost"
    port: int = 2222
    username: str = "user"
    password: str = "password"  # noqa: S105 - the documents' default; a key is used
    key_filename: Optional[str] = None
    connect_timeout: float = 30
    max_retries: int = 5
    retry_delay: float = 5
    command_timeout: float = 60
    initial_delay: float = 15
    idle_timeout: float = 300


class SSHClient:
    """A connection to a machine. `attach()` says which sandbox it is; without one it is any SSH server."""

    def __init__(self, cfg: SSHConfig, logger: Any = None) -> None:
        self.cfg = cfg
        self.logger = logger
        self._sandbox: Optional[cove.Sandbox] = None
        self._ssh: Any = None
        self._without_ssh = False
        self._shells: List[_Shell] = []

    def attach(self, sandbox: cove.Sandbox) -> None:
        """To a machine, or to one that was started again, in which no connection of before lives."""
        self.close()
        self._sandbox = sandbox
        self._without_ssh = False
        self.cfg.port = sandbox.forwards.get(22, self.cfg.port)

    @property
    def over_api(self) -> bool:
        """Whether calls go over the guest's API instead of SSH."""
        return self._ssh is None and self._sandbox is not None

    # --- connecting --------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect, or say why not. Twice is once."""
        if self._ssh is not None:
            return
        if self._sandbox is not None:
            if not self._sandbox.is_running():
                raise SSHError("the machine is not running")
            if self._without_ssh or not _has_paramiko() or not self._has_sshd():
                return
            try:
                self._connect_ssh(self._start_sshd(), tries=2, delay=0.5)
            except (SSHError, cove.CoveError) as problem:
                # As root it wants to chroot, which no sandbox may: the calls work all the same.
                self._without_ssh = True
                if hasattr(self.logger, "info"):
                    self.logger.info(f"no SSH, the guest's API is used: {problem}")
        else:
            time.sleep(self.cfg.initial_delay)
            self._connect_ssh(None, self.cfg.max_retries, self.cfg.retry_delay)

    def _has_sshd(self) -> bool:
        assert self._sandbox is not None
        return self._sandbox.files.exists("/usr/sbin/sshd")

    def _start_sshd(self) -> Any:
        """An sshd for this key alone: no password opens it. It runs as the user who logs in: as root it would
        have to chroot, which no sandbox may."""
        import paramiko

        assert self._sandbox is not None
        key = paramiko.ECDSAKey.generate()
        script = (
            "d=$(mktemp -d) && cat >$d/keys && ssh-keygen -q -t ecdsa -N '' -f $d/host && "
            # No configuration of the machine's: what is there is meant for another sshd, or missing.
            "/usr/sbin/sshd -f /dev/null -p 22 -h $d/host -o AuthorizedKeysFile=$d/keys -o UsePAM=no "
            "-o PasswordAuthentication=no -o StrictModes=no -o PidFile=$d/pid "
            # Not the last word of the line: as the shell's heir it would have pid 1 as parent, take itself
            # for a daemon already, and stay.
            "-o 'Subsystem=sftp internal-sftp' </dev/null >/dev/null && echo started"
        )
        public = f"{key.get_name()} {key.get_base64()}\n"
        found = self._sandbox.commands.run(script, user=self.cfg.username, input=public, timeout=30)
        if not found.ok:
            raise SSHError(f"sshd could not be started in the machine: {found.stderr.strip()}")
        return key

    def _connect_ssh(self, key: Any, tries: int, delay: float) -> None:
        if not _has_paramiko():
            raise SSHError(
                "the package paramiko is needed for SSH: pip install 'cove-sandbox[ssh]'"
            )
        import paramiko

        problem: Optional[Exception] = None
        for attempt in range(max(1, tries)):
            if attempt:
                time.sleep(delay)
            client = paramiko.SSHClient()
            # The host key was made a moment ago in a machine of our own: there is nothing to know it by.
            client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
            try:
                client.connect(
                    self.cfg.hostname,
                    port=self.cfg.port,
                    username=self.cfg.username,
                    password=None if key else self.cfg.password,
                    pkey=key,
                    key_filename=self.cfg.key_filename,
                    timeout=self.cfg.connect_timeout,
                    allow_agent=False,
                    look_for_keys=False,
                )
            except (paramiko.SSHException, OSError, EOFError) as failed:
                client.close()
                problem = failed
                continue
            transport = client.get_transport()
            if transport is not None:
                transport.set_keepalive(int(self.cfg.idle_timeout // 2) or 1)
            self._ssh = client
            return
        raise SSHError(f"{self.cfg.hostname}:{self.cfg.port}: {problem}") from problem

    def close(self) -> None:
        """Twice is once."""
        for shell in self._shells:
            shell.close()
        self._shells = []
        if self._ssh is not None:
            self._ssh.close()
            self._ssh = None

    def __enter__(self) -> SSHClient:
        self.connect()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- commands ----------------------------------------------------------------------------

    def exec_command(
        self,
        cmd: str,
        cwd: str = "",
        env: Optional[Mapping[str, str]] = None,
        block: bool = True,
        as_root: bool = False,
    ) -> Optional[Dict[str, Any]]:
        """Run a line of shell. Without `block` it is started and goes on by itself."""
        self.connect()
        if self._ssh is not None:
            return self._exec_ssh(cmd, cwd, env, block, as_root)
        if self._sandbox is None:
            raise SSHError("there is no machine to run a command on")
        user = "root" if as_root else None
        where = cwd or None
        try:
            if not block:
                self._sandbox.commands.start(cmd, cwd=where, env=env, user=user).close()
                return None
            found = self._sandbox.commands.run(
                cmd, cwd=where, env=env, user=user, timeout=self.cfg.command_timeout
            )
        except cove.DeadlineError as problem:
            raise TimeoutError(
                f"{cmd!r} took longer than {self.cfg.command_timeout:g} s"
            ) from problem
        except cove.CoveError as problem:
            raise SSHError(str(problem)) from problem
        return _checked(cmd, found.exit_code, found.stdout, found.stderr or found.error or "")

    def _exec_ssh(
        self, cmd: str, cwd: str, env: Optional[Mapping[str, str]], block: bool, as_root: bool
    ) -> Optional[Dict[str, Any]]:
        line = f"cd {shlex.quote(cwd)} && {cmd}" if cwd else cmd
        given = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items())
        line = f"env {given}bash -lc {shlex.quote(line)}"
        if as_root:
            line = f"sudo -n {line}"
        if not block:
            self._ssh.exec_command(f"nohup {line} >/dev/null 2>&1 </dev/null &")
            return None
        import paramiko

        try:
            _, out, err = self._ssh.exec_command(line, timeout=self.cfg.command_timeout)
            # Both at once: a command that fills one while the other is read would wait for ever.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                later = pool.submit(err.read)
                stdout, stderr = out.read(), later.result()
            status = out.channel.recv_exit_status()
        except socket.timeout:  # which Python 3.9 does not take for a TimeoutError
            raise TimeoutError(f"{cmd!r} took longer than {self.cfg.command_timeout:g} s") from None
        except (paramiko.SSHException, OSError, EOFError) as problem:
            raise SSHError(f"{cmd!r}: {problem or type(problem).__name__}") from problem
        return _checked(
            cmd, status, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")
        )

    # --- files -------------------------------------------------------------------------------

    def get_sftp(self) -> Any:
        """An SFTP session, or an object with its usual calls over the guest's API."""
        self.connect()
        if self._ssh is not None:
            return self._ssh.open_sftp()
        if self._sandbox is None:
            raise SSHError("there is no machine to open files of")
        return _Files(self._sandbox)

    def transfer_directory(
        self,
        local: Union[str, Path],
        remote: Union[str, Path],
        exclude: Optional[Iterable[str]] = None,
    ) -> None:
        """Copy a directory into the machine. `exclude` has names, of files or directories."""
        names = set(exclude or ())
        skip: Callable[[str], bool] = lambda path: bool(names & set(path.split("/")))  # noqa: E731
        self.connect()
        if self._sandbox is not None:
            try:
                self._sandbox.files.upload(local, str(remote), exclude=skip)
            except cove.CoveError as problem:
                raise SSHError(f"{local} -> {remote}: {problem}") from problem
            return
        sftp = self.get_sftp()
        with contextlib.closing(sftp):
            top = Path(local)
            with contextlib.suppress(OSError):
                sftp.mkdir(str(remote))
            for path in sorted(top.rglob("*")):
                name = path.relative_to(top).as_posix()
                there = posixpath.join(str(remote), name)
                if skip(name):
                    continue
                if path.is_dir():
                    with contextlib.suppress(OSError):
                        sftp.mkdir(there)
                elif path.is_file():
                    sftp.put(str(path), there)
                    sftp.chmod(there, path.stat().st_mode & 0o777)

    # --- shells ------------------------------------------------------------------------------

    def open_shell(self) -> Any:
        """A terminal, with `send`, `recv`, `recv_ready`, `resize_pty` and `close`."""
        self.connect()
        if self._ssh is not None:
            return self._ssh.invoke_shell()
        if self._sandbox is None:
            raise SSHError("there is no machine to open a shell on")
        shell = _Shell(self._sandbox)
        self._shells.append(shell)
        return shell

    def send_command(
        self,
        chan: Any,
        cmd: str,
        prompt: str = "$",
        timeout: float = 5.0,
        wait_interval: float = 0.1,
    ) -> str:
        """Type a line into a shell; returns what it wrote until the prompt came, or the time was up."""
        chan.send(cmd + "\n")
        text, deadline = "", time.monotonic() + timeout
        while time.monotonic() < deadline:
            if chan.recv_ready():
                text += chan.recv(65536).decode("utf-8", "replace")
                # A prompt that waited before the line was typed is not the end of it. Of a long line only
                # the end is looked for: a terminal wraps it.
                _, echoed, rest = text.partition(cmd[-20:])
                if echoed and "\n" in rest and _ANSI.sub("", rest).rstrip().endswith(prompt):
                    break
            else:
                time.sleep(wait_interval)
        return text


class _Shell:
    """A terminal that looks like a channel."""

    def __init__(self, sandbox: cove.Sandbox) -> None:
        import threading

        self._terminal = sandbox.pty.create()
        self._data = bytearray()
        self._lock = threading.Lock()
        self.closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        # What is typed before the shell reads is echoed twice, with a prompt in between.
        deadline = time.monotonic() + _PROMPT_S
        while not self.recv_ready() and not self.closed and time.monotonic() < deadline:
            time.sleep(0.01)

    def _read(self) -> None:
        with contextlib.suppress(Exception):  # closed under it, or the machine is gone
            for output in self._terminal:
                with self._lock:
                    self._data += output.data
        self.closed = True

    def send(self, data: Union[str, bytes]) -> int:
        self._terminal.write(data)
        return len(data)

    def recv_ready(self) -> bool:
        with self._lock:
            return bool(self._data)

    def recv(self, size: int) -> bytes:
        """Waits for something; b"" at the end, as a channel does."""
        while not self.recv_ready() and not self.closed:
            time.sleep(0.02)
        with self._lock:
            found = bytes(self._data[:size])
            del self._data[:size]
        return found

    def resize_pty(self, width: int = 80, height: int = 24) -> None:
        self._terminal.resize(width, height)

    def close(self) -> None:
        with contextlib.suppress(cove.CoveError):
            self._terminal.kill()  # its reader then comes to the end
        self._reader.join(5)


@dataclass(frozen=True)
class _Attributes:
    """What SFTP tells of a file."""

    filename: str
    st_mode: int
    st_size: int
    st_mtime: int

    @classmethod
    def of(cls, entry: cove.Entry) -> _Attributes:
        kind = stat.S_IFDIR if entry.is_dir else stat.S_IFREG
        when = int(entry.modified.timestamp()) if entry.modified else 0
        return cls(entry.name, kind | entry.mode, entry.size, when)


class _Written(io.BytesIO):
    """A file that is sent when it is closed."""

    def __init__(self, send: Callable[[bytes], Any], before: bytes = b"") -> None:
        super().__init__()
        super().write(before)
        self._send = send

    def write(self, data: Any) -> int:
        return super().write(data.encode() if isinstance(data, str) else data)

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._send(content)


class _Files:
    """The usual calls of an SFTP session."""

    def __init__(self, sandbox: cove.Sandbox) -> None:
        self._files = sandbox.files

    def listdir(self, path: str = ".") -> List[str]:
        return [entry.name for entry in self._files.list("" if path == "." else path)]

    def listdir_attr(self, path: str = ".") -> List[_Attributes]:
        return [_Attributes.of(entry) for entry in self._files.list("" if path == "." else path)]

    def open(self, filename: str, mode: str = "r") -> io.BytesIO:
        """The whole file in memory, as bytes; text may be written, too."""
        if "+" in mode or "x" in mode:
            raise OSError(
                f"mode {mode!r}: over the guest's API a file is read, written or appended to"
            )
        with _as_os_error():
            if "r" in mode:
                return io.BytesIO(self._files.read_bytes(filename))
            more = "a" in mode and self._files.exists(filename)
            kept = self._files.read_bytes(filename) if more else b""
            return _Written(lambda content: self._files.write(filename, content), kept)

    file = open

    def put(self, localpath: str, remotepath: str) -> None:
        self._files.upload(localpath, remotepath)

    def get(self, remotepath: str, localpath: str) -> None:
        with _as_os_error():
            self._files.download(remotepath, localpath)

    def getfo(self, remotepath: str, out: io.BufferedIOBase) -> None:
        with _as_os_error():
            out.write(self._files.read_bytes(remotepath))

    def putfo(self, source: io.BufferedIOBase, remotepath: str) -> None:
        self._files.write(remotepath, source.read())

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        if not self._files.make_dir(path):
            raise OSError(f"{path} exists")
        self._files.set_mode(path, mode)

    def remove(self, path: str) -> None:
        with _as_os_error():
            self._files.stat(path)
            self._files.remove(path)

    def rename(self, oldpath: str, newpath: str) -> None:
        with _as_os_error():
            self._files.move(oldpath, newpath)

    def chmod(self, path: str, mode: int) -> None:
        with _as_os_error():
            self._files.set_mode(path, mode)

    def rmdir(self, path: str) -> None:
        with _as_os_error():
            if self._files.list(path):
                raise OSError(f"{path} is not empty")
            self._files.remove(path)

    def stat(self, path: str) -> _Attributes:
        with _as_os_error():
            return _Attributes.of(self._files.stat(path))

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


@contextlib.contextmanager
def _as_os_error() -> Any:
    try:
        yield
    except cove.NotFoundError as problem:
        raise FileNotFoundError(str(problem)) from problem


def _checked(cmd: str, status: int, stdout: str, stderr: str) -> Dict[str, Any]:
    if status != 0:
        raise RemoteCommandError(cmd, status, stderr)
    return {"status": status, "stdout": stdout, "stderr": stderr}


def _has_paramiko() -> bool:
    try:
        import paramiko  # noqa: F401
    except ImportError:
        return False
    return True
