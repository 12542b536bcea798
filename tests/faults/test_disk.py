"""Disks that are full, and a database that is damaged, are states with a name: what runs goes on, what cannot be
done is refused with the reason, and with room again everything is as before."""

import os
import subprocess
import time

import pytest
import tally
from disk import Disk
from helpers.cove import CLEAR
from history import History
from world import TROUBLE, wait_for

SPACE = ("no space", "No space left", "space is left")


@pytest.fixture
def disk(folder):
    made = Disk(folder / "image", folder / "data", 900 << 20, 12000)
    yield made
    made.close()


def check_refused(world):
    """Whatever a create needs and cannot have is said."""
    reply = world.call("POST", "/v1/sandboxes", {"timeout": 60, "network": "none"})
    assert reply.status in (500, 503, 507), reply
    assert any(words in reply.message for words in SPACE), reply.message
    return reply.message


@pytest.mark.parametrize("fill", ["fill", "fill_inodes"])
def test_a_full_data_directory_is_told_and_ends_nothing(disk, start, fill):
    world = start("--set", "pool.size=0")
    boxes = [world.box() for _ in range(3)]
    for number, box in enumerate(boxes):
        box.write("file", b"value %d" % number)
    getattr(disk, fill)()
    tally.injected(f"{fill.replace('_', ' ')} of the data directory")
    if fill == "fill":                  # a log that exists needs no inode
        for _ in range(200):            # what the database still has room for may go on
            reply = world.call("POST", "/v1/sandboxes", {"timeout": 60, "network": "none"})
            if reply.status != 201:
                break
        print(check_refused(world))
    for number, box in enumerate(boxes):
        assert box.read("file") == b"value %d" % number
        assert box.run("echo $((6 * 7))") == "42\n"
    victim = boxes.pop()
    assert victim.end() in (204, 500, 507)      # it ends all the same
    wait_for(lambda: victim.id not in world.listed(), "it does not end", 10)
    disk.free()
    wait_for(lambda: victim.state().get("reason"), "its end is not written", 90, 0.2)
    fresh = world.box()
    assert fresh.run("echo new") == "new\n"
    for number, box in enumerate(boxes):
        assert box.read("file") == b"value %d" % number
    world.nothing_left_of(victim.id)


@pytest.mark.parametrize("fill", ["fill", "fill_inodes"])
@pytest.mark.parametrize("victims", [("server",), ("server", "keeper")], ids="+".join)
def test_a_crash_on_a_full_disk_loses_nothing(disk, start, fill, victims):
    world = start("--set", "pool.size=1")
    box = world.box()
    box.write("file", b"kept")
    getattr(disk, fill)()
    tally.injected(f"{fill.replace('_', ' ')} of the data directory")
    world.signal(9, *victims)
    tally.injected("kill " + "+".join(victims))
    time.sleep(1)                       # it starts, or says why it cannot and tries again
    assert world.running(), world.told()
    disk.free()
    world.wait_well(60)
    assert box.read("file") == b"kept"
    assert world.box().run("echo new") == "new\n"


def test_a_disk_that_fills_and_empties_under_work_loses_nothing(disk, start):
    world, chance = start("--set", "pool.size=1"), tally.chance("disk")
    with History(world, "disk") as history:
        for _ in range(8):
            time.sleep(chance.uniform(0.1, 0.6))
            disk.fill()
            time.sleep(chance.uniform(0.1, 0.6))
            disk.free()
            tally.injected("fill of the data directory")
    print(f"{history.steps()} steps, {len(history.kept)} sandboxes, refused: {dict(history.refused)}")


def test_a_full_volume_is_told_to_who_fills_it(start):
    """All sandboxes share the volume; one may fill it when its own limit lets it."""
    world = start("--set", "pool.size=0", "--set", f"volume.cap-bytes={256 << 20}")
    hog, other = world.box(), world.box()
    other.write("file", b"kept")
    said = hog.run("dd if=/dev/zero of=/home/user/big bs=1M count=1000 2>&1 | tail -c 300; true")
    tally.injected("fill of the volume")
    assert "No space left" in said or "quota" in said.lower(), said
    assert other.read("file") == b"kept"
    assert other.run("echo here") == "here\n"
    reply = world.call("POST", "/v1/sandboxes", {"timeout": 60, "network": "none"})
    assert reply.status in (201, 500, 503, 507) and (reply.status == 201 or reply.message), reply
    print(reply.status, reply.json.get("message"))
    assert hog.end() == 204
    fresh = wait_for(lambda: new_box(world), "no new one although there is room", 20, 0.2)
    assert fresh.run("echo new") == "new\n"


def new_box(world):
    try:
        box = world.box()
        box.write("file", b"x" * 100000)
        return box
    except TROUBLE:
        return None


# ---- the database

def cove(world, *words, status=0):
    done = subprocess.run([world.program(), *words, "--data", world.data], capture_output=True, text=True, env=CLEAR,
                          cwd=world.folder, timeout=60)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def test_a_damaged_database_is_refused_and_a_backup_put_back(start):
    world = start("--set", "pool.size=0")
    box = world.box()
    box.write("file", b"kept")
    key = world.user("ann")
    assert "checked" in cove(world, "backup", world.folder / "copy")
    assert "exists" in cove(world, "backup", world.folder / "copy", status=1)
    assert f"pid {world.process.pid}" in cove(world, "restore", world.folder / "copy", status=1)
    late = world.box()
    world.stop()                        # its log is in the file now
    database = world.data / "serve/cove.db"
    with open(database, "r+b") as file:
        file.seek(2048)
        file.write(os.urandom(database.stat().st_size - 2048))
    tally.injected("damaged database")
    done = subprocess.run([world.program(), "serve", "--data", world.data, "--run-dir", world.run_dir, "--listen",
                           "127.0.0.1:0"], capture_output=True, text=True, env=CLEAR, timeout=60)
    assert done.returncode == 1, done
    assert "cove.db" in done.stderr and "damaged" in done.stderr and "cove restore" in done.stderr, done.stderr
    said = cove(world, "restore", world.folder / "copy")
    assert "replaced-" in said, said
    world.start()
    assert box.read("file") == b"kept"              # it lived on all the time
    assert world.call("GET", "/v1/sandboxes", key=key).status == 200
    assert late.id not in world.listed()            # the copy does not know it
    assert [one["id"] for one in world.ok("GET", "/v1/orphans")["orphans"]] == [late.id]
    world.ok("DELETE", f"/v1/orphans/{late.id}", status=204)
    world.nothing_left_of(late.id)
    assert len(list((world.data / "serve").glob("cove.db.replaced-*"))) >= 1


def test_what_is_no_backup_is_refused(start):
    world = start("--set", "pool.size=0")
    world.stop()
    wrong = world.folder / "wrong"
    wrong.write_bytes(b"words " * 1000)
    assert "no database" in cove(world, "restore", wrong, status=1)
    assert "No such file" in cove(world, "restore", world.folder / "none", status=1)
    world.start()
    assert world.answers()
