"""--root: whatever a client names, and whatever the sandbox does meanwhile, stays inside."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from helpers import proc
from helpers.wire import RpcError, files_path

core = pytest.mark.core
SECRET = "the content of a file outside"

# Swaps two names for each other as fast as it can, until it is killed.
SWAPPER = r"""
import ctypes, sys
rename = ctypes.CDLL(None).renameat2
a, b = (name.encode() for name in sys.argv[1:])
while True:
    rename(-100, a, -100, b, 2)
"""


@pytest.fixture
def place(folder):
    """root/ with a file and a directory, and outside/ with a secret next to it."""
    os.makedirs(f"{folder}/root/dir")
    os.makedirs(f"{folder}/outside/sub")
    for name, text in (("root/file", "inside"), ("root/dir/secret", "inside"),
                       ("outside/secret", SECRET), ("outside/sub/secret", SECRET)):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as out:
            out.write(text)
    return folder


@pytest.fixture
def wire(place, start_guest):
    return start_guest("--root", f"{place}/root").wire


def untouched(place):
    """Is everything outside as it was?"""
    found = sorted(os.path.join(at, name).removeprefix(place) for at, dirs, files in
                   os.walk(f"{place}/outside") for name in dirs + files)
    texts = {open(f"{place}/outside/{name}", encoding="utf-8").read()
             for name in ("secret", "sub/secret")}
    return found == ["/outside/secret", "/outside/sub", "/outside/sub/secret"] and texts == {SECRET}


def all_calls(wire, path):
    """Every call that takes a path, with it; gives the replies."""
    return [wire.filesystem("Stat", {"path": path}), wire.filesystem("ListDir", {"path": path}),
            wire.get(files_path(path)), wire.upload(path, b"overwritten"),
            wire.upload(path + "/new", b"new"),
            wire.filesystem("MakeDir", {"path": path + "/made"}),
            wire.filesystem("CreateWatcher", {"path": path}),
            wire.filesystem("Move", {"source": path, "destination": "/moved"}),
            wire.filesystem("Move", {"source": "/file", "destination": path + "/moved"}),
            wire.request("POST", "/files/compose", '{"source_paths": ["%s"], "destination": "/c"}'
                         % path, {"Content-Type": "application/json"}),
            wire.filesystem("Remove", {"path": path})]


@core
def test_the_root_is_the_root(wire, place):
    listed = wire.filesystem("ListDir", {"path": "/"}).json["entries"]
    assert sorted(e["path"] for e in listed) == ["/dir", "/file"]
    assert wire.get(files_path("/file")).text == "inside"
    assert wire.upload("/new", b"x").json == [{"path": "/new", "name": "new", "type": "file"}]
    assert os.path.exists(f"{place}/root/new")


@core
@pytest.mark.parametrize("path", [
    "/../outside", "/dir/../../outside", "/../../../../../../outside", "/..//../outside/sub",
    "/dir/../../../outside/secret", "/./../outside"])
def test_dots_lead_nowhere_outside(wire, place, path):
    for reply in all_calls(wire, path):
        assert SECRET not in reply.body.decode(errors="replace")
    assert untouched(place)


@core
@pytest.mark.parametrize("target", ["{place}/outside", "{place}/outside/secret", "../outside",
                                    "../../../../../../../../{place}/outside", "/proc/self/root",
                                    "/proc/1/root/{place}/outside"])
def test_links_lead_nowhere_outside(wire, place, target):
    target = target.format(place=place)
    os.symlink(target, f"{place}/root/link")
    os.symlink("link", f"{place}/root/again")
    for path in ("/link", "/again", "/link/secret", "/again/sub"):
        for reply in all_calls(wire, path):
            assert SECRET not in reply.body.decode(errors="replace")
        if not os.path.lexists(f"{place}/root/link"):
            os.symlink(target, f"{place}/root/link")
    assert untouched(place)


def test_an_absolute_link_is_resolved_from_the_root(wire, place):
    os.symlink("/dir/secret", f"{place}/root/link")
    assert wire.get(files_path("/link")).text == "inside"
    entry = wire.filesystem("Stat", {"path": "/link"}).json["entry"]
    assert (entry["symlinkTarget"], entry["isSymlink"]) == ("/dir/secret", True)


@core
def test_the_machines_own_proc_is_not_there(wire):
    for path in ("/proc/self/environ", "/etc/passwd", "/proc/1/cmdline"):
        assert wire.get(files_path(path)).status == 404


def swapped(place, kind):
    """/swap is by turns a directory inside and a link to outside."""
    os.mkdir(f"{place}/root/swap")
    with open(f"{place}/root/swap/secret", "w", encoding="utf-8") as out:
        out.write("inside")
    os.symlink(f"{place}/outside" if kind == "absolute" else "../outside",
               f"{place}/root/other")
    return subprocess.Popen([sys.executable, "-c", SWAPPER, f"{place}/root/swap",
                             f"{place}/root/other"])


@core
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_link_swapped_during_calls_never_leads_outside(wire, place, kind):
    swapper, statuses = swapped(place, kind), set()
    try:
        until, calls = time.monotonic() + 6, 0
        while time.monotonic() < until or calls < 2000:
            for reply in (
                    wire.get(files_path("/swap/secret")),
                    wire.filesystem("ListDir", {"path": "/swap", "depth": 3}),
                    wire.filesystem("Stat", {"path": "/swap/secret"}),
                    wire.upload("/swap/new", b"new"),
                    wire.upload("/swap/secret", b"inside"),
                    wire.filesystem("MakeDir", {"path": f"/swap/d{calls}/e"}),
                    wire.filesystem("Move", {"source": "/swap/new", "destination": "/swap/sub/n"}),
                    wire.filesystem("Remove", {"path": "/swap/sub"}),
                    wire.filesystem("Remove", {"path": f"/swap/d{calls}"}),
                    wire.filesystem("ListDir", {"path": "/", "depth": 4})):
                assert SECRET not in reply.body.decode(errors="replace")
                statuses.add(reply.status)
                calls += 1
    finally:
        swapper.kill()
        swapper.wait()
    assert untouched(place)
    assert 200 in statuses              # some met the directory, so the race was one
    assert 404 in statuses              # and some the link


@core
@pytest.mark.timeout(120)
def test_removing_a_tree_while_its_directories_become_links_stays_inside(wire, place):
    swapper = None
    try:
        for i in range(150):
            os.makedirs(f"{place}/root/tree/swap/a/b")
            os.symlink(f"{place}/outside", f"{place}/root/tree/link")
            if swapper is None:
                swapper = subprocess.Popen([sys.executable, "-c", SWAPPER,
                                            f"{place}/root/tree/swap", f"{place}/root/tree/link"])
                time.sleep(0.2)
            swapper.send_signal(signal.SIGCONT)
            assert wire.filesystem("Remove", {"path": "/tree"}).status in (200, 500), i
            swapper.send_signal(signal.SIGSTOP)     # makedirs follows links: not while they move
            proc.wait_until(lambda: proc.state(swapper.pid) == "T", "the swapper stops")
            shutil.rmtree(f"{place}/root/tree", ignore_errors=True)
    finally:
        swapper.kill()
        swapper.wait()
    assert untouched(place)


# --- odd files -------------------------------------------------------------------------------

@core
def test_a_fifo_is_neither_read_nor_written_and_blocks_nobody(wire, place):
    os.mkfifo(f"{place}/root/fifo")
    begun = time.monotonic()
    assert wire.get(files_path("/fifo")).status == 400
    assert wire.upload("/fifo", b"x").status == 400
    assert wire.filesystem("ListDir", {"path": "/fifo"}).status == 400
    assert wire.filesystem("Stat", {"path": "/fifo"}).json["entry"]["permissions"][0] == "p"
    assert time.monotonic() - begun < 10
    assert stat.S_ISFIFO(os.lstat(f"{place}/root/fifo").st_mode)
    assert wire.filesystem("Remove", {"path": "/fifo"}).status == 200
    assert not os.path.lexists(f"{place}/root/fifo")


def test_a_socket_is_neither_read_nor_written(wire, place):
    with socket.socket(socket.AF_UNIX) as s:
        back = os.getcwd()
        os.chdir(f"{place}/root")       # the path would be too long for bind()
        try:
            s.bind("sock")
        finally:
            os.chdir(back)
    assert wire.get(files_path("/sock")).status == 400
    assert wire.upload("/sock", b"x").status == 400


def test_a_device_is_neither_read_nor_written(wire, place, as_root):
    for name, minor in (("null", 3), ("zero", 5)):
        try:
            os.mknod(f"{place}/root/{name}", 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        except PermissionError:
            pytest.skip("cannot make a device here")
        assert wire.get(files_path(f"/{name}")).status == 400
        assert wire.upload(f"/{name}", b"x").status == 400
        entry = wire.filesystem("Stat", {"path": f"/{name}"}).json["entry"]
        assert entry["permissions"].startswith("Dc")


@core
@pytest.mark.parametrize("path", ["/" + "n" * 256, "/" + "n" * 4000, "/" + "d/" * 3000 + "f",
                                  "/" + "é" * 200])
def test_a_name_that_is_too_long_gets_a_clear_error(wire, place, path):
    for reply in (wire.filesystem("Stat", {"path": path}),
                  wire.filesystem("MakeDir", {"path": path}),
                  wire.get(files_path(path)), wire.upload(path, b"x"),
                  wire.filesystem("Move", {"source": "/file", "destination": path}),
                  wire.filesystem("ListDir", {"path": path}),
                  wire.filesystem("CreateWatcher", {"path": path})):
        assert reply.status in (400, 404), reply.text
        assert reply.json["message"]
    assert sorted(os.listdir(f"{place}/root"))[-2:] == ["dir", "file"]


def test_the_root_itself_can_not_be_removed_or_moved(wire, place):
    for path in ("/", "/.", "/dir/..", "//", "/.."):
        assert wire.filesystem("Remove", {"path": path}).status in (400, 500)
        assert wire.filesystem("Move", {"source": path, "destination": "/x"}).status in (400, 500)
        assert wire.upload(path, b"x").status == 400
    assert sorted(os.listdir(f"{place}/root")) == ["dir", "file"]


# --- commands --------------------------------------------------------------------------------

def copy_program(program, root):
    """A program and the libraries it needs, at the same places below root."""
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in [program, *(word for word in needed.split() if word.startswith("/"))]:
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        shutil.copy(os.path.realpath(path), root + path)


@core
def test_commands_run_inside_the_root(wire, place, as_root):
    copy_program("/bin/bash", f"{place}/root")
    script = "cd /; echo *; [ -e /../outside ] || echo confined; cd ..; echo $PWD; exit 3"
    out = wire.start("/bin/bash", "-c", script).collect()
    words = out.stdout.decode().split()
    assert {"dir", "file", "bin"} <= set(words)
    assert words[-2:] == ["confined", "/"]
    assert out.end["exitCode"] == 3
    out = wire.start("/bin/bash", "-c", "echo $PWD; echo text >made", cwd="/dir").collect()
    assert out.stdout == b"/dir\n"
    assert os.path.exists(f"{place}/root/dir/made")


def test_a_working_directory_cannot_be_outside(wire, place, as_root):
    copy_program("/bin/bash", f"{place}/root")
    os.symlink(f"{place}/outside", f"{place}/root/link")
    for cwd in ("/link", "/../outside"):
        with pytest.raises(RpcError) as caught:
            wire.start("/bin/bash", "-c", "pwd", cwd=cwd)
        assert caught.value.code == "invalid_argument"


def test_users_come_from_the_roots_own_passwd(place, start_guest, as_root):
    copy_program("/bin/bash", f"{place}/root")
    os.makedirs(f"{place}/root/etc")
    os.makedirs(f"{place}/root/home/somebody")
    with open(f"{place}/root/etc/passwd", "w", encoding="utf-8") as out:
        out.write("root:x:0:0::/:/bin/bash\nsomebody:x:4321:4322::/home/somebody:/bin/bash\n")
    wire = start_guest("--root", f"{place}/root", "--user", "somebody").wire
    out = wire.start("/bin/bash", "-c", "echo $UID $HOME $USER $PWD").collect()
    assert out.stdout == b"4321 /home/somebody somebody /home/somebody\n"
    assert wire.upload("new", b"x").json[0]["path"] == "/home/somebody/new"
    made = os.stat(f"{place}/root/home/somebody/new")
    assert (made.st_uid, made.st_gid) == (4321, 4322)
    entry = wire.filesystem("Stat", {"path": "new"}).json["entry"]
    assert entry["owner"] == "somebody"


def test_a_watch_does_not_follow_a_link_outside(wire, place):
    os.symlink(f"{place}/outside", f"{place}/root/dir/link")
    made = wire.filesystem("CreateWatcher", {"path": "/dir", "recursive": True}).json["watcherId"]
    with open(f"{place}/outside/sub/new", "w", encoding="utf-8") as out:
        out.write("x")
    with open(f"{place}/root/dir/end", "w", encoding="utf-8") as out:
        out.write("x")
    names = set()

    def ended():
        events = wire.filesystem("GetWatcherEvents", {"watcherId": made}).json.get("events", [])
        names.update(e["name"] for e in events)
        return "end" in names

    proc.wait_until(ended, "the event inside")
    assert names == {"end"}
    os.remove(f"{place}/outside/sub/new")
