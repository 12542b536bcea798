"""The few things that waiting for one thread and waiting in an event loop do differently. Everything else of
the client is written once, in `_async`, and its synchronous twin in `_sync` is derived from it by
`derive.py`, word for word."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import ssl
import threading
import time
from typing import (
    Any,
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Optional,
    TypeVar,
    Union,
)

import httpx

from ._config import Connection

T = TypeVar("T")

# Streams live long and are many: only the number of idle connections is bounded.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=60)


def _verify(connection: Connection) -> Union[ssl.SSLContext, bool]:
    if connection.ca_file:
        return ssl.create_default_context(cafile=connection.ca_file)
    return connection.url.startswith("https:")  # making a context costs 20 ms


def _options(connection: Connection) -> Dict[str, Any]:
    return {
        "base_url": connection.url,
        "headers": connection.headers(),
        "timeout": connection.timeout,
        "verify": _verify(connection),
        "limits": _LIMITS,
        "trust_env": not connection.url.startswith("http://127.0.0.1"),
    }


def http_client(connection: Connection) -> httpx.Client:
    return httpx.Client(**_options(connection))


def async_http_client(connection: Connection) -> httpx.AsyncClient:
    return httpx.AsyncClient(**_options(connection))


def sleep(seconds: float) -> None:
    time.sleep(seconds)


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def call(callback: Optional[Callable[..., Any]], *args: Any) -> None:
    if callback is not None:
        callback(*args)


async def async_call(callback: Optional[Callable[..., Any]], *args: Any) -> None:
    """A callback of the asynchronous client may be a coroutine function, or not."""
    if callback is not None:
        answer = callback(*args)
        if inspect.isawaitable(answer):
            await answer


def resolve(*args: Any, **kwargs: Any) -> Connection:
    from . import _config

    return _config.resolve(*args, **kwargs)


async def async_resolve(*args: Any, **kwargs: Any) -> Connection:
    """Starting a private server takes a while, during which the loop goes on."""
    from . import _config

    return await asyncio.get_running_loop().run_in_executor(
        None, lambda: _config.resolve(*args, **kwargs)
    )


@contextlib.contextmanager
def closing(generator: Generator[T, None, None]) -> Iterator[Generator[T, None, None]]:
    try:
        yield generator
    finally:
        generator.close()


@contextlib.asynccontextmanager
async def async_closing(
    generator: AsyncGenerator[T, None],
) -> AsyncIterator[AsyncGenerator[T, None]]:
    """contextlib.aclosing, which Python 3.9 does not have."""
    try:
        yield generator
    finally:
        await generator.aclose()


@contextlib.contextmanager
def alongside(steps: Generator[None, None, None]) -> Iterator[None]:
    """Takes those steps while the block runs, and waits for the last one. A block that fails ends them."""
    stop = threading.Event()
    failed: List[BaseException] = []

    def work() -> None:
        try:
            for _ in steps:
                if stop.is_set():
                    return
        except BaseException as problem:  # raised again where somebody can catch it
            failed.append(problem)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        stop.set()
        thread.join(5)
        raise
    thread.join()
    if failed:
        raise failed[0]


@contextlib.asynccontextmanager
async def async_alongside(steps: AsyncGenerator[None, None]) -> AsyncIterator[None]:
    async def work() -> None:
        async for _ in steps:
            pass

    task = asyncio.ensure_future(work())
    try:
        yield
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    await task


def pieces(
    source: Iterable[bytes], progress: Optional[Callable[..., Any]], total: Optional[int]
) -> Iterator[bytes]:
    """A body to be sent piece by piece, telling how far it is."""
    done = 0
    for piece in source:
        yield piece
        done += len(piece)
        call(progress, done, total)


async def async_pieces(
    source: Iterable[bytes], progress: Optional[Callable[..., Any]], total: Optional[int]
) -> AsyncIterator[bytes]:
    """The same. Files are read in the loop: a piece of one is read faster than a thread is woken."""
    done = 0
    for piece in source:
        yield piece
        done += len(piece)
        await async_call(progress, done, total)
