"""What the two lines of the SDK do differently, and the SDK pointed at a server."""

import io
import os

import pytest
from e2b import Sandbox

PREVIOUS = os.environ.get("COVE_SDK") == "previous"


class Blocks(io.RawIOBase):
    """An iterable of bytes as the file object that the previous line wants for a stream."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks, self.rest = iter(blocks), b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self.rest:
            self.rest = next(self.blocks, None)
            if self.rest is None:
                self.rest = b""
                return 0
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def as_stream(blocks):
    """Data that the SDK sends as it comes, without collecting it first."""
    return Blocks(blocks) if PREVIOUS else iter(blocks)


def as_async_stream(blocks):
    async def each():
        for block in blocks:
            yield block

    return Blocks(blocks) if PREVIOUS else each()


# --- fixtures, for the modules that import them ---

@pytest.fixture(scope="module")
def sdk(server):
    """Options that point a call of the SDK at the server, whatever the environment says."""
    return server.sdk(debug=False)


@pytest.fixture
def create(sdk):
    """Sandboxes that end with the test."""
    made = []

    def make(*words, **options):
        made.append(Sandbox.create(*words, **{"timeout": 120} | sdk | options))
        return made[-1]

    yield make
    for sandbox in made:
        Sandbox.kill(sandbox.sandbox_id, **sdk)
