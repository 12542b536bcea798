"""Files inside a sandbox."""

from __future__ import annotations

import io
import os
import posixpath
import stat
from contextlib import asynccontextmanager
from pathlib import Path
from typing import (
    IO,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Union,
)

import httpx

from .. import errors
from .._io import async_call, async_closing, async_pieces, async_sleep
from .._types import Entry, FileEvent
from .._wire import retry_delay
from .guest import AsyncGuest
from .transport import lost

_SERVICE = "filesystem.Filesystem"
_PIECE = 256 * 1024

Progress = Optional[Callable[[int, Optional[int]], Any]]
"""Called with the bytes moved so far, and all there are where that is known."""

Content = Union[str, bytes, IO[bytes], Iterable[bytes]]


class AsyncFiles:
    """`sandbox.files`. Relative paths are below the user's home."""

    def __init__(self, guest: AsyncGuest) -> None:
        self._guest = guest

    # --- contents ----------------------------------------------------------------------------

    async def read(self, path: str, *, user: Optional[str] = None) -> str:
        """A file as text.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     _ = await sandbox.files.write("a.txt", "hello")
        ...     await sandbox.files.read("a.txt")
        'hello'
        """
        return (await self.read_bytes(path, user=user)).decode("utf-8", "replace")

    async def read_bytes(
        self, path: str, *, user: Optional[str] = None, progress: Progress = None
    ) -> bytes:
        """A file as it is. One that changes size while it is read is read again from the start, and so is one
        whose connection breaks; `progress` begins again, too."""
        attempt = 0
        while True:
            found = bytearray()
            try:
                async with self.open_read(path, user=user, progress=progress) as pieces:
                    async for piece in pieces:
                        found += piece
                return bytes(found)
            except errors.ConnectionLostError:
                delay = retry_delay(attempt, repeatable=True)
                if delay is None:
                    raise
            await async_sleep(delay)
            attempt += 1

    @asynccontextmanager
    async def open_read(
        self, path: str, *, user: Optional[str] = None, progress: Progress = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A file piece by piece, for those that are larger than memory."""
        headers = {**self._guest.headers(), "Accept-Encoding": "identity"}
        async with self._guest.client.stream(
            "GET", "/files", params=_query(path, user), headers=headers, read_timeout=60.0
        ) as reply:
            async with async_closing(self._pieces(reply, progress)) as pieces:
                yield pieces

    async def _pieces(
        self, reply: httpx.Response, progress: Progress
    ) -> AsyncGenerator[bytes, None]:
        length = reply.headers.get("content-length")
        total, done = int(length) if length else None, 0
        try:
            async for piece in reply.aiter_raw(_PIECE):
                done += len(piece)
                await async_call(progress, done, total)
                yield piece
        except httpx.TransportError as problem:
            raise lost(self._guest.client.connection, problem) from problem

    async def write(
        self,
        path: str,
        content: Content,
        *,
        user: Optional[str] = None,
        mode: Optional[int] = None,
        progress: Progress = None,
    ) -> str:
        """Write text, bytes, or what a file or an iterable gives; returns where it is. A new file appears
        whole, an old one is replaced when all bytes have arrived."""
        params = _query(path, user)
        if mode is not None:
            params["mode"] = format(mode & 0o1777, "o")
        headers = {**self._guest.headers(), "Content-Type": "application/octet-stream"}
        if isinstance(content, str):
            content = content.encode()
        total = _size(content)
        if total is not None:  # else it goes in chunks
            headers["Content-Length"] = str(total)
        whole = isinstance(content, bytes) and progress is None
        answer = await self._guest.client.json(
            "POST",
            "/files",
            params=params,
            headers=headers,
            content=content if whole else async_pieces(_source(content, total), progress, total),
            timeout=None if whole else 600.0,
            repeatable=whole,  # an iterator is used up by the first attempt
        )
        written = answer[0] if isinstance(answer, list) and answer else {}
        return str(written.get("path", path))

    # --- names -------------------------------------------------------------------------------

    async def list(
        self, path: str = "", *, depth: int = 1, user: Optional[str] = None
    ) -> List[Entry]:
        """What is in a directory, and with `depth` in those below."""
        body = {"path": path, "depth": depth}
        answer = await self._ask("ListDir", body, user, repeatable=True)
        return [Entry.from_json(item) for item in answer.get("entries") or ()]

    async def stat(self, path: str, *, user: Optional[str] = None) -> Entry:
        answer = await self._ask("Stat", {"path": path}, user, repeatable=True)
        return Entry.from_json(answer.get("entry") or {})

    async def exists(self, path: str, *, user: Optional[str] = None) -> bool:
        try:
            await self.stat(path, user=user)
        except errors.SandboxGoneError:
            raise
        except errors.NotFoundError:
            return False
        return True

    async def make_dir(self, path: str, *, user: Optional[str] = None) -> bool:
        """With its parents. False: it was there."""
        try:
            await self._ask("MakeDir", {"path": path}, user, repeatable=True)
        except errors.ConflictError:
            return False
        return True

    async def move(self, source: str, target: str, *, user: Optional[str] = None) -> Entry:
        answer = await self._ask("Move", {"source": source, "destination": target}, user)
        return Entry.from_json(answer.get("entry") or {})

    async def remove(self, path: str, *, user: Optional[str] = None) -> None:
        """A file, or a directory with everything in it; none is no error."""
        await self._ask("Remove", {"path": path}, user, repeatable=True)

    async def set_mode(self, path: str, mode: int, *, user: Optional[str] = None) -> None:
        await self._ask("SetMode", {"path": path, "mode": mode}, user, repeatable=True)

    async def _ask(
        self,
        method: str,
        body: Mapping[str, Any],
        user: Optional[str],
        repeatable: bool = False,
    ) -> Dict[str, Any]:
        return await self._guest.ask(f"{_SERVICE}/{method}", body, user=user, repeatable=repeatable)

    # --- whole directories -------------------------------------------------------------------

    async def upload(
        self,
        local: Union[str, os.PathLike[str]],
        remote: str,
        *,
        user: Optional[str] = None,
        exclude: Optional[Callable[[str], bool]] = None,
        progress: Progress = None,
    ) -> int:
        """A file or a directory of this machine, with modes and links; returns how many files.
        `exclude` is asked with each path below `local`."""
        top = Path(local)
        if not top.exists():
            raise FileNotFoundError(f"{top} does not exist")
        if not top.is_dir():
            await self._upload_file(top, remote, user, progress, 0, top.stat().st_size)
            return 1
        found = [
            path
            for path in sorted(top.rglob("*"))
            if not exclude or not exclude(path.relative_to(top).as_posix())
        ]
        total = sum(p.lstat().st_size for p in found if stat.S_ISREG(p.lstat().st_mode))
        made = [(remote, top)] if await self.make_dir(remote, user=user) else []
        files = done = 0
        for path in found:
            there = posixpath.join(remote, path.relative_to(top).as_posix())
            if path.is_symlink():
                link = {"path": there, "target": os.readlink(path)}
                await self._ask("MakeLink", link, user)
            elif path.is_dir():
                if await self.make_dir(there, user=user):
                    made.append((there, path))
            elif path.is_file():
                await self._upload_file(path, there, user, progress, done, total)
                done += path.stat().st_size
                files += 1
        for there, path in reversed(made):  # last: a mode may forbid to write into it
            await self.set_mode(there, path.stat().st_mode & 0o777, user=user)
        return files

    async def _upload_file(
        self,
        path: Path,
        remote: str,
        user: Optional[str],
        progress: Progress,
        before: int,
        total: int,
    ) -> None:
        def told(done: int, _all: Optional[int]) -> Any:
            return progress(before + done, total) if progress else None

        with path.open("rb") as source:
            mode = os.fstat(source.fileno()).st_mode & 0o777
            await self.write(remote, source, user=user, mode=mode, progress=told)

    async def download(
        self,
        remote: str,
        local: Union[str, os.PathLike[str]],
        *,
        user: Optional[str] = None,
        progress: Progress = None,
    ) -> int:
        """A file or a directory to this machine; returns how many files. Links are not followed and not
        made: where they lead is decided by code inside."""
        entry, top = await self.stat(remote, user=user), Path(local)
        if not entry.is_dir:
            top.parent.mkdir(parents=True, exist_ok=True)
            await self._download_file(remote, top, user, progress, 0, entry.size)
            return 1
        files = done = 0
        todo = [(remote, top)]
        while todo:
            there, here = todo.pop()
            here.mkdir(parents=True, exist_ok=True)
            for item in await self.list(there, user=user):
                if not _plain(item.name):
                    raise errors.ServerError(f"the guest names a file {item.name!r}")
                target = here / item.name
                if item.is_link or target.is_symlink():
                    continue
                if item.is_dir:
                    todo.append((posixpath.join(there, item.name), target))
                elif item.kind == "file":
                    path = posixpath.join(there, item.name)
                    await self._download_file(path, target, user, progress, done, None)
                    target.chmod(item.mode & 0o777 | 0o600)
                    done += item.size
                    files += 1
        return files

    async def _download_file(
        self,
        remote: str,
        local: Path,
        user: Optional[str],
        progress: Progress,
        before: int,
        total: Optional[int],
    ) -> None:
        def told(done: int, _all: Optional[int]) -> Any:
            return progress(before + done, total) if progress else None

        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        async with self.open_read(remote, user=user, progress=told) as pieces:
            with os.fdopen(os.open(local, flags, 0o666), "wb") as out:
                async for piece in pieces:
                    out.write(piece)

    # --- changes -----------------------------------------------------------------------------

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        *,
        recursive: bool = False,
        timeout: Optional[float] = None,
        user: Optional[str] = None,
    ) -> AsyncIterator[AsyncIterator[FileEvent]]:
        """Changes below a directory, from the moment the block is entered. With a `timeout` the events
        end by themselves.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     async with sandbox.files.watch("~") as events:
        ...         _ = await sandbox.files.write("a", "1")
        ...         async for event in events:
        ...             break
        >>> event.name
        'a'
        """
        body = {"path": path, "recursive": recursive}
        async with self._guest.messages(
            f"{_SERVICE}/WatchDir", body, user=user, timeout=timeout
        ) as messages:
            async for first in messages:
                if "start" in first:
                    break
            async with async_closing(_events(messages)) as events:
                yield events


async def _events(messages: AsyncIterator[Dict[str, Any]]) -> AsyncGenerator[FileEvent, None]:
    try:
        async for message in messages:
            if isinstance(message.get("filesystem"), dict):
                yield FileEvent.from_json(message["filesystem"])
    except errors.DeadlineError:
        return


def _query(path: str, user: Optional[str]) -> Dict[str, str]:
    return {"path": path} if user is None else {"path": path, "username": user}


def _plain(name: str) -> bool:
    """Whether a name from inside stays in the directory it is put into."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _size(content: object) -> Optional[int]:
    """None where it is not sure: what has a descriptor need not give that file's bytes (gzip), nor those
    from where the descriptor is (a buffer)."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        return memoryview(content).nbytes
    raw = content.raw if isinstance(content, (io.BufferedReader, io.BufferedRandom)) else content
    if not isinstance(raw, io.FileIO):
        return None
    found = os.fstat(raw.fileno())
    if not stat.S_ISREG(found.st_mode):
        return None
    at: int = content.tell()  # type: ignore[attr-defined]
    return max(0, found.st_size - at)


def _source(content: Any, total: Optional[int]) -> Iterable[bytes]:
    if isinstance(content, (bytes, bytearray, memoryview)):
        raw = bytes(content)
        return (raw[i : i + _PIECE] for i in range(0, len(raw), _PIECE))
    if hasattr(content, "read"):
        return _read(content, total)
    source: Iterable[bytes] = content
    return source


def _read(content: Any, total: Optional[int]) -> Iterator[bytes]:
    """As much as was announced, also of a file that grows meanwhile."""
    left = total
    while left is None or left > 0:
        piece = bytes(content.read(_PIECE if left is None else min(left, _PIECE)))
        if not piece and left:
            raise errors.ConflictError(f"the file became {left} bytes shorter while it was sent")
        if not piece:
            return
        left = None if left is None else left - len(piece)
        yield piece
