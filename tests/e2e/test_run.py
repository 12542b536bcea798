"""`cove run` as a command among others: exit codes, streams, signals, environment, errors."""

import hashlib
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from helpers.cove import CLEAR, FAILED
from helpers.proc import wait_until

pytestmark = pytest.mark.core


# --- how it ends -----------------------------------------------------------------------------

@pytest.mark.parametrize("code", [0, 1, 2, 77, 123, 124, 125, 126, 127, 128, 200, 254, 255])
def test_the_exit_code_is_the_commands_own(cove, code):
    done = cove.run("sh", "-c", f"exit {code}", status=code)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_every_exit_code_comes_through(cove):
    """All of them out of one sandbox: each is what a child of ours there would be."""
    said = cove.said(
        'for i in $(seq 0 255); do c=0; bash -c "exit $i" || c=$?; test $c = $i && echo $c; done'
    )
    assert said.split() == [str(code) for code in range(256)]


@pytest.mark.parametrize(
    "name", ["HUP", "INT", "QUIT", "ABRT", "KILL", "SEGV", "PIPE", "TERM", "USR1"]
)
def test_a_signal_is_128_and_its_number(cove, name):
    done = cove.run("sh", "-c", f"kill -{name} $$", status=128 + getattr(signal, "SIG" + name))
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize(
    "words, said",
    [
        (
            ["--template", "nothing", "true"],
            "template: there is no template 'nothing' (cove template list shows all)",
        ),
        (["--template", "/no/such/place", "true"], "/no/such/place"),
        (["--memory", "1k", "true"], "memory"),
        (["--memory", "much", "true"], "--memory: 'much'"),
        (["--pids", "0", "true"], "--pids: 0 is no limit"),
        (["--timeout", "0", "true"], "--timeout: 0 is no limit"),
        (["--timeout", "18446744073709552", "true"], "limit 'timeout'"),
        (["--cpus", "-1", "true"], "--cpus: '-1'"),
        (["--network", "some", "true"], "--network: 'some' is not one of none, open"),
        (["--no-such-option", "true"], "there is no option --no-such-option"),
        (["--mount", "/tmp", "true"], "--mount: '/tmp' is not HOST:GUEST"),
        (["--mount", "/tmp:/mnt:rx", "true"], "--mount: 'rx' is none of ro, rw, root, group"),
        (
            ["--mount", "/no/such/dir:/mnt", "true"],
            "--mount /no/such/dir: No such file or directory",
        ),
        (["--mount", "/tmp:relative", "true"], "mount 0: paths must be absolute"),
        (["--mount", "/tmp:/", "true"], "mount 0: paths"),
        (["--mount", "/tmp:/a/../b", "true"], "mount 0: paths"),
        (["--forward", "80", "true"], "--forward: '80' is not HOST-PORT:PORT"),
        (["--forward", "80:0", "true"], "--forward: '80:0'"),
        (["--forward", "70000:80", "true"], "--forward: '70000:80'"),
        (["--user", "nobody-here", "true"], "there is no user 'nobody-here'"),
        (["--workdir", "/nowhere", "true"], "cwd '/nowhere' does not exist"),
        ([], "COMMAND is missing"),
    ],
)
def test_a_failure_of_ours_is_125_and_one_line(cove, words, said):
    assert said in cove.failed(*words)


@pytest.mark.parametrize("command, status, said", [
    ("no-such-program", 127, "cannot execute no-such-program: No such file or directory"),
    ("/etc/passwd", 126, "cannot execute /etc/passwd: Permission denied"),
    ("/tmp", 126, "cannot execute /tmp: "),
])
def test_a_command_that_cannot_run_has_the_status_a_shell_gives_it(cove, command, status, said):
    assert said in cove.failed(command, status=status)


def test_a_failure_is_in_the_json_too(cove):
    told = cove.json("no-such-program", status=127)
    assert told["error"] == "cannot execute no-such-program: No such file or directory"
    assert told["exit_code"] == 127
    assert "reason" not in told


def test_a_data_directory_that_cannot_be_made_is_named(cove):
    done = subprocess.run([cove.words()[0], "run", "--private", "--data-dir", "/proc/none", "true"],
                          capture_output=True, text=True, env=CLEAR)
    assert done.returncode == FAILED
    assert done.stderr.count("\n") == 1 and "/proc/none" in done.stderr


# --- streams ---------------------------------------------------------------------------------

def test_ten_megabytes_of_anything_pass_unchanged(cove):
    data = random.Random(1).randbytes(10 << 20)
    done = cove.run("cat", input=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert done.stderr == b""


def test_both_outputs_are_kept_apart(cove):
    done = cove.run(
        "sh", "-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero | tr '\\0' x >&2"
    )
    assert done.stdout == bytes(300000)
    assert done.stderr == b"x" * 200000


def test_files_are_streams_too(cove, folder):
    with open(os.path.join(folder, "in"), "w+b") as source, open(
        os.path.join(folder, "out"), "w+b"
    ) as sink:
        source.write(b"data\0" * 100000)
        source.seek(0)
        subprocess.run(cove.words("cat"), stdin=source, stdout=sink, check=True, env=CLEAR)
        sink.seek(0)
        source.seek(0)
        assert sink.read() == source.read()


def test_input_that_ends_ends_inside(cove):
    with cove.started("sh", "-c", "wc -c; echo counted") as process:
        process.stdin.write(b"12345")
        process.stdin.close()
        assert process.stdout.read() == b"5\ncounted\n"
        assert process.wait(10) == 0
        process.stdin = None


def test_input_goes_in_while_it_is_open(cove):
    with cove.started("cat") as process:
        for line in b"one\n", b"two\n":
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.wait(10) == 0
        process.stdin = None


def test_a_command_that_does_not_read_its_input_is_not_waited_for(cove):
    with cove.started("sh", "-c", "sleep 0.2; exit 6") as process:
        writer = threading.Thread(target=lambda: feed(process.stdin))
        writer.start()
        assert process.wait(10) == 6
        writer.join(10)
        process.stdin = None


def feed(stream):
    try:
        for _ in range(200):
            stream.write(bytes(1 << 16))
        stream.close()
    except BrokenPipeError:
        pass


def test_closed_standard_streams_do_no_harm(cove):
    for closed in "<&-", "<&- 2>&-":
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *cove.words("echo", "here")],
            stdout=subprocess.PIPE,
            env=CLEAR,
        )
        assert (done.returncode, done.stdout) == (0, b"here\n")


def test_a_reader_that_leaves_early_ends_the_sandbox(cove):
    with cove.started("sh", "-c", "yes; echo never > /dev/null") as process:
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        process.stdout = None
        assert process.wait(10) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


def test_a_slow_reader_gets_everything(cove):
    with cove.started("sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' a; echo end") as process:
        process.stdin.close()
        process.stdin = None
        got, last = 0, b""
        time.sleep(0.5)                 # far more than any pipe holds waits inside by now
        while more := process.stdout.read1(65536):
            got += len(more)
            last = (last + more)[-5:]   # a read may bring less than that
            if got < 1 << 20:
                time.sleep(0.01)
        assert got == 8000004 and last.endswith(b"aend\n")
        assert process.wait(10) == 0


def test_what_a_command_leaves_behind_does_not_hold_it_up(cove):
    began = time.monotonic()
    assert cove.text("sh", "-c", "sleep 60 & echo started") == "started\n"
    assert time.monotonic() - began < 10


# --- signals ---------------------------------------------------------------------------------

SAY = ("trap 'echo caught; exit 9' {0}; echo ready; while :; do sleep 0.02; done")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "USR2", "QUIT"])
def test_signals_reach_the_command(cove, name):
    with cove.started("bash", "-c", SAY.format(name)) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, "SIG" + name))
        assert process.stdout.readline() == b"caught\n"
        assert process.wait(10) == 9


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_that_nobody_catches_ends_both(cove, name):
    with cove.started("sh", "-c", "echo ready; exec sleep 60") as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, "SIG" + name))
        assert process.wait(10) == 128 + getattr(signal, "SIG" + name)
        assert process.stderr.read() == b""


def test_a_signal_before_the_command_runs_is_not_lost(cove):
    for delay in range(0, 12, 2):
        with cove.started("sleep", "60") as process:
            time.sleep(delay / 1000)
            process.terminate()
            assert process.wait(10) in (128 + signal.SIGTERM, -signal.SIGTERM)


# --- what the command finds ------------------------------------------------------------------

def test_the_environment_is_the_sandboxes_own(cove):
    env = CLEAR | {"SECRET": "not this", "GIVEN": "this", "LD_PRELOAD": ""}
    done = subprocess.run(
        cove.words(
            "-e", "A=1", "-e", "B=x=y z", "-e", "GIVEN", "-e", "EMPTY=", "-e", "UNSET", "env", "-0"
        ),
        capture_output=True,
        env=env,
        check=True,
    )
    inside = dict(item.split("=", 1) for item in done.stdout.decode().split("\0")[:-1])
    assert inside["A"] == "1" and inside["B"] == "x=y z" and inside["GIVEN"] == "this"
    assert inside["EMPTY"] == "" and inside["HOME"] == "/home/user" and inside["USER"] == "user"
    assert "SECRET" not in inside


def test_workdir_and_user_are_as_asked(cove):
    assert cove.text("-w", "/usr/share", "pwd") == "/usr/share\n"
    assert (
        cove.text("-u", "root", "-w", "/tmp", "sh", "-c", "id -un; pwd; echo $HOME")
        == "root\n/tmp\n/root\n"
    )


def test_arguments_arrive_as_they_are(cove):
    words = ["a b", "", "$HOME", "'", '"', "\\", "*", "--json", "-u", "ä", "x\ny"]
    said = cove.run("printf", "%s\\0", *words).stdout.decode()
    assert said.split("\0")[:-1] == words


def test_options_end_at_the_command_or_at_two_dashes(cove):
    assert cove.text("--", "printf", "%s,", "--json") == "--json,"
    assert cove.text("printf", "%s,", "--json", "--", "x") == "--json,--,x,"


def test_each_sandbox_has_a_name_and_an_identity_of_its_own(cove):
    one, two = (
        cove.said("hostname; cat /etc/machine-id; grep -c $(hostname) /etc/hosts") for _ in range(2)
    )
    assert one != two
    name, machine, hosts = one.split("\n")
    assert len(machine) == 32 and hosts == "1" and name.startswith("r")


def test_two_sandboxes_see_nothing_of_each_other(cove):
    with cove.started("sh", "-c", "echo x > /tmp/mine; echo ready; sleep 60") as process:
        assert process.stdout.readline() == b"ready\n"
        assert cove.text("sh", "-c", "ls /tmp; ps ax | grep -c '[s]leep 60'", status=1) == "0\n"


def test_many_at_once(cove):
    processes = [
        subprocess.Popen(
            cove.words("sh", "-c", f"sleep 0.3; echo {i}"),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=CLEAR,
        )
        for i in range(12)
    ]
    for i, process in enumerate(processes):
        assert process.communicate(timeout=40)[0] == b"%d\n" % i
        assert process.returncode == 0


# --- JSON ------------------------------------------------------------------------------------

def test_json_tells_all_of_it(cove):
    told = cove.json("sh", "-c", "echo out; echo err >&2; exit 3", status=3)
    assert (told["exit_code"], told["stdout"], told["stderr"]) == (3, "out\n", "err\n")
    assert told["limits_met"] == [] and told["truncated"] is False
    assert set(told["not_enforced"]) <= {"memory", "cpus", "pids", "io-weight", "disk"}
    for name in "create_us", "run_us", "end_us", "memory_peak_bytes", "cpu_us", "disk_bytes":
        assert told[name] > 0, name
    assert "signal" not in told and "error" not in told
    assert cove.json("sh", "-c", "kill -9 $$", status=137)["signal"] == "KILL"


def test_json_stays_json_whatever_is_printed(cove):
    done = cove.run(
        "--json",
        "sh",
        "-c",
        r"printf '\0\377\200\"\\\n\033[1m\303\244'; head -c 20000000 /dev/zero | tr '\\0' x >&2",
    )
    told = json.loads(done.stdout)
    assert told["stdout"].startswith("\0") and told["stdout"].endswith('"\\\n\033[1mä')
    assert told["truncated"] is True
    assert len(told["stderr"]) == 16 << 20


def test_nothing_runs_on_when_cove_run_has_returned(cove):
    told = cove.json("sh", "-c", "sleep 61 & sleep 62 &")
    cgroups = subprocess.run(["find", "/sys/fs/cgroup", "-name", "run-" + told["id"]],
                             capture_output=True, text=True).stdout
    assert cgroups == ""
    assert wait_until(
        lambda: not list((cove.data / "volume").glob(f"*{told['id']}*")), "no layer", 1
    )
