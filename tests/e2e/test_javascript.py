"""The tests of js/, which drive the guest through E2B's unmodified JavaScript SDK.

Each of them is one test here: its name is read from the file when tests are collected, its result
from the TAP that Node's runner prints, line by line while the file runs. Node runs a file once, with
those of its tests that were selected, against a guest of its own."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from helpers.guest import SLOWER, Guest
from helpers.served import Served
from helpers.there import SERVED

FOLDER = pathlib.Path(__file__).parent / "js"
FILES = sorted(FOLDER.glob("*.test.js"))
NODE = os.environ.get("COVE_NODE") or shutil.which("node")
DECLARATION = re.compile(r'^(core|test)\("((?:[^"\\]|\\.)*)"', re.M)
CALL = re.compile(r"^(?:core|test)\(", re.M)
RESULT = re.compile(r"(not ok|ok) \d+ - (.*?)(?: # (SKIP|TODO)\s*(.*))?$")
TOKEN = "a token of 32 characters or more"
LIMIT_S = 30 * SLOWER                   # of one test; Node ends it and goes on with the next


def declared():
    for file in FILES:
        for kind, name in DECLARATION.findall(file.read_text()):
            marks = [pytest.mark.core] if kind == "core" else []
            yield pytest.param(file, name, marks=marks, id=f"{file.name}-{name.replace(' ', '_')}")


def pointed_at(guest, directory):
    """The variables by which js/helper.js finds a guest, and the descriptors they name."""
    if not SERVED:
        return {"E2B_DEBUG": "true", "E2B_SANDBOX_URL": guest.url, "COVE_TOKEN": TOKEN,
                "COVE_DIR": str(directory)}, ()
    fds = tuple(pipe.fileno() for pipe in (guest.agent.process.stdin, guest.agent.process.stdout))
    return guest.server.variables() | {
        "COVE_SANDBOX": guest.id, "COVE_TOKEN": guest.token, "COVE_AGENT": "%d,%d" % fds,
        "COVE_DIR": guest.agent.call("tempfile.mkdtemp")}, fds


class Run:
    """One file under Node, with the tests named; results appear as Node prints them."""

    def __init__(self, file, names, guest, directory):
        self.file, self.results, self.output = file, {}, []
        directory.mkdir(mode=0o755)
        env, fds = pointed_at(guest, directory)
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


@pytest.fixture(scope="module")
def runs(request, workspace):
    """Runs by file, made on first use with the names that this session will ask for."""
    selected = {}
    for item in request.session.items:
        if item.originalname == "test_javascript" and hasattr(item, "callspec"):
            params = item.callspec.params
            selected.setdefault(params["file"], []).append(params["name"])
    made, guests = {}, []

    def start(file, directory):
        if SERVED:
            return Served(request.getfixturevalue("server"))
        token = directory.parent / "token"
        token.write_text(TOKEN)
        options = ["--token-file", token] if "secure" in file.name else []
        guest = Guest(directory.with_suffix(".guest"), *options, token=TOKEN)
        guest.init(envVars={"HOME": request.getfixturevalue("quiet_home")})
        return guest

    def get(file):
        if file not in made:
            for run in made.values():   # one file at a time
                run.finish()
            directory = pathlib.Path(workspace) / f"js-{file.name}"
            guests.append(start(file, directory))
            made[file] = Run(file, selected[file], guests[-1], directory)
        return made[file]

    yield get
    for run in made.values():
        run.finish()
    for guest in guests:
        guest.stop()


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("file, name", list(declared()))
def test_javascript(file, name, runs):
    passed, skipped, details = runs(file).result(name)
    if skipped:
        pytest.skip(skipped)
    assert passed, f"{file.name}: {name}\n{details}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_test_of_the_file_is_seen_here(file):
    text = file.read_text()
    assert len(CALL.findall(text)) == len(DECLARATION.findall(text)) > 0
    names = [name for _, name in DECLARATION.findall(text)]
    assert len(set(names)) == len(names), "two tests have one name"
    assert not any("\\" in name for name in names), "a name that needs an escape"
