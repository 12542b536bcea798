"""A host directory on a file system that does not answer keeps waiting whoever wants it, and nobody else."""

import itertools
import pathlib
import subprocess

import pytest

from helpers.cove import CLEAR
from helpers.keeper import FILES_ONLY, Refused, create_body, full, request
from helpers.machine import collect_orphans, comm
from helpers.proc import alive, children, wait_until
from helpers.silent import Silent

pytestmark = pytest.mark.core

UNAVAILABLE = 15
MOUNT_MS = 300


@pytest.fixture
def silent(cove, folder):
    """A directory with `fine` and `silent` in it, and `now`, which leads to either."""
    top = pathlib.Path(folder, "allowed")
    for name in "fine", "fine/dir", "silent":
        (top / name).mkdir(parents=True)
    top.chmod(0o755)
    made = Silent(top / "silent")
    made.top, made.dir = top, str(top / "now/dir")
    lead(made, "silent")
    yield made
    made.close()


def lead(silent, name):
    (silent.top / "now").unlink(missing_ok=True)
    (silent.top / "now").symlink_to(name)


@pytest.fixture
def keeper(start_keeper, silent):
    return start_keeper("--allow-mount", silent.top, "--set", f"keep.mount-ms={MOUNT_MS}")


def check_silent(answer, path):
    assert answer.code == UNAVAILABLE, answer
    assert path in answer.message and "does not answer" in answer.message


def check_serves(client):
    client.create("other")
    assert client.wire("other").run("echo", "hello") == "hello\n"
    client.call("freeze", "other")
    client.call("thaw", "other")
    client.kill("other")


def create(client, id, **want):
    """A machine may be too busy to open a directory in such a time."""
    body = create_body(**want)
    return wait_until(lambda: not (said := client.ask("create", id, body)).code and said.state, "it is made")


@pytest.mark.parametrize("what", ["mounts", "template"])
def test_a_sandbox_on_a_directory_that_does_not_answer_is_refused_in_time(keeper, silent, what):
    want = {"mounts": [(silent.dir, "/mnt/x")]} if what == "mounts" else {"template": silent.dir}
    before, descriptors = children(keeper.process.pid), keeper.idle()
    with keeper.client() as waiting, keeper.client() as client:
        waiting.send(request("create", "one", create_body(**want)))
        assert silent.asked.wait(10)
        check_serves(client)
        check_silent(waiting.receive(), silent.dir)
        stuck = children(keeper.process.pid) - before
        assert len(stuck) == 1
        check_silent(client.ask("create", "one", create_body(**want)), silent.dir)
        assert children(keeper.process.pid) - before == stuck  # what hangs still is not tried again
        create(client, "two", mounts=[(str(silent.top / "fine"), "/mnt/x")])
        assert client.list() == ["two"] and stuck <= children(keeper.process.pid)
        client.kill("two")
        silent.close()
        wait_until(lambda: children(keeper.process.pid) == before, "it is collected")
    assert keeper.idle() == descriptors
    assert keeper.log.read_text().count("does not answer") == 1


def test_only_so_many_wait_for_directories(keeper, silent):
    """Sixteen at a time, and sixty-four with those that are not waited for any more."""
    before = children(keeper.process.pid)
    fine = create_body(mounts=[(str(silent.top / "fine"), "/mnt/x")])
    paths = (str(silent.top / f"silent/{n}") for n in itertools.count())
    with keeper.client() as client:
        while len(children(keeper.process.pid) - before) < 64:
            wave = list(itertools.islice(paths, 20))
            for n, path in enumerate(wave):
                client.send(request("create", f"b{n}", create_body(mounts=[(path, "/mnt/x")]), serial=n))
            for answer in [client.receive() for _ in wave]:
                assert answer.code == UNAVAILABLE, answer
                assert "does not answer" in answer.message or "others are waited for" in answer.message
                assert wave[answer.serial] in answer.message or "64 processes" in answer.message
        assert len(children(keeper.process.pid) - before) == 64
        said = client.ask("create", "one", fine)
        assert said.code == UNAVAILABLE and said.message.startswith("64 processes wait for host directories")
        check_serves(client)
        silent.close()
        wait_until(lambda: children(keeper.process.pid) == before, "they are collected")
        create(client, "one", mounts=[(str(silent.top / "fine"), "/mnt/x")])


def test_one_that_is_ended_while_it_waits_is_gone_at_once(keeper, silent):
    with keeper.client() as waiting, keeper.client() as client:
        waiting.send(request("create", "one", create_body(mounts=[(silent.dir, "/mnt/x")])))
        assert silent.asked.wait(10)
        client.kill("one")
        answer = waiting.receive()
        assert answer.code and "ended before it was built" in answer.message
        assert client.list() == []


def test_a_sandbox_that_sleeps_goes_on_sleeping(keeper, silent, cove):
    lead(silent, "fine")
    with keeper.client() as waiting, keeper.client() as client:
        create(client, "one", mounts=[(silent.dir, "/mnt/x")])
        client.wire("one").run("sh", "-c", "echo kept > file")
        client.call("freeze", "one", FILES_ONLY)
        lead(silent, "silent")
        waiting.send(request("thaw", "one"))
        assert silent.asked.wait(10)
        check_serves(client)
        check_silent(waiting.receive(), silent.dir)
        assert client.stat("one")["asleep"] == 1
        assert not [event for event in client.events if event.id == "one"]
        assert (cove.data / "paused" / full("one").decode()).exists()
        lead(silent, "fine")
        silent.close()
        wait_until(lambda: client.ask("thaw", "one").code == 0, "it wakes")
        assert client.wire("one").run("cat", "file") == "kept\n"


def test_a_keeper_ends_and_the_next_begins_while_something_hangs(keeper, silent):
    lead(silent, "fine")
    with keeper.client() as client:
        pid = create(client, "living", template=silent.dir)["pid"]
        lead(silent, "silent")
        client.send(request("create", "one", create_body(mounts=[(silent.dir, "/mnt/x")])))
        assert silent.asked.wait(10)
        keeper.stop()
    keeper.start()
    with keeper.client() as client:
        assert client.stat("living")["pid"] == pid
        check_serves(client)
    silent.close()
    collect_orphans()


def test_a_keeper_of_one_s_own_ends_with_its_client(cove, silent):
    silent.answers = 1                  # to `cove run` itself, which wants to know where the path leads
    run = subprocess.Popen(cove.words("-v", f"{silent.top}/silent/dir:/mnt/x", "true"), env=CLEAR)
    assert silent.asked.wait(20) and not silent.answers
    keeper, = (pid for pid in children(run.pid) if comm(pid) == "cove-keep")
    ours = children(keeper)
    run.kill()
    run.wait(10)
    wait_until(lambda: collect_orphans() or not alive(keeper), "its keeper has ended")
    silent.close()
    wait_until(lambda: collect_orphans() or not any(map(alive, ours)), "nothing is left")
