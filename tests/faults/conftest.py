"""Fixtures of the fault tests. Every run prints its seed (COVE_FAULTS_SEED repeats it) and how many faults it
has injected."""

import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from helpers import machine, proc       # noqa: E402  (of the end-to-end tests)

import tally                            # noqa: E402
from world import Usual, World, wait_for       # noqa: E402
from nemesis import Packages            # noqa: E402
from power import true_boot             # noqa: E402

proc.become_subreaper()


def pytest_configure(config):
    config.addinivalue_line("markers", "slice: runs in `make check`, as long as COVE_FAULTS_SECONDS says")
    config.addinivalue_line("markers", "long: takes more than a few minutes")


def pytest_report_header():
    return f"faults: seed {tally.SEED}"


def pytest_terminal_summary(terminalreporter):
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.counts.items()))
    terminalreporter.write_line(f"faults: seed {tally.SEED}; {sum(tally.counts.values())} injected: {kinds}")


@pytest.fixture(scope="session", autouse=True)
def needs_root():
    if os.geteuid():
        pytest.skip("needs root: sandboxes are limited, mapped and mounted, and loop devices made full")


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="cove-faults-")
    os.chmod(path, 0o755)
    yield pathlib.Path(path)
    shutil.rmtree(path)


@pytest.fixture
def start(folder):
    """Starts a server on a directory of its own; afterwards the machine is as it was before."""
    machine.collect_orphans()
    started = []

    def begin(*options, env=None, folder=folder, kind=World):
        started.append(kind(folder, *options, env=env))
        return started[-1]

    yield begin
    for world in reversed(started):     # the later may lie in the folder of the first
        try:
            world.finish()
        except BaseException:
            world.abandon()             # a test that failed leaves no more than one that did not
            raise
    machine.collect_orphans()           # we are their parent: nothing of theirs may live on
    wait_for(lambda: not machine.processes(), lambda: f"processes are left: {machine.processes()}", 20, 0.1)


@pytest.fixture
def usual():
    """The default run directory, empty afterwards: what is the machine's own is made again. To be had before a server."""
    assert os.environ.get("COVE_SCOPE"), "it is no scope's, and may be somebody's"
    yield
    Usual.empty()


@pytest.fixture
def packages(folder):
    """To be had before a server is started: it sees the machine as it was then."""
    made = Packages(folder)
    yield made
    made.close()


@pytest.fixture
def boot():
    """The machine may be restarted."""
    yield
    true_boot()
