"""The file system, users and processes of the machine that the guest runs on: `os`, `open` and so on
as a test would use them on its own. That machine is this one, unless the tests go through `cove serve`
(COVE_VIA=serve, see tools/e2e): then it is a sandbox, and each call is made inside it by agent.py."""

import base64
import builtins
import contextlib
import grp as _grp
import json
import os as _os
import pathlib
import pwd as _pwd
import shutil as _shutil
import subprocess
import sys
import tempfile as _tempfile
import threading
import types

from . import proc as _proc
from .cove import CLEAR, COVE

SERVED = _os.environ.get("COVE_VIA") == "serve"
PYTHON = "/usr/bin/python3" if SERVED else sys.executable
FOLDER = pathlib.Path(__file__).parent

# What needs no file system, or is about the test's own process.
LOCAL = {"os.urandom", "os.fspath", "os.environ", "os.path.join", "os.path.basename",
         "os.path.dirname", "os.path.relpath", "proc.wait_until", "proc.hang_up",
         "proc.become_subreaper"}

PUT = '''
import os
def put(path, data=b"", mode=0o644):
    """A file with this content."""
    data = data.encode() if isinstance(data, str) else data
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
def get(path):
    with open(path, "rb") as file:
        return file.read()
'''


class Agent:
    """agent.py in one sandbox, spoken to through `cove exec`."""

    def __init__(self, sandbox, env):
        self.lock = threading.Lock()
        source = (FOLDER / "agent.py").read_text()
        # the last argument lets its process be found from outside
        self.process = subprocess.Popen(
            [COVE, "exec", "-T", sandbox, PYTHON, "-c", source, f"agent-of-{sandbox}"],
            env=CLEAR | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        modules = {"proc": (FOLDER / "proc.py").read_text(), "simple": PUT}
        self.ask({"modules": modules})

    def ask(self, request):
        with self.lock:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        assert line, "the agent in the sandbox has ended"
        return json.loads(line)

    def call(self, name, *args, **kwargs):
        answer = self.ask({"call": name, "args": [wrap(a) for a in args], "kwargs": kwargs})
        if "errno" in answer:
            if answer["errno"]:
                raise OSError(answer["errno"], answer["error"], *map(str, args[:1]))
            raise AssertionError(f"{name}{args}: {answer['error']}")
        return self.unwrap(answer["value"])

    def unwrap(self, value):
        if isinstance(value, list):
            return [self.unwrap(one) for one in value]
        if not isinstance(value, dict):
            return value
        (kind, inner), = value.items()
        return {"bytes": base64.b64decode, "set": set, "file": lambda file: File(self, file),
                "fields": lambda fields: types.SimpleNamespace(**fields)}[kind](inner)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self.process.stdout.close()


def wrap(value):
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    return value.number if isinstance(value, File) else value


class File:
    """A file that the agent has opened."""

    def __init__(self, agent, number):
        self.agent, self.number = agent, number

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.agent.call(f"{self.number}.{name}", *args, **kwargs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


current = None                          # the agent of the sandbox that the session uses


class Module:
    """A module's functions, called by the agent."""

    def __init__(self, name, real):
        self.name, self.real = name, real

    def __getattr__(self, name):
        value, full = getattr(self.real, name), f"{self.name}.{name}"
        if full in LOCAL:
            return value
        if isinstance(value, types.ModuleType):
            return Module(full, value)
        return (lambda *args, **kwargs: current.call(full, *args, **kwargs)) \
            if callable(value) else value


@contextlib.contextmanager
def inside(agent):
    """with inside(agent): the functions below mean its sandbox."""
    global current                      # pylint: disable=global-statement
    before, current = current, agent
    yield agent
    current = before


simple = types.ModuleType("simple")
exec(PUT, simple.__dict__)              # pylint: disable=exec-used

names = {"os": _os, "pwd": _pwd, "grp": _grp, "shutil": _shutil, "tempfile": _tempfile, "proc": _proc,
         "simple": simple, "builtins": builtins}
modules = {name: Module(name, real) for name, real in names.items()} if SERVED else names
os, pwd, grp, shutil, tempfile, proc = (
    modules[name] for name in ("os", "pwd", "grp", "shutil", "tempfile", "proc"))
open = modules["builtins"].open         # pylint: disable=redefined-builtin
put, get = modules["simple"].put, modules["simple"].get
