"""The sandbox is one of Cove's, on this machine or at COVE_URL."""

from __future__ import annotations

import posixpath
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator

import cove
from cove.compat import template

from .client import ExecutionResult, SandboxError, SandboxTimeoutError

if TYPE_CHECKING:
    from .client import SandboxClient

_APP = "/app"


class LocalSandbox:
    def __init__(self, owner: SandboxClient) -> None:
        with _as_runtime_error():
            self._client = cove.Client.open()
            try:
                known = [t.name for t in self._client.templates()]
                self._sandbox = cove.Sandbox.create(
                    template(owner.template_name, known),
                    timeout=24 * 3600,
                    metadata={"template": owner.template_name, "namespace": owner.namespace},
                    client=self._client,
                )
                try:
                    self._prepare()
                except BaseException:
                    self._sandbox.kill()
                    raise
            except BaseException:
                self._client.close()
                raise
        owner.claim_name = owner.sandbox_name = self._sandbox.id
        owner.base_url = self._client.connection.url

    def _prepare(self) -> None:
        """`/app` as the runtime's images have it: the user's own."""
        who = self._sandbox.commands.run("id -u", check=True).stdout.strip()
        self._sandbox.commands.run(
            "/bin/sh",
            ["-c", 'mkdir -p "$1" && chown "$2" "$1"', "sh", _APP, who],
            user="root" if who != "0" else None,
            check=True,
        )

    def run(self, command: str, timeout: float) -> ExecutionResult:
        with _as_runtime_error():
            found = self._sandbox.commands.run(
                "/bin/sh", ["-c", command], cwd=_APP, timeout=timeout
            )
        return ExecutionResult(found.stdout, found.stderr, found.exit_code)

    def write(self, path: str, content: bytes, timeout: float) -> None:
        with _as_runtime_error():
            self._sandbox.files.write(posixpath.join(_APP, path), content)

    def read(self, path: str, timeout: float) -> bytes:
        with _as_runtime_error():
            return self._sandbox.files.read_bytes(posixpath.join(_APP, path))

    def close(self) -> None:
        try:
            with _as_runtime_error():
                self._sandbox.kill()
        finally:
            self._client.close()


@contextmanager
def _as_runtime_error() -> Iterator[None]:
    """This interface knows one kind of error. The sentence stays."""
    try:
        yield
    except cove.DeadlineError as problem:
        raise SandboxTimeoutError(str(problem)) from problem
    except cove.CoveError as problem:
        raise SandboxError(str(problem)) from problem
