"""Fixtures of the end-to-end tests: one guest for the whole session, special ones on demand, and
the unmodified SDK pointed at them.

With COVE_VIA=serve the guest is that of a sandbox of `cove serve`: the suites that are named in SERVED_SUITES
then run through it, but for the tests that look at or configure the guest itself."""

import contextlib
import os
import shutil
import tempfile

import pytest
from e2b import AsyncSandbox, Sandbox

from helpers import proc, there
from helpers.cove import Cove
from helpers.guest import FRUGAL, Guest
from helpers.keeper import Keeper, Names
from helpers.sdk import PREVIOUS
from helpers.serve import Serve
from helpers.served import Served
from helpers.there import SERVED
from helpers.thin import thinned

GROWTH_KIB = 16 << 10                   # what the session may leave in the guest's memory
KEEP_S = 30 if SERVED else 1            # how long the guest remembers processes that have ended
SERVED_SUITES = ("commands", "files", "files_http", "javascript", "pty", "reconnect", "secure", "watch")
BARE = {"start_guest", "global_env"}    # fixtures of guests that no server gives

proc.become_subreaper()


@pytest.fixture(scope="module", autouse=True)
def pointed_at_nothing(request):
    """Tests of a server say themselves where the SDKs find it: not at the guest of the session."""
    if not request.module.__name__.rpartition(".")[2].startswith(("test_serve", "test_services")):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("E2B_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def workspace():
    """A directory that other users can reach, unlike pytest's own."""
    path = tempfile.mkdtemp(prefix="cove-e2e-")
    os.chmod(path, 0o755)
    yield path
    # A scope takes its files away itself: a disk may need longer for volumes than the last test has.
    if os.environ.get("COVE_SCOPE", "none") == "none":
        shutil.rmtree(path)


@pytest.fixture(scope="session")
def workdir(request, workspace):
    """Where commands begin, on the machine that the guest runs on."""
    if not SERVED:
        return workspace
    request.getfixturevalue("guest")
    return there.os.path.expanduser("~")


@pytest.fixture
def folder(workdir, request):
    """An empty directory of the test's own on the machine that the guest runs on, as text."""
    prefix = request.node.name[:40].replace("/", "_") + "-"
    path = there.tempfile.mkdtemp(dir=workdir, prefix=prefix)
    there.os.chmod(path, 0o755)
    yield path
    there.shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def quiet_home(workspace):
    """A home without profiles: what the machine's own ones do would be part of every test."""
    path = os.path.join(workspace, "home")
    os.mkdir(path)
    os.chmod(path, 0o755)
    return path


def warm_up(guest):
    """Makes the guest start what it starts lazily, so that the baseline holds it."""
    assert guest.wire.start("/bin/true").collect().end["exitCode"] == 0
    assert guest.wire.filesystem("Stat", {"path": "/"}).status == 200
    assert guest.wire.get("/metrics").status == 200


def bare_guest(patch, workspace, quiet_home):
    """The SDK in debug mode needs no control plane."""
    started = Guest(os.path.join(workspace, "session"), "--set", "process.keep-ms=1000",
                    "--workdir", workspace)
    patch.setenv("E2B_DEBUG", "true")
    patch.setenv("E2B_SANDBOX_URL", started.url)
    patch.setenv("E2B_API_KEY", "any")
    started.init(envVars={"HOME": quiet_home})
    return started


def served_guest(patch, server):
    for name, value in server.variables().items():
        patch.setenv(name, value)
    return Served(server)


@pytest.fixture(scope="session")
def guest(request):
    """The guest most tests share. Afterwards its descriptors are no more than it began with, its memory is
    about what it was, and it ends as every guest must."""
    needed = ("server",) if SERVED else ("workspace", "quiet_home")
    with pytest.MonkeyPatch.context() as patch:
        # The SDK keeps what it learns about the environment: clean for every test alike.
        for name in [name for name in os.environ if name.startswith("E2B_")]:
            patch.delenv(name)
        begin = served_guest if SERVED else bare_guest
        started = begin(patch, *map(request.getfixturevalue, needed))
        warm_up(started)
        idle = started.settle(wanted=0, timeout=3)
        running, memory = started.wire.running().keys(), started.rss_kib()
        yield started
        now = started.settle(wanted=len(idle), timeout=10 + KEEP_S)
        assert len(now) <= len(idle), f"descriptors: {set(idle.items()) ^ set(now.items())}"
        assert started.wire.running().keys() == running
        if FRUGAL:
            grown = started.rss_kib() - memory
            assert grown < GROWTH_KIB, f"the guest has grown by {grown} KiB"
        started.stop()


@pytest.fixture
def start_guest(folder):
    """Starts a guest with options of its own; it is ended and checked after the test."""
    guests = []

    def start(*options, **more):
        started = Guest(os.path.join(folder, f"guest-{len(guests)}"), *options, **more)
        guests.append(started)
        return started

    yield start
    for started in reversed(guests):
        if started.process.poll() is None:
            started.stop()


@pytest.fixture
def global_env(guest, quiet_home):
    """with global_env(NAME="value"): every command gets it."""
    @contextlib.contextmanager
    def use(**env):
        guest.init(envVars={"HOME": quiet_home} | env)
        yield
        guest.init(envVars={"HOME": quiet_home})

    yield use
    guest.init(envVars={"HOME": quiet_home})


@pytest.fixture
def wire(guest):
    return guest.wire


@pytest.fixture
def own_wire(request):
    """That of a guest of the test's own, where one can be had."""
    return request.getfixturevalue("wire") if SERVED else request.getfixturevalue("start_guest")().wire


@pytest.fixture
def sandbox(guest):
    """The SDK as its user's environment points it at the guest."""
    return Sandbox.connect(guest.id) if SERVED else Sandbox.create()


@pytest.fixture
async def async_sandbox(guest):
    return await (AsyncSandbox.connect(guest.id) if SERVED else AsyncSandbox.create())


@pytest.fixture
def open_sandbox(quiet_home):
    """The SDK in debug mode, which needs no control plane, on a guest of the test's own."""
    def connect(guest):
        guest.init(envVars={"HOME": quiet_home})
        return Sandbox.create(debug=True, api_key="any", sandbox_url=guest.url)

    return connect


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("needs root, to become other users")


@pytest.fixture(scope="session")
def cove(workspace):
    """`cove run` on a data directory of the session's own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    data = os.path.join(workspace, "data")
    # A small volume: several sessions at once would fill a disk otherwise.
    Keeper(data, os.path.join(workspace, "first"), "--set", f"volume.initial-bytes={512 << 20}").stop()
    made = Cove(data)
    yield made
    made.close()


@pytest.fixture(scope="session")
def server(workspace):
    """`cove serve` for the tests that can share one; its sandboxes end with it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    # Through it files of a gigabyte go faster than a small volume grows.
    roomy = ["--set", f"volume.low-bytes={512 << 20}"] if SERVED else []
    started = Serve(os.path.join(workspace, "serve"), "--ephemeral", "--preview-listen", "127.0.0.1:0", *roomy)
    yield started
    started.close()


@pytest.fixture(autouse=True)
def new_names():
    Names.renew()


@pytest.fixture
def start_keeper(cove, folder):
    """Starts a keeper with options of its own; it and its sandboxes are gone after the test."""
    keepers = []

    def start(*options, run_dir="run"):
        started = Keeper(cove.data, os.path.join(folder, run_dir), *options)
        keepers.append(started)
        return started

    yield start
    for started in keepers:
        started.end_all()


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "current_sdk(feature): only the current line of the SDK has it")
    config.addinivalue_line(
        "markers", "bare(reason): makes no sense through `cove serve`, for this reason")


def pytest_ignore_collect(collection_path):
    if not collection_path.is_file():
        return None
    unserved = SERVED and collection_path.stem.removeprefix("test_") not in SERVED_SUITES
    # What an import of theirs needs may be missing beside the previous SDK.
    return True if unserved or PREVIOUS and "mark.sdk" not in collection_path.read_text() else None


def is_bare(item):
    return item.get_closest_marker("bare") or BARE & set(item.fixturenames)


def there_is_a_network():
    return os.environ.get("COVE_SCOPE", "none") == "none" or os.environ.get("COVE_NETWORK")


def pytest_addoption(parser):
    parser.addoption("--thin", action="store_true", help="fewer cases of tables: see helpers/thin.py")


@pytest.hookimpl(trylast=True)          # of what -m and -k leave
def pytest_collection_modifyitems(config, items):
    """With the previous line of the SDK only what knows one: `sdk`. A feature it lacks is marked `current_sdk`."""
    kept = [item for item in items if not (SERVED and is_bare(item))
            and not (PREVIOUS and not item.get_closest_marker("sdk"))]
    if config.getoption("--thin"):
        kept = thinned(kept)
    for item in kept:
        if item.get_closest_marker("network") and not there_is_a_network():
            item.add_marker(pytest.mark.skip(reason="needs the machine's network: COVE_NETWORK=1"))
        mark = item.get_closest_marker("current_sdk")
        if mark and PREVIOUS:
            item.add_marker(pytest.mark.skip(
                reason=f"the previous line of the SDK has no {mark.args[0]}"))
    left = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in left])
    items[:] = kept
