"""A server for all tests, and the certainty that nothing of theirs is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# Said by tools/scope: whether the tests see the machine's own network.
CONNECTED = os.environ.get("COVE_SCOPE", "none") == "none" or "COVE_NETWORK" in os.environ

# Whatever the shell that runs the tests talks to is not what they are about.
KEPT = ("COVE_BINARY", "COVE_LAYERS", "COVE_NETWORK_ALLOW")
for name in [n for n in os.environ if n.startswith("COVE_") and n not in KEPT]:
    del os.environ[name]
if "COVE_BINARY" not in os.environ and (ROOT / "build" / "cove").exists():
    os.environ["COVE_BINARY"] = str(ROOT / "build" / "cove")

import cove  # noqa: E402
from cove import _server  # noqa: E402


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("network") and not CONNECTED:
            item.add_marker(
                pytest.mark.skip(reason="needs the machine's network: COVE_NETWORK=1 tools/sdk")
            )
    if "COVE_BINARY" in os.environ or shutil.which("cove"):
        return
    reason = pytest.mark.skip(reason="there is no cove: build it, or set COVE_BINARY")
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(reason)


def belongings():
    """What this process has now: threads, children, sockets."""
    found = {f"thread {t.name}" for t in threading.enumerate()}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith("socket:"):
                found.add(target)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            name, rest = stat.read().rsplit(")", 1)
            if rest.split()[1] == str(os.getpid()):
                found.add(f"process {name})")
    return found


def running_in(folders):
    """Processes, of whomever, that have one of these in their command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            if any(str(folder) in words for folder in folders):
                yield f"{pid}: {words[:120]!r}"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left():
    """Around everything: no thread, child, socket, directory, mount or process of a server's stays."""
    made, start = [], _server.PrivateServer._start

    def noted(self, *args):
        made.append(self.dir)
        return start(self, *args)

    _server.PrivateServer._start = noted
    before = belongings()
    yield
    cove.stop_private_servers()
    if sys.version_info < (3, 10):
        # The last pytest-asyncio for it leaves a loop open, whatever is tested.
        asyncio.get_event_loop_policy().get_event_loop().close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        gc.collect()
        left = {*(belongings() - before), *running_in(made), *(str(d) for d in made if d.exists())}
        left |= {line for line in Path("/proc/mounts").read_text().splitlines()
                 if any(str(d) in line for d in made)}  # fmt: skip
        if not left:
            break
        time.sleep(0.2)
    assert not left, f"left behind: {sorted(left)}"


@pytest.fixture(scope="session")
def server():
    """The private server that everything uses."""
    yield _server.private()
    cove.stop_private_servers()


@pytest.fixture(scope="session")
def vm_server(layer, tmp_path_factory):
    """One for machines: it may show sandboxes what is below the tests' own directories."""
    top = tmp_path_factory.getbasetemp()
    for path in (top, *top.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o711)
    made = _server.PrivateServer((str(top),))
    yield made
    left = cove.Sandbox.list(url=made.url, api_key=made.api_key)
    made.stop()
    assert not left, f"machines are left: {left}"


@pytest.fixture
def at_vm_server(vm_server, monkeypatch, tmp_path):
    """`root_dir` is below the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COVE_URL", vm_server.url)
    monkeypatch.setenv("COVE_API_KEY", vm_server.api_key)


@pytest.fixture(scope="session")
def layer():
    """What runs in kernels needs the Python layer. Not a reason to skip: nothing of it would be tested."""
    folder = _server.find_layers()
    if not folder or not os.path.exists(f"{folder}/python"):
        pytest.fail("there is no Python layer: run the tests by tools/sdk, which builds one")


@pytest.fixture(scope="session")
def client(server):
    with cove.Client.open() as shared:
        yield shared


@pytest.fixture
def sandbox(client):
    with cove.Sandbox.create(client=client) as made:
        yield made


@pytest.fixture(autouse=True)
def no_sandbox_left(request):
    """Each test ends what it makes."""
    yield
    if "server" in request.fixturenames and "shared_sandbox" not in request.fixturenames:
        running = _server.running()
        if running and running.alive():
            left = cove.Sandbox.list()
            for info in left:
                cove.Sandbox.connect(info.id).kill()
            assert not left, f"sandboxes are left: {left}"


@pytest.fixture
def python():
    return sys.executable


@pytest.fixture
def config():
    from sandbox.configs import SandboxVMConfig

    return SandboxVMConfig(
        unique_container_name=True,
        vm_ram="512M",
        vm_cpu_cores=1,
        vm_disk_size="1G",
    )
