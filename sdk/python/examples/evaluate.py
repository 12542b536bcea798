"""A hundred programs, each in a sandbox of its own, several at a time, with a progress bar.

usage: python evaluate.py [HOW MANY]
"""

import asyncio
import sys
from typing import Tuple

from cove import AsyncClient, AsyncSandbox, CoveError, DeadlineError, Limits

AT_ONCE = 10
SMALL = Limits(memory_bytes=128 << 20, cpu_milli=500, pids=32, disk_bytes=64 << 20)


def program(number: int) -> Tuple[str, str]:
    """A program and what it should print. Some are wrong, some never end, some want too much."""
    if number % 10 == 7:
        return "print('wrong')", str(number)
    if number % 25 == 3:
        return "while True: pass", str(number)
    if number % 25 == 14:
        return "x = bytearray(1 << 30); print(len(x))", str(number)
    return f"print(sum(range({number})) - {sum(range(number))} + {number})", str(number)


async def judge(client: AsyncClient, number: int, gate: asyncio.Semaphore) -> str:
    code, wanted = program(number)
    async with gate:
        try:
            async with await AsyncSandbox.create(
                client=client, network="none", limits=SMALL
            ) as sandbox:
                result = await sandbox.commands.run("python3", ["-c", code], timeout=8)
        except DeadlineError:
            return "too slow"
        except CoveError as problem:
            return f"error: {problem}"
    if not result.ok:
        return "failed"
    return "right" if result.stdout.strip() == wanted else "wrong"


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    verdicts = {}
    async with await AsyncClient.open() as client:
        gate = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(judge(client, n, gate)) for n in range(count)]
        for done, task in enumerate(asyncio.as_completed(tasks), 1):
            verdict = await task
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
            bar = "#" * (40 * done // count)
            print(f"\r[{bar:40}] {done}/{count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(", ".join(f"{verdict}: {number}" for verdict, number in sorted(verdicts.items())))


if __name__ == "__main__":
    asyncio.run(main())
