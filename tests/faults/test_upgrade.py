"""An upgrade from the release before: sandboxes, commands and terminals that the old server started go on under the
new one, which finds the old one's records and speaks to its guests.

The old release is the latest tag before this tree (v*), built from the tag itself. Without a tag there is no
release to be compatible with, and in a shallow clone there is no way to tell: then the test is skipped and says so.
COVE_PREVIOUS names a `cove` that was built elsewhere."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest
import tally
from helpers.cove import COVE
from helpers.guest import ROOT
from terminal import open_terminal, typed
from world import Follower

CACHE = pathlib.Path(ROOT) / ".cache/previous"


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def build(tag):
    """The program of that release, with its guest inside; built once."""
    made = CACHE / f"{tag}-{git('rev-parse', '--short', tag + '^{commit}')}" / "cove"
    if made.exists():
        return made
    tree = made.parent / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    with subprocess.Popen(["git", "-C", ROOT, "archive", tag], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
    for words in (["meson", "setup", "build"], ["ninja", "-C", "build", "cove"]):
        subprocess.run(words, cwd=tree, check=True, capture_output=True)
    shutil.copy(tree / "build/cove", made)
    shutil.rmtree(tree)
    return made


@pytest.fixture(scope="module")
def previous():
    given = os.environ.get("COVE_PREVIOUS")
    if given:
        return pathlib.Path(given)
    tag = git("describe", "--tags", "--match", "v*", "--abbrev=0", "HEAD^")
    if not tag:
        pytest.skip("no release is tagged before this commit (or the clone is shallow): COVE_PREVIOUS=FILE names one")
    return build(tag)


def replace(world, program):
    """As an installation does: another file of the same name."""
    new = world.folder / "cove.new"
    shutil.copy(program, new)
    os.replace(new, world.program())


def restart(world, how):
    if how == "kill":
        world.signal(signal.SIGKILL, "monitor", "server", "keeper")
    else:
        world.process.send_signal(signal.SIGTERM)
        assert world.process.wait(30) == 0
        world.process.stdout.close()
    world.start()
    tally.injected("upgrade")


def check_upgrade(world, how):
    box = world.box()
    box.write("file", b"kept")
    counting = Follower(box, "/bin/sh", "-c", "for i in $(seq 300); do echo $i; sleep 0.02; done")
    terminal = open_terminal(box)
    assert typed(box, terminal, "stty -echo; export WORD=kept", "echo begun") == "begun"
    replace(world, COVE)
    at = terminal.offset
    terminal.close()
    restart(world, how)
    assert world.listed()[box.id]["state"] == "running"
    again = box.wire(20).follow(terminal.pid, offset=at)
    assert typed(box, again, "echo $WORD $((6 * 7))") == "kept 42"
    again.close()
    assert box.read("file") == b"kept"
    assert counting.read()["exitCode"] == 0
    assert counting.data == b"".join(b"%d\n" % i for i in range(1, 301))
    assert box.run("echo $((6 * 7))") == "42\n"
    assert world.ok("GET", f"/v1/sandboxes/{box.id}/stat")["pids"] >= 1
    fresh = world.box()
    assert fresh.run("echo new") == "new\n"
    assert box.end() == 204
    world.nothing_left_of(box.id)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_the_same_release_takes_over(start, how):
    check_upgrade(start("--set", "pool.size=1"), how)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_sandboxes_of_the_release_before_are_taken_over(previous, start, folder, how):
    shutil.copy(previous, folder / "cove")
    check_upgrade(start("--set", "pool.size=1"), how)
