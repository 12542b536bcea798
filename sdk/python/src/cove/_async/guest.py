"""The guest of one sandbox: E2B's protocol, by the server's router."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any, AsyncGenerator, AsyncIterator, Dict, Mapping, Optional

import httpx

from .. import errors
from .._io import async_closing
from .._wire import CODE_PORT, GUEST_PORT, KEEPALIVE_S, Envelopes, b64, envelope
from .transport import AsyncClient, lost

# A stream says that it lives every KEEPALIVE_S; one that is silent for longer is dead.
_SILENCE_S = KEEPALIVE_S * 2.5


class AsyncGuest:
    def __init__(self, client: AsyncClient, id: str, secrets: Mapping[str, Optional[str]]) -> None:
        self.client = client
        self.id = id
        self._secrets = secrets  # token, traffic_token: a reconnect replaces them

    def headers(self, port: int = GUEST_PORT, user: Optional[str] = None) -> Dict[str, str]:
        """What leads a request to a port of this sandbox."""
        found = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port)}
        token, traffic = self._secrets.get("token"), self._secrets.get("traffic_token")
        if token and port in (GUEST_PORT, CODE_PORT):  # elsewhere the other one is enough
            found["X-Access-Token"] = token
        if traffic:
            found["E2B-Traffic-Access-Token"] = traffic
        if user is not None:
            found["Authorization"] = "Basic " + b64(f"{user}:".encode())
        return found

    async def ask(
        self,
        method: str,
        body: Mapping[str, Any],
        *,
        user: Optional[str] = None,
        repeatable: bool = False,
        timeout: Optional[float] = None,
    ) -> Dict[str, Any]:
        """One question, one answer. `method` is like ``filesystem.Filesystem/Stat``. `timeout` bounds what the
        guest does: it has to be shorter than the client's."""
        headers = {**self.headers(user=user), "Connect-Protocol-Version": "1"}
        if timeout:
            headers["Connect-Timeout-Ms"] = _milliseconds(timeout)
        answer = await self.client.json(
            "POST", f"/{method}", json=body, headers=headers, repeatable=repeatable
        )
        return answer if isinstance(answer, dict) else {}

    @asynccontextmanager
    async def messages(
        self,
        method: str,
        body: Mapping[str, Any],
        *,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> AsyncIterator[AsyncIterator[Dict[str, Any]]]:
        """One question, many answers. `timeout` bounds what the guest does, not only the wait."""
        sent = {
            **self.headers(user=user),
            "Content-Type": "application/connect+json",
            "Connect-Protocol-Version": "1",
            "Keepalive-Ping-Interval": str(KEEPALIVE_S),
            **(headers or {}),
        }
        if timeout:
            sent["Connect-Timeout-Ms"] = _milliseconds(timeout)
        async with self.client.stream(
            "POST",
            f"/{method}",
            content=envelope(body),
            headers=sent,
            read_timeout=_SILENCE_S,
            alive=True,
        ) as reply:
            async with async_closing(self._parse(reply)) as parsed:
                yield parsed

    async def _parse(self, reply: httpx.Response) -> AsyncGenerator[Dict[str, Any], None]:
        envelopes = Envelopes()
        try:
            async for piece in reply.aiter_raw():
                for message in envelopes.feed(piece):
                    yield message
        except httpx.TransportError as problem:
            raise lost(self.client.connection, problem, alive=True) from problem
        if not envelopes.ended:
            raise errors.ConnectionLostError("the guest's answer broke off")


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))
