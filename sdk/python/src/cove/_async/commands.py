"""Commands and terminals inside a sandbox."""

from __future__ import annotations

from typing import (
    Any,
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
    Union,
)

from .. import errors
from .._io import async_alongside, async_call, async_sleep
from .._types import CommandResult, Output, ProcessInfo
from .._wire import ProcessReader, b64, start_request
from .guest import AsyncGuest

OnOutput = Optional[Callable[[str], Any]]

_RECONNECTS = 5  # in a row, without a message in between
_SERVICE = "process.Process"
_INPUT = 1 << 20  # in one request; a server takes only so much at once
_INPUT_SHARE = 0.75  # of the client's time-out: the guest has to say in time how much it took


class AsyncCommand:
    """A command that runs, or ran. It belongs to the sandbox, not to this object: when this one is closed,
    or the connection breaks, it goes on, and `commands.connect(pid)` finds it again.

    Iterating gives output as it comes; `wait()` reads to the end.
    """

    def __init__(
        self,
        guest: AsyncGuest,
        text: str,
        user: Optional[str],
        reader: ProcessReader,
        method: str,
        body: Mapping[str, Any],
        timeout: Optional[float] = None,
        offset: Optional[int] = None,
    ) -> None:
        self._guest = guest
        self._text = text
        self._user = user
        self._reader = reader
        self._timeout = timeout
        self._pending: List[Output] = []
        self._outputs = self._follow(method, body, offset)

    def __repr__(self) -> str:
        state = "running" if self._reader.end is None else f"ended {self.exit_code}"
        return f"<{type(self).__name__} pid={self.pid} {state} {self._text!r}>"

    # --- reading -----------------------------------------------------------------------------

    async def _follow(
        self, method: str, body: Mapping[str, Any], offset: Optional[int]
    ) -> AsyncGenerator[Optional[Output], None]:
        """Output, and None once when it has started. A connection that breaks is made again where it
        broke: the guest keeps output with offsets."""
        headers = {} if offset is None else {"Cove-Output-Offset": str(offset)}
        timeout, tries = self._timeout, 0
        while self._reader.end is None:
            try:
                async with self._guest.messages(
                    f"{_SERVICE}/{method}", body, user=self._user, timeout=timeout, headers=headers
                ) as messages:
                    async for message in messages:
                        known, tries = self._reader.pid, 0
                        for output in self._reader.take(message):
                            yield output
                        if not known and self._reader.pid:
                            yield None
                return
            except errors.ConnectionLostError:
                tries += 1
                if not self._reader.pid or tries > _RECONNECTS:
                    raise  # a start that was not answered may have happened: not again
                await async_sleep(0.05 * 2**tries)
            method, body, timeout = "Connect", self._select(), None
            headers = {"Cove-Output-Offset": str(self._reader.offset)}

    def _select(self) -> Dict[str, Any]:
        return {"process": {"pid": self._reader.pid}}

    async def started(self) -> AsyncCommand:
        """Wait until the program runs."""
        while not self._reader.pid and self._reader.end is None:
            try:
                output = await self._outputs.__anext__()
            except StopAsyncIteration:
                break
            if output is not None:
                self._pending.append(output)
        return self

    async def __aiter__(self) -> AsyncIterator[Output]:
        while self._pending:
            yield self._pending.pop(0)
        try:
            async for output in self._outputs:
                if output is not None:
                    yield output
        except (errors.DeadlineError, errors.DataLossError) as problem:
            problem.result = self._reader.result()
            raise

    async def wait(
        self, *, on_stdout: OnOutput = None, on_stderr: OnOutput = None, check: bool = False
    ) -> CommandResult:
        """Read to the end. With `check`, a status other than 0 is a CommandError."""
        callbacks = {"stdout": on_stdout, "pty": on_stdout, "stderr": on_stderr}
        async for output in self:
            await async_call(callbacks[output.stream], output.text)
        if self._reader.end is None:
            raise errors.ConnectionLostError(f"{self._text!r}: its end was not told")
        result = self._reader.result()
        if check and not result.ok:
            raise errors.CommandError(self._text, result)
        return result

    # --- acting ------------------------------------------------------------------------------

    async def write(self, data: Union[str, bytes]) -> None:
        """To its standard input. Waits for a command that reads slowly; one that takes nothing at all for
        three quarters of the client's `timeout` is a DeadlineError."""
        await self._send("stdin", data)

    async def _send(self, stream: str, data: Union[str, bytes]) -> None:
        for piece in _cut(data):
            while True:
                taken = await self._put(stream, piece)
                if taken == len(piece):
                    break
                if not taken:
                    raise errors.DeadlineError(f"{self._text!r} does not read its input")
                piece = piece[taken:]

    async def _put(self, stream: str, piece: bytes) -> int:
        """How much of it went in within the time of one request: what did not is to be sent again."""
        body = {**self._select(), "input": {stream: b64(piece)}}
        limit = self._guest.client.connection.timeout * _INPUT_SHARE
        try:
            await self._guest.ask(f"{_SERVICE}/SendInput", body, user=self._user, timeout=limit)
        except errors.DeadlineError as problem:
            if problem.taken is None:
                raise
            return problem.taken
        return len(piece)

    async def close_stdin(self) -> None:
        """Its standard input is at its end."""
        await self._guest.ask(f"{_SERVICE}/CloseStdin", self._select(), user=self._user)

    async def kill(self) -> bool:
        """SIGKILL. False: it had ended already."""
        return await self._signal("SIGNAL_SIGKILL")

    async def terminate(self) -> bool:
        """SIGTERM. False: it had ended already."""
        return await self._signal("SIGNAL_SIGTERM")

    async def _signal(self, name: str) -> bool:
        try:
            await self._guest.ask(
                f"{_SERVICE}/SendSignal", {**self._select(), "signal": name}, user=self._user
            )
        except errors.NotFoundError:
            return False
        return True

    async def aclose(self) -> None:
        """Stop reading. The command goes on."""
        await self._outputs.aclose()

    async def __aenter__(self) -> AsyncCommand:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    # --- what is known -----------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._reader.pid

    @property
    def offset(self) -> int:
        """How much of its output was read: `connect(pid, offset)` goes on there."""
        return self._reader.offset

    @property
    def exit_code(self) -> Optional[int]:
        """None while it runs, as far as was read."""
        return None if self._reader.end is None else self._reader.result().exit_code

    @property
    def stdout(self) -> str:
        """What was read of it so far."""
        return self._reader.text("stdout")

    @property
    def stderr(self) -> str:
        return self._reader.text("stderr")

    @property
    def stdout_bytes(self) -> bytes:
        return self._reader.raw("stdout")


class AsyncTerminal(AsyncCommand):
    """A command with a terminal of its own."""

    async def write(self, data: Union[str, bytes]) -> None:
        """What somebody would type."""
        await self._send("pty", data)

    async def resize(self, cols: int, rows: int) -> None:
        await self._guest.ask(
            f"{_SERVICE}/Update",
            {**self._select(), "pty": {"size": {"cols": cols, "rows": rows}}},
            user=self._user,
        )

    @property
    def screen(self) -> str:
        """Everything it wrote, as far as was read."""
        return self._reader.text("pty")


class AsyncCommands:
    """`sandbox.commands`."""

    def __init__(self, guest: AsyncGuest) -> None:
        self._guest = guest

    async def run(
        self,
        command: str,
        args: Optional[List[str]] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        input: Union[str, bytes, None] = None,
        timeout: Optional[float] = 60.0,
        check: bool = False,
        on_stdout: OnOutput = None,
        on_stderr: OnOutput = None,
    ) -> CommandResult:
        """Run a line of shell, or with `args` a program, and wait for its end.

        `timeout` ends the command, not only the wait (None: no limit); what it wrote until then is in
        the error's `result`.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     result = await sandbox.commands.run("echo hello; exit 3")
        >>> result.stdout, result.exit_code
        ('hello\\n', 3)
        """
        running = await self.start(
            command, args, env=env, cwd=cwd, user=user, timeout=timeout, stdin=input is not None
        )
        async with running:
            if input is None:
                return await running.wait(on_stdout=on_stdout, on_stderr=on_stderr, check=check)
            async with async_alongside(self._feed(running, input)):
                result = await running.wait(on_stdout=on_stdout, on_stderr=on_stderr)
        if check and not result.ok:
            raise errors.CommandError(command, result)
        return result

    async def _feed(
        self, running: AsyncCommand, data: Union[str, bytes]
    ) -> AsyncGenerator[None, None]:
        """Its input, while somebody else reads its output: one that writes as it reads would wait for that,
        and we for it."""
        try:
            for piece in _cut(data):
                while piece and running.exit_code is None:  # it may read whenever it likes
                    piece = piece[await running._put("stdin", piece) :]
                    yield
            await running.close_stdin()
        except errors.CoveError as problem:  # one that does not want all of it is no error
            if "does not read its input" not in str(problem) and await self._alive(running.pid):
                await running.kill()  # it would wait for the rest
                raise

    async def _alive(self, pid: int) -> bool:
        return any(process.pid == pid for process in await self.list())

    async def start(
        self,
        command: str,
        args: Optional[List[str]] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: bool = False,
        timeout: Optional[float] = None,
        tag: Optional[str] = None,
        keep_output: bool = True,
    ) -> AsyncCommand:
        """Start one in the background. Without `keep_output` what was read is not kept in memory.

        Read its output, or close it: a command whose reader takes nothing waits for it, as at a pipe.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     counting = await sandbox.commands.start("for i in 1 2 3; do echo $i; done")
        ...     [output.text async for output in counting][-1][-2:]
        '3\\n'
        """
        body = start_request(command, args, env=env, cwd=cwd, stdin=stdin, pty=None, tag=tag)
        reader = ProcessReader(keep_output)
        return await AsyncCommand(
            self._guest, command, user, reader, "Start", body, timeout
        ).started()

    async def connect(
        self, pid: int, offset: Optional[int] = None, *, user: Optional[str] = None
    ) -> AsyncCommand:
        """One that runs, or ended a moment ago, from that byte of its output on (a DataLossError when that is
        not kept any more). Without an offset: what nobody has read yet, and what follows."""
        reader = ProcessReader()
        reader.offset = offset or 0
        body = {"process": {"pid": pid}}
        return await AsyncCommand(
            self._guest, f"pid {pid}", user, reader, "Connect", body, None, offset
        ).started()

    async def list(self) -> List[ProcessInfo]:
        """Those that were started through this API and run."""
        answer = await self._guest.ask(f"{_SERVICE}/List", {}, repeatable=True)
        return [ProcessInfo.from_json(item) for item in answer.get("processes") or ()]

    async def kill(self, pid: int) -> bool:
        """SIGKILL. False: there is no such process."""
        return await AsyncCommand(
            self._guest, f"pid {pid}", None, _known(pid), "Connect", {}
        ).kill()


class AsyncPty:
    """`sandbox.pty`: terminals."""

    def __init__(self, guest: AsyncGuest) -> None:
        self._guest = guest

    async def create(
        self,
        command: Optional[str] = None,
        *,
        cols: int = 80,
        rows: int = 24,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncTerminal:
        """A shell, or a command, in a terminal of that size.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     terminal = await sandbox.pty.create("tty; stty size", cols=100, rows=30)
        ...     "30 100" in (await terminal.wait()).stdout
        True
        """
        program = ("/bin/bash", ["-i", "-l"]) if command is None else (command, None)
        wanted = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **(env or {})}
        size: Tuple[int, int] = (cols, rows)
        body = start_request(*program, env=wanted, cwd=cwd, stdin=True, pty=size, tag=None)
        terminal = AsyncTerminal(
            self._guest, command or "bash", user, ProcessReader(), "Start", body, timeout
        )
        await terminal.started()
        return terminal


def _cut(data: Union[str, bytes]) -> Iterator[bytes]:
    raw = data.encode() if isinstance(data, str) else data
    return (raw[at : at + _INPUT] for at in range(0, max(1, len(raw)), _INPUT))


def _known(pid: int) -> ProcessReader:
    reader = ProcessReader()
    reader.pid = pid
    return reader
