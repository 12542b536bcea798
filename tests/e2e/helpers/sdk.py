"""What the two lines of the SDK do differently."""

import io
import os

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
