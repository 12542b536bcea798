# Derived from _async/transport.py by derive.py: change that one.
"""Requests to the server: errors as exceptions, and trying again where that is safe."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import Any, Iterator, Dict, List, Mapping, Optional

import httpx

from .. import errors
from .._config import Connection
from .._io import http_client, resolve, sleep
from .._types import TemplateInfo
from .._wire import retry_delay

_SAFE = ("GET", "HEAD", "PUT", "DELETE")


class Client:
    """A connection to a server, to be shared by many sandboxes.

    >>> client = Client.open()
    >>> (client.me())["user"]
    'admin'
    >>> client.close()
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.http = http_client(connection)

    @classmethod
    def open(
        cls, url: Optional[str] = None, api_key: Optional[str] = None, *, timeout: float = 60.0
    ) -> Client:
        """The server at `url`, else at COVE_URL, else a private one of this process."""
        return cls(resolve(url, api_key, timeout=timeout))

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.connection.url}>"

    # --- requests ----------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: Any = None,
        params: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        repeatable: Optional[bool] = None,
    ) -> httpx.Response:
        """A whole answer. `repeatable` says that doing it twice is doing it once."""
        if repeatable is None:
            repeatable = method in _SAFE
        attempt = 0
        while True:
            try:
                reply = self.http.request(
                    method,
                    path,
                    json=json,
                    content=content,
                    params=params,
                    headers=headers,
                    timeout=self.connection.timeout if timeout is None else timeout,
                )
            except httpx.TransportError as problem:
                delay = retry_delay(attempt, repeatable=repeatable, sent=_may_have_arrived(problem))
                if delay is None:
                    raise lost(self.connection, problem) from problem
            else:
                if reply.is_success:
                    return reply
                error = errors.from_reply(
                    reply.status_code, reply.content, reply.headers.get("x-request-id")
                )
                taken = reply.headers.get("cove-input-taken", "")
                if isinstance(error, errors.DeadlineError) and taken.isdigit():
                    error.taken = int(taken)
                final = isinstance(error, (errors.SandboxGoneError, errors.PortClosedError))
                delay = retry_delay(
                    attempt,
                    repeatable=repeatable and not final,
                    status=reply.status_code,
                    headers=reply.headers,
                )
                if delay is None:
                    raise error
            sleep(delay)
            attempt += 1

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The parsed body of the answer; None where there is none."""
        reply = self.request(method, path, **options)
        return reply.json() if reply.content else None

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        content: Any = None,
        params: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        read_timeout: Optional[float] = None,
        alive: bool = False,
    ) -> Iterator[httpx.Response]:
        """An answer to be read piece by piece. Never tried again: its reader knows where it was. One that is
        `alive` says so all the time: its silence is a lost connection."""
        timeout = httpx.Timeout(self.connection.timeout, read=read_timeout)
        try:
            with self.http.stream(
                method, path, content=content, params=params, headers=headers, timeout=timeout
            ) as reply:
                if not reply.is_success:
                    reply.read()
                    raise errors.from_reply(
                        reply.status_code, reply.content, reply.headers.get("x-request-id")
                    )
                yield reply
        except httpx.TransportError as problem:
            raise lost(self.connection, problem, alive=alive) from problem

    # --- what belongs to no sandbox ----------------------------------------------------------

    def me(self) -> Dict[str, Any]:
        """Whose key this is."""
        answer: Dict[str, Any] = self.json("GET", "/v1/me")
        return answer

    def health(self) -> Dict[str, Any]:
        """Whether the server is up, and its version."""
        answer: Dict[str, Any] = self.json("GET", "/health")
        return answer

    def templates(self) -> List[TemplateInfo]:
        """What sandboxes can be made of.

        >>> client = Client.open()
        >>> [t.name for t in client.templates()][0]
        'host'
        >>> client.close()
        """
        answer = self.json("GET", "/v1/templates")
        return [TemplateInfo.from_json(item) for item in answer["templates"]]

    def kill_all(self) -> int:
        """End all of your sandboxes; how many there were."""
        answer = self.json("DELETE", "/v1/sandboxes")
        return int((answer or {}).get("ended", 0))


def _may_have_arrived(problem: httpx.TransportError) -> bool:
    return not isinstance(problem, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))


def lost(connection: Connection, problem: Exception, *, alive: bool = False) -> errors.CoveError:
    """What httpx said, with the address, which it leaves out."""
    what = str(problem) or type(problem).__name__
    if isinstance(problem, httpx.TimeoutException) and not alive:
        return errors.DeadlineError(f"{connection.url} did not answer in time ({what})")
    return errors.ConnectionLostError(f"{connection.url}: {what}")


def new_key() -> str:
    """An idempotency key: with it, a create that is sent twice makes one sandbox."""
    return str(uuid.uuid4())
