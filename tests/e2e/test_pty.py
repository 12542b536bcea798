"""Terminals: a login shell with job control behind a pty."""

import asyncio
import threading
import time

import pytest
from e2b import CommandExitException, PtySize, SandboxException, TimeoutException

from helpers.guest import SLOWER
from helpers.there import os, proc

pytestmark = pytest.mark.sdk

core = pytest.mark.core
PROMPT = "cove-e2e> "


class Terminal:
    """A pty of the sync SDK with somebody who watches the screen."""

    def __init__(self, sandbox, cols=80, rows=24, **options):
        self.sandbox = sandbox
        self.handle = sandbox.pty.create(size=PtySize(rows=rows, cols=cols), timeout=50, **options)
        self.pid = self.handle.pid
        self.screen, self.failure, self.result = b"", None, None
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        self.type("bind 'set enable-bracketed-paste off'; unset PROMPT_COMMAND; "
                  f"PS1='{PROMPT[:4]}''{PROMPT[4:]}'\n")
        self.expect(PROMPT)

    def watch(self):
        try:
            self.result = self.handle.wait(on_pty=self.add)
        except Exception as failure:            # pylint: disable=broad-except
            self.failure = failure

    def add(self, data):
        self.screen += data

    def type(self, text):
        self.sandbox.pty.send_stdin(self.pid, text.encode())

    def expect(self, text, timeout=20):
        """Waits for text, and takes the screen up to it away."""
        where = proc.wait_until(lambda: self.screen.find(text.encode()) + 1,
                                f"{text!r} on the screen", timeout * SLOWER)
        end = where - 1 + len(text.encode())
        seen, self.screen = self.screen[:end], self.screen[end:]
        return seen.decode(errors="replace")

    def run(self, text):
        """The output of a command, without its echo and without the next prompt."""
        self.type(text + "\n")
        return self.expect(PROMPT).replace("\r", "").partition("\n")[2].removesuffix(PROMPT)

    def ended(self, timeout=20):
        self.thread.join(timeout * SLOWER)
        assert not self.thread.is_alive(), "the terminal is still open"


@pytest.fixture
def terminal(sandbox):
    made = []

    def make(**options):
        made.append(Terminal(sandbox, **options))
        return made[-1]

    yield make
    for each in made:
        sandbox.pty.kill(each.pid)
        each.ended()


@core
def test_a_terminal_is_a_login_shell_on_a_tty(terminal):
    shell = terminal()
    assert shell.run("shopt -q login_shell && tty").startswith("/dev/pts/")
    assert shell.run("echo $TERM $LANG $LC_ALL") == "xterm-256color C.UTF-8 C.UTF-8\n"
    assert shell.run("[[ $- == *i* && $- == *m* ]] && echo interactive") == "interactive\n"


@core
def test_a_terminal_has_the_size_it_was_given_and_can_be_resized(terminal, sandbox):
    shell = terminal(cols=101, rows=37)
    assert shell.run("stty size") == "37 101\n"
    shell.type("bash -c 'trap \"echo resi\"zed WINCH; echo rea\"dy\"; "
               "for i in {1..400}; do sleep 0.05; done'\n")
    shell.expect("ready")
    sandbox.pty.resize(shell.pid, PtySize(rows=50, cols=132))
    shell.expect("resized")
    shell.type("\x03")
    shell.expect(PROMPT)
    assert shell.run("stty size") == "50 132\n"


@core
def test_ctrl_c_interrupts_what_runs_and_keeps_the_shell(terminal):
    shell = terminal()
    shell.type("sleep 401\n")
    proc.wait_until(lambda: proc.with_argument("401"), "sleep to start", 10)
    shell.type("\x03")
    shell.expect("^C")
    shell.expect(PROMPT)
    assert shell.run("echo $?") == "130\n"
    assert not proc.with_argument("401")


@core
def test_ctrl_z_stops_a_job_and_fg_goes_on_with_it(terminal):
    shell = terminal()
    shell.type("sleep 402\n")
    job = proc.wait_until(lambda: proc.with_argument("402"), "sleep to start", 10).pop()
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.expect(PROMPT)
    assert proc.state(job) == "T"
    shell.type("fg\n")
    proc.wait_until(lambda: proc.state(job) == "S", "the job to go on", 10)
    shell.type("\x03")
    shell.expect(PROMPT)
    assert not proc.alive(job)


def test_ctrl_d_ends_the_shell(terminal):
    shell = terminal()
    shell.type("\x04")
    shell.ended()
    assert shell.failure is None
    assert shell.result.exit_code == 0


@core
def test_the_exit_code_of_a_terminal_is_the_shells(terminal):
    shell = terminal()
    shell.type("exit 7\n")
    shell.ended()
    assert isinstance(shell.failure, CommandExitException)
    assert shell.failure.exit_code == 7


@core
def test_killing_a_terminal_ends_its_jobs_too(terminal, sandbox):
    shell = terminal()
    shell.type("sleep 403 & sleep 404\n")       # each job has a process group of its own
    jobs = proc.wait_until(
        lambda: len(found := proc.with_argument("403") | proc.with_argument("404")) == 2 and found,
        "two jobs", 10)
    assert sandbox.pty.kill(shell.pid) is True
    shell.ended()
    assert shell.failure.exit_code == -1
    proc.wait_until(lambda: not any(map(proc.alive, jobs)), "the jobs to be gone")
    assert sandbox.pty.kill(shell.pid) is False


def test_a_job_that_ignores_the_hangup_outlives_its_terminal(terminal):
    shell = terminal()
    assert shell.run("nohup sleep 405 >/dev/null 2>&1 & disown")
    job = proc.wait_until(lambda: proc.with_argument("405"), "the job", 10).pop()
    shell.type("exit\n")
    shell.ended()
    assert proc.alive(job)
    os.kill(job, 9)


def test_output_of_a_terminal_arrives_whole(terminal):
    shell = terminal()
    lines = shell.run("stty -echo; seq 100000").split()
    assert lines == [str(i) for i in range(1, 100001)]


def test_a_terminal_takes_unicode_and_edits_it(terminal):
    shell = terminal()
    shell.type("echo žluťoučkýX\x7f 🐎\n")
    assert "žluťoučký 🐎" in shell.expect(PROMPT).split("\n")[1]


def test_a_terminal_runs_with_the_variables_and_directory_it_was_given(terminal, folder):
    shell = terminal(envs={"GIVEN": "yes", "TERM": "vt100"}, cwd=folder)
    assert shell.run("echo $GIVEN $TERM $PWD") == f"yes vt100 {folder}\n"


def test_a_terminal_of_another_user_belongs_to_it(terminal, as_root):
    shell = terminal(user="daemon", cwd="/")
    if not shell.thread.is_alive():
        pytest.fail(str(shell.failure))
    assert shell.run("id -un; stat -c %U $(tty)") == "daemon\ndaemon\n"


def test_input_of_the_wrong_kind_is_refused(terminal, sandbox, wire):
    shell = terminal()
    with pytest.raises(SandboxException, match="has a terminal"):
        sandbox.commands.send_stdin(shell.pid, "x")
    reply = wire.process("CloseStdin", {"process": {"pid": shell.pid}})
    assert (reply.status, reply.json["code"]) == (500, "unknown")
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    with pytest.raises(SandboxException, match="does not have a terminal"):
        sandbox.pty.send_stdin(handle.pid, b"x")
    handle.kill()


def test_a_process_without_a_terminal_cannot_be_resized(sandbox):
    handle = sandbox.commands.run("sleep 30", background=True)
    with pytest.raises(SandboxException, match="has no terminal"):
        sandbox.pty.resize(handle.pid, PtySize(rows=1, cols=1))
    assert handle.kill()


@pytest.mark.current_sdk("stream_input")
def test_a_terminals_input_can_be_streamed(terminal, sandbox):
    shell = terminal()
    sandbox.pty.stream_input(shell.pid, [b"echo str", b"eamed-", "in\n"])
    shell.expect("\nstreamed-in")


@core
def test_who_leaves_a_terminal_can_come_back_to_it(sandbox):
    first = sandbox.pty.create(size=PtySize(rows=24, cols=80), timeout=50)
    sandbox.pty.send_stdin(first.pid, b"stty -echo; PS1=; echo one-$((1+1))\n")
    read_until(first, b"one-2")
    first.disconnect()
    time.sleep(0.3)                     # what comes before the guest hears of that goes where nobody reads
    sandbox.pty.send_stdin(first.pid, b"echo two-$((1+2))\n")
    time.sleep(0.3)
    second = sandbox.pty.connect(first.pid, timeout=50)
    read_until(second, b"two-3")
    sandbox.pty.send_stdin(first.pid, b"echo three-$((1+3)); exit\n")
    read_until(second, b"three-4")
    assert second.wait().exit_code == 0


def read_until(handle, text):
    seen = b""
    for _, _, data in handle:
        seen += data or b""
        if text in seen:
            return
    pytest.fail(f"{text} did not come: {seen}")


def test_the_time_limit_of_a_terminal_ends_it(sandbox):
    handle = sandbox.pty.create(size=PtySize(rows=24, cols=80), timeout=1)
    with pytest.raises(TimeoutException):
        handle.wait()
    proc.wait_until(lambda: not proc.alive(handle.pid), "the shell to be gone")


@core
async def test_the_async_client_drives_a_terminal(async_sandbox):
    screen, pty = bytearray(), async_sandbox.pty
    handle = await pty.create(size=PtySize(rows=30, cols=90), on_data=screen.extend, timeout=50)
    await pty.send_stdin(handle.pid, b"echo size $(stty size)\n")
    while b"size 30 90" not in screen:
        await asyncio.sleep(0.02)
    await pty.resize(handle.pid, PtySize(rows=40, cols=100))
    await pty.send_stdin(handle.pid, b"echo size $(stty size); exit 3\n")
    with pytest.raises(CommandExitException) as caught:
        await handle.wait()
    assert caught.value.exit_code == 3
    assert b"size 40 100" in screen
