"""What a sandbox leaves on a directory of this machine, looked at from this machine.

Whatever it does there, no file may carry a set-id bit of an id that is not the directory's own or the
sandbox's; and what belongs to others below it is readable by its mode and never written."""

import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from world import BUILD

OWNERS = {"root": (0, 0), "roots-disk": (0, 6), "disk": (1234, 6), "own": (1234, 1234)}
SANDBOXES = range(0x30000000, 0x30000000 + 49152 * 65536)
SAMPLE = (0, 110), (990, 1010), (1234, 1234), (65530, 65535)
NEIGHBOUR = 4321
PLANT = os.path.join(BUILD, "tests/escape/plant")
AS_USER = "setpriv --reuid=1000 --regid=1000 --clear-groups"
DISK = 6


@pytest.fixture
def place(world):
    """A directory of our own that everybody may enter, gone afterwards."""
    path = pathlib.Path(world.directory, "mounts")
    path.mkdir()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def make(place, name, owner, mode=0o777):
    path = place / name
    path.mkdir()
    os.chown(path, *owner)
    path.chmod(mode)
    return path


def mounted(paths, modes=""):
    return [word for path in paths for word in ("--mount", f"{path}:/m/{path.name}{modes}")]


def strangers(path):
    """(file, the id that its set-id bit gives to who runs it), for ids that are neither the
    directory's owner or group nor a sandbox's."""
    own = path.stat()
    found = []
    for entry in os.scandir(path):
        st = entry.stat(follow_symlinks=False)
        if st.st_mode & stat.S_ISUID and st.st_uid != own.st_uid and st.st_uid not in SANDBOXES:
            found.append((entry.name, "user", st.st_uid))
        if st.st_mode & stat.S_ISGID and st.st_gid != own.st_gid and st.st_gid not in SANDBOXES:
            found.append((entry.name, "group", st.st_gid))
    return found


def plant(world, paths, ranges, modes="", weaken=""):
    """By root inside and by its user, into each of them, for each id of the ranges."""
    inside = " ".join(f"/m/{path.name}" for path in paths)
    script = "; ".join(f"{who} /plant {first} {last} {inside}" for who in ("", AS_USER)
                       for first, last in ranges)
    done = world.run("sh", "-c", script, user="root", weaken=weaken, timeout=300,
                     options=["--mount", f"{PLANT}:/plant:ro", *mounted(paths, modes)])
    assert not done.returncode, done.stderr
    return sum(map(int, done.stdout.split()))


def check_planted(world, place, ranges):
    paths = [make(place, name, owner) for name, owner in OWNERS.items()]
    ids = sum(last - first + 1 for first, last in ranges)
    assert plant(world, paths, ranges) == 2 * 3 * ids               # all of them in the last one
    for path in paths[:-1]:
        assert not os.listdir(path)
    assert not strangers(paths[-1])
    seen = [entry.stat() for entry in os.scandir(paths[-1])]
    assert sum(st.st_mode & 0o6000 == 0o6000 for st in seen) == len(seen)   # the bits do stay
    assert {(st.st_uid, st.st_gid) for st in seen if st.st_uid == 1234} >= {(1234, 1234)}


def test_no_set_id_program_of_another_is_left(world, place):
    check_planted(world, place, SAMPLE)


@pytest.mark.long
def test_no_set_id_program_of_any_other_is_left(world, place):
    check_planted(world, place, [(0, 65535)])


@pytest.mark.parametrize("owner, weaken", [((1234, 1234), "mount-owner"), ((1234, DISK), "mount-group")])
def test_it_is_seen_where_ids_are_mapped(world, place, owner, weaken):
    path = make(place, "weak", owner)
    plant(world, [path], [(0, 20)], weaken=weaken)
    own = [entry.name for entry in os.scandir(path)
           if entry.stat().st_mode & stat.S_ISGID and entry.stat().st_gid == DISK]
    assert own


def egid_of(path, uid):
    """What whoever runs it out here gets for a group."""
    return subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", path,
                           "-g"], capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("weaken", ["", "mount-owner"])
def test_a_neighbour_gains_no_group_by_it(world, place, weaken):
    path = make(place, "m", (1234, 1234))
    world.run("sh", "-c", f"cp /usr/bin/id /m/m/id; chgrp {DISK} /m/m/id; chmod 2755 /m/m/id",
              user="root", weaken=weaken, options=mounted([path]))
    assert (egid_of(path / "id", NEIGHBOUR) == str(DISK)) == bool(weaken)
    (path / "id").chmod(0o755)
    assert egid_of(path / "id", NEIGHBOUR) == str(NEIGHBOUR)


def test_a_group_of_the_machine_only_where_the_operator_says_so(world, place):
    path = make(place, "m", (1234, DISK), 0o770)
    script = "touch /m/m/root; setpriv --reuid=1000 --regid=1000 --clear-groups touch /m/m/user"
    done = world.run("sh", "-c", script, user="root", options=mounted([path]))
    assert done.returncode and not os.listdir(path)
    world.run("sh", "-c", script, user="root", options=mounted([path], ":group"))
    root, user = (path / "root").stat(), (path / "user").stat()
    assert (user.st_uid, user.st_gid) == (1234, DISK)
    assert root.st_uid in SANDBOXES and root.st_gid in SANDBOXES


# --- what belongs to others ---------------------------------------------------------------------

THIRD = """
for f in third thirds-own mixed root; do
    cat $f > /dev/null 2>&1 && echo read $f
    (echo x >> $f) 2> /dev/null && echo wrote $f
    for act in "chmod 777" "chown 0" "rm -f" "touch" "mv -t sub"; do
        $act $f 2> /dev/null && echo $act $f
    done
done
(echo x > dir/new) 2> /dev/null && echo wrote dir
exit 0
"""


def with_others(place):
    """third and dir: anybody may write; thirds-own and root: nobody else may read."""
    path = make(place, "m", (1234, 1234))
    make(path, "sub", (1234, 1234))
    make(path, "dir", (5555, 5555))
    for name, owner, mode in (("third", (5555, 5555), 0o666), ("thirds-own", (5555, 5555), 0o600),
                              ("mixed", (1234, 5555), 0o666), ("root", (0, 0), 0o600)):
        (path / name).write_text(name)
        os.chown(path / name, *owner)
        (path / name).chmod(mode)
    return path


@pytest.mark.parametrize("user", ["root", "user"])
@pytest.mark.parametrize("modes", ["", ":ro"])
def test_files_of_others_are_read_by_their_mode_and_not_written(world, place, user, modes):
    path = with_others(place)
    before = {entry.name: os.stat(entry.path) for entry in os.scandir(path)}
    done = world.run("sh", "-c", f"cd /m/m; stat -c %U third; {THIRD}", user=user,
                     options=mounted([path], modes))
    assert done.stdout.splitlines() == ["nobody", "read third", "read mixed"]
    after = {entry.name: os.stat(entry.path) for entry in os.scandir(path)}
    for name, st in before.items():
        assert (st.st_mode, st.st_uid, st.st_size) == \
            (after[name].st_mode, after[name].st_uid, after[name].st_size)


def test_what_protects_them_is_the_map(world, place):
    path = with_others(place)
    done = world.run("sh", "-c", f"cd /m/m; {THIRD}", user="root", weaken="mount-owner",
                     options=mounted([path]))
    assert {"read root", "read thirds-own", "wrote root", "chmod 777 third"} <= \
        set(done.stdout.splitlines())


def test_what_root_leaves_the_owner_can_remove(world, place):
    """A file, and an empty directory: the directory around them is the owner's."""
    path = make(place, "m", (1234, 1234), 0o755)
    world.run("sh", "-c", "cd /m/m; touch file; mkdir empty; chmod 6755 file", user="root",
              options=mounted([path]))
    assert sorted(os.listdir(path)) == ["empty", "file"]
    subprocess.run(["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "rm", "-rf",
                    path / "file", path / "empty"], check=True)
    assert not os.listdir(path)


def test_a_file_alone_keeps_its_owner(world, place):
    file = make(place, "m", (1234, 1234), 0o755) / "file"
    file.write_text("one\n")
    os.chown(file, 1234, 1234)
    world.run("sh", "-c", "echo two >> /f; setpriv --reuid=1000 --regid=1000 --clear-groups "
              "sh -c 'echo three >> /f'; chown 33:6 /f; chmod 6755 /f", user="root",
              options=["--mount", f"{file}:/f"])
    assert file.read_text() == "one\ntwo\nthree\n"
    assert file.stat().st_uid in SANDBOXES and file.stat().st_gid in SANDBOXES
