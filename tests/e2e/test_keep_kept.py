"""What a keeper has of a sandbox is kept when something on the way to it is missing or fails: a network, a
mount's directory, a descriptor, a layer, what it was built on. It is tried again, and nothing was lost."""

import os
import pathlib
import resource
import select
import shutil
import signal
import subprocess
import time

import pytest

from helpers import boxfile
from helpers.cove import CLEAR, COVE
from helpers.keeper import ENDED, FILES_ONLY, NONE, STAY, Keeper, Refused, create_body, full, request
from helpers.machine import collect_orphans, comm
from helpers.proc import alive, children, wait_until

pytestmark = pytest.mark.core

NOT_FOUND, UNAVAILABLE = 4, 15


def name(id):
    return full(id).decode()


@pytest.fixture
def layer(cove):
    return lambda id: cove.data / "volume" / "layers" / ("box-" + name(id))


@pytest.fixture
def note(cove):
    return lambda id: cove.data / "paused" / name(id)


def make_asleep(client, id="one", **more):
    client.create(id, **more)
    client.wire(id).run("sh", "-c", "echo kept > file")
    assert client.call("freeze", id, FILES_ONLY).state["asleep"] == 1


def check_asleep(client, note, layer, id="one"):
    assert client.stat(id)["asleep"] == 1
    assert note(id).exists() and layer(id).exists()


def check_wakes(client, id="one"):
    assert client.call("thaw", id).state["fresh"] == 1
    assert client.wire(id).run("cat", "file") == "kept\n"


def test_one_whose_network_cannot_be_made_sleeps_on(start_keeper, note, layer):
    """The netmaker ends while it waits for one; the keeper does then, and another begins."""
    keeper = start_keeper("--set", "keep.stock=0")
    with keeper.client() as client:
        make_asleep(client, network=NONE)
        netmaker = keeper.child("cove-net")
        os.kill(netmaker, signal.SIGSTOP)
        client.send(request("thaw", "one", serial=7))
        client.send(request("list", serial=8))
        assert client.answer().serial == 8
        os.kill(netmaker, signal.SIGKILL)
        said = client.answer()
        assert said.serial == 7 and said.code not in (0, NOT_FOUND), said
    keeper.process.wait(10)
    assert note("one").exists()
    keeper.start()
    with keeper.client() as client:
        check_asleep(client, note, layer)
        check_wakes(client)


def test_one_whose_network_maker_has_no_descriptors_sleeps_on(start_keeper, note, layer):
    keeper = start_keeper("--set", "keep.stock=0")
    with keeper.client() as client:
        make_asleep(client, network=NONE)
        netmaker = keeper.child("cove-net")
        resource.prlimit(netmaker, resource.RLIMIT_NOFILE, (4, 4096))
        for _ in range(2):
            said = client.ask("thaw", "one")
            assert said.code not in (0, NOT_FOUND) and "Too many open files" in said.message, said
            check_asleep(client, note, layer)
        assert not client.events
        resource.prlimit(netmaker, resource.RLIMIT_NOFILE, (4096, 4096))
        check_wakes(client)
    assert keeper.process.poll() is None


def test_one_that_is_woken_for_nobody_sleeps_on(start_keeper, note, layer):
    """Who asked for it died meanwhile. Running, it would be in nobody's records, and its time would end its files."""
    keeper = start_keeper("--set", "keep.stock=0")
    netmaker = keeper.child("cove-net")
    with keeper.client() as client:
        make_asleep(client, network=NONE)
        os.kill(netmaker, signal.SIGSTOP)
        client.send(request("thaw", "one", serial=7))
        client.send(request("list", serial=8))
        assert client.answer().serial == 8
    with keeper.client() as client:
        client.list()                   # the keeper has seen that the other is gone
        os.kill(netmaker, signal.SIGCONT)
        wait_until(lambda: keeper.log.read_text().count("its processes are gone") == 2, "it sleeps again", 20)
        check_asleep(client, note, layer)
        check_wakes(client)


@pytest.mark.parametrize("asleep", [True, False], ids=["files-only", "frozen"])
def test_one_whose_note_cannot_be_removed_stays_paused(start_keeper, note, layer, asleep):
    """With its note the next keeper would take it for half woken, and end it."""
    keeper = start_keeper()
    aside = note("one").with_name("aside")
    with keeper.client() as client:
        make_asleep(client)
        if not asleep:
            check_wakes(client)
            client.call("freeze", "one")
        note("one").rename(aside)
        note("one").mkdir()             # no file to remove
        for _ in range(2):
            with pytest.raises(Refused, match="remove the note") as refused:
                client.call("thaw", "one")
            assert refused.value.code != NOT_FOUND
            state = client.stat("one")
            assert (state["frozen"], state["asleep"]) == (1, int(asleep)), state
        note("one").rmdir()
        aside.rename(note("one"))
    keeper.kill()
    keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["asleep"] == asleep and layer("one").exists()
        assert client.call("thaw", "one").state["fresh"] == asleep
        pid = client.stat("one")["pid"]
    keeper.kill()
    keeper.start()
    with keeper.client() as client:
        assert client.stat("one")["pid"] == pid
        assert client.wire("one").run("cat", "file") == "kept\n"


def test_one_whose_mount_is_gone_sleeps_until_it_is_back(start_keeper, folder, note, layer):
    source, away = os.path.join(folder, "src"), os.path.join(folder, "away")
    os.mkdir(source)
    keeper = start_keeper("--allow-mount", folder)
    with keeper.client() as client:
        make_asleep(client, mounts=[(source, "/mnt/src")])
        os.rename(source, away)
        for _ in range(2):
            with pytest.raises(Refused, match="No such file") as refused:
                client.call("thaw", "one")
            assert refused.value.code != NOT_FOUND      # releases before end what they hear that of
            check_asleep(client, note, layer)
        assert not client.events
        os.rename(away, source)
        check_wakes(client)


# ---- adoption: whatever fails, a living one lives on, is listed with the reason, and comes back


def change(path, tag, value):
    schema, kind, items = boxfile.read(path)
    assert tag in dict(items)
    boxfile.write(path, schema, kind, [(at, value if at == tag else was) for at, was in items])


def record_of(keeper, id="one"):
    return keeper.place / "boxes" / name(id)


def make_living(keeper, id="one", **more):
    with keeper.client() as client:
        pid = client.create(id, **more).state["pid"]
        client.wire(id).run("sh", "-c", "echo kept > file")
        return pid


def without_generation(keeper):
    """Killed, and its record names a generation of template host that is not there. The record as it was."""
    file = record_of(keeper)
    record = file.read_bytes()
    keeper.kill()
    change(file, boxfile.FINGERPRINT, b"0" * 32)
    return record


def test_a_living_one_whose_template_is_gone_lives_on_and_comes_back(start_keeper):
    keeper = start_keeper()
    pid = make_living(keeper)
    record = without_generation(keeper)
    keeper.start()
    with keeper.client() as client:
        assert client.list() == ["one"] and alive(pid)
        for verb in ("stat", "thaw", "freeze", "adopt"):
            with pytest.raises(Refused, match="cannot be taken over: generation") as refused:
                client.call(verb, "one")
            assert refused.value.code == UNAVAILABLE
        assert not client.events and alive(pid)
        record_of(keeper).write_bytes(record)
        assert client.stat("one")["pid"] == pid
        assert client.wire("one").run("cat", "file") == "kept\n"
    assert keeper.log.read_text().count("cannot be taken over") == 1     # and is not told at every look


def test_its_time_ends_it_all_the_same(start_keeper):
    keeper = start_keeper()
    pid = make_living(keeper, lifetime_ms=4000)
    without_generation(keeper)
    keeper.start()
    with keeper.client() as client:
        assert client.list() == ["one"] and alive(pid)
        wait_until(lambda: not client.list(), "its time ends it")
    wait_until(lambda: collect_orphans() or not alive(pid), "its processes are ended")
    assert not record_of(keeper).exists()


def test_its_owner_can_end_it(start_keeper, layer):
    keeper = start_keeper()
    pid = make_living(keeper)
    without_generation(keeper)
    keeper.start()
    with keeper.client() as client:
        client.kill("one")
        assert client.list() == []
    wait_until(lambda: collect_orphans() or not alive(pid), "its processes are ended")
    wait_until(lambda: not layer("one").exists(), "its files are deleted")


def test_files_that_the_volume_has_not_are_waited_for(start_keeper, note, layer):
    """A volume that is older, or another one: the note stays, and so does what lives."""
    keeper = start_keeper()
    pid = make_living(keeper, "two")
    with keeper.client() as client:
        make_asleep(client)
    keeper.kill()
    for id in ("one", "two"):
        layer(id).rename(layer(id).with_name("away-" + name(id)))
    keeper.start()
    with keeper.client() as client:
        assert client.list() == ["one", "two"] and alive(pid)
        for id in ("one", "two"):
            with pytest.raises(Refused, match="No such file") as refused:
                client.stat(id)
            assert refused.value.code == UNAVAILABLE
        assert note("one").exists()
        for id in ("one", "two"):
            layer(id).with_name("away-" + name(id)).rename(layer(id))
        check_wakes(client)
        assert client.stat("two")["pid"] == pid


def test_a_keeper_that_is_out_of_descriptors_ends_nothing(start_keeper):
    keeper = start_keeper("--set", "keep.stock=0")
    few = keeper.idle() + 14
    pids = {id: make_living(keeper, id) for id in ("a", "b", "c", "d", "e", "f")}
    keeper.kill()
    keeper.start("prlimit", f"--nofile={few}:{few}")
    with keeper.client() as client:
        assert client.list() == list(pids)
        unreached = [id for id in pids if client.ask("stat", id).code]
        assert unreached, "this test needs some that are not"
        assert all(map(alive, pids.values()))
    keeper.kill()
    keeper.start()
    with keeper.client() as client:
        assert {id: client.stat(id)["pid"] for id in pids} == pids
        assert all(client.wire(id).run("cat", "file") == "kept\n" for id in pids)


# ---- a layer that is asked to be deleted twice


@pytest.mark.parametrize("says", ["a record", "nothing"])
def test_a_name_that_is_deleted_twice_takes_no_new_layer(start_keeper, layer, says):
    """The reaper of a keeper that was killed comes to it when it is a new sandbox's."""
    keeper = start_keeper()
    with keeper.client() as client:
        reaper = keeper.child("cove-reaper")
        client.create("one")
        os.kill(reaper, signal.SIGSTOP)
        client.kill("one")
        assert client.list() == []      # it has been asked for
    keeper.kill()
    try:
        keeper.start()
        wait_until(lambda: not layer("one").exists(), "it is deleted")
        pid = make_living(keeper)
        if says == "nothing":
            os.removexattr(layer("one"), "trusted.cove.record")
    finally:
        ended = os.pidfd_open(reaper)
        os.kill(reaper, signal.SIGCONT)
    assert select.select([ended], [], [], 60)[0], "it has done what it was asked for"
    os.close(ended)
    with keeper.client() as client:
        assert client.stat("one")["pid"] == pid and layer("one").exists()
        assert client.wire("one").run("cat", "file") == "kept\n"


# ---- what they were built on is held while no keeper runs


@pytest.fixture
def local(folder):
    """/usr/local, to be changed: what is written lies elsewhere, and nobody else sees it."""
    parts = [os.path.join(folder, part) for part in ("memory", "memory/upper", "memory/work")]
    os.mkdir(parts[0])
    subprocess.run(["mount", "-t", "tmpfs", "none", parts[0]], check=True)
    for part in parts[1:]:
        os.mkdir(part)
    subprocess.run(["mount", "-t", "overlay", "none", "/usr/local", "-o",
                    f"lowerdir=/usr/local,upperdir={parts[1]},workdir={parts[2]}"], check=True)
    yield pathlib.Path("/usr/local")
    subprocess.run(["umount", "-l", "/usr/local"], check=True)
    subprocess.run(["umount", "-l", parts[0]], check=True)


def test_the_machine_changes_and_the_keeper_is_killed_while_the_next_generation_is_built(start_keeper, local, cove):
    """Who builds it outlives the keeper, and may not take what those that live were built on for nobody's."""
    keeper = start_keeper()
    pid, frozen = make_living(keeper), make_living(keeper, "two")
    built_on = cove.data / "host" / dict(boxfile.read(record_of(keeper))[2])[boxfile.FINGERPRINT].decode()
    time.sleep(1.1)                     # it looks once in a second
    with keeper.client() as client:
        client.call("freeze", "two")
        others = children(keeper.process.pid)
        os.utime(local / "bin")
        client.send(request("create", "new", create_body(), serial=9))
        builder, = wait_until(lambda: {one for one in children(keeper.process.pid) - others
                                       if comm(one) == "cove-keep"}, "it is built", step=0.001)
        os.kill(builder, signal.SIGSTOP)
        assert client.answer().serial == 9
    ended = os.pidfd_open(builder)
    keeper.kill()
    os.kill(builder, signal.SIGCONT)
    assert select.select([ended], [], [], 60)[0], "it ends"
    os.close(ended)
    collect_orphans()
    assert built_on.exists()
    keeper.start()
    time.sleep(0.3)                     # who sweeps begins at once
    assert built_on.exists()
    with keeper.client() as client:
        assert client.stat("one")["pid"] == pid
        assert client.stat("two")["pid"] == frozen and client.stat("two")["frozen"] == 1
        client.call("thaw", "two")
        for id in ("one", "two"):
            assert client.wire(id).run("cat", "file") == "kept\n"
        client.end_all()


def test_one_that_cannot_be_reached_keeps_what_it_was_built_on(cove, local):
    """Its record holds that, in the run directory, too, which the keeper hides from itself."""
    keeper = Keeper(cove.data, "/run/cove")
    try:
        pid = make_living(keeper)
        file = keeper.place / "boxes" / name("one")
        record = file.read_bytes()
        built_on = cove.data / "host" / dict(boxfile.read(file)[2])[boxfile.FINGERPRINT].decode()
        keeper.kill()
        file.write_bytes(b"\0" * len(record))
        os.utime(local / "bin")
        keeper.start()
        with keeper.client() as client:
            client.create("new")        # on another generation
            time.sleep(0.3)             # who sweeps begins at once
            assert built_on.exists()
            file.write_bytes(record)
            assert client.stat("one")["pid"] == pid
            assert client.wire("one").run("cat", "file") == "kept\n"
            client.end_all()
    finally:
        keeper.stop()


def template(cove, *words):
    return subprocess.run([COVE, "template", *words, "--data-dir", cove.data], env=CLEAR,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)


def test_files_on_a_template_of_their_own_are_not_woken_on_host(start_keeper, cove):
    """Without it, its name is one of host's others."""
    root = cove.data.parent / "root"
    shutil.copytree("/etc/alternatives", root / "etc/alternatives", symlinks=True)
    for path in "bin", "lib", "lib64", "sbin":
        (root / path).symlink_to(f"usr/{path}")
    (root / "usr").mkdir()
    assert template(cove, "add", "desktop", root).returncode == 0
    keeper = start_keeper()
    with keeper.client() as client:
        client.create("one", template="desktop")
        assert client.call("freeze", "one", FILES_ONLY).state["asleep"] == 1
        away = cove.data / "templates/away"
        for turn in range(2):
            (cove.data / "templates/desktop").rename(away)
            with pytest.raises(Refused, match="'desktop' that its files lie on is gone"):
                client.call("thaw", "one")
            away.rename(cove.data / "templates/desktop")
            if not turn:
                keeper.kill()
                keeper.start()
                client = keeper.client()
        assert client.call("thaw", "one").state["fresh"] == 1
        client.end_all()


def test_a_template_is_not_removed_while_a_file_of_a_sandbox_names_it(start_keeper, cove):
    assert template(cove, "add", "mine", "host").returncode == 0
    keeper = start_keeper()
    with keeper.client() as client:
        make_asleep(client, template="mine")
        assert "in use by a sandbox" in template(cove, "remove", "mine").stderr
        keeper.kill()
    assert "in use by a sandbox" in template(cove, "remove", "mine").stderr
    keeper.start()
    with keeper.client() as client:
        check_wakes(client)
        client.kill("one")
    assert wait_until(lambda: not template(cove, "remove", "mine").returncode, "it is removed")


# ---- a volume that is not theirs


@pytest.fixture
def own(folder):
    """A data directory that nothing else is in."""
    data = pathlib.Path(folder, "data")
    data.mkdir()
    return data


def refused(data, run_dir):
    """Why a keeper does not start."""
    done = subprocess.run([COVE, "keep", "--data-dir", data, "--run-dir", run_dir], env=CLEAR,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1, done
    return done.stderr


def test_no_new_volume_takes_the_place_of_the_one_with_their_files(own, folder):
    keeper = Keeper(own, pathlib.Path(folder, "run"), "--set", "volume.initial-bytes=134217728")
    with keeper.client() as client:
        make_asleep(client)
    keeper.stop()
    image, away = own / "volume.img", own / "away"
    image.rename(away)
    assert "volume.img is missing, and 1 sandboxes" in refused(own, keeper.run_dir)
    assert not image.exists() and (own / "paused" / name("one")).exists()

    (own / "paused-3").rename(own / "notes")    # somebody has begun anew, ...
    keeper.start()
    keeper.stop()
    (own / "paused-3").rmdir()
    (own / "notes").rename(own / "paused-3")    # ... and the notes come back, but not their volume
    assert "was made after the 1 sandboxes" in refused(own, keeper.run_dir)
    assert (own / "paused" / name("one")).exists()

    subprocess.run(["umount", own / "volume"])  # it may have stayed
    image.unlink()
    away.rename(image)
    keeper.start()
    with keeper.client() as client:
        check_wakes(client)
    keeper.end_all()
    subprocess.run(["umount", own / "volume"], capture_output=True)


# ---- one that is to be started again dies while that cannot be noted


def end(pid):
    ended = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([ended], [], [], 60)[0], "it has ended"
    os.close(ended)
    wait_until(lambda: collect_orphans() or not alive(pid), "it is collected")


def test_what_is_to_stay_waits_until_that_can_be_noted(start_keeper, note, layer):
    keeper = start_keeper()
    pid = make_living(keeper, flags=STAY)
    draft = note("one").with_name("." + name("one"))
    draft.mkdir()                       # in the way of the note
    with keeper.client() as client:
        client.call("adopt", "one")
        end(pid)
        wait_until(lambda: "not noted yet" in keeper.log.read_text(), "it is tried")
        time.sleep(0.6)                 # and again
        assert client.list() == ["one"] and layer("one").exists() and not client.events
        draft.rmdir()
        assert client.event(ENDED, "one").state["asleep"] == 1
        check_wakes(client)
        pid = client.stat("one")["pid"]
    keeper.kill()                       # the same while no keeper runs
    end(pid)
    draft.mkdir()
    keeper.start()
    with keeper.client() as client:
        with pytest.raises(Refused, match="not noted yet"):
            client.stat("one")
        assert layer("one").exists()
        draft.rmdir()
        check_asleep(client, note, layer)
        check_wakes(client)


def test_it_can_be_ended_meanwhile(start_keeper, note, layer):
    keeper = start_keeper()
    pid = make_living(keeper, flags=STAY)
    draft = note("one").with_name("." + name("one"))
    draft.mkdir()
    with keeper.client() as client:
        end(pid)
        wait_until(lambda: "not noted yet" in keeper.log.read_text(), "it is tried")
        client.kill("one")
        assert client.list() == []
    wait_until(lambda: not layer("one").exists(), "its files are deleted")
    draft.rmdir()
