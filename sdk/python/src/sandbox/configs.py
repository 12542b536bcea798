"""Configurations. Every field has an effect; docs/python.md has the table of them."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Mapping, Optional, Union

from .errors import VMCreationError

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

BACKENDS = ("local", "qemu", "docker")
RESTART_POLICIES = ("always", "unless-stopped", "on-failure", "no")


class DefaultPort(int):
    """A port nobody asked for: where it is taken, the next free one does.

    >>> DefaultPort(8765) == 8765
    True
    """


def parse_size(name: str, value: Union[str, int]) -> int:
    """Bytes.

    >>> parse_size("vm_ram", "4G") == 4 << 30
    True
    >>> parse_size("vm_ram", "lots")
    Traceback (most recent call last):
    ...
    sandbox.errors.VMCreationError: vm_ram='lots' is not a size: write a number and K, M, G or T, such as 4G
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([BKMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
    size = int(float(match.group(1)) * _UNITS[match.group(2).upper()]) if match else 0
    if size <= 0:
        raise VMCreationError(
            f"{name}={value!r} is not a size: write a number and K, M, G or T, such as 4G"
        )
    return size


def guest_port(key: Union[str, int]) -> int:
    """The port inside of an entry of `extra_ports`.

    >>> guest_port("8765/tcp"), guest_port(5900)
    (8765, 5900)
    """
    text, _, protocol = str(key).partition("/")
    if not text.isdigit() or protocol not in ("", "tcp"):
        raise VMCreationError(f"extra_ports: {key!r} is not a port: write 5900 or '5900/tcp'")
    return _port("extra_ports", int(text))


def _port(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise VMCreationError(f"{name}={value!r} is not a port: 1 to 65535")
    return value


@dataclass
class VMConfig:
    """A machine."""

    container_image: str = "qemux/qemu"
    container_name: str = "qemu"
    unique_container_name: bool = False
    restart_policy: str = "always"
    vm_ram: str = "4G"
    vm_cpu_cores: int = 4
    vm_disk_size: str = "16G"
    vm_boot_image: str = "ubuntu"
    host_vnc_port: int = DefaultPort(8006)
    host_ssh_port: int = DefaultPort(2222)
    extra_ports: Dict[Union[str, int], int] = field(default_factory=dict)
    root_dir: Path = Path("docker")
    guest_shared_dir: Path = Path("/shared")
    enable_debug: bool = True
    extra_env: Dict[str, str] = field(default_factory=dict)
    backend: str = "local"

    def __post_init__(self) -> None:
        if self.unique_container_name:
            self.container_name = f"{self.container_name}_{_unique()}"
        self.root_dir = Path(self.root_dir).resolve()
        self.guest_shared_dir = Path(self.guest_shared_dir)
        self._check()
        self.shared_root = self.root_dir / "shared"
        self.vms_dir = self.root_dir / "vms"
        self.vm_base_dir = self.vms_dir / "ubuntu-base"
        self.snapshots_dir = self.vms_dir / "snapshots"
        # Looked at by backends that boot an image; `local` boots none and misses none.
        self.base_iso = self.vm_base_dir / "boot.iso"
        self.base_data = self.vm_base_dir / "data.img"
        self.container_dir = self.snapshots_dir / self.container_name
        self.container_iso = self.container_dir / "boot.iso"
        self.container_data = self.container_dir / "data.img"
        self.container_shared_dir = self.shared_root / self.container_name
        # The later names of the same.
        self.host_container_dir = self.container_dir
        self.host_container_shared_dir = self.container_shared_dir

    def _check(self) -> None:
        """What is wrong is said before anything is made."""
        if not _NAME.fullmatch(self.container_name):
            raise VMCreationError(
                f"container_name={self.container_name!r}: letters, digits, '_', '.' and '-' only"
            )
        if self.restart_policy not in RESTART_POLICIES:
            raise VMCreationError(
                f"restart_policy={self.restart_policy!r} is not one of {', '.join(RESTART_POLICIES)}"
            )
        if self.backend not in BACKENDS:
            raise VMCreationError(f"backend={self.backend!r} is not one of {', '.join(BACKENDS)}")
        if not self.guest_shared_dir.is_absolute():
            raise VMCreationError(
                f"guest_shared_dir={str(self.guest_shared_dir)!r} must begin with /"
            )
        if not isinstance(self.vm_cpu_cores, int) or self.vm_cpu_cores < 1:
            raise VMCreationError(f"vm_cpu_cores={self.vm_cpu_cores!r} must be 1 or more")
        parse_size("vm_ram", self.vm_ram)
        parse_size("vm_disk_size", self.vm_disk_size)
        for name in self._port_fields():
            _port(name, getattr(self, name))
        for key, host in self.extra_ports.items():
            guest_port(key)
            _port(f"extra_ports[{key!r}]", host)

    def _port_fields(self) -> Dict[str, int]:
        """Fields that are ports of the host -> the port inside that each leads to."""
        return {"host_vnc_port": 8006, "host_ssh_port": 22}

    def environment(self) -> Dict[str, str]:
        """What every process inside finds."""
        return {"SHARED_DIR": str(self.guest_shared_dir), **self.extra_env}


@dataclass
class _ServicesConfig(VMConfig):
    """A machine with services inside: what the two documents have in common."""

    host_sandbox_server_host: str = "localhost"
    host_sandbox_server_port: int = DefaultPort(8765)
    host_server_dir: Optional[Path] = Path("server/")
    sandbox_server_host: str = "0.0.0.0"  # noqa: S104 - inside, and the documents' default
    sandbox_server_port: int = 8765
    sandbox_server_dir: Path = Path("/home/user/server")
    sandbox_server_display: str = ":0"
    sandbox_server_xauth: str = "/run/user/1000/gdm/Xauthority"
    sandbox_server_log: str = "sandbox-server.log"
    runtime_env: Dict[str, str] = field(default_factory=dict)
    force_regenerate_client: bool = False

    def __post_init__(self) -> None:
        self.sandbox_server_dir = Path(self.sandbox_server_dir)
        super().__post_init__()
        self.client_output_dir = self.container_dir / "sandbox-client"
        directory = Path(self.host_server_dir) if self.host_server_dir is not None else None
        self.host_server_dir = directory
        if directory is not None and directory.is_dir() and not (directory / "start.sh").is_file():
            raise VMCreationError(f"host_server_dir={str(directory)!r} has no start.sh to run")
        defaults = {"DISPLAY": self.sandbox_server_display, "XAUTHORITY": self.sandbox_server_xauth}
        self.runtime_env = {**defaults, **self.runtime_env}

    def _check(self) -> None:
        super()._check()
        _port("sandbox_server_port", self.sandbox_server_port)
        if "/" in self.sandbox_server_log or not self.sandbox_server_log:
            raise VMCreationError(
                f"sandbox_server_log={self.sandbox_server_log!r} is the name of a file, not a path"
            )

    @property
    def own_server(self) -> Optional[Path]:
        """The user's own server code; None: the guest's services."""
        directory = self.host_server_dir
        return directory if directory is not None and directory.is_dir() else None

    def _port_fields(self) -> Dict[str, int]:
        return {**super()._port_fields(), "host_sandbox_server_port": self.sandbox_server_port}

    def environment(self) -> Dict[str, str]:
        found = super().environment()
        found.update(SERVER_LOG=self.sandbox_server_log, SERVICES_LOG=self.sandbox_server_log)
        if self.enable_debug:
            found["DEBUG"] = "1"
        if self.own_server:
            found["COVE_SERVICES"] = "none"  # the ports are the user's server's
        else:
            found["COVE_REST_PORT"] = str(self.sandbox_server_port)
        return {**found, **self.runtime_env}

    def start_environment(self) -> Mapping[str, str]:
        """What only the start script finds: every web server would take HOST and PORT for its own."""
        return {"HOST": self.sandbox_server_host, "PORT": str(self.sandbox_server_port)}


@dataclass
class AgentVMConfig(_ServicesConfig):
    """A machine whose REST service runs code."""


@dataclass
class SandboxVMConfig(_ServicesConfig):
    """A machine with a REST service and Jupyter kernels."""

    host_sandbox_jupyter_kernel_host: str = "localhost"
    host_sandbox_jupyter_kernel_port: int = DefaultPort(8888)
    sandbox_jupyter_kernel_name: str = "sandbox-kernel"
    sandbox_jupyter_kernel_host: str = "0.0.0.0"  # noqa: S104 - inside
    sandbox_jupyter_kernel_port: int = 8888
    sandbox_jupyter_kernel_log: str = "jupyter-kernel.log"
    sandbox_services_log: Optional[str] = None  # the later name of sandbox_server_log

    def __post_init__(self) -> None:
        if self.sandbox_services_log is not None:
            self.sandbox_server_log = self.sandbox_services_log
        super().__post_init__()
        self.sandbox_services_log = self.sandbox_server_log

    def _check(self) -> None:
        super()._check()
        _port("sandbox_jupyter_kernel_port", self.sandbox_jupyter_kernel_port)

    def _port_fields(self) -> Dict[str, int]:
        kernel = {"host_sandbox_jupyter_kernel_port": self.sandbox_jupyter_kernel_port}
        return {**super()._port_fields(), **kernel}

    def environment(self) -> Dict[str, str]:
        return {
            **super().environment(),
            "JUPYTER_KERNEL_GATEWAY_APP_HOST": self.sandbox_jupyter_kernel_host,
            "JUPYTER_KERNEL_GATEWAY_APP_PORT": str(self.sandbox_jupyter_kernel_port),
            "JUPYTER_KERNEL_GATEWAY_APP_LOG": self.sandbox_jupyter_kernel_log,
            "JUPYTER_KERNEL_NAME": self.sandbox_jupyter_kernel_name,
        }


def _unique() -> str:
    """Seconds, as the documents have it, and what makes two of one second two, of two processes, too: a
    machine of the same name would be used again."""
    return f"{int(time.time())}_{secrets.token_hex(4)}"
