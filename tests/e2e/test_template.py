"""cove template: adding, listing, removing; locks, crashes, and a root file system that runs."""

import fcntl
import glob
import json
import os
import pty
import shutil
import signal
import subprocess

import pytest

from helpers import proc
from helpers.archive import COVE, Registry, Tar, bomb, raw_header

pytestmark = pytest.mark.core


@pytest.fixture
def registry(folder):
    return Registry(folder, os.geteuid() != 0)


@pytest.fixture
def archive(folder):
    return Tar().dir("bin").add("bin/sh", data=b"#!", mode=0o755).write(
        os.path.join(folder, "archive.tar"))


def listed(registry):
    done = registry.run("list", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_host_is_listed_before_anything_was_added(registry):
    assert listed(registry) == [{"name": "host", "kind": "host"}]
    assert os.listdir(registry.data) == []


def test_an_archive_is_added_listed_and_removed(registry, archive):
    registry.add(archive, "--memory", "1G", "--cpus", "1.5", "--timeout", "2h", "--user", "ann",
                 "--workdir", "/srv")
    _, one = listed(registry)
    assert one["source"] == archive
    assert one["limits"] == {"memory_bytes": 1 << 30, "cpu_milli": 1500, "lifetime_ms": 7_200_000}
    assert (one["user"], one["workdir"], one["entries"], one["bytes"]) == ("ann", "/srv", 2, 2)
    digest = subprocess.run(["sha256sum", archive], capture_output=True, text=True).stdout.split()[0]
    assert one["sha256"] == digest
    assert "archive" in registry.run("list").stdout
    assert registry.run("remove", "t").returncode == 0
    assert len(listed(registry)) == 1
    assert os.listdir(os.path.join(registry.data, "templates")) == []


def test_a_directory_is_used_where_it_is(registry, folder):
    root = os.path.join(folder, "root")
    os.makedirs(os.path.join(root, "usr/bin"))
    done = registry.run("add", "t", root)
    assert done.returncode == 0 and "warning" in done.stderr and "/bin/sh" in done.stderr
    assert listed(registry)[1]["kind"] == "directory"
    assert registry.run("remove", "t").returncode == 0
    assert os.path.isdir(root)


@pytest.mark.parametrize("name, source, said", [
    ("host", "ARCHIVE", "taken by this machine's own template"),
    ("../x", "ARCHIVE", "begin with a letter or digit"),
    ("t", "/", "no template"),
    ("t", "/dev/null", "not a directory"),
    ("t", "/nowhere/at/all", "No such file"),
])
def test_what_cannot_be_added_says_why(registry, archive, name, source, said):
    done = registry.run("add", name, source.replace("ARCHIVE", archive))
    assert done.returncode == 1 and said in done.stderr


def test_a_name_is_taken_once(registry, archive):
    registry.add(archive)
    done = registry.run("add", "t", archive)
    assert done.returncode == 1 and "exists" in done.stderr


def test_wrong_bounds_are_the_command_lines_fault(registry, archive):
    for bound in ("unpack.entries=0", "unpack.nothing=1", "x"):
        done = registry.run("add", "t", archive, "--set", bound)
        assert done.returncode == 2 and "setting" in done.stderr


def test_a_template_in_use_stays(registry, archive):
    registry.add(archive)
    holder = os.open(os.path.join(registry.data, "templates", "t"), os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_SH)
    done = registry.run("remove", "t")
    assert done.returncode == 1 and "in use" in done.stderr
    os.close(holder)
    assert registry.run("remove", "t").returncode == 0


def test_two_at_once_give_one_template(registry, folder):
    big = Tar().add("file", data=os.urandom(8 << 20)).write(os.path.join(folder, "big.tar"))
    both = [subprocess.Popen(**registry.command("add", "t", big), stderr=subprocess.PIPE, text=True)
            for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    assert "exists" in "".join(said) or "meanwhile" in "".join(said)
    assert os.listdir(os.path.join(registry.data, "templates")) == ["t"]


def test_a_killed_add_leaves_no_process_and_its_files_go_with_the_next(registry, folder, archive):
    big = bomb(os.path.join(folder, "big.tar"), raw_header(b"zeros", size=4 << 30), bytes(1 << 24), 256)
    process = subprocess.Popen(**registry.command("add", "big", big))
    children = proc.wait_until(lambda: proc.children(process.pid), "a child that unpacks")
    templates = os.path.join(registry.data, "templates")
    proc.wait_until(lambda: glob.glob(f"{templates}/.tmp.*/rootfs/zeros"), "a first file")
    process.send_signal(signal.SIGKILL)
    process.wait()
    for child in children:
        proc.wait_until(lambda: not proc.alive(child), "the end of the child")
    assert [name[:9] for name in os.listdir(templates)] == [".tmp.big."]
    assert len(listed(registry)) == 1
    registry.add(archive)
    assert os.listdir(templates) == ["t"]


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def test_the_unpacker_sees_one_directory_and_holds_nothing(registry, folder, as_root):
    """Each defence for itself, as the kernel shows it while an archive is being unpacked."""
    big = bomb(os.path.join(folder, "big.tar"), raw_header(b"zeros", size=4 << 30), bytes(1 << 24), 256)
    process = subprocess.Popen(**registry.command("add", "big", big))
    templates = os.path.join(registry.data, "templates")
    try:
        proc.wait_until(lambda: glob.glob(f"{templates}/.tmp.*/rootfs/zeros"), "a first file")
        [child] = proc.children(process.pid)
        status = status_of(child)
        with open(f"/proc/{child}/mountinfo") as file:
            [mount] = file.read().splitlines()
        fds = [os.readlink(f"/proc/{child}/fd/{fd}") for fd in os.listdir(f"/proc/{child}/fd")]
        different = {name for name in ("user", "mnt", "pid", "net", "ipc", "uts")
                     if os.readlink(f"/proc/{child}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")}
        uid_map = open(f"/proc/{child}/uid_map").read().split()
        inside = os.listdir(f"/proc/{child}/root")
    finally:
        process.kill()
        process.wait()
    assert different == {"user", "mnt", "pid", "net", "ipc", "uts"}
    assert (status["NoNewPrivs"], status["Seccomp"], status["Groups"].split()) == ("1", "2", [])
    # chown, dac_override, fowner, fsetid, setfcap; over ids of its own only
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0x8000001B
    assert uid_map[0] == "0" and int(uid_map[1]) > 1 << 29 and uid_map[2] == "65536"
    assert set(status["Uid"].split()) == {uid_map[1]}
    assert inside == ["zeros"]
    flags = set(mount.split()[5].split(","))
    assert flags >= {"nosuid", "nodev", "noexec", "nosymfollow"} and "idmapped" in mount
    # standard descriptors that lead nowhere, two pipes, the root, and the file being written
    assert fds.count("/dev/null") == 3, fds
    assert {name.split(":")[0] for name in fds} <= {"/", "/dev/null", "/zeros", "pipe"}, fds


def test_progress_is_shown_on_a_terminal(registry, archive):
    ours, theirs = pty.openpty()
    done = subprocess.run(**registry.command("add", "t", archive), stderr=theirs,
                          stdout=subprocess.PIPE, text=True)
    os.close(theirs)
    assert done.returncode == 0
    assert b"2 entries, 0 MB" in os.read(ours, 4096)
    os.close(ours)


def test_a_machine_without_libarchive_is_told_what_to_install(registry, archive, as_root):
    paths = [os.path.realpath(path) for path in glob.glob("/usr/lib/*/libarchive.so.13")]
    if not paths:
        pytest.skip("libarchive is not where Debian has it")
    hide = " && ".join(f"mount --bind /dev/null {path}" for path in paths)
    words = registry.command("add", "t", archive)["args"]
    done = subprocess.run(["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh", *words],
                          capture_output=True, text=True)
    assert done.returncode == 1
    assert "apt-get install libarchive13" in done.stderr
    assert registry.run("list").returncode == 0


def copied_program(root, program):
    """The program and the libraries it says it needs, at the same places below root."""
    wanted = [program]
    for line in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines():
        wanted += [word for word in line.split() if word.startswith("/")]
    for path in wanted:
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(path, target)


@pytest.mark.parametrize("options", [["-c"], ["-cz"], ["-cJ"], ["-c", "--zstd"], ["-c", "-S"],
                                     ["-c", "--format=pax"], ["-c", "--format=v7"]])
def test_a_root_file_system_comes_out_as_it_went_in(registry, folder, options, as_root):
    root = os.path.join(folder, "root")
    copied_program(root, os.path.realpath("/bin/sh"))
    os.makedirs(f"{root}/bin", exist_ok=True)
    if not os.path.exists(f"{root}/bin/sh"):
        os.symlink(os.path.realpath("/bin/sh"), f"{root}/bin/sh")
    os.makedirs(f"{root}/home/user")
    os.chown(f"{root}/home/user", 1000, 1000)
    os.utime(f"{root}/home/user", (1_000_000_000, 1_000_000_000))
    os.utime(f"{root}/home", (1_100_000_000, 1_100_000_000))
    path = os.path.join(folder, "root.tar")
    made = subprocess.run(["tar", *options, "-f", path, "-C", root, "."], capture_output=True)
    if made.returncode:
        pytest.skip(made.stderr.decode())
    registry.add(path)

    def shape(top):
        return {os.path.relpath(os.path.join(where, name), top):
                (st.st_mode, st.st_uid, st.st_gid, int(st.st_mtime),
                 st.st_size * (not os.path.isdir(os.path.join(where, name))))
                for where, folders, files in os.walk(top) for name in folders + files
                for st in [os.lstat(os.path.join(where, name))]}

    assert shape(registry.path()) == shape(root)
    done = subprocess.run(["chroot", registry.path(), "/bin/sh", "-c", "echo it runs"],
                          capture_output=True, text=True)
    assert done.stdout == "it runs\n", done.stderr


def test_the_program_itself_needs_no_libarchive(as_root):
    needed = subprocess.run(["ldd", COVE], capture_output=True, text=True).stdout
    assert "libarchive" not in needed
