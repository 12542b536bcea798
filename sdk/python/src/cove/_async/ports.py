"""Ports of a sandbox, reached from here."""

from __future__ import annotations

import time
from typing import Any

import httpx

from .. import errors
from .._io import async_http_client, async_sleep
from .._tunnel import Tunnel
from .._types import SandboxInfo
from .guest import AsyncGuest
from .transport import lost


def _by_router(reply: httpx.Response) -> bool:
    """Whether the server says it, because nothing inside could be reached, and not the program inside."""
    if reply.status_code not in (502, 503):
        return False
    try:
        return "sandboxId" in reply.json()
    except (ValueError, TypeError):
        return False


def _same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


class AsyncPorts:
    """`sandbox.ports`."""

    def __init__(self, guest: AsyncGuest, info: SandboxInfo) -> None:
        self._guest = guest
        self._info = info

    def url(self, port: int, path: str = "/") -> str:
        """For a browser, or another program. A port that asks for a credential wants it in a header: a browser
        comes by `browser_url`."""
        scheme = self._guest.client.connection.url.split(":", 1)[0]
        return f"{scheme}://{port}-{self._info.id}.{self._info.domain}/{path.lstrip('/')}"

    async def browser_url(self, port: int, path: str = "/") -> str:
        """A link that lets a browser in at that port, also where it asks for a credential. It is good for one
        request within a minute; the browser has a cookie then.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     "cove_token=" in await sandbox.ports.browser_url(8888, "/lab")
        True
        """
        reply = await self._guest.client.json(
            "POST",
            f"/v1/sandboxes/{self._guest.id}/ports/{port}/url",
            json={"path": f"/{path.lstrip('/')}"},
        )
        return str(reply["url"])

    def http(self, port: int) -> httpx.AsyncClient:
        """A client whose requests go to that port, whatever names this machine can resolve."""
        client = async_http_client(self._guest.client.connection)
        client.headers.pop("X-API-Key", None)  # it is the server's, not for code inside
        ours = self._guest.headers(port)
        client.headers.update(ours)

        async def keep_ours(request: httpx.Request) -> None:
            """What is inside may redirect to where nobody must learn of these."""
            if not _same_origin(request.url, client.base_url):
                for name in ours:
                    request.headers.pop(name, None)

        client.event_hooks = {"request": [keep_ours]}
        return client

    async def get(self, port: int, path: str = "/", **options: Any) -> httpx.Response:
        """One GET request to a port. Where nothing listens there it is an error, which an answer of the
        program's inside, of any status, is not.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     server = await sandbox.commands.start("python3 -m http.server 8080")
        ...     await sandbox.ports.wait(8080)
        ...     (await sandbox.ports.get(8080)).status_code
        200
        """
        async with self.http(port) as client:
            try:
                reply = await client.get(path, **options)
            except httpx.TransportError as problem:
                raise lost(self._guest.client.connection, problem) from problem
        if _by_router(reply):
            raise errors.from_reply(reply.status_code, reply.content)
        return reply

    async def wait(self, port: int, timeout: float = 30.0) -> None:
        """Until something listens there and answers."""
        deadline = time.monotonic() + timeout
        async with self.http(port) as client:
            while True:
                try:
                    # one that listens and says nothing must not make this wait for longer
                    patience = max(0.1, deadline - time.monotonic())
                    reply = await client.get("/", timeout=min(patience, 60.0))
                except httpx.TransportError as problem:
                    error: errors.CoveError = errors.ConnectionLostError(str(problem))
                else:
                    error = errors.from_reply(reply.status_code, reply.content)
                    if isinstance(error, errors.SandboxGoneError):
                        raise error
                    if not _by_router(reply):
                        return
                if time.monotonic() > deadline:
                    raise errors.DeadlineError(
                        f"nothing listens on port {port} after {timeout:g} s: {error}"
                    )
                await async_sleep(0.05)

    def forward(self, port: int, local_port: int = 0, host: str = "127.0.0.1") -> Tunnel:
        """A port of this machine that leads to one inside, for any TCP. Close it, or use it as a context
        manager; `.port` is the local one.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     with sandbox.ports.forward(5432) as tunnel:
        ...         tunnel.port > 0
        True
        """
        return Tunnel(self._guest.client.connection, self._guest.id, port, host, local_port)
