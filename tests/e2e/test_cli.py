"""The command line of cove itself: help, errors, completion, the manual page, and doctor."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

from helpers import machine, proc
from helpers.cove import for_anybody
from helpers.guest import ROOT

COVE = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build")) / "cove"
NOBODY = 65534

# What programs that read `cove doctor --json` rely on: a name that goes is a break.
CHECKS = """
machine.privileges machine.data_dir machine.run_dir machine.disk machine.memory machine.programs
kernel.version kernel.clone3 kernel.seccomp kernel.memfd_exec kernel.mount_api
namespaces.user namespaces.all namespaces.limit namespaces.subids
cgroup.v2 cgroup.into cgroup.freeze cgroup.kill cgroup.memory cgroup.cpu cgroup.pids cgroup.io
cgroup.sockets cgroup.delegation
overlay.userns overlay.volatile overlay.layer_fds overlay.data usr.erofs idmap.data idmap.usr idmap.tmpfs usr.nested
btrfs.kernel btrfs.mkfs btrfs.loop btrfs.simple_quota
network.links network.nft network.forward
kvm.run
limits.files limits.pids limits.inotify limits.maps limits.oom
""".split()


def cove(*words, status=0, **more):
    done = subprocess.run([COVE, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=50, **more)
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def listed(text):
    """The names in the list of commands of a help text."""
    found = re.search(r"^commands:\n((?:  .*\n)+)", text, re.M)
    return re.findall(r"^  (\S+)", found[1], re.M) if found else []


def commands(*path):
    """Every command that can be seen, as a tuple of words."""
    yield path
    for name in listed(cove(*path, "--help").stdout):
        yield from commands(*path, name)


# --- help and errors -------------------------------------------------------------------------

def test_every_command_explains_itself():
    paths = list(commands())
    assert {("doctor",), ("help",), ("version",), ("completion",), ("man",)} <= set(paths)
    for path in paths:
        for letter in "--help", "-h":
            done = cove(*path, letter)
            assert done.stdout.startswith(" ".join(("usage: cove", *path)) + " "), path
            assert done.stderr == ""
        assert "\033" not in done.stdout
        assert all(len(line) <= 80 for line in done.stdout.splitlines()), path
        assert cove("help", *path).stdout == done.stdout


def test_cove_alone_is_its_help():
    assert cove().stdout == cove("--help").stdout == cove("help").stdout


def test_the_version_is_one_line():
    for words in ["--version"], ["-V"], ["version"]:
        done = cove(*words)
        assert re.fullmatch(r"cove \d+\.\d+\.\d+\n", done.stdout)
        assert done.stderr == ""


@pytest.mark.parametrize("words, said", [
    (["docter"], "cove: there is no command 'docter' (did you mean 'doctor'?)"),
    (["xyzzy"], "cove: there is no command 'xyzzy' (--help lists them)"),
    (["help", "docter"], "cove help: there is no command 'docter' (did you mean 'doctor'?)"),
    (["doctor", "--jsn"], "cove doctor: there is no option --jsn (did you mean --json?)"),
    (["doctor", "-x"], "cove doctor: there is no option -x (--help lists them)"),
    (["doctor", "--json=1"], "cove doctor: --json takes no value"),
    (["doctor", "--data-dir"], "cove doctor: --data-dir needs a value: DIR"),
    (["doctor", "--data-dir", "here"], "cove doctor: --data-dir: 'here' must begin with a /"),
    (["doctor", "more"], "cove doctor: unexpected argument 'more' (see --help)"),
    (["completion"], "cove completion: SHELL is missing (see --help)"),
    (["completion", "ksh"], "cove completion: SHELL: 'ksh' is not one of bash, zsh, fish"),
])
def test_a_wrong_command_line_is_one_line_and_status_2(words, said):
    done = cove(*words, status=2)
    assert done.stderr == said + "\n"
    assert done.stdout == ""


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([COVE, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "cove: standard output: No space left on device\n"


def test_closed_descriptors_do_no_harm():
    done = subprocess.run(["sh", "-c", 'exec "$0" version <&- 2>&-', COVE], stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stdout.startswith(b"cove ")


def on_a_terminal(**env):
    """The help as a terminal gets it."""
    said = b""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(COVE, ["cove", "--help"], {"TERM": "xterm", "PATH": os.environ["PATH"], **env})
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:                 # EIO: the other side is closed
            break
        if not more:
            break
        said += more
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    return said


def test_colours_are_for_terminals_without_no_color():
    assert b"\033[1m" in on_a_terminal()
    assert b"\033" not in on_a_terminal(NO_COLOR="1")
    assert b"\033" not in on_a_terminal(TERM="dumb")


# --- made from the tables --------------------------------------------------------------------

def complete(*words):
    """What bash offers for the last of the words."""
    script = cove("completion", "bash").stdout + """
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        compopt() { :; }
        _cove
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash to ask")
def test_bash_completes_commands_options_and_values(folder):
    os.mkdir(os.path.join(folder, "inside"))
    pathlib.Path(folder, "file").touch()
    assert complete("cove", "doc") == {"doctor"}
    assert complete("cove", "--v") == {"--version"}
    assert {"doctor", "completion"} <= complete("cove", "help", "")
    assert {"--json", "--help", "--data-dir"} <= complete("cove", "doctor", "-")
    assert complete("cove", "doctor", "--j") == {"--json"}
    assert complete("cove", "completion", "") == {"bash", "zsh", "fish"}
    inside = {os.path.join(folder, "inside")}
    assert complete("cove", "doctor", "--data-dir", folder + "/") == inside
    assert complete("cove", "doctor", "--data-dir", "=", folder + "/") == inside


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_correct_shell(shell, folder):
    script = pathlib.Path(folder, "script")
    script.write_text(cove("completion", shell).stdout)
    assert "--data-dir" in script.read_text() or "data-dir" in script.read_text()
    if not shutil.which(shell):
        pytest.skip(f"no {shell} to read it")
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manual_page_has_every_command_and_renders_without_a_warning(folder):
    page = pathlib.Path(folder, "cove.1")
    page.write_text(cove("man").stdout)
    assert page.read_text().startswith(".TH COVE 1")
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("no man and groff to read it")
    env = os.environ | {"MANWIDTH": "100", "MANROFFOPT": "", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(".\b", "", done.stdout)
    for path in commands():
        if path and not listed(cove(*path, "--help").stdout):
            assert " ".join(("cove", *path)) in text
    assert "--data-dir DIR" in text


# --- doctor ----------------------------------------------------------------------------------

def traces(pid):
    """What a doctor of this pid makes in passing. Others may be at work on this machine too: so by
    the names that only it gives, and not by numbers of things."""
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return [*map(str, machine.cgroups_named(f"cove-doctor-{pid}")),
            *(line for line in mounts if " cove " in line or " /tmp/merged " in line),
            *(loop for loop in machine.loops() if "memfd:volume" in loop)]


def left_nothing(pid, *folders):
    proc.wait_until(lambda: not traces(pid), "no trace of doctor")
    assert [os.listdir(folder) for folder in folders] == [[] for _ in folders]


def doctor(*words, program=COVE, **more):
    with subprocess.Popen([program, "doctor", "--json", *words], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more) as process:
        said, complaints = process.communicate(timeout=50)
    assert complaints == ""
    rows = json.loads(said)
    failed = [row["name"] for row in rows if row["status"] == "fail"]
    assert process.returncode == (1 if failed else 0), failed
    left_nothing(process.pid)
    return {row["name"]: row for row in rows}


def test_doctor_names_every_check_once_and_for_good(folder):
    rows = doctor("--data-dir", folder)
    assert list(rows) == CHECKS
    for row in rows.values():
        assert set(row) == {"name", "group", "title", "status", "seen", "fix", "without", "needed"}
        assert row["status"] in ("ok", "warn", "fail")
        assert row["title"] and row["group"] and row["seen"]
        assert set(row["needed"]) <= {"root", "rootless"}
        assert row["status"] == "ok" or row["needed"] or row["without"] or row["fix"], row
        assert row["status"] != "ok" or row["fix"] == ""


def test_doctor_leaves_no_file_and_no_cgroup_behind(folder):
    doctor("--data-dir", folder, "--run-dir", folder)
    left_nothing(0, folder)


def test_doctor_leaves_no_mount_behind(as_root, folder):
    """In a mount namespace of its own, where nobody else's come and go meanwhile."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare to make a mount namespace")
    script = """
        cat /proc/self/mountinfo >"$1/before"
        "$0" doctor --deep --data-dir "$1" >"$1/said" || [ $? = 1 ] || exit
        cat /proc/self/mountinfo >"$1/after"
    """
    subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script,
                    COVE, folder], check=True, timeout=50)
    before, after = (pathlib.Path(folder, name).read_text() for name in ("before", "after"))
    assert before and after == before


def test_doctor_tries_a_volume_when_asked_to(as_root, folder):
    quota = doctor("--deep", "--data-dir", folder)["btrfs.simple_quota"]
    left_nothing(0, folder)
    if quota["status"] != "ok":
        pytest.skip(f"no simple quotas here: {quota['seen']}")
    assert quota["seen"] == "a scratch volume refused what was above 8 MiB"


def as_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def test_doctor_examines_rootless_mode_for_an_ordinary_user(as_root, folder, workspace):
    os.chown(folder, NOBODY, NOBODY)
    rows = doctor("--data-dir", folder, "--run-dir", folder, preexec_fn=as_nobody,
                  program=for_anybody(workspace))
    assert list(rows) == CHECKS
    assert rows["machine.privileges"]["status"] == "warn"
    for name in "idmap.usr", "btrfs.simple_quota", "network.links":
        assert rows[name]["status"] == "warn"
    for row in rows.values():           # what only root needs is no failure of this mode
        assert row["status"] != "fail" or "rootless" in row["needed"]
    left_nothing(0, folder)


def test_doctor_says_it_in_lines_for_people(folder):
    done = subprocess.run([COVE, "doctor", "--data-dir", folder], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    checks = [line for line in lines if re.match(r"(ok  |warn|fail) ", line)]
    assert len(checks) == len(CHECKS)
    assert re.fullmatch(r"\d+ ok, \d+ warnings, \d+ failures: cove will (not )?work here in "
                        r"root(less)? mode", lines[-1])
    assert "\033" not in done.stdout
    assert done.stderr == ""


def test_a_directory_that_cannot_be_used_is_a_failure(as_root, workspace):
    done = subprocess.run([for_anybody(workspace), "doctor", "--json", "--data-dir", "/proc/cove"],
                          capture_output=True, text=True, preexec_fn=as_nobody)
    row = {row["name"]: row for row in json.loads(done.stdout)}["machine.data_dir"]
    assert done.returncode == 1
    assert (row["status"], row["needed"]) == ("fail", ["root", "rootless"])
    assert row["seen"] == "/proc: Permission denied"
    assert "--data-dir" in row["fix"]


def test_doctor_ends_at_once_and_cleanly_when_interrupted(folder):
    for wait in 0.01, 0.02, 0.04:
        with subprocess.Popen([COVE, "doctor", "--data-dir", folder], stdout=subprocess.DEVNULL,
                              start_new_session=True) as process:
            time.sleep(wait)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(10) in (0, -signal.SIGINT)
        left_nothing(process.pid, folder)   # the probe that ran then comes to its own end


@pytest.mark.parametrize("body, seen", [
    pytest.param(f"exec sleep 1000.{os.getpid()}", "no answer within 5 s", id="hangs"),
    pytest.param("echo 'it is broken' >&2; exit 3", "it is broken", id="fails"),
    pytest.param("kill -SEGV $$", "nft ended with status 139", id="crashes"),
])
def test_a_program_that_hangs_or_crashes_is_a_finding(folder, body, seen):
    fake = pathlib.Path(folder, "nft")
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    row = doctor("--data-dir", folder, env=os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}"})["network.nft"]
    assert (row["status"], row["seen"]) == ("warn", seen)
    assert not proc.with_argument(f"1000.{os.getpid()}")


def test_a_machine_without_user_namespaces_is_told_what_to_change(as_root, folder):
    if not shutil.which("unshare"):
        pytest.skip("no unshare to make a user namespace in which there can be no other")
    script = """
        echo 0 >/proc/sys/user/max_user_namespaces || exit 77
        exec "$0" doctor --json --data-dir "$1"
    """
    done = subprocess.run(["unshare", "--user", "--map-root-user", "sh", "-c", script, COVE, folder],
                          capture_output=True, text=True, timeout=50)
    if done.returncode == 77:
        pytest.skip("user.max_user_namespaces cannot be set in a user namespace here")
    row = {row["name"]: row for row in json.loads(done.stdout)}["namespaces.user"]
    assert done.returncode == 1
    assert row["status"] == "fail"
    assert row["seen"] == ("clone3 with new namespaces: No space left on device; "
                           "user.max_user_namespaces is 0")
    assert row["fix"] == "sysctl -w user.max_user_namespaces=65536"
