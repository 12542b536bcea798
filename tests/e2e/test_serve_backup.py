"""`cove backup --files` and `cove restore`: what paused sandboxes have written survives the loss of the data
directory, byte by byte; a damaged archive changes nothing; an interrupted restore is finished by another."""

import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest

from helpers.cove import CLEAR, COVE
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


def restore(server, file, **more):
    sets = [word for name, bytes in VOLUME.items() for word in ("--set", f"{name}={bytes}")]
    return cove("restore", file, *sets, data=server.data, **more)


def state(server, id):
    return server.ok("GET", f"/v1/sandboxes/{id}")["state"]


@pytest.fixture
def made(folder):
    """A server with options of the test's own."""
    server = Serve(pathlib.Path(folder, "serve"), "--set", "pool.size=0")
    yield server
    if server.running():
        server.end_all()
    server.close()


def lose(server):
    """The disk is gone, and with it all sandboxes."""
    server.end_all()
    server.stop()
    server.unmount()
    shutil.rmtree(server.data)


def contents(path):
    """Everything below a data directory that a restore could change, by name and content."""
    return {file: file.read_bytes() if file.suffix not in (".img", ".lock") else b""
            for file in pathlib.Path(path).rglob("*") if file.is_file() and not file.is_symlink()}


def test_files_of_paused_sandboxes_survive_the_loss_of_the_data_directory(made, folder):
    archive = pathlib.Path(folder, "copy")
    full, frozen, running = (made.create(timeout=600, limits={"disk_bytes": DISK}, network="none")["id"]
                             for _ in range(3))
    inside(made, full, ["sh"], "-u", "root", input=FILL)
    inside(made, frozen, ["sh", "-c", "echo kept > file"])
    before = look(made, full)
    made.ok("POST", f"/v1/sandboxes/{full}/pause", {"memory": False})
    made.ok("POST", f"/v1/sandboxes/{frozen}/pause")

    said = json.loads(cove("backup", archive, "--files", "--json", data=made.data))
    assert {one["id"] for one in said["sandboxes"]} == {full, frozen} and said["left_out"] == 0
    assert [(one["id"], "runs" in one["reason"]) for one in said["without_files"]] == [(running, True)]
    assert archive.stat().st_mode & 0o777 == 0o600 and said["bytes"] == archive.stat().st_size < 32 << 20
    assert sorted(os.listdir(folder)) == ["copy", "serve"]
    assert "exists" in cove("backup", archive, "--files", status=1, data=made.data)
    assert f"pid {made.process.pid}" in restore(made, archive, status=1)
    assert not [name for name in os.listdir(made.data / "volume/layers") if name.startswith("run-")]

    lose(made)
    said = restore(made, archive)
    assert full in said and frozen in said and running not in said
    said = restore(made, archive)       # again: all is there
    assert said.count("left as they are") == 2
    made.start()
    assert {state(made, full), state(made, frozen)} == {"paused"}
    for id in (full, frozen):
        made.ok("POST", f"/v1/sandboxes/{id}/resume", {"timeout": 600})
    assert look(made, full) == before
    assert inside(made, frozen, ["cat", "file"]) == "kept\n"
    assert inside(made, full, ["ls", "/usr/bin/factor"], status=2) == ""
    # its limit is its own again
    written = inside(made, frozen, ["sh", "-c", "dd if=/dev/urandom of=big bs=1M count=128 2>/dev/null; stat -c %s big"])
    assert int(written) <= DISK, written
    assert state(made, frozen) == "running"
