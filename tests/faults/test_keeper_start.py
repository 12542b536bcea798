"""One call of libc fails, at each place in turn from which a keeper calls it while it starts and finds a sandbox
that runs, one that stands still and one of which there are files only. Whatever that start comes to, none of them
has ended, and the next start reaches all. The same when nothing but their layers says that they are there."""

import contextlib
import os
import signal
import subprocess
import time

import pytest
import tally
from helpers import machine, proc
from helpers.cove import CLEAR, COVE
from helpers.keeper import FILES_ONLY, Client, Names, Refused, full
from helpers.place import place
from shim import LIBRARY, Shim
from world import VOLUME, wait_for

OCCURRENCES = 8                         # of one place in one start: the first so many fail in turn
ANSWER_S = 30
IDS = ("frozen", "running", "sleeping")

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built (sanitizers)")


class House:
    """A keeper with the three, on directories of its own."""

    def __init__(self, folder):
        self.data, self.run_dir, self.log = folder / "data", folder / "run", folder / "log"
        self.data.mkdir(mode=0o700)
        self.shim = Shim(folder / "block")
        self.process = None
        self.lost = False               # their records and notes go with each keeper
        self.start()
        with self.client() as client:
            self.pids = {id: client.create(id).state["pid"] for id in IDS}
            for id in IDS:
                client.wire(id).run("sh", "-c", f"echo {id} > file")
            client.call("freeze", "frozen")
            client.call("freeze", "sleeping", FILES_ONLY)

    def client(self):
        return Client(place(self.run_dir, self.data), timeout=ANSWER_S)

    def answers(self):
        if self.process.poll() is not None:
            return True
        try:
            with self.client() as client:
                client.list()
                return True
        except (OSError, AssertionError):
            return False

    def start(self):
        """Until it answers. Whether it does: it may have ended."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [COVE, "keep", "--data-dir", self.data, "--run-dir", self.run_dir, *VOLUME],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=CLEAR | self.shim.variables)
        wait_for(self.answers, "a keeper", ANSWER_S)
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        machine.collect_orphans()
        for id in IDS if self.lost else ():
            self.record(id).unlink(missing_ok=True)
            self.note(id).unlink(missing_ok=True)

    def record(self, id):
        return place(self.run_dir, self.data) / "boxes" / full(id).decode()

    def note(self, id):
        return self.data / "paused" / full(id).decode()

    def check_there(self):
        """Nobody has ended any of them."""
        for id in ("frozen", "running"):
            assert proc.alive(self.pids[id]), f"{id} has ended"
            assert self.lost or self.record(id).exists(), f"the record of {id}"
        for id in ("frozen", "sleeping"):
            assert self.lost or self.note(id).exists(), f"the note of {id}"
        for id in IDS:
            layer = self.data / "volume/layers" / f"box-{full(id).decode()}"
            assert os.getxattr(layer, "trusted.cove.record") != b"ended", f"the files of {id}"

    def check_reached(self):
        with self.client() as client:
            assert client.list() == sorted(IDS)
            states = {id: client.stat(id) for id in IDS}
            assert {id: states[id]["pid"] for id in IDS} == self.pids | {"sleeping": 0}
            assert [states[id]["frozen"] for id in IDS] == [1, 0, 1] and states["sleeping"]["asleep"] == 1
            assert client.wire("running").run("cat", "file") == "running\n"

    def check_files(self):
        """At the end: all of them go on."""
        with self.client() as client:
            for id in ("frozen", "sleeping"):
                client.call("thaw", id)
            for id in IDS:
                assert client.wire(id).run("cat", "file") == f"{id}\n"

    def finish(self):
        self.shim.off()
        if self.process.poll() is not None:
            self.start()
        with self.client() as client, contextlib.suppress(Refused):
            client.end_all()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        for pid in self.pids.values():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        machine.collect_orphans()
        wait_for(lambda: not subprocess.run(["mountpoint", "-q", self.data / "volume"]).returncode == 0
                 or not subprocess.run(["umount", self.data / "volume"], capture_output=True).returncode,
                 "the volume is unmounted", 20)


@pytest.fixture
def house(folder):
    machine.collect_orphans()
    Names.renew()
    made = House(folder)
    yield made
    made.finish()


def places(house):
    """Every place on the way, and how often it is passed in one start."""
    house.kill()
    house.shim.record()
    assert house.start()
    time.sleep(0.5)                     # the reaper looks around
    house.shim.off()
    return {site: count for site, count in house.shim.sites().items() if site.role in ("keeper", "netmaker", "reaper")}


def one_start(house, site, occurrence):
    house.kill()
    house.shim.fail(site, occurrence)
    lives = house.start()
    if site.role == "reaper":
        time.sleep(0.3)
    failed = house.shim.failed()
    house.check_there()
    house.shim.off()
    if not lives:
        assert house.start(), "the next one starts"
    wait_for(lambda: reached(house), lambda: f"not all can be reached: {house.log.read_text()[-2000:]}", ANSWER_S)
    house.check_reached()
    house.check_there()
    return bool(failed)


def reached(house):
    """All are in the list whenever it is asked for. A keeper that cannot go on may end after its first answers."""
    if house.process.poll() is not None:
        assert house.process.returncode >= 0, f"it was ended by signal {-house.process.returncode}"
        assert house.start(), "the next one starts"
    try:
        with house.client() as client:
            listed, codes = client.list(), [client.ask("stat", id).code for id in IDS]
    except (OSError, AssertionError):   # it has hung up
        return False
    assert listed == sorted(IDS)
    return not any(codes)


def places_without(house):
    """The same when their records and notes are gone before each start."""
    house.lost = True
    return {site: count for site, count in places(house).items() if site.role == "keeper"}


def walk(house, budget_s=0, found=places):
    runs = [(site, n) for site, count in sorted(found(house).items()) for n in range(1, min(count, OCCURRENCES) + 1)]
    if budget_s:
        tally.chance("keeper's start").shuffle(runs)
    met, failures, until = 0, [], time.monotonic() + budget_s
    for site, occurrence in runs:
        if budget_s and time.monotonic() > until:
            break
        try:
            met += (hit := one_start(house, site, occurrence))
            tally.injected(f"{site.role} start", hit)
        except AssertionError as error:
            house.shim.off()
            failures.append(f"{site}, call {occurrence}: {error}")
            print(failures[-1], flush=True)
            house.check_there()         # after a loss there is nothing more to learn
            assert len(failures) < 20, failures
    house.check_files()
    print(f"{len(runs)} starts, {met} met their failure")
    assert not failures, "\n".join(failures)
    return len(runs), met


def test_each_call_of_a_start_fails_once(house):
    if tally.SECONDS:
        pytest.skip("a slice has its own")
    runs, met = walk(house)
    assert met >= runs / 2


def test_each_call_fails_once_while_they_are_found_by_their_layers(house):
    if tally.SECONDS:
        pytest.skip("a slice has its own")
    runs, met = walk(house, found=places_without)
    assert met >= runs / 2


@pytest.mark.slice
def test_some_calls_fail_while_they_are_found_by_their_layers(house):
    if not tally.SECONDS:
        pytest.skip("all of them do, in the test before")
    walk(house, tally.SECONDS * 0.05, places_without)


@pytest.mark.slice
def test_some_calls_of_a_start_fail(house):
    if not tally.SECONDS:
        pytest.skip("all of them do, in the test before")
    walk(house, tally.SECONDS * 0.1)
