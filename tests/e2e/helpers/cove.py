"""`cove run` as its users call it, and what a machine looks like before and after."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess

from .guest import ROOT
from .proc import wait_until

COVE = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build")) / "cove"
FAILED, TIMED_OUT = 125, 124            # exit codes of cove run itself
CLEAR = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"} | {
    name: os.environ[name]
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "COVE_NETWORK_ALLOW")
    if name in os.environ
}
# For programs that a test kills. At its end a program starts a helper that looks for leaks. If the test kills the helper,
# the program hangs; if it kills the program, the helper writes a report.
STRUCK = CLEAR | {"ASAN_OPTIONS": CLEAR.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def for_anybody(folder):
    """The program where every user can reach it: the tree may be in somebody's closed home."""
    path = os.path.join(folder, "cove")
    if not os.path.exists(path):
        shutil.copy(COVE, path)
    return path


class Cove:
    """A data directory and the commands that use it, always with keepers of their own."""

    def __init__(self, data):
        self.data = pathlib.Path(data)

    def words(self, *words):
        return [COVE, "run", "--private", "--data-dir", self.data, *words]

    def run(self, *words, status=0, input=b"", timeout=50, **more):
        """Runs to the end; words are options and the command. Output is bytes."""
        done = subprocess.run(self.words(*words), input=input, capture_output=True, timeout=timeout,
                              env=CLEAR, **more)
        assert status is None or done.returncode == status, (
            f"{words}: {done.returncode}, not {status}\n"
            f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}")
        return done

    def text(self, *words, **more):
        """What it prints; on standard error it prints nothing."""
        done = self.run(*words, **more)
        assert done.stderr == b"", done.stderr
        return done.stdout.decode()

    def shell(self, script, *options, **more):
        """A login shell reads the script; the first command that fails is the end of it."""
        return self.run(*options, "bash", "-lc", "set -eu\n" + script, **more)

    def said(self, script, *options, **more):
        return self.shell(script, *options, **more).stdout.decode().strip()

    def json(self, *words, **more):
        done = self.run("--json", *words, **more)
        assert done.stderr == b"", done.stderr
        return json.loads(done.stdout)

    def failed(self, *words, status=FAILED, **more):
        """The one line in which a failure of ours is explained."""
        done = self.run(*words, status=status, **more)
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1 and lines[0].startswith("cove run: "), lines
        assert done.stdout == b""
        return lines[0].removeprefix("cove run: ")

    @contextlib.contextmanager
    def started(self, *words, **more):
        """The process itself; ended with everything it has when the block is left."""
        usual = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": CLEAR}
        process = subprocess.Popen(self.words(*words), **usual | more)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(20)
            for stream in process.stdin, process.stdout, process.stderr:
                if stream:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()

    def close(self):
        """Takes the volume off the machine; the loop device goes with the last mount. A keeper whose
        client was killed may still be tidying up."""
        volume = self.data / "volume"
        wait_until(lambda: not os.path.ismount(volume)
                   or subprocess.run(["umount", volume], capture_output=True).returncode == 0,
                   f"{volume} is in use", 20, 0.2)
