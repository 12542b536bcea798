"""The context manager, and which of the two worlds it lives in."""

from __future__ import annotations

import logging
import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from typing import Protocol

    class Backend(Protocol):
        """A sandbox that is ready, wherever it is."""

        def run(self, command: str, timeout: float) -> ExecutionResult: ...
        def write(self, path: str, content: bytes, timeout: float) -> None: ...
        def read(self, path: str, timeout: float) -> bytes: ...
        def close(self) -> None: ...


_log = logging.getLogger("agentic_sandbox")


class SandboxError(RuntimeError):
    """A request to the sandbox failed, or it could not be made."""


class SandboxTimeoutError(SandboxError, TimeoutError):
    """It did not answer in the time that was given."""


@dataclass(frozen=True)
class ExecutionResult:
    """How a command ended."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = -1


class SandboxClient:
    """A sandbox for the length of a ``with`` block; deleted at its end, also when that is an error."""

    def __init__(
        self,
        template_name: str,
        namespace: str = "default",
        gateway_name: Optional[str] = None,
        gateway_namespace: str = "default",
        api_url: Optional[str] = None,
        server_port: int = 8888,
        sandbox_ready_timeout: float = 180,
        gateway_ready_timeout: float = 180,
        port_forward_ready_timeout: float = 30,
        enable_tracing: bool = False,
        trace_service_name: str = "sandbox-client",
    ) -> None:
        self.template_name = template_name
        self.namespace = namespace
        self.gateway_name = gateway_name
        self.gateway_namespace = gateway_namespace
        self.api_url = api_url
        self.server_port = server_port
        self.sandbox_ready_timeout = sandbox_ready_timeout
        self.gateway_ready_timeout = gateway_ready_timeout
        self.port_forward_ready_timeout = port_forward_ready_timeout
        self.claim_name: Optional[str] = None
        self.sandbox_name: Optional[str] = None
        self.base_url: Optional[str] = None
        self._backend: Optional[Backend] = None
        if enable_tracing:
            _log.warning("tracing (%s) is not part of this client and is off", trace_service_name)

    def __enter__(self) -> SandboxClient:
        if self._backend is not None:
            raise SandboxError("this client has a sandbox already: one client is one sandbox")
        self._backend = self._open()
        return self

    def _open(self) -> Backend:
        if not os.environ.get("COVE_URL"):
            from . import cluster

            api = cluster.load()
            if api is not None:
                return cluster.ClusterSandbox(self, api)
        from .local import LocalSandbox

        if self.gateway_name:
            _log.info("gateway %s is not needed: this is Cove on one machine", self.gateway_name)
        return LocalSandbox(self)

    def __exit__(self, kind: object = None, *_exc: object) -> None:
        backend, self._backend = self._backend, None
        if backend is None:
            return
        try:
            backend.close()
        except Exception as problem:
            if kind is None:
                raise
            # The block's own error is what its user has to see; often it is the cause of this one.
            _log.warning("the sandbox could not be deleted: %s", problem)

    def is_ready(self) -> bool:
        """Whether there is a sandbox to talk to."""
        return self._backend is not None

    def run(self, command: str, timeout: float = 60) -> ExecutionResult:
        """Execute a shell command."""
        return self._ready().run(command, timeout)

    def write(self, path: str, content: Union[bytes, str], timeout: float = 60) -> None:
        """Upload a file. Paths are below the sandbox's working directory, `/app`."""
        raw = content.encode() if isinstance(content, str) else bytes(content)
        self._ready().write(below_app(path), raw, timeout)

    def read(self, path: str, timeout: float = 60) -> bytes:
        """Download a file."""
        return self._ready().read(below_app(path), timeout)

    def _ready(self) -> Backend:
        if self._backend is None:
            raise SandboxError(
                "there is no sandbox: use the client in a `with` block (`with SandboxClient(...) as sandbox:`)"
            )
        return self._backend


def below_app(path: str) -> str:
    """A path as the runtime wants it: relative to its directory, and inside it.

    >>> below_app("/app/a/b.txt"), below_app("./x"), below_app("a//b")
    ('a/b.txt', 'x', 'a/b')
    >>> below_app("../etc/passwd")
    Traceback (most recent call last):
    ...
    ValueError: path '../etc/passwd' leads out of the sandbox's directory
    """
    if not path or "\0" in path:
        raise ValueError(f"path {path!r} is not the name of a file")
    plain = posixpath.normpath("/" + path.lstrip("/") if path.startswith("/") else path)
    if plain.startswith("/app/"):
        plain = plain[len("/app/") :]
    plain = plain.lstrip("/")
    if plain == ".." or plain.startswith("../"):
        raise ValueError(f"path {path!r} leads out of the sandbox's directory")
    return plain
