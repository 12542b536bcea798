"""A reader that is slow at first: it reads a little, often, and there is never a gap in it."""

import socket
import time

from helpers.wire import Connection


class SlowSocket(socket.socket):
    rate, until = 0, 0

    def recv_into(self, buffer, *more):
        if time.monotonic() > self.until:
            return super().recv_into(buffer, *more)
        step = max(256, self.rate // 10)
        count = super().recv_into(memoryview(buffer)[:step], *more)
        time.sleep(count / self.rate)
        return count


def slowly(rate, seconds):
    """A connection on which so many bytes a second are read for so long, and then as many as there are. One that takes
    its place has what is left of that time."""
    class Slow(Connection):
        until = None

        def connect(self):
            Slow.until = Slow.until or time.monotonic() + seconds
            self.sock = SlowSocket()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            self.sock.settimeout(self.timeout)
            self.sock.connect((self.host, self.port))
            self.sock.rate, self.sock.until = rate, Slow.until
    return Slow
