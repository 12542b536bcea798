"""`cove backup --files` and `cove restore`: what paused sandboxes have written survives the loss of the data
directory, byte by byte; a damaged archive changes nothing; an interrupted restore is finished by another."""

import concurrent.futures
import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass

import pytest

from helpers.archive import ORDINARY, Tar
from helpers.cove import CLEAR, COVE, STRUCK, for_anybody
from helpers.guest import SLOWER
from helpers.serve import VOLUME, Serve

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners and limits need root")

GIB = 1 << 30
DISK = 64 << 20

# About everything that can be in a layer. As root inside, in a home and over the template's own files.
FILL = r"""
set -e
mkdir -p /home/user/d/deep "/home/user/new
line" /srv/own && cd /home/user/d
printf one > one && ln one two && ln one deep/three
ln -s /no/such/place broken && ln -s one link && ln link hardlink-of-a-link
printf root > rooted && chmod 4751 rooted
printf user > users && chown user:user users && chmod 600 users
: > empty
truncate -s 1G sparse && printf end | dd of=sparse bs=1 seek=700000000 conv=notrunc status=none
printf x > "$(printf 'long%0240d' 7)"
mkdir -p "$(printf 'p%0200d/' 1 2 3)" && printf deep > "$(printf 'p%0200d/' 1 2 3)/leaf"
printf y > "$(printf 'nfd-e\314\201')" && printf z > "$(printf 'bad-\377')" && printf w > "$(printf 'l%0120d\303\251' 0)"
printf q > "a = b%c"
mkfifo -m 640 pipe
python3 - <<'PY'
import os
os.setxattr("one", "user.plain", b"\x00\n=bytes")
os.setxattr("deep", "user.a=b%", b"odd name")
os.setxattr("rooted", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
os.utime("one", ns=(1, 1_600_000_000_123_456_789))
os.utime("empty", ns=(0, -7_000_000_000))
PY
rm -r /etc/skel /etc/hostname
rm -rf /etc/alternatives && mkdir /etc/alternatives && printf mine > /etc/alternatives/mine
rm /usr/bin/factor && printf new > /usr/bin/mine
touch -d @1500000000 deep "/home/user/new
line"
"""

# What there is of it, as text: the same before and after.
LOOK = r"""
import hashlib, os, stat
for top in ("/home", "/etc", "/srv", "/usr/bin"):
    for where, folders, files in os.walk(os.fsencode(top)):
        for name in sorted(folders + files) + [b"."]:
            path = os.path.join(where, name)
            st = os.lstat(path)
            said = [path, oct(st.st_mode), st.st_uid, st.st_gid]
            if path.startswith((b"/home/user/d", b"/home/user/new", b"/srv", b"/usr/bin/mine")):
                said.append(st.st_mtime_ns)     # the template's own files are made anew
            if not stat.S_ISDIR(st.st_mode):
                said += [st.st_size, st.st_nlink]
            if path.startswith(b"/home/user/d") and not stat.S_ISLNK(st.st_mode):
                said += [(a, os.getxattr(path, a)) for a in sorted(os.listxattr(path))]
            if stat.S_ISLNK(st.st_mode):
                said.append(os.readlink(path))
            elif stat.S_ISREG(st.st_mode) and path.startswith((b"/home", b"/srv", b"/etc/a", b"/usr/bin/mine")):
                if st.st_size < 1 << 29:
                    said.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
                else:
                    file = open(path, "rb")
                    file.seek(699_999_990)
                    said += [file.read(20), st.st_blocks < 1000]
            print(*said)
print(sum(os.stat("/home/user/d/" + n).st_ino == os.stat("/home/user/d/one").st_ino for n in ("one", "two", "deep/three")))
"""


def cove(*words, status=0, data=None, **more):
    done = subprocess.run([COVE, *words, "--data", data], capture_output=True, text=True, timeout=120 * SLOWER,
                          env=CLEAR, **more)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def inside(server, id, script, *options, input=None, status=0):
    done = subprocess.run([COVE, "exec", *options, id, *script], input=input, capture_output=True, text=True,
                          timeout=60 * SLOWER, env=CLEAR | server.variables())
    assert done.returncode == status, (script, done.stdout, done.stderr)
    return done.stdout


def look(server, id):
    return sorted(inside(server, id, ["python3", "-"], "-u", "root", input=LOOK).splitlines())


def restore_words(data, file):
    return [COVE, "restore", file, "--data", data,
            *(word for name, bytes in VOLUME.items() for word in ("--set", f"{name}={bytes}"))]


def restore(data, file, **more):
    return cove(*restore_words(data, file)[1:3], *restore_words(data, file)[5:], data=data, **more)


def state(server, id):
    return server.ok("GET", f"/v1/sandboxes/{id}")["state"]


def lose(server):
    """The disk is gone, and with it all sandboxes."""
    server.end_all()
    server.stop()
    server.unmount()
    shutil.rmtree(server.data)


@dataclass
class Saved:
    server: Serve
    archive: pathlib.Path
    full: str                           # paused, files only
    frozen: str
    running: str
    looked: list

    def bytes(self):
        return self.archive.read_bytes()


@pytest.fixture(scope="module")
def saved(workspace):
    """A backup of three sandboxes, of a server that is lost then."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=workspace, prefix="backup-"))
    archive = folder / "copy"
    server = Serve(folder / "serve", "--set", "pool.size=0")
    try:
        full, frozen, running = (server.create(timeout=600, limits={"disk_bytes": DISK}, network="none")["id"]
                                 for _ in range(3))
        inside(server, full, ["sh"], "-u", "root", input=FILL)
        inside(server, frozen, ["sh", "-c", "echo kept > file"])
        looked = look(server, full)
        server.ok("POST", f"/v1/sandboxes/{full}/pause", {"memory": False})
        server.ok("POST", f"/v1/sandboxes/{frozen}/pause")

        said = json.loads(cove("backup", archive, "--files", "--json", data=server.data))
        assert {one["id"] for one in said["sandboxes"]} == {full, frozen} and said["left_out"] == 0
        assert [(one["id"], "runs" in one["reason"]) for one in said["without_files"]] == [(running, True)]
        assert archive.stat().st_mode & 0o777 == 0o600 and said["bytes"] == archive.stat().st_size < 32 << 20
        assert sorted(os.listdir(folder)) == ["copy", "serve"]
        assert "exists" in cove("backup", archive, "--files", status=1, data=server.data)
        assert f"pid {server.process.pid}" in restore(server.data, archive, status=1)
        assert not [name for name in os.listdir(server.data / "volume/layers") if name.startswith("run-")]
        lose(server)
        yield Saved(server, archive, full, frozen, running, looked)
    finally:
        if server.running():
            server.end_all()
        server.close()


class Place:
    """A data directory without a server."""

    def __init__(self, folder):
        self.data = pathlib.Path(folder, "data")
        self.process = None

    def layers(self):
        """The layers there are, by a mount of our own."""
        with self.mounted() as top:
            return sorted(os.listdir(top / "layers"))

    @contextlib.contextmanager
    def mounted(self):
        top = self.data / "looked-at"
        top.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", "loop,ro", self.data / "volume.img", top], check=True)
        try:
            yield top
        finally:
            subprocess.run(["umount", top], check=True)

    def clear(self):
        """What a restore that was killed has left mounted."""
        subprocess.run(["umount", self.data / "volume"], capture_output=True)


@pytest.fixture
def place(folder):
    made = Place(folder)
    yield made
    made.clear()


# --- whole -------------------------------------------------------------------------------------

def test_a_person_can_read_it_with_other_tools(saved, folder):
    subprocess.run(["tar", "-xf", saved.archive, "-C", folder], check=True)
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=True)
    with tarfile.open(pathlib.Path(folder, "sandboxes", saved.full, "layer.tar")) as layer:
        members = {member.name: member for member in layer}
    assert members["r/home/user/d/sparse"].size == GIB and members["r/home/user/d/sparse"].issparse()
    assert members["r/home/user/d/rooted"].mode == 0o4751
    assert members["u/bin/factor"].ischr() and members["r/etc/alternatives"].isdir()
    assert members["r/home/user/d/one"].pax_headers["SCHILY.xattr.user.plain"].encode() == b"\0\n=bytes"
    assert not [name for name in members if name.split("/")[0] not in ("r", "u")]


# --- damaged and hostile -----------------------------------------------------------------------

def test_a_damaged_archive_changes_nothing(saved, place, folder):
    whole, broken = saved.bytes(), pathlib.Path(folder, "broken")
    chance = random.Random(5)
    flips = [len(whole) // 2, 513, *(chance.randrange(512, len(whole)) for _ in range(6))]
    cases = [whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1:] for at in flips]
    cases += [whole[:at] for at in (len(whole) // 2, len(whole) // 2 & ~511, len(whole) - 1, len(whole) - 1024, 1024)]
    cases += [whole + b"x", whole + bytes(512)]
    for case in cases:
        broken.write_bytes(case)
        said = restore(place.data, broken, status=1)
        assert any(word in said for word in ("damaged", "cut off", "behind its end", "no backup has", "order")), said
        assert sorted(os.listdir(place.data)) == ["serve", "serve.lock"] and not os.listdir(place.data / "serve")


def head(name, size):
    block = bytearray(512)
    block[0:len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000600\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148] = b"%011o\0" % size, b"%011o\0" % 1_700_000_000
    block[148:156] = b" " * 8
    block[156:157], block[257:265] = b"0", b"ustar\x0000"
    block[329:337] = block[337:345] = b"0000000\0"
    block[148:155] = b"%06o\0" % sum(block)
    return bytes(block)


def bundle(members):
    """A backup with right sums, whatever is in it."""
    out, sums = b"", b""
    for name, content in [*members, (b"SHA256SUMS", None)]:
        content = sums if content is None else content
        sums += hashlib.sha256(content).hexdigest().encode() + b"  " + name + b"\n"
        out += head(name, len(content)) + content + bytes(-len(content) % 512)
    return out + bytes(1024)


def parts(saved, suffix=""):
    with tarfile.open(f"{saved.archive}{suffix}") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def layer(*add, **fields):
    tar = Tar().dir("r").dir("u")
    tar.add(*add, **fields)
    return tar


HOSTILE = {
    "outside": (lambda: layer("x"), "is outside r/ and u/"),
    "a work directory": (lambda: layer("rw0/x"), "is outside r/ and u/"),
    "two dots": (lambda: layer("r/../../../x"), "'..'"),
    "absolute": (lambda: layer("/r/x"), "begins with a slash"),
    "a device": (lambda: layer("r/null", tarfile.CHRTYPE, devmajor=1, devminor=3), "is a device"),
    "a block device": (lambda: layer("r/sda", tarfile.BLKTYPE), "is a device"),
    "through a link": (lambda: layer("r/l", tarfile.SYMTYPE, link="/etc").add("r/l/x"), "not a directory"),
    "a hard link out": (lambda: layer("r/h", tarfile.LNKTYPE, link="../serve.lock"), "'..'"),
    "a hard link to nothing": (lambda: layer("r/h", tarfile.LNKTYPE, link="r/none"), "does not have"),
    "overlayfs's redirect": (lambda: layer("r/d", tarfile.DIRTYPE, pax={"SCHILY.xattr.user.overlay.redirect": "/etc"}),
                             "has the attribute 'user.overlay.redirect'"),
    "trusted": (lambda: layer("r/d", tarfile.DIRTYPE, pax={"SCHILY.xattr.trusted.overlay.opaque": "y"}), "trusted"),
    "the root itself": (lambda: layer("r"), "is outside r/ and u/"),
    "no upper directory": (lambda: Tar().dir("r"), "has no r/ and u/"),
}


def test_a_hostile_archive_changes_nothing(saved, place, folder):
    good, archive = parts(saved), pathlib.Path(folder, "archive")
    note, database = good[f"sandboxes/{saved.full}/note"], good["cove.db"]
    names = [f"sandboxes/{saved.full}/{kind}".encode() for kind in ("note", "layer.tar")]

    def members(tar, note=note, names=names):
        return [(b"cove-backup", b"1\n"), (b"cove.db", database), (names[0], note), (names[1], tar)]

    def refused(content, words):
        archive.write_bytes(bundle(content))
        said = restore(place.data, archive, status=1)
        assert words in said, said
        assert not (place.data / "serve" / "cove.db").exists()
        assert sorted(os.listdir(place.data / "serve")) == []

    plain = pathlib.Path(layer("r/x").write(pathlib.Path(folder, "layer"))).read_bytes()
    for what, (tar, words) in HOSTILE.items():
        refused(members(pathlib.Path(tar().write(pathlib.Path(folder, "layer"))).read_bytes()), words)
        assert not os.path.exists(place.data / "paused") or os.listdir(place.data / "paused") == [], what
    assert place.layers() == []
    refused(members(gzip.compress(plain)), "")
    other = [name.replace(saved.full.encode(), b"other") for name in names]
    refused(members(plain, names=other), "it is of sandbox")
    refused(members(plain, note=note[:-1]), "it has")
    refused(members(plain, names=[b"sandboxes/../note", b"sandboxes/../layer.tar"]), "no backup has")
    refused(members(plain) + members(plain)[2:], "twice")
    refused(members(plain)[::-1], "")
    refused([(b"cove-backup", b"1\n"), (b"cove.db", b"SQLite format 3\0" + bytes(4096)), *members(plain)[2:]], "database")
    refused([(b"cove-backup", b"2\n"), *members(plain)[1:]], "newer release")
    assert place.layers() == [] and os.listdir(place.data / "paused") == []
    archive.write_bytes(bundle(members(plain)))         # and it was not refused for how it was made
    assert saved.full in restore(place.data, archive)
    assert place.layers() == [f"box-{saved.full}"]


# --- interrupted -------------------------------------------------------------------------------

def files_of(top):
    return {str(path.relative_to(top)): (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_mtime_ns,
                                         path.lstat().st_size if path.is_file() else 0)
            for path in top.rglob("*") if path.parent != top}


def kill_restore(place, archive, after):
    process = subprocess.Popen(restore_words(place.data, archive), env=STRUCK, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    time.sleep(after)
    process.kill()
    said = process.communicate(timeout=20)[1]
    assert process.returncode in (0, -9), said


@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_a_restore_that_was_killed_is_finished_by_another(saved, place, folder, times):
    chance = random.Random(times)
    began = time.monotonic()
    whole = Place(pathlib.Path(folder, "whole"))
    whole.data.parent.mkdir()
    restore(whole.data, saved.archive)
    took = time.monotonic() - began
    with whole.mounted() as top:
        want = files_of(top / "layers")
    for number in range(times):
        if number % 20 == 19:           # from the beginning again: the first part is the longest
            place.clear()
            shutil.rmtree(place.data)
        kill_restore(place, saved.archive, chance.uniform(took / 4, took))
        assert not os.path.exists(place.data / "serve/cove.db") or (place.data / "paused" / saved.full).exists()
    said = restore(place.data, saved.archive)
    assert saved.full in said and saved.frozen in said
    place.clear()
    with place.mounted() as top:
        assert files_of(top / "layers") == want
    assert (place.data / "serve/cove.db").exists()
    assert sorted(os.listdir(place.data / "paused")) == sorted([saved.full, saved.frozen])


# --- without root ------------------------------------------------------------------------------

def test_an_ordinary_user_gets_plain_directories(saved, folder):
    """Without ids of his own to give, the owners are lost, which is said; the rest is there."""
    home, program = pathlib.Path(folder, "home"), for_anybody(folder)
    archive = home / "copy"
    home.mkdir()
    shutil.copy(saved.archive, archive)
    for path in (home, archive):
        os.chown(path, ORDINARY, ORDINARY)
    done = subprocess.run([program, *map(str, restore_words(home / "data", archive)[1:])], capture_output=True, text=True,
                          user=ORDINARY, group=ORDINARY, extra_groups=[], env=CLEAR, timeout=60 * SLOWER)
    assert done.returncode == 0, done.stderr
    assert saved.full in done.stdout and "Owners are lost" in done.stdout
    top = home / "data/volume/layers" / f"box-{saved.full}"
    assert (top / "r/home/user/d/three").exists() is False
    assert os.path.samefile(top / "r/home/user/d/one", top / "r/home/user/d/deep/three")
    assert (top / "u/bin/factor").is_char_device() and (top / "r/home/user/d/sparse").stat().st_size == GIB
    assert os.getxattr(top / "r/etc/alternatives", "user.overlay.opaque") == b"y"
    assert {path.lstat().st_uid for path in top.rglob("*")} == {ORDINARY}


# --- beside a server ---------------------------------------------------------------------------

WRITER = """
import os
for n in range(1, 1 << 30):
    for name in ("a", "b"):
        with open("next", "w") as file:
            file.write(str(n))
        os.rename("next", name)
"""


def test_a_backup_beside_pauses_and_resumes_is_of_one_moment(server, folder):
    """Whatever is in it was paused from the first look to the last, and its files are of one moment."""
    boxes = [server.create(timeout=600, network="none")["id"] for _ in range(2)]
    for id in boxes:
        inside(server, id, ["sh", "-c", "cat > writer.py; echo 0 > a; echo 0 > b; "
                            "setsid python3 writer.py > /dev/null 2>&1 &"], input=WRITER)
    ending, included = threading.Event(), 0

    def disturb(id):
        while not ending.is_set():
            server.ok("POST", f"/v1/sandboxes/{id}/pause")
            ending.wait(random.uniform(0, 0.1))
            server.ok("POST", f"/v1/sandboxes/{id}/resume", {})

    with concurrent.futures.ThreadPoolExecutor() as pool:
        disturbers = [pool.submit(disturb, id) for id in boxes]
        try:
            for number in range(40):
                archive = pathlib.Path(folder, f"copy-{number}")
                said = json.loads(cove("backup", archive, "--files", "--json", data=server.data))
                included += check_backup(archive, folder, said, boxes)
        finally:
            ending.set()
        for one in disturbers:
            one.result()
    for id in boxes:
        server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)
    assert included, "no backup had a paused sandbox"


def check_backup(archive, folder, said, boxes):
    found = {one["id"] for one in said["sandboxes"]} & set(boxes)
    with tarfile.open(archive) as tar:
        copy = pathlib.Path(folder, "cove.db")
        copy.write_bytes(tar.extractfile("cove.db").read())
        with contextlib.closing(sqlite3.connect(copy)) as database:
            states = dict(database.execute("SELECT id, state FROM sandboxes"))
        for id in found:
            with tarfile.open(fileobj=tar.extractfile(f"sandboxes/{id}/layer.tar")) as layer:
                a, b = (int(layer.extractfile(f"r/home/user/{name}").read()) for name in "ab")
            assert b in (a, a - 1), (a, b)
            assert states[id] not in ("running", "creating", "ending", "ended"), states[id]
    assert found | {one["id"] for one in said["without_files"]} == set(boxes)     # and no machine of the pool
    return len(found)


def begin_backup(server, archive, env=CLEAR):
    return subprocess.Popen([COVE, "backup", archive, "--files", "--json", "--data", server.data], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stop_when(process, ready):
    """Holds it as soon as it is so far. False: it was quicker."""
    until = time.monotonic() + 30 * SLOWER
    while process.poll() is None and not ready():
        assert time.monotonic() < until
    process.send_signal(signal.SIGSTOP)
    return process.poll() is None


def test_a_backup_that_was_killed_leaves_nothing_in_the_way(server, folder):
    id, archive = server.create(timeout=600, network="none")["id"], pathlib.Path(folder, "copy")
    part = archive.with_name("copy.part")
    inside(server, id, ["sh", "-c", "head -c 40M /dev/urandom > big"])
    server.ok("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})
    process = begin_backup(server, archive, STRUCK)
    stop_when(process, lambda: part.exists() and part.stat().st_size > 1 << 20)
    assert part.stat().st_mode & 0o777 == 0o600
    process.kill()
    process.communicate()
    assert not archive.exists()
    said = json.loads(cove("backup", archive, "--files", "--json", data=server.data))
    assert id in [one["id"] for one in said["sandboxes"]] and os.listdir(folder) == ["copy"]
    assert not [name for name in os.listdir(server.data / "volume/layers") if name.startswith("run-backup")]
    server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)


@pytest.mark.parametrize("plain", [pytest.param(False, id="snapshots", marks=pytest.mark.slow),
                                   pytest.param(True, id="plain")])
def test_one_that_goes_on_while_it_is_read_is_whole_or_left_out(folder, plain):
    place, archive = pathlib.Path(folder, "serve"), pathlib.Path(folder, "copy")
    if plain:                           # what holds plain layers stays so
        (place / "data/volume/layers/other").mkdir(parents=True, mode=0o700)
        for path in (place / "data", place / "data/volume", place / "data/volume/layers"):
            path.chmod(0o700)
    server = Serve(place, "--set", "pool.size=0")
    try:
        id, still = (server.create(timeout=600, network="none")["id"] for _ in range(2))
        inside(server, id, ["sh", "-c", "head -c 60M /dev/urandom > big; echo before > last"])
        for one in (id, still):
            server.ok("POST", f"/v1/sandboxes/{one}/pause")
        process = begin_backup(server, archive)
        part = archive.with_name("copy.part")
        assert stop_when(process, lambda: part.exists() and part.stat().st_size > 4 << 20), "it was too quick"
        server.ok("POST", f"/v1/sandboxes/{id}/resume", {})
        inside(server, id, ["sh", "-c", "echo after > last; : > big"])
        process.send_signal(signal.SIGCONT)
        said = json.loads(process.communicate(timeout=60 * SLOWER)[0])
        files = {one["id"] for one in said["sandboxes"]}
        assert still in files and (id in files) != plain, said
        with tarfile.open(archive) as tar:
            assert len(tar.getnames()) == 3 + 2 * len(files)
            if not plain:
                with tarfile.open(fileobj=tar.extractfile(f"sandboxes/{id}/layer.tar")) as layer:
                    assert layer.extractfile("r/home/user/last").read() == b"before\n"
                    assert layer.getmember("r/home/user/big").size == 60 << 20
        if plain:
            assert [one for one in said["without_files"] if one["id"] == id and "went on" in one["reason"]], said
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=True)
    finally:
        if server.running():
            server.end_all()
        server.close()


# --- put back ----------------------------------------------------------------------------------

def test_files_of_paused_sandboxes_survive_the_loss_of_the_data_directory(saved):
    server = saved.server
    said = restore(server.data, saved.archive)
    assert saved.full in said and saved.frozen in said and saved.running not in said
    said = restore(server.data, saved.archive)          # again: all is there
    assert said.count("its files are here already") == 2
    said = json.loads(cove("backup", f"{saved.archive}-2", "--files", "--json", data=server.data))   # without a server
    assert {one["id"] for one in said["sandboxes"]} == {saved.full, saved.frozen}
    assert not os.path.ismount(server.data / "volume")
    assert parts(saved, "-2").items() >= {name: content for name, content in parts(saved).items()
                                          if name.endswith("layer.tar")}.items()
    (server.data / "paused" / saved.frozen).unlink()    # its layer says whose it is, too
    server.start()
    assert {state(server, saved.full), state(server, saved.frozen)} == {"paused"}
    for id in (saved.full, saved.frozen):
        server.ok("POST", f"/v1/sandboxes/{id}/resume", {"timeout": 600})
    assert look(server, saved.full) == saved.looked
    assert inside(server, saved.frozen, ["cat", "file"]) == "kept\n"
    inside(server, saved.full, ["ls", "/usr/bin/factor"], status=2)
    written = inside(server, saved.frozen,              # its limit is its own again
                     ["sh", "-c", "dd if=/dev/urandom of=big bs=1M count=128 2>/dev/null; stat -c %s big"])
    assert 0 < int(written) <= DISK, written
    assert state(server, saved.frozen) == "running"
