"""A small disk of a test's own, to be filled: a file system in a file."""

import errno
import os
import subprocess
import time


class Disk:
    def __init__(self, image, where, size, inodes):
        self.where, self.filler = where, where / "filler"
        with open(image, "wb") as file:
            file.truncate(size)         # sparse: only what is written takes room
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-N", str(inodes), "-E", "lazy_itable_init=1",
                        image], check=True)
        where.mkdir()
        subprocess.run(["mount", "-o", "loop", image, where], check=True)

    def fill(self):
        """Not a byte is left."""
        step = 64 << 20
        with open(self.filler, "ab") as file:
            while step >= 1:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError as error:
                    assert error.errno == errno.ENOSPC, error
                    step //= 2

    def fill_inodes(self):
        """Not a file more can be made."""
        many = self.where / "many"
        many.mkdir()
        try:
            for number in range(1 << 20):
                os.close(os.open(many / str(number), os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error

    def free(self):
        self.filler.unlink(missing_ok=True)
        subprocess.run(["rm", "-rf", self.where / "many"], check=True)

    def close(self):
        until = time.monotonic() + 20   # the kernel lets go of a loop device a moment later
        while subprocess.run(["umount", self.where], capture_output=True).returncode:
            assert time.monotonic() < until, f"{self.where} is in use"
            time.sleep(0.1)
