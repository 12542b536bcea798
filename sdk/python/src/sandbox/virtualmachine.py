"""A machine: made from a configuration, found again by its name, restarted when its first process dies, and
taken away with everything it had."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import logging
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlsplit

import cove
from cove import _config
from cove._tunnel import Tunnel
from cove.compat import DEFAULTS, template

from .configs import DefaultPort, VMConfig, guest_port, parse_size
from .errors import VMCreationError, VMOperationError
from .ssh import SSHClient, SSHConfig

__all__ = ["VMConfig", "VMManager", "VMState"]

_PORT_TRIES = 50
_MAKE_TRIES = 50
_GUARD_S = 1  # how long letting go of a machine may have to wait for its guard
_NOBODY = 65534


class VMState(enum.Enum):
    INITIALIZING = "initializing"
    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"


class VMManager:
    """A machine and its life. `container` is the sandbox behind it."""

    def __init__(
        self,
        config: VMConfig,
        docker_client: Any = None,
        logger: Any = None,
        ssh_cfg: Optional[SSHConfig] = None,
    ) -> None:
        if not isinstance(config, VMConfig):
            raise TypeError(f"config must be a VMConfig, not {type(config).__name__}")
        self.cfg = config
        self.logger: Any = logger if logger is not None else logging.getLogger("sandbox")
        self.on_state_change: Optional[Callable[[VMState], Any]] = None
        self.state = VMState.INITIALIZING
        self.container: Optional[cove.Sandbox] = None
        if docker_client is not None:
            self._log("docker_client is not used: the machine is a sandbox of Cove")
        self._client: Optional[cove.Client] = None
        self._tunnels: List[Tunnel] = []
        self._held: Optional[int] = None  # the shared directory, open while we have a machine in it
        self._wanted = threading.Event()  # set while somebody wants it to run
        self._guard: Optional[threading.Thread] = None
        self.ssh = SSHClient(ssh_cfg or SSHConfig(port=config.host_ssh_port), self.logger)

    # --- making ------------------------------------------------------------------------------

    def create_container(self) -> cove.Sandbox:
        """Make the machine, or attach to one that runs under this name."""
        if self.container is not None:
            return self.container
        self._become(VMState.CREATING)
        try:
            with _alone(
                self.cfg.container_dir
            ):  # else two would make two of one name, in one directory
                found = self._attach()
                self.container = found or self._create()
                self._hold()
            seen = [event.seq for event in found._events_after(0, 0)] if found else []
        except BaseException as problem:
            self._close_tunnels()
            self._release()
            self._become(VMState.ERROR)
            if isinstance(problem, cove.CoveError):
                raise VMCreationError(str(problem)) from problem
            raise
        self._has(self.container, max(seen, default=0))
        return self.container

    def _has(self, container: cove.Sandbox, after: int) -> None:
        """It runs, and is looked after from that event on."""
        self.container = container
        self.ssh.cfg.port = int(self.cfg.host_ssh_port)  # which may have moved
        self.ssh.attach(container)
        self._wanted.set()
        if self.cfg.restart_policy != "no":
            self._guard = threading.Thread(target=self._watch, args=(container, after), daemon=True)
            self._guard.start()
        self._become(VMState.RUNNING)

    def _api(self) -> cove.Client:
        if self._client is None:
            # A private server shows sandboxes only what is below this manager's directory.
            _make(self.cfg.root_dir)
            self._client = cove.Client(_config.resolve(allow_mount=(str(self.cfg.root_dir),)))
        return self._client

    def _attach(self) -> Optional[cove.Sandbox]:
        named = {"container_name": self.cfg.container_name}
        for info in cove.Sandbox.list(client=self._api(), metadata=named):
            sandbox = cove.Sandbox.connect(info.id, client=self._api())
            if self._server_is_here():
                for name, inside in self.cfg._port_fields().items():
                    if inside in sandbox.forwards:
                        # A port nobody asked for stays one: the next machine may have another.
                        asked = not isinstance(getattr(self.cfg, name), DefaultPort)
                        port = sandbox.forwards[inside]
                        setattr(self.cfg, name, port if asked else DefaultPort(port))
            else:
                self._open_tunnels(sandbox, self._ports())
            self._log(f"machine {self.cfg.container_name} runs already: {info.id}")
            return sandbox
        return None

    def _create(self) -> cove.Sandbox:
        self._make_directories()
        self._check_directory()
        known = self._templates()
        wanted = self._image()
        for _ in range(_PORT_TRIES):
            ports = self._ports()
            try:
                sandbox = cove.Sandbox.create(
                    template(wanted, known),
                    timeout=0,
                    metadata={"container_name": self.cfg.container_name},
                    label=self.cfg.container_name,
                    env=self.cfg.environment(),
                    restart="no" if self.cfg.restart_policy == "no" else "always",
                    limits=cove.Limits(
                        memory_bytes=parse_size("vm_ram", self.cfg.vm_ram),
                        cpu_milli=self.cfg.vm_cpu_cores * 1000,
                        disk_bytes=parse_size("vm_disk_size", self.cfg.vm_disk_size),
                    ),
                    mounts=[self._mount()],
                    # The documents have the services' ports on this machine, without a credential.
                    forwards=[cove.Forward(h, g, public=True) for h, g in ports]
                    if self._server_is_here()
                    else [],
                    client=self._api(),
                )
            except cove.ConflictError as problem:  # somebody was faster: look again
                if not any(f"port {host}:" in str(problem) for host, _ in ports):
                    raise
                continue
            try:
                if not self._server_is_here():
                    self._open_tunnels(sandbox, ports)
                return sandbox
            except BaseException as problem:
                sandbox.kill()
                self._close_tunnels()
                if not isinstance(problem, OSError):  # a port that somebody took meanwhile
                    raise
        raise VMCreationError("no free ports were found for the machine's forwards")

    def _templates(self) -> List[str]:
        """Those of the configured backend: the server knows which it has."""
        found = self._api().templates()
        have = sorted({t.provider for t in found})
        if self.cfg.backend not in have:
            raise VMCreationError(
                f"backend={self.cfg.backend!r}: the server at {self._api().connection.url} has no such "
                f"provider; it has: {', '.join(have) or 'none'}"
            )
        return [t.name for t in found if t.provider == self.cfg.backend]

    def _image(self) -> str:
        """Both fields name the template; the one that says more than a default wins."""
        image, boot = self.cfg.container_image, self.cfg.vm_boot_image
        special = [name for name in (image, boot) if name not in DEFAULTS]
        if len(set(special)) > 1:
            raise VMCreationError(
                f"container_image={image!r} and vm_boot_image={boot!r} name two templates: leave one out"
            )
        return special[0] if special else boot

    def _make_directories(self) -> None:
        _make(self.cfg.container_dir)
        for _ in range(_MAKE_TRIES):
            _make(self.cfg.shared_root, 0o700)
            with contextlib.suppress(FileNotFoundError):  # as above: it was empty for a moment
                self.cfg.container_shared_dir.mkdir(mode=0o700, exist_ok=True)
                break
        if os.geteuid() == 0:
            # Of a directory of root's nothing can be written from inside. Its owner is `user` there;
            # here nobody, whom the directory above keeps out.
            os.chown(self.cfg.container_shared_dir, _NOBODY, _NOBODY)

    def _check_directory(self) -> None:
        """Two servers do not know of each other's machines, and two private ones may be of one directory."""
        note, here = self.cfg.container_dir / "server", self._api().connection.url
        before = note.read_text() if note.exists() else here
        if before != here and _in_use(self.cfg.container_shared_dir):
            raise VMCreationError(
                f"container_name={self.cfg.container_name!r}: a machine of another process has this name "
                f"and {self.cfg.container_shared_dir}; use another name, or unique_container_name=True"
            )
        note.write_text(here)

    def _hold(self) -> None:
        self._let_go()
        with contextlib.suppress(FileNotFoundError):  # a machine that was made elsewhere
            self._held = os.open(
                self.cfg.container_shared_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
            fcntl.flock(self._held, fcntl.LOCK_SH)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _mount(self) -> cove.Mount:
        return cove.Mount(str(self.cfg.container_shared_dir), str(self.cfg.guest_shared_dir))

    # --- ports -------------------------------------------------------------------------------

    def _server_is_here(self) -> bool:
        host = urlsplit(self._api().connection.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    def _ports(self) -> List[Tuple[int, int]]:
        """Host port -> port inside. A default that is taken moves; one that was asked for does not."""
        chosen: Dict[int, int] = {}
        for name, inside in self.cfg._port_fields().items():
            wanted = getattr(self.cfg, name)
            if isinstance(wanted, DefaultPort):
                free = next(
                    (p for p in range(wanted, 65536) if p not in chosen and _is_free(p)), None
                )
                if free is None:
                    raise VMCreationError(f"{name}: no port from {int(wanted)} on is free")
                setattr(self.cfg, name, DefaultPort(free))
                chosen[free] = inside
            else:
                self._claim(chosen, name, wanted, inside)
        for key, wanted in self.cfg.extra_ports.items():
            inside = guest_port(key)
            if inside not in chosen.values():  # one that a field leads to already is that field's
                self._claim(chosen, f"extra_ports[{key!r}]", wanted, inside)
        return list(chosen.items())

    @staticmethod
    def _claim(chosen: Dict[int, int], name: str, wanted: int, inside: int) -> None:
        if wanted in chosen or not _is_free(wanted):
            raise VMCreationError(f"{name}={int(wanted)}: that port of this machine is in use")
        chosen[int(wanted)] = inside

    def _open_tunnels(self, sandbox: cove.Sandbox, ports: List[Tuple[int, int]]) -> None:
        """The server is elsewhere, and so are its ports: ours lead there."""
        for host, inside in ports:  # one by one: those that are open are closed if another is taken
            self._tunnels.append(sandbox.ports.forward(inside, host))

    def _close_tunnels(self) -> None:
        for tunnel in self._tunnels:
            tunnel.close()
        self._tunnels = []

    # --- living ------------------------------------------------------------------------------

    def _become(self, state: VMState) -> None:
        self.state = state
        if self.on_state_change is not None:
            with contextlib.suppress(Exception):  # a listener's trouble is not the machine's
                self.on_state_change(state)

    def _watch(self, container: cove.Sandbox, after: int) -> None:
        """Until it is not wanted any more. The server starts a machine that died; what ran in it is ours."""
        try:
            while self._wanted.is_set():
                for event in container._events_after(after, _GUARD_S):
                    after = event.seq
                    if event.kind == "restarted":
                        self._come_back(container)
                    elif event.kind == "ended" and self._wanted.is_set():
                        self._become(VMState.STOPPED)
                        return
        except Exception as problem:  # the server went away, or cleanup closed the client
            if self._wanted.is_set():
                self._log(f"machine {self.cfg.container_name} is not watched any more: {problem}")
                self._become(VMState.ERROR)

    def _come_back(self, container: cove.Sandbox) -> None:
        self._log(f"machine {self.cfg.container_name} died and was started again")
        self._become(VMState.CREATING)
        self.ssh.attach(container)
        self._restarted()
        self._become(VMState.RUNNING)

    def _restarted(self) -> None:
        """What has to be done in a machine that was started again."""

    def copy_vm_base_files(self) -> None:
        """Nothing on `local`: a sandbox begins with its template, copy on write."""

    def ssh_shell(self) -> Any:
        """A shell in the machine."""
        return self.ssh.open_shell()

    def cleanup(self, delete_storage: bool = True) -> None:
        """End the machine; with `delete_storage` its directories go too. Twice is once."""
        self._wanted.clear()
        container, self.container = self.container, None
        self._close_tunnels()
        self.ssh.close()
        if delete_storage and (container is not None or self.cfg.container_dir.exists()):
            with _alone(
                self.cfg.container_dir
            ):  # nobody makes the next one in what is being deleted
                self._end(container)
                if not _in_use(self.cfg.container_shared_dir):  # else it is the last one's
                    for path in (self.cfg.container_shared_dir, self.cfg.container_dir):
                        _delete(path)
        else:
            self._end(container)
        if delete_storage:
            for path in (
                self.cfg.shared_root,
                self.cfg.snapshots_dir,
                self.cfg.vms_dir,
                self.cfg.root_dir,
            ):
                with contextlib.suppress(OSError):
                    path.rmdir()  # only if no other machine has something there
        self._become(VMState.STOPPED)

    def _end(self, container: Optional[cove.Sandbox]) -> None:
        if container is not None:
            with contextlib.suppress(cove.CoveError):
                container.kill()
        self._release()

    def detach(self) -> None:
        """Let go of it. It goes on, and a manager with the same name finds it."""
        self._wanted.clear()
        self.container = None
        self._close_tunnels()
        self.ssh.close()
        self._release()

    def _release(self) -> None:
        self._let_go()
        guard, self._guard = self._guard, None
        if self._client is not None:
            self._client.close()
            self._client = None
        if guard is not None and guard is not threading.current_thread():
            guard.join(5)

    def _log(self, text: str) -> None:
        """A logger of `logging`, or one of smolagents, which has another interface."""
        if hasattr(self.logger, "info"):
            self.logger.info(text)
        elif hasattr(self.logger, "log"):
            self.logger.log(text)

    def _running(self) -> cove.Sandbox:
        if self.container is None:
            raise VMOperationError("the machine is not running: start it first")
        return self.container


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One at a time, of all processes. The directory is its own lock, and may be deleted under it."""
    while True:
        _make(directory)
        try:
            held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if directory.exists() and os.path.samestat(os.fstat(held), os.stat(directory)):
                yield
                return
        finally:
            os.close(held)


def _in_use(directory: Path) -> bool:
    """Whether a manager has a machine in it."""
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False


def _make(directory: Path, mode: int = 0o777) -> None:
    """With what is above it, which another machine's end may take away at any moment while it is empty."""
    for _ in range(_MAKE_TRIES):
        with contextlib.suppress(FileNotFoundError):
            directory.mkdir(mode, parents=True, exist_ok=True)
            return
    directory.mkdir(mode, parents=True, exist_ok=True)


def _delete(path: Path) -> None:
    """Code inside chose what is there: directories deeper than Python can go, too."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
