"""A Jupyter kernel, over HTTP and one WebSocket."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import httpx
import websocket

from .errors import CodeError, VMOperationError

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CREATE_TRIES, _CONNECT_TRIES = 5, 5
_INTERRUPT_S = 10.0
_QUIET_S = 20.0  # nobody answers pings between two runs, and the guest gives up after a while
_DEAD = ("dead", "restarting", "autorestarting")


def without_colours(text: str) -> str:
    """
    >>> without_colours("\\x1b[31mred\\x1b[0m")
    'red'
    """
    return _ANSI.sub("", text)


@dataclass
class Ran:
    """What one piece of code did."""

    stdout: List[str] = field(default_factory=list)
    logs: List[str] = field(default_factory=list)
    error: Optional[str] = None
    exception: str = ""  # the name of its type


class Kernel:
    """Connected when made. `name` is that of the kernel's kind; `prologue` is run in every new one. Threads
    may share it: their code runs one after the other."""

    def __init__(
        self,
        base_url: str,
        name: Optional[str] = None,
        timeout: float = 60.0,
        prologue: str = "",
    ) -> None:
        self.base_url = base_url
        self.timeout = timeout
        self._name = name
        self._prologue = prologue
        self._one = threading.Lock()
        self._fresh = False  # whether the connection is good for another run
        self._used = 0.0
        self._session = uuid.uuid4().hex
        self._http = httpx.Client(base_url=base_url, timeout=timeout, trust_env=False)
        self._socket: Optional[websocket.WebSocket] = None
        try:
            self.id = self._find() or self._create(name)
            self._open()
        except BaseException:
            self._hang_up()
            self._http.close()
            raise

    def _find(self) -> Optional[str]:
        """The first that is there: variables of an earlier connection are kept."""
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
            reply = self._http.get("/api/kernels")
            if reply.status_code == 200 and reply.json():
                return str(reply.json()[0]["id"])
        return None

    def _create(self, name: Optional[str]) -> str:
        problem: object = None
        for attempt in range(_CREATE_TRIES):
            if attempt:
                time.sleep(min(2.0, 0.2 * 2**attempt))
            try:
                reply = self._http.post("/api/kernels", json={"name": name} if name else {})
                if reply.status_code == 404 and name:  # no such kind here: the default one does
                    name = None
                    continue
                if reply.status_code == 201:
                    return str(reply.json()["id"])
                problem = f"{reply.status_code} {_message(reply)}"
            except (httpx.HTTPError, ValueError, KeyError) as failed:
                problem = failed
        raise VMOperationError(f"no kernel could be started at {self.base_url}: {problem}")

    def _connect(self) -> websocket.WebSocket:
        url = f"ws{self.base_url[4:]}/api/kernels/{self.id}/channels?session_id={self._session}"
        problem: Optional[Exception] = None
        for attempt in range(_CONNECT_TRIES):
            if attempt:
                time.sleep(0.2 * 2**attempt)
            try:
                return websocket.create_connection(
                    url,
                    timeout=self.timeout,
                    http_no_proxy=["localhost", "127.0.0.1"],
                    max_size=None,
                )
            except (websocket.WebSocketException, OSError) as failed:
                problem = failed
        raise VMOperationError(f"no connection to kernel {self.id}: {problem}")

    def _open(self, timeout: Optional[float] = None) -> None:
        """A connection, and what has to be there: the kernel may have been started again meanwhile."""
        self._socket = self._connect()
        try:
            if self._prologue:
                self._exchange(self._prologue, timeout, silent=True)
        except (websocket.WebSocketException, OSError) as problem:
            raise VMOperationError(f"the connection to the kernel is lost: {problem}") from problem
        self._fresh, self._used = True, time.monotonic()

    def _hang_up(self) -> None:
        self._fresh = False
        line, self._socket = self._socket, None
        if line is not None:
            with contextlib.suppress(Exception):
                line.close(timeout=1)
            line.shutdown()  # which close() leaves out where the other side is gone

    def _revive(self, timeout: Optional[float]) -> None:
        """A connection that was not used for long may be closed by now; one that was lost is."""
        if self._fresh and time.monotonic() - self._used < _QUIET_S:
            return
        self._hang_up()
        try:
            gone = self._http.get(f"/api/kernels/{self.id}").status_code == 404
        except httpx.HTTPError as problem:
            raise VMOperationError(f"the connection to the kernel is lost: {problem}") from problem
        if gone:
            self.id = self._find() or self._create(self._name)
        self._open(timeout)
        if gone:
            raise VMOperationError(
                "the kernel is gone, and its variables with it; the next code has a new one"
            )

    # --- running -----------------------------------------------------------------------------

    def run(self, code: str, timeout: Optional[float] = None) -> Ran:
        """Run code to its end: that is when the kernel is idle again. A connection that is lost is an error
        of this code only."""
        with self._one:
            self._revive(timeout)
            self._fresh = False
            try:
                ran = self._exchange(code, timeout)
            except websocket.WebSocketTimeoutException:
                raise CodeError(
                    f"the code took longer than {timeout:g} s and was interrupted"
                ) from None
            except (websocket.WebSocketException, OSError) as problem:
                raise VMOperationError(
                    f"the connection to the kernel is lost: {problem}"
                ) from problem
            self._fresh, self._used = True, time.monotonic()
            return ran

    def _exchange(self, code: str, timeout: Optional[float], silent: bool = False) -> Ran:
        sent, line = uuid.uuid4().hex, self._socket
        if line is None:
            raise websocket.WebSocketConnectionClosedException("it was closed")
        line.settimeout(timeout)
        line.send(json.dumps(self._request(sent, code, silent)))
        try:
            return self._listen(line, sent, timeout)
        except (websocket.WebSocketTimeoutException, KeyboardInterrupt):
            if silent:  # what it waits for is other code than this
                raise
            self.interrupt()
            with contextlib.suppress(
                Exception
            ):  # until it is idle, the next code would be thrown away
                self._listen(line, sent, _INTERRUPT_S)
            raise

    def _request(self, id: str, code: str, silent: bool) -> Dict[str, Any]:
        header = {
            "msg_id": id, "username": "anonymous", "session": self._session,
            "msg_type": "execute_request", "version": "5.0",
        }  # fmt: skip
        content = {
            "code": code, "silent": silent, "store_history": not silent,
            "user_expressions": {}, "allow_stdin": False,
        }  # fmt: skip
        return {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": "shell",
        }

    @staticmethod
    def _listen(line: websocket.WebSocket, sent: str, timeout: Optional[float]) -> Ran:
        ran = Ran()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise websocket.WebSocketTimeoutException("time is up")
                line.settimeout(left)
            message = _parse(line.recv())
            kind, content = message.get("msg_type"), message.get("content") or {}
            state = content.get("execution_state") if kind == "status" else None
            if state in _DEAD:
                raise VMOperationError(f"the kernel died while it ran the code ({state})")
            if (message.get("parent_header") or {}).get("msg_id") != sent:
                continue
            if kind == "stream":
                text = str(content.get("text", ""))
                ran.logs.append(text)
                if content.get("name") == "stdout":
                    ran.stdout.append(text)
            elif kind == "execute_reply" and content.get("status") == "aborted":
                ran.error = "the kernel did not run the code: it was stopping at an earlier one"
            elif kind == "error":
                ran.exception = str(content.get("ename"))
                lines = content.get("traceback") or [
                    f"{content.get('ename')}: {content.get('evalue')}"
                ]
                ran.error = without_colours("\n".join(str(line) for line in lines))
            elif state == "idle":
                return ran

    def interrupt(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self._http.post(f"/api/kernels/{self.id}/interrupt")

    def close(self, shut_down: bool = True) -> None:
        """Close the connection; the kernel ends with it unless it is to stay. Errors are no news here."""
        self._hang_up()
        if shut_down:
            with contextlib.suppress(httpx.HTTPError):
                self._http.delete(f"/api/kernels/{self.id}")
        self._http.close()


def _parse(frame: Any) -> Dict[str, Any]:
    """Text is one message. Binary is one with buffers, of which only the message matters here."""
    if isinstance(frame, bytes) and len(frame) >= 8:
        begin = int.from_bytes(frame[4:8], "big")
        count = int.from_bytes(frame[:4], "big")
        end = int.from_bytes(frame[8:12], "big") if count > 1 else len(frame)
        frame = frame[begin:end]
    if not frame:
        raise websocket.WebSocketConnectionClosedException("the kernel's socket was closed")
    try:
        message = json.loads(frame)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _message(reply: httpx.Response) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(reply.json().get("message", ""))
    return reply.text[:200]
