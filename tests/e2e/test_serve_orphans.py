"""What becomes of sandboxes when the server's database is lost, or an older one takes its place: none
is ended because nobody knows it. It is set aside, listed, adopted by an admin or ended."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time

import pytest

from helpers import boxfile
from helpers.cove import CLEAR
from helpers.guest import SLOWER
from helpers.machine import cgroups_named
from helpers.proc import wait_until
from helpers.serve import Serve

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to limit, map and mount"),
              pytest.mark.timeout(180)]

FORMER = b"00000000-0000-0000-0000-000000000000"
COUNT = "nohup sh -c 'i=0; while :; do i=$((i+1)); echo $i > /home/user/next; mv /home/user/next /home/user/count; sleep 0.05; done' >/dev/null 2>&1 &"


class World(Serve):
    """A server, and the commands that speak to it and to its files."""

    def cove(self, *words, status=0):
        done = subprocess.run([self.folder / "cove", *words, "--data", self.data], capture_output=True, text=True,
                              env=CLEAR, cwd=self.folder, timeout=60 * SLOWER)
        assert done.returncode == status, done
        return done.stdout + done.stderr

    def sandbox(self, text, key=..., **body):
        """One that has a file, and a process that counts."""
        made = self.create(timeout=900, key=key, **body)
        self.run(made, f"echo {text} > /home/user/file; {COUNT}", key=key)
        return made

    def run(self, box, script, key=...):
        """What a command inside prints."""
        key = self.key if key is ... else key
        done = subprocess.run([self.folder / "cove", "exec", box["id"], "--", "sh", "-c", script], capture_output=True,
                              text=True, env=CLEAR | {"COVE_URL": self.url, "COVE_API_KEY": key}, cwd=self.folder,
                              timeout=30 * SLOWER)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def counts_on(self, box, key=...):
        """Its process is the one from before, and goes on."""
        before = int(self.run(box, "cat /home/user/count", key=key))
        wait_until(lambda: int(self.run(box, "cat /home/user/count", key=key)) > before,
                   "it stands still", 10 * SLOWER, 0.05)
        return before

    def orphans(self):
        return {one["id"]: one for one in self.ok("GET", "/v1/orphans")["orphans"]}

    def adopt(self, id, owner, status=200, **body):
        return self.ok("POST", f"/v1/orphans/{id}", {"owner": owner} | body, status=status)

    def state(self, id, **more):
        return self.ok("GET", f"/v1/sandboxes/{id}", **more)["state"]

    def refused(self, *options):
        """The line in which it says why it does not start, at once."""
        began = time.monotonic()
        done = subprocess.run([self.folder / "cove", "serve", "--data", self.data, "--run-dir", self.run_dir,
                               "--listen", "127.0.0.1:0", *options], capture_output=True, text=True, env=CLEAR,
                              cwd=self.folder, timeout=60)
        assert done.returncode == 1 and done.stdout == "", done
        assert time.monotonic() - began < 5 * SLOWER
        line, = done.stderr.splitlines()
        return line

    def lose(self):
        for file in (self.data / "serve").glob("cove.db*"):
            file.unlink()

    def finish(self):
        if not self.running():
            self.start()
        for id in self.orphans():
            self.ok("DELETE", f"/v1/orphans/{id}", status=204)
        self.end_all()
        self.close()


@pytest.fixture(scope="module")
def world(workspace):
    path = pathlib.Path(tempfile.mkdtemp(dir=workspace, prefix="orphans-"))
    made = World(path, "--set", "pool.size=1")
    yield made
    with contextlib.closing(made.process.stdout):
        made.finish()
    shutil.rmtree(path)


@pytest.fixture
def ann(world):
    if not world.running():
        world.start()
    return world.user("ann")


def test_a_lost_database_is_no_first_start(world, ann):
    runs, paused = world.sandbox("runs", key=ann), world.sandbox("paused", key=ann)
    world.ok("POST", f"/v1/sandboxes/{paused['id']}/pause")
    copy = world.folder / "copy"
    world.cove("backup", copy)
    world.stop()
    world.lose()
    for _ in range(2):
        said = world.refused()
        assert "cove.db is missing" in said and "cove restore FILE" in said and "cove serve --new" in said, said
        assert not (world.data / "serve/cove.db").exists()
        (world.data / "serve/cove.db").write_bytes(b"")     # nor is an empty one
        assert "cove restore FILE" in world.refused()
        (world.data / "serve/cove.db").unlink()
        (world.data / "admin.key").rename(world.folder / "admin.key")
        assert "there are paused sandboxes" in world.refused()
        (world.folder / "admin.key").rename(world.data / "admin.key")
    assert "what was there" not in world.cove("restore", copy)
    assert "--new" in world.refused("--new")
    world.start()
    assert world.orphans() == {}
    assert (world.state(runs["id"]), world.state(paused["id"])) == ("running", "paused")
    world.counts_on(runs, key=ann)
    world.ok("POST", f"/v1/sandboxes/{paused['id']}/resume", {}, key=ann)
    world.counts_on(paused, key=ann)
    assert world.run(paused, "cat /home/user/file", key=ann) == "paused"
    world.end_all()


def test_what_an_older_backup_does_not_know_is_set_aside_and_adopted(world, ann):
    world.user("bob")
    copy = world.folder / "older"
    world.cove("backup", copy)
    runs, paused = world.sandbox("runs", key=ann, public=False), world.sandbox("paused", key=ann)
    asleep, ended = world.sandbox("asleep", key=ann), world.create(timeout=900)
    world.ok("POST", f"/v1/sandboxes/{paused['id']}/pause")
    world.ok("POST", f"/v1/sandboxes/{asleep['id']}/pause", {"memory": False})
    world.stop()
    assert "cove orphans" in world.cove("restore", copy)
    world.start()
    found = world.orphans()
    assert {id: (one["state"], one["owner"], one["template"]) for id, one in found.items()} == {
        runs["id"]: ("running", "ann", "base"), paused["id"]: ("paused", "ann", "base"),
        asleep["id"]: ("files-only", "ann", "base"), ended["id"]: ("running", "admin", "base")}
    assert all("newer than the backup" in one["reason"] and one["kept_until"] for one in found.values())
    assert "secret" not in json.dumps(found) and runs["token"] not in json.dumps(found)
    assert 'cove_orphans 4' in world.call("GET", "/metrics").body.decode()
    assert world.call("GET", f"/v1/sandboxes/{runs['id']}", key=ann).status == 404  # served to nobody
    assert world.call("GET", "/v1/orphans", key=ann).status == 403
    assert world.call("GET", "/health", key=None, headers={
        "E2b-Sandbox-Id": runs["id"], "E2b-Sandbox-Port": "49983"}).status in (404, 502)
    assert all(id in world.cove("orphans") for id in found)
    assert "files-only" in world.cove("orphans", "show", asleep["id"])
    # each with what it had
    taken = world.adopt(runs["id"], "ann")
    assert taken["state"] == "running" and taken["uuid"] == runs["uuid"] and not taken["public"]
    assert taken["token"] != runs["token"] and taken["ends"]
    assert world.counts_on(runs, key=ann) > 1
    assert world.run(runs, "cat /home/user/file", key=ann) == "runs"
    assert "bob" in world.cove("orphans", "adopt", paused["id"], "--owner", "bob")   # another one
    assert world.state(paused["id"]) == "paused"
    world.ok("POST", f"/v1/sandboxes/{paused['id']}/resume", {})
    assert world.counts_on(paused) > 1
    assert world.ok("GET", f"/v1/sandboxes/{paused['id']}")["token"] != paused["token"]
    assert world.adopt(asleep["id"], "ann")["state"] == "paused"
    world.ok("POST", f"/v1/sandboxes/{asleep['id']}/resume", {}, key=ann)
    assert world.run(asleep, "cat /home/user/file", key=ann) == "asleep"
    # whose old token opens nothing any more
    for box in runs, paused:
        reply = world.call("GET", "/envs", key=None, headers={
            "E2b-Sandbox-Id": box["id"], "E2b-Sandbox-Port": "49983", "X-Access-Token": box["token"]})
        assert reply.status == 401, reply
    world.cove("orphans", "end", ended["id"])
    assert world.orphans() == {}
    world.stop()
    world.start()
    assert world.orphans() == {}
    assert {world.state(box["id"]) for box in (runs, paused, asleep)} == {"running"}
    world.end_all()


def exported(file):
    """What an archive has of a home, and what was removed."""
    with tarfile.open(file) as tar:
        names = {one.name.removeprefix("./"): one for one in tar.getmembers()}
        text = tar.extractfile(names["home/user/file"]).read().decode()
        removed = tar.extractfile(names[".cove-removed"]).read().decode() if ".cove-removed" in names else ""
    return text, removed.splitlines()


def test_the_files_of_one_can_be_had_as_an_archive(world, ann):
    """With its server and without, whether it runs or not, and nothing happens to it."""
    copy, file = world.folder / "before-export", world.folder / "files.tar"
    world.cove("backup", copy)
    runs, asleep = world.sandbox("runs", key=ann), world.sandbox("asleep", key=ann)
    world.run(asleep, "sudo rm /etc/hostname", key=ann)
    world.ok("POST", f"/v1/sandboxes/{asleep['id']}/pause", {"memory": False})
    world.stop()
    world.cove("restore", copy)
    world.start()
    assert world.orphans().keys() == {runs["id"], asleep["id"]}
    said = world.cove("orphans", "export", runs["id"], file)
    assert str(file) in said and "entries" in said
    assert exported(file)[0] == "runs\n"
    assert "exists" in world.cove("orphans", "export", runs["id"], file, status=1)
    assert exported(file)[0] == "runs\n"
    file.unlink()
    assert "no files of a sandbox" in world.cove("orphans", "export", "i0000000000000000none", file, status=1)
    assert not file.exists()
    world.stop()
    said = json.loads(world.cove("orphans", "export", asleep["id"], file, "--json"))
    assert (said["file"], said["left_out"]) == (str(file), 0) and said["entries"] > 1 and said["removed"] >= 1
    assert exported(file)[0] == "asleep\n" and "etc/hostname" in exported(file)[1]
    assert file.stat().st_mode & 0o777 == 0o600
    world.start()
    world.counts_on({"id": world.adopt(runs["id"], "ann")["id"]}, key=ann)
    assert world.adopt(asleep["id"], "ann")["state"] == "paused"
    world.end_all()


def test_what_ran_in_an_older_backup_and_was_paused_since_is_paused(world, ann):
    """That it ran is what the backup says. Its note says that somebody wanted its files to stay."""
    asleep, frozen = world.sandbox("asleep", key=ann), world.sandbox("frozen", key=ann)
    copy = world.folder / "while-both-ran"
    world.cove("backup", copy)
    world.ok("POST", f"/v1/sandboxes/{asleep['id']}/pause", {"memory": False})
    world.ok("POST", f"/v1/sandboxes/{frozen['id']}/pause")
    world.stop()
    world.cove("restore", copy)
    world.start()
    assert world.orphans() == {}
    assert [world.state(box["id"]) for box in (asleep, frozen)] == ["paused", "running"]
    events = world.ok("GET", f"/v1/sandboxes/{asleep['id']}/events", key=ann)["events"]
    assert events[-1]["kind"] == "paused" and "found paused" in events[-1]["text"], events
    world.ok("POST", f"/v1/sandboxes/{asleep['id']}/resume", {}, key=ann)
    assert world.run(asleep, "cat /home/user/file", key=ann) == "asleep"
    world.counts_on(frozen, key=ann)
    world.end_all()


def test_a_new_database_sets_aside_what_is_there(world, ann):
    runs, paused = world.sandbox("runs", key=ann), world.sandbox("paused", key=ann)
    world.ok("POST", f"/v1/sandboxes/{paused['id']}/pause")
    world.stop()
    world.lose()
    world.options += ["--new"]
    try:
        world.start()
    finally:
        world.options.remove("--new")
    found = world.orphans()
    assert found.keys() == {runs["id"], paused["id"]}
    assert all("another database" in one["reason"] for one in found.values())
    assert world.adopt(runs["id"], "nobody", status=400)["message"].endswith("'nobody'")
    again = world.user("ann")
    assert world.adopt(runs["id"], "ann", restart=True)["state"] == "paused"
    world.ok("POST", f"/v1/sandboxes/{runs['id']}/resume", {}, key=again)
    assert world.run(runs, "cat /home/user/file; a=$(cat /home/user/count); sleep 0.2; "
                           '[ "$a" = "$(cat /home/user/count)" ] && echo still', key=again) == "runs\nstill"
    world.stop()
    world.options += ["--set", "control.orphan-retention-s=1"]
    try:
        world.start()
        wait_until(lambda: not world.orphans(), "it stays", 10 * SLOWER, 0.1)
        assert "nobody adopted it" in world.told() or "time of a machine" in world.told()
        assert world.state(runs["id"]) == "running"
        assert not (world.data / "paused" / paused["id"]).exists()
        world.end_all()
        world.stop()
    finally:
        del world.options[-2:]
    assert not list((world.data / "paused").iterdir())


# ---- without records and notes

def empty(folder):
    for file in folder.iterdir():
        file.unlink()


def processes_of(id):
    for cgroup in cgroups_named(f"box-{id}"):
        with contextlib.suppress(OSError):
            yield from map(int, (cgroup / "cgroup.procs").read_text().split())


def three(world, key):
    """One that runs, one that stands still, and one of which there are files only."""
    boxes = [world.sandbox(name, key=key) for name in ("runs", "frozen", "asleep")]
    world.ok("POST", f"/v1/sandboxes/{boxes[1]['id']}/pause")
    world.ok("POST", f"/v1/sandboxes/{boxes[2]['id']}/pause", {"memory": False})
    return boxes


def test_what_no_record_and_no_note_names_is_found_by_its_files(world, ann):
    runs, frozen, asleep = boxes = three(world, ann)
    world.stop()
    empty(world.place / "boxes")
    empty(world.data / "paused")
    world.start()
    assert world.orphans() == {}
    assert [world.state(box["id"]) for box in boxes] == ["running", "paused", "paused"]
    world.counts_on(runs, key=ann)
    for box in frozen, asleep:
        world.ok("POST", f"/v1/sandboxes/{box['id']}/resume", {}, key=ann)
    world.counts_on(frozen, key=ann)
    assert world.run(asleep, "cat /home/user/file", key=ann) == "asleep"
    world.end_all()
    wait_until(lambda: not any((world.data / f"volume/layers/box-{box['id']}").exists() for box in boxes),
               "their files stay", 10 * SLOWER, 0.1)


def test_records_that_are_gone_end_no_process_of_the_paused(world, ann):
    """Their notes are there, and so are their frozen processes."""
    runs, frozen, asleep = boxes = three(world, ann)
    world.stop()
    before = [*processes_of(frozen["id"])]
    empty(world.place / "boxes")
    world.start()
    assert [world.state(box["id"]) for box in boxes] == ["running", "paused", "paused"]
    for box in frozen, asleep:
        world.ok("POST", f"/v1/sandboxes/{box['id']}/resume", {}, key=ann)
    assert [*processes_of(frozen["id"])][0] == before[0]
    world.counts_on(runs, key=ann)
    world.counts_on(frozen, key=ann)
    assert world.run(asleep, "cat /home/user/file", key=ann) == "asleep"
    world.end_all()


def test_one_that_cannot_be_taken_over_without_its_record_gives_its_files(world, ann):
    """Its processes would use them beside those that it is woken with."""
    frozen = three(world, ann)[1]
    world.stop()
    before = [*processes_of(frozen["id"])]
    (world.place / "boxes" / frozen["id"]).unlink()
    os.removexattr(world.data / f"volume/layers/box-{frozen['id']}", "trusted.cove.record")
    world.start()
    assert world.state(frozen["id"]) == "paused" and before
    assert not set(before) & set(processes_of(frozen["id"]))
    world.ok("POST", f"/v1/sandboxes/{frozen['id']}/resume", {}, key=ann)
    assert world.run(frozen, "cat /home/user/file", key=ann) == "frozen"
    world.end_all()


def test_an_emptied_run_directory_after_a_restart_of_the_machine(world, ann):
    """Nothing of a tmpfs is left, nor is the database: all files can be had again."""
    runs, frozen, asleep = boxes = three(world, ann)
    copy = world.folder / "with-all"
    copy.unlink(missing_ok=True)
    world.cove("backup", copy)
    world.stop()
    for box in boxes:
        for pid in processes_of(box["id"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not [*processes_of(box["id"])], "it lives", 10 * SLOWER)
    world.lose()
    shutil.rmtree(world.run_dir)
    empty(world.data / "paused")
    (world.data / "boot").write_bytes(FORMER + (world.data / "boot").read_bytes()[len(FORMER):])
    world.options.append("--new")
    try:
        world.start()
    finally:
        world.options.remove("--new")
    found = world.orphans()
    assert found.keys() == {box["id"] for box in boxes}
    assert {one["state"] for one in found.values()} == {"files-only"}
    key = world.user("ann")
    for box, text in zip(boxes[:2], ("runs", "frozen")):
        assert world.adopt(box["id"], "ann")["state"] == "paused"
        world.ok("POST", f"/v1/sandboxes/{box['id']}/resume", {}, key=key)
        assert world.run(box, "cat /home/user/file", key=key) == text
    world.end_all()
    world.ok("DELETE", f"/v1/orphans/{asleep['id']}", status=204)
    wait_until(lambda: not (world.data / f"volume/layers/box-{asleep['id']}").exists(), "its files stay",
               10 * SLOWER, 0.1)


def test_with_its_record_one_that_ran_has_ended_with_the_machine(world, ann):
    runs, frozen, asleep = boxes = three(world, ann)
    again = world.create(timeout=900, restart="always", key=ann)
    world.stop()
    for box in [*boxes, again]:
        for pid in processes_of(box["id"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not [*processes_of(box["id"])], "it lives", 10 * SLOWER)
    shutil.rmtree(world.run_dir)
    (world.data / "boot").write_bytes(FORMER + (world.data / "boot").read_bytes()[len(FORMER):])
    empty(world.data / "paused")
    world.start()
    assert world.orphans() == {}
    assert [world.state(box["id"]) for box in boxes] == ["ended", "paused", "paused"]
    assert world.state(again["id"]) == "ended"
    assert "only its files were found" in world.ok("GET", f"/v1/sandboxes/{runs['id']}")["reason"]
    for box, text in (frozen, "frozen"), (asleep, "asleep"):
        world.ok("POST", f"/v1/sandboxes/{box['id']}/resume", {}, key=ann)
        assert world.run(box, "cat /home/user/file", key=ann) == text
    world.end_all()


def test_files_that_say_nothing_are_listed(world, ann):
    """As a former release left them."""
    runs, frozen, asleep = three(world, ann)
    copy = world.folder / "before-all"
    copy.unlink(missing_ok=True)
    world.cove("backup", copy)
    world.stop()
    empty(world.data / "paused")
    empty(world.place / "boxes")
    for layer in (world.data / "volume/layers").glob("box-*"):
        os.removexattr(layer, "trusted.cove.record")
    world.start()
    assert [world.state(box["id"]) for box in (runs, frozen, asleep)] == ["running", "paused", "paused"]
    shown = [world.ok("GET", f"/v1/sandboxes/{box['id']}") for box in (runs, frozen, asleep)]
    assert all("do not say what it was" in one["unreachable"] for one in shown), shown
    assert [*processes_of(runs["id"])]              # nothing was ended
    for box in runs, frozen, asleep:
        world.ok("DELETE", f"/v1/sandboxes/{box['id']}", status=204)
        wait_until(lambda: not (world.data / f"volume/layers/box-{box['id']}").exists(), "its files stay",
                   10 * SLOWER, 0.1)
        wait_until(lambda box=box: not [*processes_of(box["id"])], "its processes stay", 10 * SLOWER, 0.1)


def test_an_emptied_run_directory_ends_nothing_that_lives(world, ann):
    """Its guest's door is gone with the directory; it goes on all the same, and its files can be had."""
    runs = world.sandbox("runs", key=ann)
    world.stop()
    before = [*processes_of(runs["id"])]
    shutil.rmtree(world.run_dir)
    world.start()
    assert world.orphans() == {}
    assert world.state(runs["id"]) == "running"
    assert [*processes_of(runs["id"])][:2] == before[:2]
    world.ok("POST", f"/v1/sandboxes/{runs['id']}/pause", {"memory": False}, key=ann)
    world.ok("POST", f"/v1/sandboxes/{runs['id']}/resume", {}, key=ann)
    assert world.run(runs, "cat /home/user/file", key=ann) == "runs"
    world.end_all()


ORDER, MARK = 4, 7                      # tags of a record, and of its order


def without_mark(path):
    schema, kind, items = boxfile.read(path)
    boxfile.write(path, schema, kind, [
        (tag, value if tag != ORDER else
         b"".join(boxfile.field(*item) for item in boxfile.fields(value) if item[0] != MARK))
        for tag, value in items])


def test_one_of_a_former_release_gives_its_files(world, ann):
    """Nobody knows the token of its guest: taking it over costs its processes, which has to be said."""
    copy = world.folder / "before-former"
    copy.unlink(missing_ok=True)
    world.cove("backup", copy)
    runs = world.sandbox("runs", key=ann)
    world.stop()
    without_mark(world.place / "boxes" / runs["id"])
    world.cove("restore", copy)
    world.start()
    one = world.orphans()[runs["id"]]
    assert (one["state"], one.get("owner")) == ("running", None) and "former release" in one["reason"]
    said = world.cove("orphans", "adopt", runs["id"], "--owner", "ann", status=1)
    assert "--restart" in said and "401" in said, said
    assert world.orphans().keys() == {runs["id"]} and [*processes_of(runs["id"])]
    said = world.cove("orphans", "adopt", runs["id"], "--owner", "ann", "--restart")
    assert "processes have ended" in said, said
    world.ok("POST", f"/v1/sandboxes/{runs['id']}/resume", {}, key=ann)
    assert world.run(runs, "cat /home/user/file", key=ann) == "runs"
    assert not world.ok("GET", f"/v1/sandboxes/{runs['id']}")["public"]     # what it was nobody knows
    world.end_all()


def test_one_that_is_paused_is_told_whose_it_is_on_disk(world, ann):
    """A former release, or a backup, did not say: the note is written anew, and the layer says it, too."""
    boxes = three(world, ann)[1:]
    world.stop()
    notes = [world.data / "paused" / box["id"] for box in boxes]
    for path in [*notes, world.place / "boxes" / boxes[0]["id"]]:
        without_mark(path)

    def marked(note):
        return MARK in dict(boxfile.fields(dict(boxfile.read(note)[2])[ORDER]))

    assert not any(map(marked, notes))
    world.start()
    wait_until(lambda: all(map(marked, notes)), "they are marked", 10 * SLOWER, 0.1)
    assert [world.state(box["id"]) for box in boxes] == ["paused", "paused"]
    for box in boxes:
        world.ok("POST", f"/v1/sandboxes/{box['id']}/resume", {}, key=ann)
        assert world.run(box, "cat /home/user/file", key=ann) != ""
    assert not any(note.exists() for note in notes)
    assert not [*(world.data / "paused").iterdir()]
    world.end_all()


def test_a_database_that_goes_while_it_is_served_is_not_made_anew(world, ann):
    runs = world.sandbox("runs", key=ann)
    copy = world.folder / "while-served"
    copy.unlink(missing_ok=True)
    world.cove("backup", copy)
    world.lose()
    os.kill(world.worker(), signal.SIGKILL)
    wait_until(lambda: "cove.db is gone" in world.told(), "it says nothing", 10 * SLOWER, 0.05)
    assert not (world.data / "serve/cove.db").exists()
    assert [*processes_of(runs["id"])]
    world.stop()
    world.cove("restore", copy)
    world.start()
    world.counts_on(runs, key=ann)
    world.end_all()


def test_a_first_start_that_was_interrupted_may_be_repeated(world, tmp_path):
    def said():
        done = subprocess.run([world.folder / "cove", "serve", "--data", tmp_path / "data", "--run-dir", tmp_path / "run",
                               "--listen", "127.0.0.1:99999"], capture_output=True, text=True, env=CLEAR, timeout=60)
        assert done.returncode == 1, done
        return done.stderr

    assert "--listen" in said()
    (tmp_path / "data/admin.key").write_text("e2b_0\n")         # it got so far
    assert "--listen" in said()
    (tmp_path / "data/serve/new").unlink()                      # which only a first start leaves
    assert "cove restore FILE" in said()
