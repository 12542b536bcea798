"""What goes over the wire to a guest and back, without a socket: Connect's envelopes, the events of a
process, the retry rule. Everything here is shared by the synchronous and the asynchronous client."""

from __future__ import annotations

import base64
import codecs
import json
import struct
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import errors
from ._types import CommandResult, Output

GUEST_PORT = 49983
CODE_PORT = 49999
KEEPALIVE_S = 50  # how often a silent stream says that it lives
ENVELOPE_MAX = 64 << 20  # a guest is not trusted with our memory


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def envelope(message: Mapping[str, Any]) -> bytes:
    """
    >>> envelope({})
    b'\\x00\\x00\\x00\\x00\\x02{}'
    """
    payload = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack(">BI", 0, len(payload)) + payload


class Envelopes:
    """Takes bytes as they come, gives messages. After the end of the stream `ended` is true; a stream
    that ended with an error raises it.

    >>> e = Envelopes()
    >>> list(e.feed(envelope({"a": 1})[:4]))
    []
    >>> list(e.feed(envelope({"a": 1})[4:]))
    [{'a': 1}]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Dict[str, Any]]:
        self._buffer += data
        while len(self._buffer) >= 5:
            flags, size = struct.unpack_from(">BI", self._buffer)
            if size > ENVELOPE_MAX:
                raise errors.ServerError(f"the guest announced a message of {size} bytes")
            if len(self._buffer) < 5 + size:
                return
            payload = bytes(self._buffer[5 : 5 + size])
            del self._buffer[: 5 + size]
            message = self._parse(payload)
            if flags & 2:
                self.ended = True
                problem = message.get("error")
                if isinstance(problem, dict):
                    raise errors.from_code(
                        str(problem.get("code", "unknown")), str(problem.get("message", ""))
                    )
                return
            yield message

    @staticmethod
    def _parse(payload: bytes) -> Dict[str, Any]:
        try:
            message = json.loads(payload or b"{}")
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise errors.ServerError("the guest sent something that is not a message")
        return message


class Lines:
    """Takes bytes as they come, gives lines.

    >>> lines = Lines(100)
    >>> list(lines.feed(b"a")), list(lines.feed(b"b\\nc\\nd"))
    ([], [b'ab', b'c'])
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun: List[bytes] = []  # joined once: a long line comes in thousands of pieces
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield b"".join(self._begun)
            self._begun, self._size = [], 0
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._begun.append(piece)
        self._size += len(piece)
        if self._size > self._longest:
            raise errors.ServerError("the code service sends a line without an end")


# --- processes -------------------------------------------------------------------------------


class _Text:
    """Bytes and what they say so far. A character cut in two by a packet is not two broken ones."""

    def __init__(self, keep: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._keep = keep
        self._raw: List[bytes] = []
        self._text: List[str] = []

    def add(self, data: bytes, final: bool = False) -> str:
        text = self._decoder.decode(data, final)
        if self._keep:
            self._raw.append(data)
            self._text.append(text)
        return text

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def raw(self) -> bytes:
        return b"".join(self._raw)


class ProcessReader:
    """The events of one process. It knows where to go on after a broken connection."""

    def __init__(self, keep: bool = True) -> None:
        self.pid = 0
        self.offset = 0
        self.lost = 0
        self.end: Optional[Dict[str, Any]] = None
        self._streams = {name: _Text(keep) for name in ("stdout", "stderr", "pty")}

    def text(self, stream: str) -> str:
        return self._streams[stream].text

    def raw(self, stream: str) -> bytes:
        return self._streams[stream].raw

    def take(self, message: Mapping[str, Any]) -> Iterator[Output]:
        """Output in this message: at most one piece, two at the end of cut characters."""
        event = message.get("event")
        if not isinstance(event, dict):
            return
        if isinstance(event.get("start"), dict):
            self.pid = int(event["start"].get("pid", self.pid) or self.pid)
            self.offset = max(self.offset, _int(event.get("offset")))
        elif isinstance(event.get("data"), dict):
            yield from self._data(event)
        elif isinstance(event.get("lost"), dict):
            size = _int(event["lost"].get("bytes"))
            self.lost += size
            # Behind the gap: what was told once is not asked for again after a broken connection.
            self.offset = max(self.offset, _int(event.get("offset"), self.offset) + size)
        elif isinstance(event.get("end"), dict):
            self.end = event["end"]
            for name, stream in self._streams.items():
                rest = stream.add(b"", final=True)
                if rest:
                    yield Output(name, rest, b"", self.offset)

    def _data(self, event: Mapping[str, Any]) -> Iterator[Output]:
        at = _int(event.get("offset"), self.offset)
        for name, stream in self._streams.items():
            encoded = event["data"].get(name)
            if not isinstance(encoded, str):
                continue
            try:
                data = base64.b64decode(encoded)
            except ValueError:
                raise errors.ServerError("the guest sent output that is not base64") from None
            # What was seen before the connection broke is not seen twice.
            end, at = at + len(data), max(at, self.offset)
            data = data[len(data) - max(0, end - at) :]
            self.offset = max(self.offset, end)
            if data:
                yield Output(name, stream.add(data), data, at)

    def result(self) -> CommandResult:
        end = {"exitCode": -1} if self.end is None else self.end  # ended by its time limit
        code = _int(end.get("exitCode", end.get("exit_code")))
        error = end.get("error")
        return CommandResult(
            exit_code=code,
            stdout=self.text("stdout") + self.text("pty"),
            stderr=self.text("stderr"),
            pid=self.pid,
            error=str(error) if error else None,
            lost_bytes=self.lost,
        )


def _int(value: object, default: int = 0) -> int:
    """int64 arrives as a decimal string, and from a guest as anything."""
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return default


def start_request(
    command: str,
    args: Optional[List[str]],
    *,
    env: Optional[Mapping[str, str]],
    cwd: Optional[str],
    stdin: bool,
    pty: Optional[Tuple[int, int]],
    tag: Optional[str],
) -> Dict[str, Any]:
    """What starts a process: a line for the shell, or a program with arguments as they are."""
    if args is None:
        program, arguments = "/bin/bash", ["-l", "-c", command]
    else:
        program, arguments = command, list(args)
    process: Dict[str, Any] = {"cmd": program, "args": arguments}
    if env:
        process["envs"] = dict(env)
    if cwd is not None:
        process["cwd"] = cwd
    request: Dict[str, Any] = {"process": process, "stdin": stdin}
    if pty:
        request["pty"] = {"size": {"cols": pty[0], "rows": pty[1]}}
    if tag:
        request["tag"] = tag
    return request


# --- trying again ----------------------------------------------------------------------------

RETRIES = 4
_RETRY_STATUS = (429, 502, 503, 504)


def retry_delay(
    attempt: int,
    *,
    repeatable: bool,
    status: Optional[int] = None,
    headers: Optional[Mapping[str, str]] = None,
    sent: bool = True,
) -> Optional[float]:
    """How long to wait before the same request again, or None: give up.

    A request that never left may always be sent again. One that did only if doing it twice is
    doing it once: reads, deletes, and creates with an idempotency key.

    >>> retry_delay(0, repeatable=False, sent=False)
    0.1
    >>> retry_delay(0, repeatable=False, status=503) is None
    True
    >>> retry_delay(1, repeatable=True, status=503, headers={"retry-after": "2"})
    2.0
    >>> retry_delay(1, repeatable=True, status=404) is None
    True
    """
    headers = headers or {}
    if attempt >= RETRIES or (sent and not repeatable):
        return None
    if status is not None:
        if headers.get("should-retry", "").lower() == "false" or status not in _RETRY_STATUS:
            return None
        after = headers.get("retry-after", "")
        if after.isdigit():
            return float(min(int(after), 30))
    return float(0.1 * 2**attempt)
