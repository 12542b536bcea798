"""The same as client.py with the async SDK, where that differs: its own connections."""

import asyncio
import os
import sys

from e2b import AsyncSandbox


async def main():
    boxes = await asyncio.gather(*(AsyncSandbox.create(timeout=60) for _ in range(5)))

    async def use(box):
        await box.files.write("file", box.sandbox_id)
        seen = []
        result = await box.commands.run("cat file; sleep 0.2; echo; cat file", on_stdout=seen.append)
        assert result.stdout == "".join(seen) == f"{box.sandbox_id}\n{box.sandbox_id}"
        assert await box.files.read("file") == box.sandbox_id
        assert await box.kill()
        assert not await box.is_running()

    await asyncio.gather(*map(use, boxes))
    print("all is well")


asyncio.run(main())
# Threads of the SDK's transport (pyqwest) live on while the interpreter ends, and one that asks it
# for something then aborts the process: an assertion about the server must not depend on that race.
sys.stdout.flush()
os._exit(0)
