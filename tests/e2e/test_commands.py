"""Commands through the SDK: running, feeding, killing, and what is told about their end."""

import asyncio
import base64
import hashlib
import signal
import subprocess
import threading
import time

import pytest
from e2b import (AuthenticationException, CommandExitException, InvalidArgumentException,
                 NotFoundException, SandboxException, TimeoutException)

from helpers.guest import SLOWER
from helpers.there import get, grp, os, proc, put, pwd
from helpers.wire import RpcError

pytestmark = pytest.mark.sdk

core = pytest.mark.core


# --- running ---------------------------------------------------------------------------------

@core
def test_a_command_returns_both_streams_and_its_exit_code(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)
    assert result.error is None


@core
@pytest.mark.parametrize("code", [1, 2, 42, 126, 127, 128, 254, 255])
def test_an_exit_code_is_reported_exactly(sandbox, code):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run(f"echo before; exit {code}")
    assert caught.value.exit_code == code
    assert caught.value.stdout == "before\n"


def test_every_exit_code_has_its_status_text(wire):
    for code in range(256):
        end = wire.start("/bin/sh", "-c", f"exit {code}").collect().end
        assert end == {"exitCode": code, "exited": True, "status": f"exit status {code}"}


@pytest.mark.parametrize("name, text", [
    ("HUP", "hangup"), ("INT", "interrupt"), ("QUIT", "quit"), ("ILL", "illegal instruction"),
    ("TRAP", "trace/breakpoint trap"), ("ABRT", "aborted"), ("BUS", "bus error"),
    ("FPE", "floating point exception"), ("KILL", "killed"), ("USR1", "user defined signal 1"),
    ("SEGV", "segmentation fault"), ("USR2", "user defined signal 2"), ("PIPE", "broken pipe"),
    ("ALRM", "alarm clock"), ("TERM", "terminated")])
def test_death_by_a_signal_is_reported_in_words(wire, name, text):
    end = wire.start("/bin/sh", "-c", f"ulimit -c 0; kill -{name} $$").collect().end
    status = end["status"].removesuffix(" (core dumped)")   # the machine may collect cores anyway
    assert status == f"signal: {text}"
    assert end["error"] == end["status"]
    assert (end["exitCode"], end["exited"]) == (-1, False)


@core
def test_the_sdk_sees_death_by_a_signal(sandbox):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("kill -9 $$")
    assert caught.value.exit_code == -1
    assert caught.value.error == "signal: killed"


@core
def test_a_command_is_a_login_shell_without_input(sandbox):
    script = "shopt -q login_shell && echo login; readlink /proc/self/fd/0; cat"
    result = sandbox.commands.run(script)
    assert result.stdout == "login\n/dev/null\n"


@core
def test_unicode_survives_both_ways(sandbox):
    text = "žluťoučký 🐎 日本語 \u202e"
    assert sandbox.commands.run(f"printf '%s' '{text}'").stdout == text
    assert sandbox.commands.run("printf '%s' \"$T\"", envs={"T": text}).stdout == text


def test_a_character_split_between_two_writes_arrives_whole(sandbox):
    result = sandbox.commands.run(r"printf '\xf0\x9f'; sleep 0.3; printf '\x90\x8e'")
    assert result.stdout == "🐎"


def test_every_byte_value_arrives(wire):
    every = bytes(range(256))
    script = "printf '" + "".join(f"\\{b:03o}" for b in every) + "'"
    assert wire.start("/bin/bash", "-c", script).collect().stdout == every


@core
def test_an_argument_of_120_kb_arrives(sandbox):
    text = "x" * 120_000
    assert sandbox.commands.run(f"printf %s {text} | wc -c").stdout.strip() == "120000"


def test_a_megabyte_of_arguments_arrives(wire):
    words = [f"{i:0100}" for i in range(10_000)]
    out = wire.start("/bin/bash", "-c", 'printf "%s\\n" "$@"', "-", *words).collect()
    assert out.stdout.decode().split() == words


def test_arguments_beyond_the_kernels_limit_are_refused_with_the_reason(sandbox):
    with pytest.raises((InvalidArgumentException, SandboxException)) as caught:
        sandbox.commands.run("true " + "x" * 200_000)
    assert "rgument list too long" in str(caught.value)


def test_a_program_that_is_missing_is_refused(wire):
    with pytest.raises(RpcError) as caught:
        wire.start("/no/such/program")
    assert caught.value.code == "invalid_argument"
    assert "/no/such/program" in caught.value.message


def test_a_program_is_found_along_the_path_that_the_command_gets(wire, folder):
    program = os.path.join(folder, "cove-e2e-hello")
    put(program, "#!/bin/sh\necho found\n", 0o755)
    assert wire.start("cove-e2e-hello", envs={"PATH": folder}).collect().stdout == b"found\n"
    with pytest.raises(RpcError):
        wire.start("cove-e2e-hello")


# --- output ----------------------------------------------------------------------------------

@core
def test_callbacks_get_output_while_the_command_runs(sandbox):
    seen = []
    result = sandbox.commands.run("echo one; sleep 1; echo two; echo three >&2",
                                  on_stdout=lambda text: seen.append((text, time.monotonic())),
                                  on_stderr=lambda text: seen.append((text, time.monotonic())))
    ended = time.monotonic()
    assert sorted("".join(text for text, _ in seen).split()) == ["one", "three", "two"]
    assert seen[0][0] == "one\n"
    assert ended - seen[0][1] > 0.8
    assert result.stdout == "one\ntwo\n"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_100_mb_of_output_arrive_complete_and_in_order(sandbox):
    last = 12_600_000
    wanted, size = hashlib.sha256(), 0
    with subprocess.Popen(["seq", str(last)], stdout=subprocess.PIPE) as local:
        while chunk := local.stdout.read(1 << 20):
            wanted.update(chunk)
            size += len(chunk)
    assert size > 100_000_000
    got = hashlib.sha256()
    sandbox.commands.run(f"seq {last}", timeout=0, on_stdout=lambda text: got.update(text.encode()))
    assert got.digest() == wanted.digest()


def test_a_megabyte_on_each_stream_at_once_arrives_whole(wire):
    out = wire.start("/bin/bash", "-c",
                     "seq 150000 & seq 150000 >&2; wait").collect()
    wanted = b"".join(b"%d\n" % i for i in range(1, 150001))
    assert out.stdout == wanted
    assert out.stderr == wanted


def test_the_last_words_of_a_process_are_not_lost(wire):
    for i in range(200):
        out = wire.start("/bin/sh", "-c", f"echo out-{i}; echo err-{i} >&2; exit 3").collect()
        assert (out.stdout, out.stderr) == (b"out-%d\n" % i, b"err-%d\n" % i)
        assert out.end["exitCode"] == 3


# --- many ------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.timeout(180)
def test_1000_commands_in_a_row_each_give_their_own_answer(sandbox):
    for i in range(1000):
        assert sandbox.commands.run(f"echo {i}").stdout == f"{i}\n"


@core
@pytest.mark.timeout(120)
async def test_100_commands_at_once_each_give_their_own_answer(async_sandbox):
    results = await asyncio.gather(*(
        async_sandbox.commands.run(f"sleep 0.2; echo {i}; exit 0", timeout=100)
        for i in range(100)))
    assert [r.stdout for r in results] == [f"{i}\n" for i in range(100)]


# --- background, input, kill -----------------------------------------------------------------

@core
def test_a_background_command_is_listed_and_can_be_waited_for(sandbox):
    handle = sandbox.commands.run("echo begun; sleep 0.5; echo done; exit 5", background=True)
    listed = {p.pid: p for p in sandbox.commands.list()}
    assert listed[handle.pid].cmd == "/bin/bash"
    assert listed[handle.pid].args[:2] == ["-l", "-c"]
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert (caught.value.stdout, caught.value.exit_code) == ("begun\ndone\n", 5)
    assert handle.pid not in {p.pid for p in sandbox.commands.list()}


@core
def test_input_is_delivered_and_its_end_too(sandbox):
    handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "first\n")
    handle.send_stdin(b"second\n")
    handle.close_stdin()
    assert handle.wait().stdout == "first\nsecond\nend\n"


def test_8_mib_of_input_in_one_call_arrive_whole(sandbox):
    data = os.urandom(6 << 20).hex().encode()[:8 << 20]
    handle = sandbox.commands.run("sha256sum", background=True, stdin=True)
    handle.send_stdin(data)
    handle.close_stdin()
    assert handle.wait().stdout.split()[0] == hashlib.sha256(data).hexdigest()


def test_input_waits_for_a_slow_process_and_arrives_in_order(sandbox):
    handle = sandbox.commands.run("sleep 0.5; cat | sha256sum", background=True, stdin=True)
    wanted = hashlib.sha256()
    for i in range(40):
        block = (f"{i:07}\n" * 4096).encode()
        wanted.update(block)
        handle.send_stdin(block)
    handle.close_stdin()
    assert handle.wait().stdout.split()[0] == wanted.hexdigest()


@pytest.mark.current_sdk("stream_input")
def test_input_can_be_streamed_in_one_request(sandbox):
    handle = sandbox.commands.run("sha256sum", background=True, stdin=True)
    blocks = [os.urandom(4096) for _ in range(300)]
    sandbox.commands.stream_input(handle.pid, iter(blocks))
    handle.close_stdin()
    assert handle.wait().stdout.split()[0] == hashlib.sha256(b"".join(blocks)).hexdigest()


@pytest.mark.current_sdk("stream_input")
def test_streaming_input_to_no_process_is_not_found(sandbox):
    with pytest.raises(NotFoundException):
        sandbox.commands.stream_input(2 ** 22 + 1, [b"x"])


def test_input_to_a_command_without_any_is_refused(sandbox):
    handle = sandbox.commands.run("sleep 30", background=True)
    with pytest.raises(SandboxException, match="without input"):
        sandbox.commands.send_stdin(handle.pid, "x")
    assert handle.kill()


def test_input_to_a_process_that_closed_its_own_is_refused(sandbox):
    handle = sandbox.commands.run("exec <&-; echo closed; sleep 30", background=True, stdin=True)
    for stdout, _, _ in handle:
        assert stdout == "closed\n"
        break
    with pytest.raises(SandboxException, match="does not read its input"):
        sandbox.commands.send_stdin(handle.pid, "x")
    assert sandbox.commands.kill(handle.pid)


@core
def test_a_killed_command_tells_its_signal(sandbox):
    handle = sandbox.commands.run("sleep 30", background=True)
    assert handle.kill() is True
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert (caught.value.exit_code, caught.value.error) == (-1, "signal: killed")
    assert handle.kill() is False
    assert sandbox.commands.kill(2 ** 22 + 1) is False


@core
def test_the_children_of_a_killed_command_are_gone(sandbox):
    handle = sandbox.commands.run("sleep 301 & (sleep 302 & sleep 303) & echo ok; wait",
                                  background=True)
    pids = proc.wait_until(lambda: len(found := sleeping("301", "302", "303")) == 3 and found,
                           "three children")
    assert handle.kill()
    proc.wait_until(lambda: not any(map(proc.alive, pids)), "the children to be gone")


def sleeping(*seconds):
    return set().union(*(proc.with_argument(s) for s in seconds))


def test_sigterm_lets_a_process_clean_up(wire):
    with wire.start("/bin/bash", "-c", "trap 'echo bye; exit 9' TERM; echo ready; "
                    "while :; do sleep 0.05; done") as stream:
        events = stream.events()
        assert next(events) == ("stdout", b"ready\n")
        assert wire.kill(stream.pid, "SIGNAL_SIGTERM").json == {}
        rest = list(events)
    assert ("stdout", b"bye\n") in rest
    assert rest[-1] == ("end", {"exitCode": 9, "exited": True, "status": "exit status 9"})


@core
def test_a_command_that_leaves_children_with_its_pipes_does_not_hang(sandbox):
    begun = time.monotonic()
    result = sandbox.commands.run("sleep 304 & echo $!")
    took = time.monotonic() - begun
    child = int(result.stdout)
    try:
        assert took < 15
        assert proc.alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_left_behind_can_go_on_writing_without_harm(sandbox, folder):
    """Nobody reads it any more, but it neither blocks nor dies of a closed pipe."""
    done = os.path.join(folder, "done")
    sandbox.commands.run(f"(sleep 0.5; seq 500000; echo $? >{done}) & echo begun")
    proc.wait_until(lambda: os.path.exists(done) and get(done) == b"0\n",
                    "the child to write 3 MB to nobody", timeout=10 * SLOWER)


@core
def test_the_time_limit_ends_the_command_and_its_children(sandbox):
    begun = time.monotonic()
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 305 & sleep 306", timeout=1)
    assert 0.9 < time.monotonic() - begun < 15
    proc.wait_until(lambda: not sleeping("305", "306"), "the command to be gone")


def test_the_guest_itself_enforces_the_time_limit(wire):
    begun = time.monotonic()
    with wire.start("/bin/sleep", "307", headers={"Connect-Timeout-Ms": "700"}) as stream:
        out = stream.collect()
    assert 0.6 < time.monotonic() - begun < 15
    assert out.end is None
    assert out.error["code"] == "deadline_exceeded"
    assert not sleeping("307")


def test_without_a_time_limit_a_command_may_take_longer(sandbox):
    assert sandbox.commands.run("sleep 1; echo late", timeout=0).stdout == "late\n"


def test_silence_is_filled_with_keepalives(wire):
    with wire.start("/bin/sleep", "2.6", headers={"Keepalive-Ping-Interval": "1"}) as stream:
        kinds = [kind for kind, _ in stream.events()]
    assert kinds == ["keepalive", "keepalive", "end"]


# --- surroundings ----------------------------------------------------------------------------

@core
def test_variables_of_the_command_win_over_global_ones(sandbox, wire, global_env):
    with global_env(A="global", B="global"):
        result = sandbox.commands.run("echo $A $B $C", envs={"B": "mine", "C": "mine"})
        assert result.stdout == "global mine mine\n"
        envs = wire.get("/envs").json
        assert (envs["A"], envs["B"]) == ("global", "global")
    assert sandbox.commands.run("echo [$A]").stdout == "[]\n"


def test_the_environment_is_the_users_and_not_the_guests(start_guest):
    guest = start_guest(env=os.environ | {"COVE_E2E_SECRET": "1"})
    text = guest.wire.start("env", "-0").collect().stdout.decode()
    env = dict(item.split("=", 1) for item in text.split("\0") if item)
    me = pwd.getpwuid(os.geteuid())
    assert (env["HOME"], env["USER"], env["LOGNAME"]) == (me.pw_dir, me.pw_name, me.pw_name)
    assert "COVE_E2E_SECRET" not in env


@core
def test_the_working_directory_can_be_chosen(sandbox, folder, workdir):
    assert sandbox.commands.run("pwd", cwd=folder).stdout == folder + "\n"
    assert sandbox.commands.run("pwd").stdout == workdir + "\n"


def test_without_a_default_the_working_directory_is_the_home(start_guest):
    """Or the root, for a user whose home is not there."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    wanted = home if os.path.isdir(home) else "/"
    assert start_guest().wire.start("pwd").collect().stdout.decode() == wanted + "\n"


def test_a_tilde_as_working_directory_is_the_home(wire):
    home = pwd.getpwuid(os.geteuid()).pw_dir
    if not os.path.isdir(home):
        pytest.skip(f"{home} is not there")
    assert wire.start("pwd", cwd="~").collect().stdout.decode() == home + "\n"


@core
def test_a_missing_working_directory_is_refused(sandbox):
    with pytest.raises(InvalidArgumentException, match="cwd '/no/such' does not exist"):
        sandbox.commands.run("pwd", cwd="/no/such")


def test_a_file_as_working_directory_is_refused(sandbox):
    with pytest.raises(InvalidArgumentException, match="/etc/passwd"):
        sandbox.commands.run("pwd", cwd="/etc/passwd")


@core
def test_an_unknown_user_is_refused(sandbox):
    with pytest.raises(AuthenticationException, match="no-such-user"):
        sandbox.commands.run("true", user="no-such-user")


@core
def test_a_command_runs_as_the_user_it_names(sandbox, as_root):
    other = pwd.getpwnam("daemon")
    result = sandbox.commands.run("id -un; id -g; id -G; echo $USER $LOGNAME", user="daemon",
                                  cwd="/")
    groups = {other.pw_gid} | {g.gr_gid for g in grp.getgrall() if "daemon" in g.gr_mem}
    lines = result.stdout.splitlines()
    assert lines[:2] == ["daemon", str(other.pw_gid)]
    assert set(map(int, lines[2].split())) == groups
    assert lines[3] == "daemon daemon"


def test_a_command_of_another_user_has_its_home(start_guest, as_root):
    basic = {"Authorization": "Basic " + base64.b64encode(b"daemon:").decode()}
    out = start_guest().wire.start("/bin/sh", "-c", "echo $HOME", cwd="/", headers=basic).collect()
    assert out.stdout.decode() == pwd.getpwnam("daemon").pw_dir + "\n"


def test_another_users_command_cannot_read_what_is_roots(sandbox, as_root, folder):
    secret = os.path.join(folder, "secret")
    put(secret, "s", 0o600)
    with pytest.raises(CommandExitException, match="Permission denied"):
        sandbox.commands.run(f"cat {secret}", user="nobody", cwd="/")


def test_a_command_inherits_no_descriptor_but_its_streams(sandbox):
    script = "for i in {0..1023}; do [ -e /proc/$$/fd/$i ] && echo $i; done; true"
    listed = sandbox.commands.run(script).stdout.split()
    assert {int(fd) for fd in listed} - {255} == {0, 1, 2}      # 255 is bash's own


def test_a_command_begins_with_no_signal_blocked_or_ignored(wire):
    text = wire.start("/bin/cat", "/proc/self/status").collect().stdout.decode()
    masks = dict(line.split(":\t") for line in text.splitlines() if line.startswith("Sig"))
    assert int(masks["SigBlk"], 16) == 0
    assert int(masks["SigIgn"], 16) == 0


# --- lists and tags --------------------------------------------------------------------------

@core
def test_the_list_describes_each_process_as_it_was_started(wire):
    with wire.start("/bin/sleep", "308", envs={"K": "v"}, cwd="/", tag="mine") as stream:
        listed = wire.running()[stream.pid]
        assert listed == {"config": {"cmd": "/bin/sleep", "args": ["308"], "envs": {"K": "v"},
                                     "cwd": "/"}, "pid": stream.pid, "tag": "mine"}
        assert wire.kill(stream.pid).status == 200
        assert stream.collect().end["status"] == "signal: killed"
    assert stream.pid not in wire.running()


def test_a_tag_selects_the_process_that_runs_now(wire):
    with wire.start("/bin/sh", "-c", "exit 1", tag="again") as first:
        first.collect()
    with wire.start("/bin/sleep", "309", tag="again") as second:
        assert wire.process("SendSignal", {"process": {"tag": "again"},
                                           "signal": "SIGNAL_SIGTERM"}).status == 200
        assert second.collect().end["status"] == "signal: terminated"
    reply = wire.process("SendSignal", {"process": {"tag": "no-such-tag"},
                                        "signal": "SIGNAL_SIGTERM"})
    assert (reply.status, reply.json["code"]) == (404, "not_found")


def test_a_signal_other_than_term_and_kill_is_not_supported(wire):
    with wire.start("/bin/sleep", "310") as stream:
        reply = wire.kill(stream.pid, "SIGNAL_UNSPECIFIED")
        assert (reply.status, reply.json["code"]) == (501, "unimplemented")
        wire.kill(stream.pid)
        stream.collect()


# --- the async client ------------------------------------------------------------------------

@core
async def test_the_async_client_runs_feeds_and_kills(async_sandbox):
    commands = async_sandbox.commands
    result = await commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    with pytest.raises(CommandExitException) as caught:
        await commands.run("exit 7")
    assert caught.value.exit_code == 7

    handle = await commands.run("cat", background=True, stdin=True)
    await commands.send_stdin(handle.pid, "hello")
    await commands.close_stdin(handle.pid)
    assert (await handle.wait()).stdout == "hello"

    handle = await commands.run("sleep 30", background=True)
    assert handle.pid in {p.pid for p in await commands.list()}
    assert await handle.kill()
    with pytest.raises(CommandExitException) as caught:
        await handle.wait()
    assert caught.value.error == "signal: killed"
    with pytest.raises(TimeoutException):
        await commands.run("sleep 30", timeout=1)


async def test_the_async_clients_callbacks_get_all_output_in_order(async_sandbox):
    seen = []
    result = await async_sandbox.commands.run("seq 20000; echo e >&2", on_stdout=seen.append)
    assert "".join(seen) == result.stdout == "".join(f"{i}\n" for i in range(1, 20001))
    assert result.stderr == "e\n"


def test_threads_can_share_one_client(sandbox):
    answers = {}

    def work(number):
        for i in range(10):
            answers[number, i] = sandbox.commands.run(f"echo {number}-{i}").stdout

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {(n, i): f"{n}-{i}\n" for n in range(8) for i in range(10)}
