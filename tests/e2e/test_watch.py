"""Watching directories: by asking (the sync SDK) and as a stream (the async SDK)."""

import asyncio
import time

import pytest
from e2b import (FilesystemEventType, FileNotFoundException, InvalidArgumentException,
                 NotFoundException, SandboxException, TimeoutException)

from helpers import there
from helpers.guest import SLOWER
from helpers.there import os, proc, shutil

pytestmark = pytest.mark.sdk

core = pytest.mark.core
CREATE, WRITE, REMOVE, RENAME, CHMOD = (
    FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE,
    FilesystemEventType.RENAME, FilesystemEventType.CHMOD)


def put(path, data="x"):
    there.put(path, data)


class Watch:
    """The sync SDK's watcher, with all events so far."""

    def __init__(self, sandbox, path, **options):
        self.handle = sandbox.files.watch_dir(path, **options)
        self.events = []

    def expect(self, *wanted):
        """Waits for (type, name) pairs in their order; gives all events up to the last of them."""
        def found():
            self.events += self.handle.get_new_events()
            left = list(wanted)
            for i, event in enumerate(self.events):
                if left and (event.type, event.name) == left[0]:
                    left.pop(0)
                if not left:
                    seen, self.events = self.events[:i + 1], self.events[i + 1:]
                    return seen
            return None

        try:
            return proc.wait_until(found, f"the events {wanted}", 10 * SLOWER)
        except AssertionError as error:
            raise AssertionError(f"{error}; came: {self.events}") from None


@pytest.fixture
def watch(sandbox):
    made = []

    def make(path, **options):
        made.append(Watch(sandbox, path, **options))
        return made[-1]

    yield make
    for each in made:
        try:
            each.handle.stop()
        except SandboxException:
            pass                        # the test has stopped it


@core
def test_each_kind_of_change_is_told(watch, folder):
    seen = watch(folder)
    put(f"{folder}/a")
    seen.expect((CREATE, "a"), (WRITE, "a"))
    os.chmod(f"{folder}/a", 0o600)
    seen.expect((CHMOD, "a"))
    os.rename(f"{folder}/a", f"{folder}/b")
    seen.expect((RENAME, "a"), (CREATE, "b"))
    os.remove(f"{folder}/b")
    seen.expect((REMOVE, "b"))
    os.mkdir(f"{folder}/dir")
    seen.expect((CREATE, "dir"))
    os.rmdir(f"{folder}/dir")
    seen.expect((REMOVE, "dir"))


@core
def test_a_write_through_the_sdk_is_told(watch, sandbox, folder):
    seen = watch(folder)
    sandbox.files.write(f"{folder}/new", "1")
    seen.expect((CREATE, "new"), (WRITE, "new"))
    sandbox.files.write(f"{folder}/new", "2")
    seen.expect((WRITE, "new"))
    sandbox.files.rename(f"{folder}/new", f"{folder}/moved")
    seen.expect((RENAME, "new"), (CREATE, "moved"))
    sandbox.files.remove(f"{folder}/moved")
    seen.expect((REMOVE, "moved"))


def test_an_upload_shows_no_name_but_its_own(watch, sandbox, folder):
    seen = watch(folder)
    for i in range(20):
        sandbox.files.write(f"{folder}/f{i}", "x" * 100_000, user=None)
    put(f"{folder}/last")
    names = {event.name for event in seen.expect((CREATE, "last"))}
    assert names == {f"f{i}" for i in range(20)} | {"last"}


@core
def test_below_the_directory_only_a_recursive_watch_looks(watch, folder):
    os.makedirs(f"{folder}/sub/deep")
    flat, deep = watch(folder), watch(folder, recursive=True)
    put(f"{folder}/sub/deep/file")
    put(f"{folder}/end")
    assert "sub/deep/file" in {e.name for e in deep.expect((WRITE, "sub/deep/file"),
                                                           (CREATE, "end"))}
    assert {e.name for e in flat.expect((CREATE, "end"))} == {"end"}


@core
def test_directories_made_later_are_watched_too(watch, folder):
    seen = watch(folder, recursive=True)
    os.makedirs(f"{folder}/a/b/c")
    seen.expect((CREATE, "a"), (CREATE, "a/b"), (CREATE, "a/b/c"))
    put(f"{folder}/a/b/c/file")
    seen.expect((CREATE, "a/b/c/file"))


def test_no_file_in_a_tree_made_at_once_is_missed(watch, folder):
    """Files made before the guest can watch their directory are found by looking."""
    seen = watch(folder, recursive=True)
    wanted = set()
    for i in range(20):
        os.makedirs(f"{folder}/t{i}/x/y")
        for name in (f"t{i}/1", f"t{i}/x/2", f"t{i}/x/y/3"):
            put(f"{folder}/{name}")
            wanted.add(name)
    put(f"{folder}/end")
    created = set()

    def all_there():
        created.update(e.name for e in seen.handle.get_new_events() if e.type == CREATE)
        return wanted <= created

    proc.wait_until(all_there, "every file", 10 * SLOWER)


@core
def test_events_can_be_taken_while_a_tree_is_being_added(own_wire, folder):
    """Workers look through new directories while readers take what is there."""
    wire = own_wire
    source, seen = f"{folder}/source", set()
    for i in range(30):
        os.makedirs(f"{source}/d{i}/sub")
        for k in range(30):
            put(f"{source}/d{i}/sub/{k}")
    os.mkdir(f"{folder}/watched")
    made = {"watcherId": wire.filesystem("CreateWatcher", {
        "path": f"{folder}/watched", "recursive": True}).json["watcherId"]}

    def take():
        events = wire.filesystem("GetWatcherEvents", made).json.get("events", [])
        seen.update(e["name"] for e in events if e["type"] == "EVENT_TYPE_CREATE")

    for i in range(150):
        os.rename(source, f"{folder}/watched/in{i}")
        for _ in range(5):
            take()
        proc.wait_until(lambda: take() or f"in{i}/d29/sub/29" in seen, "the last file",
                        10 * SLOWER)
        os.rename(f"{folder}/watched/in{i}", source)
    wanted = {f"in{i}/d{d}/sub/{k}" for i in range(150) for d in range(30) for k in range(30)}
    proc.wait_until(lambda: take() or wanted <= seen, "every file", 10 * SLOWER)
    assert wire.filesystem("RemoveWatcher", made).status == 200


def test_a_directory_that_moves_in_is_watched_and_one_that_moves_out_is_not(watch, folder):
    os.makedirs(f"{folder}/watched")
    os.makedirs(f"{folder}/other/sub")
    put(f"{folder}/other/sub/old")
    seen = watch(f"{folder}/watched", recursive=True)
    os.rename(f"{folder}/other", f"{folder}/watched/in")
    seen.expect((CREATE, "in"), (CREATE, "in/sub"), (CREATE, "in/sub/old"))
    os.rename(f"{folder}/watched/in", f"{folder}/watched/renamed")
    seen.expect((RENAME, "in"), (CREATE, "renamed"))
    seen.expect((CREATE, "renamed/sub"))
    put(f"{folder}/watched/renamed/sub/new")
    seen.expect((CREATE, "renamed/sub/new"))
    os.rename(f"{folder}/watched/renamed", f"{folder}/out")
    seen.expect((RENAME, "renamed"))
    put(f"{folder}/out/sub/unseen")
    put(f"{folder}/watched/end")
    assert {e.name for e in seen.expect((CREATE, "end"))} == {"end"}


@core
def test_an_event_can_carry_the_entry(watch, folder):
    seen = watch(folder, include_entry=True)
    put(f"{folder}/file", "12345")
    os.chmod(f"{folder}/file", 0o600)
    events = seen.expect((CREATE, "file"), (CHMOD, "file"))
    assert events[-1].entry.path == f"{folder}/file"
    assert (events[-1].entry.size, events[-1].entry.mode) == (5, 0o600)
    os.remove(f"{folder}/file")
    assert seen.expect((REMOVE, "file"))[-1].entry is None


def test_without_being_asked_no_event_carries_the_entry(watch, folder):
    seen = watch(folder)
    put(f"{folder}/file")
    assert [e.entry for e in seen.expect((CREATE, "file"))] == [None]


def test_strange_names_are_told_as_they_are(watch, folder):
    seen = watch(folder)
    for name in ("new\nline", "žluť 🐎", "quote\"s", "#123", "back\\slash"):
        put(f"{folder}/{name}")
        seen.expect((CREATE, name))


def test_removing_the_watched_directory_is_told(watch, folder):
    os.mkdir(f"{folder}/dir")
    seen = watch(f"{folder}/dir")
    shutil.rmtree(f"{folder}/dir")
    seen.expect((REMOVE, "."))


@core
def test_a_watch_of_nothing_or_of_a_file_is_refused(sandbox, folder):
    with pytest.raises(FileNotFoundException):
        sandbox.files.watch_dir(f"{folder}/nothing")
    put(f"{folder}/file")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.watch_dir(f"{folder}/file")


@core
def test_a_stopped_watcher_is_gone(wire, guest, folder):
    before = len(guest.descriptors())
    made = wire.filesystem("CreateWatcher", {"path": folder}).json["watcherId"]
    assert wire.filesystem("RemoveWatcher", {"watcherId": made}).json == {}
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        reply = wire.filesystem(method, {"watcherId": made})
        assert (reply.status, reply.json["code"]) == (404, "not_found")
    inotify = lambda: [t for t in guest.descriptors().values() if "inotify" in t]
    proc.wait_until(lambda: not inotify() or len(guest.descriptors()) <= before,
                    "the watcher's descriptor to be closed")


def test_the_sdk_stops_a_watcher(sandbox, folder):
    handle = sandbox.files.watch_dir(folder)
    handle.stop()
    with pytest.raises(SandboxException):
        handle.get_new_events()
    with pytest.raises(NotFoundException):
        handle.stop()


# --- overflow --------------------------------------------------------------------------------

@pytest.fixture
def forgetful(start_guest):
    return start_guest("--set", "watch.events=16").wire


@core
def test_a_watcher_that_lost_events_says_so(forgetful, folder):
    """After the events that were kept comes one with "overflow": the client has to look itself."""
    os.mkdir(f"{folder}/many")
    made = {"watcherId": forgetful.filesystem("CreateWatcher",
                                              {"path": f"{folder}/many"}).json["watcherId"]}
    for i in range(500):
        put(f"{folder}/many/{i}")
    events = []

    def overflowed():
        events.extend(forgetful.filesystem("GetWatcherEvents", made).json.get("events", []))
        return any(e.get("overflow") for e in events)

    time.sleep(0.5)
    proc.wait_until(overflowed, "an overflow event", 10 * SLOWER)
    assert len(events) < 500
    while forgetful.filesystem("GetWatcherEvents", made).json.get("events"):
        pass
    put(f"{folder}/many/after")         # it goes on working
    after = proc.wait_until(lambda: forgetful.filesystem("GetWatcherEvents", made).json.get("events"), "an event")
    assert after[0] == {"name": "after", "type": "EVENT_TYPE_CREATE"}


def test_a_stream_that_lost_events_says_so(forgetful, folder):
    os.mkdir(f"{folder}/many")
    with forgetful.stream("filesystem.Filesystem/WatchDir", {"path": f"{folder}/many"}) as stream:
        assert stream.read_message() == {"start": {}}
        # the reader takes nothing meanwhile; 51,000 events fill every buffer between
        for i in range(17_000):
            put(f"{folder}/many/{i}-{'n' * 100}")
            os.remove(f"{folder}/many/{i}-{'n' * 100}")
        os.mkdir(f"{folder}/many/end")
        count = 0
        for message in stream:
            count += 1
            if message.get("filesystem", {}).get("overflow"):
                break
        assert count < 50_000


# --- streams ---------------------------------------------------------------------------------

class Stream:
    """The async SDK's watch, with all events so far."""

    def __init__(self):
        self.events, self.exits = [], []

    async def open(self, sandbox, path, **options):
        self.handle = await sandbox.files.watch_dir(
            path, on_event=self.events.append, on_exit=self.exits.append, **options)
        return self

    async def expect(self, kind, name):
        until = time.monotonic() + 10 * SLOWER
        while True:
            for event in self.events:
                if (event.type, event.name) == (kind, name):
                    return event
            assert time.monotonic() < until, f"{kind} {name} did not come: {self.events}"
            await asyncio.sleep(0.02)


@core
async def test_the_async_client_is_told_as_it_happens(async_sandbox, folder):
    seen = await Stream().open(async_sandbox, folder, recursive=True, include_entry=True)
    os.makedirs(f"{folder}/a/b")
    await seen.expect(CREATE, "a/b")
    put(f"{folder}/a/b/file", "123")
    event = await seen.expect(WRITE, "a/b/file")
    assert event.entry.path == f"{folder}/a/b/file"
    os.rename(f"{folder}/a/b/file", f"{folder}/moved")
    await seen.expect(RENAME, "a/b/file")
    await seen.expect(CREATE, "moved")
    await seen.handle.stop()
    count = len(seen.events)
    put(f"{folder}/later")
    await asyncio.sleep(0.3)
    assert len(seen.events) == count


@core
async def test_a_watch_ends_at_its_time_limit(async_sandbox, folder):
    seen = await Stream().open(async_sandbox, folder, timeout=1)
    until = time.monotonic() + 10
    while not seen.exits and time.monotonic() < until:
        await asyncio.sleep(0.05)
    assert isinstance(seen.exits[0], TimeoutException)


async def test_a_watch_of_nothing_is_refused_to_the_async_client(async_sandbox, folder):
    with pytest.raises(FileNotFoundException):
        await Stream().open(async_sandbox, f"{folder}/nothing")


def test_a_quiet_watch_is_kept_alive(wire, folder):
    with wire.stream("filesystem.Filesystem/WatchDir", {"path": folder},
                     {"Keepalive-Ping-Interval": "1", "Connect-Timeout-Ms": "2500"}) as stream:
        assert list(stream) == [{"start": {}}, {"keepalive": {}}, {"keepalive": {}}]
        assert stream.error["code"] == "deadline_exceeded"


@core
def test_a_client_that_leaves_takes_its_watch_with_it(wire, guest, folder):
    def inotify():
        return sum("inotify" in target for target in guest.descriptors().values()) - guest.own_watches

    proc.wait_until(lambda: inotify() == 0, "the watches of earlier tests to be gone")
    with wire.stream("filesystem.Filesystem/WatchDir", {"path": folder}) as stream:
        assert stream.read_message() == {"start": {}}
        assert inotify() == 1
    proc.wait_until(lambda: inotify() == 0, "the watch to be gone")


def test_100_watchers_at_once_each_see_their_own(own_wire, folder):
    wire, watchers = own_wire, []
    for i in range(100):
        os.mkdir(f"{folder}/w{i}")
        reply = wire.filesystem("CreateWatcher", {"path": f"{folder}/w{i}"})
        if reply.status != 200:
            pytest.skip(f"fs.inotify.max_user_instances allows only {i}")
        watchers.append(reply.json["watcherId"])
    for i in range(100):
        put(f"{folder}/w{i}/file{i}")
    for i, made in enumerate(watchers):
        events = proc.wait_until(
            lambda made=made: wire.filesystem("GetWatcherEvents", {"watcherId": made}).json.get("events"), "events")
        assert {e["name"] for e in events} == {f"file{i}"}
        assert wire.filesystem("RemoveWatcher", {"watcherId": made}).status == 200
