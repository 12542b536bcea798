"""Files of tests for Node's own runner as tests of ours.

Each of their tests is one here: its name is read from the file when tests are collected, its result
from the TAP that the runner prints, line by line while the file runs. Node runs a file once, with
those of its tests that were selected."""

import os
import re
import shutil
import subprocess

import pytest

from .guest import SLOWER

NODE = os.environ.get("COVE_NODE") or shutil.which("node")
DECLARATION = re.compile(r'^(core|test)\("((?:[^"\\]|\\.)*)"', re.M)
CALL = re.compile(r"^(?:core|test)\(", re.M)
RESULT = re.compile(r"(not ok|ok) \d+ - (.*?)(?: # (SKIP|TODO)\s*(.*))?$")
LIMIT_S = 30 * SLOWER                   # of one test; Node ends it and goes on with the next


def declared(files):
    """Parameters "file, name" of a test."""
    for file in files:
        for kind, name in DECLARATION.findall(file.read_text()):
            marks = [pytest.mark.core] if kind == "core" else []
            yield pytest.param(file, name, marks=marks, id=f"{file.name}-{name.replace(' ', '_')}")


class Run:
    """One file under Node, with the tests named; results appear as Node prints them."""

    def __init__(self, file, names, directory, env, fds=()):
        self.file, self.results, self.output = file, {}, []
        patterns = [f"--test-name-pattern=/^{re.escape(name)}$/" for name in names]
        self.process = subprocess.Popen(
            [NODE, "--test-reporter=tap", f"--test-timeout={LIMIT_S * 1000}", "--test-force-exit",
             *patterns, str(file)],
            env=os.environ | env, cwd=directory, pass_fds=fds, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

    def read(self):
        """Takes in one line; False at the end."""
        line = self.process.stdout.readline()
        self.output.append(line)
        found = RESULT.match(line.rstrip("\n"))
        if found:
            verdict, name, directive, reason = found.groups()
            name = re.sub(r"\\(.)", r"\1", name)
            assert name not in self.results, f"{self.file.name} has two tests called {name!r}"
            details = self.read_details()
            self.results[name] = (verdict == "ok", reason if directive == "SKIP" else None, details)
        return bool(line)

    def read_details(self):
        """The YAML block behind a result."""
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.strip() == "...":
                break
        return "".join(lines)

    def result(self, name):
        while name not in self.results:
            assert self.read(), f"Node ended without a word of {name!r}:\n{''.join(self.output)}"
        return self.results[name]

    def finish(self):
        while self.read():
            pass
        return self.process.wait(30)


def selected(request, function):
    """The names that this session will ask a test function for, by file."""
    found = {}
    for item in request.session.items:
        if item.originalname == function and hasattr(item, "callspec"):
            params = item.callspec.params
            found.setdefault(params["file"], []).append(params["name"])
    return found


def check(run, name):
    passed, skipped, details = run.result(name)
    if skipped:
        pytest.skip(skipped)
    assert passed, f"{run.file.name}: {name}\n{details}"


def check_declarations(file):
    """Every test of the file is one that declared() sees."""
    text = file.read_text()
    assert len(CALL.findall(text)) == len(DECLARATION.findall(text)) > 0
    names = [name for _, name in DECLARATION.findall(text)]
    assert len(set(names)) == len(names), "two tests have one name"
    assert not any("\\" in name for name in names), "a name that needs an escape"
