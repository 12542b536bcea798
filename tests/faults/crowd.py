"""Many at once of what a client does alone. Whoever is refused is told so, and may try again."""

import concurrent.futures
import contextlib
import hashlib
import http.client
import threading
import time

from world import Box, Follower, Wrong

PATIENCE_S = 300


def at_once(count, one):
    """one(number) in a thread each, all of them from the same moment on. What they returned, in order."""
    gate = threading.Barrier(count)

    def begin(number):
        gate.wait(60)
        return one(number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def made(world, **body):
    """A new sandbox, however often it is refused on the way, and with what words that was."""
    refused, until = [], time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):      # a part is down: nobody knows
            reply = world.call("POST", "/v1/sandboxes", {"timeout": 3600, "network": "none"} | body)
            if reply.status == 201:
                return Box(world, reply.json), refused
            assert reply.status in (429, 500, 503, 507) and reply.message, reply
            refused.append(reply.message)
        assert time.monotonic() < until, refused[-3:]
        time.sleep(0.2)


class Digest:
    """Of bytes that would take too much room."""

    def __init__(self, data=b""):
        self.hash, self.size = hashlib.sha256(data), len(data)

    def __iadd__(self, data):
        self.hash.update(data)
        self.size += len(data)
        return self

    def __len__(self):
        return self.size

    def __eq__(self, other):
        return (self.size, self.hash.digest()) == (other.size, other.hash.digest())


def much_output(box, word, size, timeout):
    """A command with that much of it, of which each byte arrives."""
    line = word.encode() + b"\n"
    follower = Follower(box, "/bin/sh", "-c", f"yes {word} | head -c {size}", timeout=timeout)
    follower.data = Digest()
    end = follower.read()
    if end["exitCode"] != 0 or follower.data != Digest((line * (size // len(line) + 1))[:size]):
        raise Wrong(f"{box.id}: {len(follower.data)} of {size} bytes of {word}, {end}")
