"""The asynchronous client: the same text as the synchronous one, so only what waiting changes."""

from __future__ import annotations

import asyncio

import pytest

import cove
from cove import AsyncSandbox


async def test_a_sandbox(server, tmp_path):
    async with await AsyncSandbox.create() as sandbox:
        result = await sandbox.commands.run("echo hello", check=True)
        assert result.stdout == "hello\n"
        await sandbox.files.write("a", (b"x" for _ in range(3)))
        assert await sandbox.files.read("a") == "xxx"
        assert await sandbox.files.download("a", tmp_path / "a") == 1
        assert (await sandbox.usage()).limits.pids > 0
        assert [i.id for i in await AsyncSandbox.list()] == [sandbox.id]
    assert not await sandbox.is_running() if not sandbox.client.http.is_closed else True


async def test_many_commands_at_once(server):
    async with await AsyncSandbox.create() as sandbox:
        runs = [sandbox.commands.run(f"sleep 0.2; echo {i}") for i in range(30)]
        results = await asyncio.gather(*runs)
    assert [r.stdout for r in results] == [f"{i}\n" for i in range(30)]


async def test_callbacks_may_be_coroutines(server):
    heard = []

    async def hear(text):
        await asyncio.sleep(0)
        heard.append(text)

    async with await AsyncSandbox.create() as sandbox:
        await sandbox.commands.run("echo a", on_stdout=hear)
    assert heard == ["a\n"]


async def test_output_and_watch_while_others_run(server):
    async with await AsyncSandbox.create() as sandbox:
        running = await sandbox.commands.start("for i in 1 2 3; do echo $i; sleep 0.1; done")

        async def read():
            return "".join([o.text async for o in running])

        async def watch():
            async with sandbox.files.watch("~", timeout=20) as events:
                await sandbox.files.write("new", "1")
                return [(await events.__anext__()).name]

        assert await asyncio.gather(read(), watch()) == ["1\n2\n3\n", ["new"]]


async def test_a_cancelled_wait_leaves_the_command(server):
    async with await AsyncSandbox.create() as sandbox:
        running = await sandbox.commands.start("sleep 0.5; echo done")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(running.wait(), 0.1)
        again = await sandbox.commands.connect(running.pid, 0)
        assert (await again.wait()).stdout == "done\n"


async def test_a_shared_client(server):
    async with await cove.AsyncClient.open() as client:
        boxes = await asyncio.gather(*(AsyncSandbox.create(client=client) for _ in range(5)))
        assert len({box.id for box in boxes}) == 5
        assert await client.kill_all() == 5


async def test_input_and_output_at_once(server):
    data = b"0123456789abcdef" * (5 << 16)
    async with await cove.AsyncSandbox.create() as sandbox:
        result = await sandbox.commands.run("cat", input=data)
        assert result.stdout.encode() == data and not result.lost_bytes
        with pytest.raises(cove.DeadlineError):
            await sandbox.commands.run("sleep 100", input=data, timeout=1)
