"""Files that are missing, empty, older or damaged while a server starts. Each nemesis here takes the server down, hurts
one of them, looks at what a start makes of it, puts the file back and starts anew: nothing may have been lost."""

import contextlib
import os
import shutil
import subprocess

from helpers.cove import CLEAR
from power import end_boot, falls, rises
from residents import TEMPLATE
from world import World

HOWS = ("missing", "empty", "damaged")


def move(source, target):
    """Within one file system a rename, which keeps everything."""
    if source.lstat().st_dev == target.parent.stat().st_dev:
        source.rename(target)
        return
    subprocess.run(["cp", "-a", source, target], check=True)
    shutil.rmtree(source) if source.is_dir() and not source.is_symlink() else source.unlink()


def like(path, other, data):
    """A file with that in it, owned as another."""
    path.write_bytes(data)
    stat = other.lstat()
    os.chown(path, stat.st_uid, stat.st_gid)
    os.chmod(path, stat.st_mode & 0o7777)


def flipped(data, chance):
    """Some bits are others, one of them in the first bytes."""
    data = bytearray(data)
    for at in [chance.randrange(min(16, len(data))), *(chance.randrange(len(data)) for _ in range(8))]:
        data[at] ^= 1 << chance.randrange(8)
    data[0] ^= 0x80                     # whatever the others have undone
    return bytes(data)


def keep_whole(world):
    """What a test has put back does not go with the power."""
    if world.device:
        World.command("sync", "-f", world.data)


class Spoiled:
    """One file or directory, hurt from the beginning of a block to its end. older: what was in it once, or a copy of then."""

    def __init__(self, world, path, how, chance, older=b""):
        self.world, self.path, self.how, self.chance, self.older = world, path, how, chance, older
        self.aside = world.data.parent / "aside" / path.name
        if path.stat().st_size > 1 << 26:
            self.aside = world.data / f"aside-{path.name}"     # a volume stays where it lies

    def __enter__(self):
        self.aside.parent.mkdir(exist_ok=True)
        folder = self.path.is_dir()
        move(self.path, self.aside)
        if self.how == "empty" and folder:
            self.path.mkdir()
            shutil.copystat(self.aside, self.path)
        elif self.how == "empty":
            like(self.path, self.aside, b"")
        elif self.how == "older" and isinstance(self.older, bytes):
            like(self.path, self.aside, self.older)
        elif self.how == "older":
            World.command("cp", "-a", "--sparse=auto", self.older, self.path)
        elif self.how == "damaged" and (folder or self.aside.stat().st_size > 1 << 26):
            self.path.write_bytes(self.chance.randbytes(1 << 20))
        elif self.how == "damaged":
            like(self.path, self.aside, flipped(self.aside.read_bytes(), self.chance))
        return self

    def __exit__(self, *_):
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)
        move(self.aside, self.path)
        keep_whole(self.world)


def refused(world, harm, word):
    """It does not start on that, and says why: the word is in it."""
    said = world.tried()
    assert said, f"it started without {harm.path} ({harm.how})"
    assert word in said, said[-2000:]


def with_a_start(world, chance, harm, word=None, meanwhile=None):
    """Down, hurt, a start that is refused with that word or has to succeed, whole again, up."""
    world.down(chance.choice(["kill", "end"]))
    with harm:
        if word:
            refused(world, harm, word)
        else:
            said = world.tried()
            assert said is None, said[-2000:]
            world.wait_well(60)
            world.residents.not_ended()
            if meanwhile:
                meanwhile()
            world.down(chance.choice(["kill", "end"]))
    world.start()
    world.wait_well(60)


# ---- the database

class Database:
    """All of its files at once, of which the log may stay behind."""

    def __init__(self, world, how, chance):
        self.world, self.path, self.how, self.chance = world, world.data / "serve/cove.db", how, chance
        self.aside, self.copy = world.data.parent / "aside-db", world.data.parent / "copy.db"
        self.leave_log = how == "missing" and chance.random() < 0.5

    def files(self):
        return [path for path in self.path.parent.iterdir() if path.name in ("cove.db", "cove.db-wal", "cove.db-shm")]

    def __enter__(self):
        shutil.rmtree(self.aside, ignore_errors=True)
        self.aside.mkdir()
        for path in self.files():
            subprocess.run(["cp", "-a", path, self.aside], check=True)
            if not (self.leave_log and path != self.path):
                path.unlink()
        original = self.aside / "cove.db"
        if self.how == "empty":
            like(self.path, original, b"")
        elif self.how == "damaged":
            like(self.path, original, flipped(original.read_bytes(), self.chance))
        elif self.how == "older":
            like(self.path, original, self.copy.read_bytes())
        return self

    def __exit__(self, *_):
        for path in self.files():
            path.unlink()
        for path in self.aside.iterdir():
            subprocess.run(["cp", "-a", path, self.path.parent], check=True)
        shutil.rmtree(self.aside)
        keep_whole(self.world)


def database(how):
    def hurt(world, chance):
        with_a_start(world, chance, Database(world, how, chance), "cove.db")
    hurt.__name__ = f"database {how}"
    return hurt


def backup(world, chance):
    """Those that stand still now may have run when it was made."""
    copy = world.data.parent / "copy.db"
    copy.unlink(missing_ok=True)
    with world.residents.awake() if chance.random() < 0.5 else contextlib.nullcontext():
        done = subprocess.run([world.program(), "backup", copy, "--data", world.data], capture_output=True, text=True,
                              env=CLEAR, cwd=world.folder, timeout=60)
        assert done.returncode == 0, done


def database_older(world, chance):
    """A copy that was made a while ago is put in its place, and then the newest one again. Nobody asks for anything in
    between: that would be lost with the copy, and rightly."""
    if not (world.data.parent / "copy.db").exists():
        backup(world, chance)
        return False
    with world.history.still():
        living = {kept.box.id: set(world.inside(kept.box.id)) for kept in world.history.kept if not kept.end}

        def all_live():
            for ident, pids in living.items():
                assert not pids or pids & set(world.inside(ident)), f"{ident} was killed\n{world.log_of(ident)}"

        with_a_start(world, chance, Database(world, "older", chance), meanwhile=all_live)
        world.residents.check()
        backup(world, chance)


# ---- what the keeper has written

def file_of(what, path_of, how, word=None):
    def hurt(world, chance):
        path = path_of(world, chance)
        older = world.residents.older.get(path)
        if how == "older" and older is None:
            return False                # it was made after the others were copied
        with_a_start(world, chance, Spoiled(world, path, how, chance, older), word)
        world.residents.check()
    hurt.__name__ = f"{what} {how}"
    return hurt


def note(world, chance):
    return world.residents.note(chance.choice([world.residents.paused, world.residents.files]))


def record(world, _chance):
    return world.residents.record(world.residents.running)


def volume(how):
    def hurt(world, chance):
        harm = Spoiled(world, world.data / "volume.img", how, chance)
        falls(world, chance)            # while anything lives, it is mounted, and its name is of no account
        with harm:
            refused(world, harm, "volume")
        rises(world)
    hurt.__name__ = f"volume {how}"
    return hurt


def volume_older(world, chance):
    """A copy that was made a while ago: of what came later the files are not there, and nobody says that it has ended."""
    image, copy = world.data / "volume.img", world.data.parent / "copy.img"
    falls(world, chance)
    had_one = copy.exists()
    if had_one:
        harm = Spoiled(world, image, "older", chance, copy)
        with harm:
            assert (said := world.tried()) is None, said[-2000:]
            world.wait_well(60)
            for box in world.residents.boxes[1:]:       # the first ran
                assert box.state()["state"] != "ended", f"{box.state()}\n{world.log_of(box.id)}"
            end_boot(world)
    World.command("cp", "--sparse=always", image, copy)
    rises(world)
    return had_one


# ---- what a sandbox is made of: it cannot go on without, stays what it is, and goes on when it is there again

def source_of(what, path_of, box_of, hows, harmless):
    """hows: those with which it cannot go on; with the harmless ones it does."""
    def hurt(world, chance):
        how, residents = chance.choice([*hows, *harmless]), world.residents
        harm, older = None, world.data.parent / f"older-{what}"
        if how == "older" and not older.exists():
            World.command("cp", "-a", path_of(world), older)

        def goes_on():
            box = box_of(residents)
            residents.resume_refused(box) if how in hows else residents.goes_on(box)

        harm = Spoiled(world, path_of(world), how, chance, older)
        if chance.random() < 0.5:       # the server runs, or starts meanwhile
            with harm:
                goes_on()
                residents.not_ended()
        else:
            with_a_start(world, chance, harm, meanwhile=goes_on)
        residents.check()
    hurt.__name__ = f"{what} spoiled"
    return hurt


DATABASE = [database(how) for how in HOWS] + [database_older]
KEPT = [file_of("note", note, how) for how in (*HOWS, "older")]
KEPT += [file_of("box file", record, how) for how in (*HOWS, "older")]
KEPT += [file_of("identity", lambda world, _: world.data / "id", how, how != "missing" and "id is damaged") for how in HOWS]
VOLUME = [volume(how) for how in HOWS] + [volume_older]
SOURCES = [source_of("template", lambda world: world.data / "templates" / TEMPLATE, lambda residents: residents.templated, HOWS,
                     ("older",)),
           source_of("mount", lambda world: world.residents.shared, lambda residents: residents.mounted, ("missing", "damaged"),
                     ("empty", "older"))]
SPOILS = DATABASE + KEPT + VOLUME + SOURCES
