"""From one release to another and back: what the server before has started goes on under the next one, which finds
its records and speaks to its guests. releases.py and variants.py say which releases, household.py what is looked at;
docs/reliability.md has the promise."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest
import releases
import tally
import variants
from apart import CLIENT, Apart
from helpers import boxfile
from helpers.cove import CLEAR, COVE
from history import READERS, History
from household import Household, repaired
from stood import Stood, refused
from world import TROUBLE, Usual, wait_for

BACK_S = 40                             # a file is looked at again twice a minute, or when somebody asks
LOAD_S = 0.5                            # before an upgrade, and after it


def program(name):
    """current, raw (the release of raw structs), undivided, released, or a variant of this tree."""
    if name == "current":
        return COVE
    if name in ("raw", "undivided"):
        return releases.program(getattr(releases, name.upper()))
    return releases.previous() if name == "released" else variants.program(name)


@pytest.fixture
def shared(folder):
    """A directory that sandboxes may be shown: what their user writes there is its owner's."""
    path = folder / "shared"
    path.mkdir()
    os.chown(path, 1000, 1000)
    return path


@pytest.fixture
def begin(start, folder, shared):
    """A server of one release, with a household."""
    def begin(name, *options, **more):
        shutil.copy(program(name), folder / "cove")
        world = start("--set", "pool.size=1", "--allow-mount", shared, *options, **more)
        world.guests_wait = name not in ("raw", "undivided")    # for a slow reader: theirs drop what it leaves
        return world, Household(world, shared)
    return begin


def install(world, name):
    """As a package does: another file of the same name."""
    new = world.folder / "cove.new"
    shutil.copy(program(name), new)
    os.replace(new, world.program())


def stop(world, how):
    if how == "kill":
        world.signal(signal.SIGKILL, "monitor", "server", "keeper")
    else:
        world.process.send_signal(signal.SIGTERM)
        assert world.process.wait(30) == 0
        world.process.stdout.close()


def restart(world, name, how):
    install(world, name)
    stop(world, how)
    world.start()
    tally.injected("upgrade")


def upgrade(world, house, name, how):
    """Under load."""
    program(name)                       # built before anything waits for it
    house.stream()
    readers = [kind for kind in READERS if kind != "slow" or world.guests_wait]
    with History(world, f"to-{name}-{how}", workers=2, others=house.ids, readers=readers):
        time.sleep(LOAD_S)
        restart(world, name, how)
        time.sleep(LOAD_S)
    house.all_as_it_was()
    house.stream_came_whole()


def can_make(world):
    with contextlib.suppress(*TROUBLE):
        return world.box().end() == 204


def check_use(world, house):
    house.paused_resume()
    house.dead_one_restarts()
    fresh = world.box()
    assert fresh.run("echo new") == "new\n"
    house.can_end()


BEFORE = ["raw", "undivided", "released"]
FORTH = [pytest.param(name, how, marks=pytest.mark.slice if (name, how) == ("raw", "kill") else ())
         for name in [*BEFORE, "current"] for how in ("kill", "end")]


@pytest.mark.parametrize("before, how", FORTH)
def test_the_next_release_takes_over(begin, before, how):
    world, house = begin(before)
    upgrade(world, house, "current", how)
    check_use(world, house)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("how", ["kill", "end"])
def test_the_next_release_takes_over_in_the_usual_place(usual, start, begin, folder, before, how):
    """And a server of another data directory there ends none of them."""
    world, house = begin(before, kind=Usual)
    upgrade(world, house, "current", how)
    other = start(kind=Usual, folder=folder / "other")
    assert not other.listed() and not other.aside()
    its = other.box()
    its.write("file", b"of another")
    house.all_as_it_was()
    house.stream()
    for one in (other, world):          # in either order
        stop(one, how)
        one.start()
        assert set(other.listed()) == {its.id} and not world.aside() and not other.aside()
        house.all_as_it_was()
    house.stream_came_whole()
    assert its.read("file") == b"of another"
    check_use(world, house)
    assert set(other.listed()) == {its.id} and its.run("echo here") == "here\n"


def test_of_a_machine_that_was_restarted_the_paused_are_found(begin):
    """The run directory is gone, and all processes: the notes of the release before are what there is."""
    world, house = begin("raw")
    install(world, "current")
    stop(world, "kill")
    house.machine_restarts()
    world.start()
    house.found_after_machine_restart()


def test_a_takeover_that_was_killed_half_way_is_finished(begin):
    """The directories of the old release become links in two steps: one is before the first, one behind it."""
    world, house = begin("raw")
    stop(world, "kill")
    (world.data / ".paused").symlink_to("paused-3")
    (world.run_dir / "boxes").rename(world.run_dir / ".boxes")
    (world.run_dir / "boxes").symlink_to("boxes-3")
    refused(world, program("raw"))      # it would find no records, and take everything for nobody's
    house.processes_live()
    install(world, "current")
    world.start()
    house.all_as_it_was()
    check_use(world, house)


# ---- the same schema: there and back

ORDER, LIMITS, MOUNTS = 4, 3, 6         # tags: of a file, and of its order


def plus_values(items):
    return [int.from_bytes(value, "little") for tag, value in items if tag == variants.PLUS]


def inside(items, *tags):
    return [boxfile.fields(value) for tag, value in items if tag in tags]


def all_plus(world, house):
    """Every file of the household has what only `plus` knows: in it, in its order, its limits and its mounts."""
    for path in [*(world.place / "boxes").iterdir(), *(world.data / "paused").iterdir()]:
        if path.name in house.ids:
            _, _, items = boxfile.read(path)
            order, = inside(items, ORDER)
            for part in [items, order, *inside(order, LIMITS, MOUNTS)]:
                assert plus_values(part) == [variants.PLUS_VALUE], (path, part)


@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_release_with_more_fields_there_and_back(begin, how):
    world, house = begin("plus")
    all_plus(world, house)
    upgrade(world, house, "current", how)
    all_plus(world, house)
    house.paused_resume()
    house.pause_again()                 # records and notes are written anew
    all_plus(world, house)
    upgrade(world, house, "plus", how)
    all_plus(world, house)
    check_use(world, house)


@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_release_with_fewer_fields_there_and_back(begin, how):
    world, house = begin("minus")
    upgrade(world, house, "current", how)
    house.paused_resume()
    house.pause_again()
    upgrade(world, house, "minus", how)
    house.paused_resume()
    house.pause_again()
    upgrade(world, house, "current", how)
    check_use(world, house)


# ---- a newer schema: the old release refuses, and nothing is lost

def schemas(world):
    """Of its directory and of its database, as far as a release writes them down."""
    written = world.place / "schema"
    with contextlib.closing(sqlite3.connect(f"file:{world.data}/serve/cove.db?mode=ro", uri=True)) as store:
        return written.read_text() if written.exists() else None, store.execute("PRAGMA user_version").fetchone()


@pytest.mark.parametrize("how", ["kill", "end"])
@pytest.mark.parametrize("new, old", [("schema", "current"), *(("current", name) for name in BEFORE)])
def test_an_older_release_refuses_and_touches_nothing(begin, new, old, how):
    world, house = begin(old)
    were = schemas(world)
    upgrade(world, house, new, how)
    if schemas(world) == were:          # the last release has the same: one may go back to it
        upgrade(world, house, old, how)
        check_use(world, house)
        return
    by_raw = old == "raw"
    stop(world, how)
    before = Stood(world, house, by_raw)
    said = refused(world, program(old))
    tally.injected("downgrade")
    before.compare(Stood(world, house, by_raw))
    house.processes_live()
    if by_raw:
        assert "boxes" in said or "user_version" in said or "newer" in said, said
    else:
        line, = [line for line in said.splitlines() if "newer release" in line]
        assert "schema" in line and len(said.splitlines()) == 1, said
    world.start()
    house.all_as_it_was()
    check_use(world, house)


# ---- keeper and server of different releases

@pytest.mark.parametrize("keeper, server", [("raw", "current"), ("plus", "current"), ("current", "plus"),
                                            ("minus", "current"), ("current", "minus")])
def test_a_keeper_and_a_server_of_different_releases(begin, shared, keeper, server):
    class Mixed(Apart):
        pass

    Mixed.program_of_keeper, Mixed.shared = program(keeper), shared
    world, house = begin(server, "--user", CLIENT, kind=Mixed)
    if server == "plus":                # the keeper remembers what it was ordered
        for path in (world.place / "boxes").iterdir():
            order, = inside(boxfile.read(path)[2], ORDER)
            assert plus_values(order) == [variants.PLUS_VALUE], path
    house.all_as_it_was()
    done = subprocess.run([world.program(), "run", "--data-dir", world.data, "--run-dir", world.run_dir, "echo", "here"],
                          capture_output=True, text=True, env=CLEAR, timeout=60)
    assert (done.returncode, done.stdout) == (0, "here\n"), done
    world.signal(signal.SIGKILL, "monitor", "server")
    world.start()
    house.all_as_it_was()
    house.stream()
    world.end_keeper()                  # the server has to do with one of its own release from now on
    wait_for(lambda: can_make(world), "no keeper takes its place", 20, 0.2)
    house.all_as_it_was()
    house.stream_came_whole()
    aside = world.aside()
    assert keeper == "raw" or not aside
    for ident in aside:                 # they waited in the pool: such a keeper does not write down for which store
        assert ident not in house.ids
        world.end_aside(ident)
    check_use(world, house)


def test_an_older_server_is_not_served_by_a_newer_keeper(begin, shared):
    """It would take every sandbox that its store does not know for nobody's, and cannot say of which data directory it
    is: the keeper is not where it looks, and its own refuses the directory."""
    class Mixed(Apart):
        pass

    Mixed.program_of_keeper, Mixed.shared = program("current"), shared
    world, house = begin("current", "--user", CLIENT, kind=Mixed)
    world.signal(signal.SIGKILL, "monitor", "server")
    refused(world, program("raw"))
    tally.injected("downgrade")
    house.processes_live()
    world.start()
    house.all_as_it_was()
    check_use(world, house)


# ---- files that cannot be read

DAMAGE = {
    "changed": lambda path, data: path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:]),
    "cut": lambda path, data: path.write_bytes(data[:len(data) // 2]),
    "empty": lambda path, data: path.write_bytes(b""),
    "a directory": lambda path, data: (path.unlink(), path.mkdir()),
    "a link": lambda path, data: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_cannot_be_read_is_kept_and_comes_back(begin, damage):
    """A note of files without processes; a record; and a note of frozen processes, whose record is enough."""
    world, house = begin("current")
    note, record = world.data / "paused" / house.files.id, world.place / "boxes" / house.running.id
    lost = {note: house.files, record: house.running}
    paths = [*lost, world.data / "paused" / house.paused.id]
    stop(world, "kill")
    good = {path: path.read_bytes() for path in paths}
    for path, data in good.items():
        DAMAGE[damage](path, data)
    for _ in range(2):                  # it is the same at the next start
        world.start()
        tally.injected("unreadable file")
        house.processes_live()
        for path, box in lost.items():
            now = box.state()
            assert now["state"] == house.views[box.id]["state"] and "cannot be read" in now["unreachable"], now
            assert box.wire().get("/health").status >= 500
        assert not house.paused.state().get("unreachable")
        if damage in ("changed", "cut", "empty"):
            assert all(path.with_name(path.name + ".damaged").exists() for path in paths)
            assert "damaged" in world.told()
        assert house.always.run("echo $((6 * 7))") == "42\n"
        stop(world, "kill")
    world.start()
    for path in lost:
        repaired(path, good[path])
    wait_for(lambda: not any("unreachable" in box.state() for box in lost.values()),
             lambda: [box.state() for box in lost.values()], BACK_S)
    house.all_as_it_was()
    for path in paths:
        path.with_name(path.name + ".damaged").unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()                # the note's place: it cannot be written anew there
    check_use(world, house)


def test_an_empty_record_beside_a_note(begin):
    """Of files without processes it is what a keeper left that was killed when it began to wake them; of frozen
    processes it is damage."""
    world, house = begin("current")
    stop(world, "kill")
    woken, frozen = (world.place / "boxes" / box.id for box in (house.files, house.paused))
    good = frozen.read_bytes()
    woken.write_bytes(b"")
    frozen.write_bytes(b"")
    world.start()
    tally.injected("unreadable file")
    assert not woken.exists() and "unreachable" not in house.files.state()
    assert "it is empty" in house.paused.state()["unreachable"]
    repaired(frozen, good)
    wait_for(lambda: "unreachable" not in house.paused.state(), house.paused.state, BACK_S)
    house.all_as_it_was()
    frozen.with_name(frozen.name + ".damaged").unlink()
    check_use(world, house)


def test_what_cannot_be_read_can_be_ended(begin):
    world, house = begin("current")
    stop(world, "kill")
    for path in (world.data / "paused" / house.files.id, world.place / "boxes" / house.running.id):
        DAMAGE["changed"](path, path.read_bytes())
    world.start()
    house.can_end(but=".damaged")
    for path in (world.data / "paused", world.place / "boxes"):
        assert [name.suffix for name in path.iterdir() if house.ids & {name.stem}] == [".damaged"]
