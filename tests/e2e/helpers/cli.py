"""The commands that speak to a server, and the fixtures of their tests."""

import contextlib
import json
import subprocess

import pytest

from .cove import CLEAR, COVE


class Cli:
    """cove with the server found by its data directory, or as the variables say."""

    def __init__(self, server, **env):
        self.server = server
        self.env = CLEAR | (env or {"COVE_DATA": str(server.data)})

    def as_user(self, name):
        return Cli(self.server, COVE_URL=self.server.url, COVE_API_KEY=self.server.user(name))

    def __call__(self, *words, status=0, input=b"", timeout=50, **more):
        done = subprocess.run([COVE, *words], input=input, capture_output=True, timeout=timeout,
                              env=self.env, **more)
        assert status is None or done.returncode == status, (
            f"{words}: {done.returncode}, not {status}\n"
            f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}")
        return done

    def text(self, *words, **more):
        done = self(*words, **more)
        assert done.stderr == b"", done.stderr
        return done.stdout.decode()

    def json(self, *words, **more):
        return json.loads(self.text(words[0], "--json", *words[1:], **more))

    def failed(self, *words, status=1, **more):
        """The one line in which it is explained."""
        done = self(*words, status=status, **more)
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1 and done.stdout == b"", done
        return lines[0]

    def said(self, box, script, **more):
        return self("exec", box, "bash", "-c", "set -eu\n" + script, **more).stdout.decode().strip()

    @contextlib.contextmanager
    def started(self, *words):
        process = subprocess.Popen([COVE, *words], env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=20)


@pytest.fixture
def cli(server):
    return Cli(server)


@pytest.fixture(scope="module")
def box(server):
    """A sandbox that tests may share: they use directories of their own in it."""
    return Cli(server).text("create", "--timeout", "0", "--network", "none").strip()
