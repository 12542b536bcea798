"""Code in a kernel inside a sandbox: variables are kept between calls."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Mapping, Optional, Union

import httpx

from .. import errors
from .._io import async_call
from .._types import Context, Execution
from .._wire import CODE_PORT, Lines
from .guest import AsyncGuest
from .transport import lost

_LINE_MAX = 256 << 20  # a kernel may display a large image, but not take all our memory

Callback = Optional[Callable[[Any], Any]]


class AsyncCode:
    """`sandbox.code`."""

    def __init__(self, guest: AsyncGuest) -> None:
        self._guest = guest

    async def run(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Union[Context, str, None] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: float = 300.0,
        on_stdout: Callback = None,
        on_stderr: Callback = None,
        on_result: Callback = None,
        on_error: Callback = None,
    ) -> Execution:
        """Run a piece of code. An exception in it is in the answer's `error`, not raised here. Code that takes
        longer than `timeout` is interrupted; silent for so long, or at its first word after that."""
        callbacks = {
            "stdout": on_stdout, "stderr": on_stderr, "result": on_result, "error": on_error
        }  # fmt: skip
        body = {
            "code": code,
            "language": language,
            "context_id": context.id if isinstance(context, Context) else context,
            "env_vars": dict(env) if env else None,
        }
        headers = {**self._guest.headers(CODE_PORT), "Content-Type": "application/json"}
        execution, deadline = Execution(), time.monotonic() + timeout
        async with self._guest.client.stream(
            "POST",
            "/execute",
            content=httpx.Request("POST", "http://-", json=body).content,
            headers=headers,
            read_timeout=timeout,
        ) as reply:
            lines = Lines(_LINE_MAX)
            try:
                async for piece in reply.aiter_raw():
                    for line in lines.feed(piece):
                        told = execution.take(line)
                        if told:
                            await async_call(callbacks[told[0]], told[1])
                    if time.monotonic() > deadline:
                        raise errors.DeadlineError(f"the code ran for longer than {timeout:g} s")
            except httpx.TransportError as problem:
                raise lost(self._guest.client.connection, problem) from problem
        return execution

    async def create_context(
        self, language: Optional[str] = None, cwd: Optional[str] = None
    ) -> Context:
        """A kernel of its own, with variables of its own."""
        answer = await self._json("POST", "/contexts", json={"language": language, "cwd": cwd})
        return Context.from_json(answer)

    async def contexts(self) -> List[Context]:
        return [Context.from_json(item) for item in await self._json("GET", "/contexts")]

    async def remove_context(self, context: Union[Context, str]) -> None:
        await self._json("DELETE", f"/contexts/{_id(context)}")

    async def restart_context(self, context: Union[Context, str]) -> None:
        """Its variables are gone."""
        await self._json("POST", f"/contexts/{_id(context)}/restart")

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        headers = self._guest.headers(CODE_PORT)
        return await self._guest.client.json(method, path, headers=headers, **options)


def _id(context: Union[Context, str]) -> str:
    return context.id if isinstance(context, Context) else context
