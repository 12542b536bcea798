"""A file system that never answers, as a network's whose server is gone: FUSE, served by hand. Whoever looks
something up in it waits, and as the question has been read, not even SIGKILL ends that."""

import ctypes
import os
import struct
import threading

LOOKUP, INIT = 1, 26
IN_HEADER = struct.Struct("=2I2Q4I")    # length opcode serial node uid gid pid unused
OUT_HEADER = struct.Struct("=IiQ")      # length error serial
INIT_ANSWER = struct.pack("=4I2H2I2H8I", 7, 31, 0, 0, 12, 9, 1 << 16, 1, 0, 0, *[0] * 8)
# node generation valid*4 attributes: ino size blocks times*6 mode nlink uid gid rdev blksize flags
DIRECTORY = struct.pack("=4Q2I6Q3I7I", 2, 0, 0, 0, 0, 0, 2, *[0] * 8, 0o40755, 2, *[0] * 5)
FORCE, DETACH = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Silent:
    """Mounted on `path` until close(), which fails whatever waits for it. The first `answers` that look
    something up find a directory."""

    def __init__(self, path, answers=0):
        self.path, self.answers = str(path).encode(), answers
        self.asked = threading.Event()  # somebody waits
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0".encode()
        check(libc.mount(b"silent", self.path, b"fuse", 0, options))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            try:
                _, opcode, serial, *_ = IN_HEADER.unpack_from(os.read(self.fd, 1 << 17))
            except OSError:             # it was taken down
                return
            if opcode == INIT:
                self.say(serial, INIT_ANSWER)
            elif opcode == LOOKUP and self.answers:
                self.answers -= 1
                self.say(serial, DIRECTORY)
            elif opcode == LOOKUP:
                self.asked.set()

    def say(self, serial, answer):
        os.write(self.fd, OUT_HEADER.pack(OUT_HEADER.size + len(answer), 0, serial) + answer)

    def close(self):
        if self.path:
            check(libc.umount2(self.path, FORCE | DETACH))
            self.path = None
            self.thread.join(10)
            os.close(self.fd)
