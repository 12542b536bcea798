"""Errors of the client. Each carries the server's own sentence: it names the field, file or limit.

>>> from cove.errors import CoveError, NotFoundError
>>> issubclass(NotFoundError, CoveError)
True
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Optional, Tuple

if TYPE_CHECKING:
    from ._types import CommandResult

__all__ = [
    "AuthenticationError",
    "CommandError",
    "ConflictError",
    "ConnectionLostError",
    "CoveError",
    "DataLossError",
    "DeadlineError",
    "DiskFullError",
    "InvalidRequestError",
    "LimitError",
    "NotFoundError",
    "NotSupportedError",
    "PermissionError_",
    "PortClosedError",
    "SandboxGoneError",
    "ServerError",
    "ServerStartError",
]


class CoveError(Exception):
    """Anything that went wrong. `status` is the HTTP status where there was one."""

    def __init__(
        self, message: str, *, status: Optional[int] = None, request_id: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.request_id = request_id


class InvalidRequestError(CoveError, ValueError):
    """The request is wrong: the sentence names the field and what it must be."""


class AuthenticationError(CoveError):
    """The API key, the token or the user is not known."""


class PermissionError_(CoveError, PermissionError):
    """Known, but not allowed."""


class NotFoundError(CoveError, LookupError):
    """There is no such sandbox, file, process, template or route."""


class ConflictError(CoveError):
    """It exists already, or it is in a state that does not allow this."""


class LimitError(CoveError):
    """A limit was reached; the sentence says which."""


class NotSupportedError(CoveError, NotImplementedError):
    """The server, or the machine it runs on, cannot do this."""


class DiskFullError(CoveError, OSError):
    """The disk limit of the sandbox was reached."""


class SandboxGoneError(NotFoundError):
    """The sandbox has ended, or is paused and does not wake by itself."""


class PortClosedError(CoveError, ConnectionError):
    """The sandbox runs, but nothing in it listens on that port."""


class DeadlineError(CoveError, TimeoutError):
    """It took longer than the time given. `result` has what a command had written until then, `taken` how
    many bytes of the input that was sent to it went in."""

    result: Optional[CommandResult] = None
    taken: Optional[int] = None


class DataLossError(CoveError):
    """Output that was asked for is not kept any more; the command goes on. The sentence says from which
    offset on it is there. `result` has what was read until then."""

    result: Optional[CommandResult] = None


class ConnectionLostError(CoveError, ConnectionError):
    """The server could not be reached, or went away in the middle."""


class ServerError(CoveError):
    """The server failed."""


class ServerStartError(CoveError):
    """No private server could be started on this machine; the sentence says what to do."""


class CommandError(CoveError):
    """A command run with ``check=True`` ended with a status other than 0."""

    def __init__(self, command: str, result: CommandResult) -> None:
        tail = result.stderr.strip()[-2000:]
        what = result.error or f"exit status {result.exit_code}"
        super().__init__(f"{command!r}: {what}" + (f"\n{tail}" if tail else ""))
        self.command = command
        self.result = result

    def __reduce__(self) -> Tuple[type, Tuple[str, CommandResult]]:
        # For pools of processes: by default it would be made of its message alone.
        return type(self), (self.command, self.result)


# --- from the wire ---------------------------------------------------------------------------

_BY_STATUS = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionError_,
    404: NotFoundError,
    409: ConflictError,
    413: LimitError,
    422: InvalidRequestError,
    429: LimitError,
    501: NotSupportedError,
    504: DeadlineError,
    507: DiskFullError,
}

# Connect's codes; those that are missing are ServerError.
_BY_CODE = {
    "invalid_argument": InvalidRequestError,
    "failed_precondition": InvalidRequestError,
    "out_of_range": InvalidRequestError,
    "unauthenticated": AuthenticationError,
    "permission_denied": PermissionError_,
    "not_found": NotFoundError,
    "already_exists": ConflictError,
    "aborted": ConflictError,
    "resource_exhausted": LimitError,
    "unimplemented": NotSupportedError,
    "deadline_exceeded": DeadlineError,
    "unavailable": ConnectionLostError,
    "data_loss": DataLossError,
}


def from_code(code: str, message: str, status: Optional[int] = None) -> CoveError:
    """The error for one of Connect's codes."""
    return _BY_CODE.get(code, ServerError)(message or code, status=status)


def from_reply(status: int, body: bytes, request_id: Optional[str] = None) -> CoveError:
    """The error for an answer that is not a success. The body may be anything.

    >>> from_reply(404, b'{"code":404,"message":"there is no template zz"}')
    NotFoundError('there is no template zz')
    >>> from_reply(502, b'<html>')
    ServerError('the server answered with status 502')
    """
    message, code = "", None
    try:
        parsed = json.loads(body)
        if isinstance(parsed, dict):
            # `detail` is how services that follow FastAPI say it.
            message = parsed.get("message") or parsed.get("detail") or ""
            message = message if isinstance(message, str) else json.dumps(message)
            code = parsed.get("code")
    except ValueError:
        text = body[:500].decode("utf-8", "replace").strip()
        message = "" if text.startswith("<") else text
    message = message or f"the server answered with status {status}"
    if isinstance(code, str) and code in _BY_CODE and status != 502:
        return from_code(code, message, status)
    kind = _BY_STATUS.get(status, ServerError)
    if status == 502 and "was not found" in message:
        kind = SandboxGoneError
    elif status == 502 and "is not open" in message:
        kind = PortClosedError
    return kind(message, status=status, request_id=request_id)
