"""Errors of managers and executors."""

from __future__ import annotations


class VMManagerError(Exception):
    """Anything that went wrong with a machine."""


class VMCreationError(VMManagerError):
    """It could not be made: a field of the configuration, or the server, says no."""


class VMOperationError(VMManagerError):
    """It is there, but what was asked of it failed."""


class SSHError(VMManagerError):
    """No connection to the machine."""


class RemoteCommandError(VMOperationError):
    """A command inside ended with a status other than 0."""

    def __init__(self, cmd: str, status: int, stderr: str) -> None:
        super().__init__(f"{cmd!r} ended with status {status}: {stderr.strip()}")
        self.cmd = cmd
        self.status = status
        self.stderr = stderr


class CodeError(VMOperationError):
    """An exception in the code that was run; the text is its traceback."""
