"""A terminal with somebody at it: types, reads the screen's bytes, changes the window."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from .cove import CLEAR


class Terminal:
    """Runs a command as a shell would: leader of a session whose terminal this is."""

    def __init__(self, words, columns=90, rows=33, env=CLEAR):
        self.master, slave = pty.openpty()
        self.slave = slave              # kept open, so that its modes can be read afterwards
        self.resize(columns, rows, tell=False)
        self.before = self.modes()
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=env | {"TERM": "xterm"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        os.close(self.master)
        os.close(self.slave)

    def modes(self):
        return termios.tcgetattr(self.slave)

    def resize(self, columns, rows, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            os.kill(self.process.pid, signal.SIGWINCH)

    def type(self, text):
        os.write(self.master, text.encode())

    def line(self, text):
        self.type(text + "\r")

    def expect(self, pattern, timeout=30):
        """Reads until the pattern comes; what was before it is forgotten. Returns the match."""
        until = time.monotonic() + timeout
        while not (found := re.search(pattern, self.text)):
            left = until - time.monotonic()
            ready = left > 0 and select.select([self.master], [], [], left)[0]
            assert ready, f"no {pattern!r} in {self.text[-2000:]!r}"
            self.text += os.read(self.master, 65536).decode(errors="replace")
        self.text = self.text[found.end():]
        return found

    def wait(self, timeout=10):
        """Its exit code; the output is read, or the terminal would hold it up."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < until, f"does not end: {self.text[-2000:]!r}"
            if select.select([self.master], [], [], 0.02)[0]:
                self.text += os.read(self.master, 65536).decode(errors="replace")
        return self.process.returncode
