"""`cove run` at a terminal: the command has one of its own, and ours is as before afterwards."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest

from helpers.cove import CLEAR
from helpers.terminal import Terminal

pytestmark = pytest.mark.core

SHELL = ["-e", "PS1=at:", "bash", "--norc", "--noprofile"]


@pytest.fixture
def shell(cove):
    """An interactive shell inside, at its first prompt."""
    with Terminal(cove.words(*SHELL)) as terminal:
        terminal.expect("at:")
        terminal.line("bind 'set enable-bracketed-paste off'; echo plain")
        terminal.expect("plain\r\n.*at:")
        yield terminal


def test_the_command_has_a_terminal_of_the_same_size(shell):
    shell.line("tty; stty size; echo $TERM; test -t 0 -a -t 1 -a -t 2 && echo all")
    shell.expect(r"/dev/pts/\d+\r\n33 90\r\nxterm\r\nall\r\n")
    shell.line("exit 5")
    assert shell.wait() == 5
    assert shell.modes() == shell.before


def test_the_window_may_change(shell):
    shell.line("trap 'echo changed to $(stty size)' WINCH")
    shell.expect("at:")
    shell.resize(123, 45)
    for _ in range(50):                 # bash looks after its traps when a line is done, and the news may come after it
        shell.line("")
        with contextlib.suppress(AssertionError):
            shell.expect("changed to 45 123", 0.5)
            return
    raise AssertionError(f"the window's size has not changed: {shell.text[-2000:]!r}")
    shell.line("exit")
    assert shell.wait() == 0


def test_control_c_interrupts_the_inner_command_only(shell):
    shell.line("sh -c 'echo be\"gun\"; exec sleep 60'")
    shell.expect("begun\r\n")
    shell.type("\x03")
    shell.expect(r"\^C")
    shell.line("echo status $?")
    shell.expect("status 130\r\n")
    shell.line("exit 3")
    assert shell.wait() == 3


def test_jobs_are_stopped_and_continued(shell):
    shell.line("sh -c 'echo be\"gun\"; exec sleep 2'")
    shell.expect("begun\r\n")
    shell.type("\x1a")
    shell.expect(r"\[1\]\+\s+Stopped\s+sh -c .*sleep 2'\r\n")
    shell.line("jobs")
    shell.expect(r"\[1\]\+\s+Stopped\s+sh -c .*sleep 2'\r\n")
    shell.line("fg")
    shell.expect("fg\r\nsh -c .*sleep 2'\r\n")
    shell.line("echo after")
    shell.expect("after\r\n.*after\r\n")
    shell.line("exit")
    assert shell.wait() == 0


def test_end_of_file_by_control_d(cove):
    with Terminal(cove.words("cat")) as terminal:
        terminal.line("typed")
        terminal.expect("typed\r\n.*typed\r\n")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert terminal.modes() == terminal.before


@pytest.mark.parametrize("editor", ["vim", "vi"])
def test_an_editor_opens_and_writes_a_file(shell, editor):
    if not shutil.which(editor, path="/usr/bin:/bin"):
        pytest.skip(f"this machine has no {editor}")
    shell.line(f"{editor} -u NONE file")
    shell.expect(r"\x1b\[\?1049h|~.*~")
    shell.type("ia line of mine\x1b")
    time.sleep(0.3)
    shell.type(":wq\r")
    shell.expect("at:")
    shell.line("cat file; wc -l file")
    shell.expect("a line of mine\r\n1 file\r\n")
    shell.line("exit")
    assert shell.wait() == 0


def test_much_output_comes_in_order(shell):
    shell.line("seq 1 20000; echo sum $((1+1))")
    lines = shell.expect(r"(?s)\r\n(1\r\n.*20000)\r\nsum 2").group(1)
    assert lines.split("\r\n") == [str(n) for n in range(1, 20001)]


def test_our_terminal_is_raw_meanwhile_and_restored_by_the_end(cove):
    with Terminal(cove.words("sh", "-c", "echo up; sleep 0.3; exit 4")) as terminal:
        terminal.expect("up\r\n")
        assert terminal.modes() != terminal.before
        assert terminal.wait() == 4
        assert terminal.modes() == terminal.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_with_the_terminal_restored(cove, number):
    with Terminal(cove.words("sh", "-c", "echo up; exec sleep 60")) as terminal:
        terminal.expect("up\r\n")
        terminal.process.send_signal(number)
        assert terminal.wait() == 128 + number
        assert terminal.modes() == terminal.before


def test_the_time_limit_restores_it_too(cove):
    with Terminal(cove.words("--timeout", "1", "sleep", "60")) as terminal:
        terminal.expect("the limit 'timeout' of 1 s was reached")
        assert terminal.wait() == 124
        assert terminal.modes() == terminal.before


def test_a_terminal_that_hangs_up_ends_the_sandbox(cove):
    terminal = Terminal(
        cove.words("sh", "-c", "trap '' HUP; echo up; while :; do echo on; sleep 0.1; done")
    )
    terminal.expect("up\r\n")
    os.close(terminal.slave)
    os.close(terminal.master)
    try:
        assert terminal.process.wait(10) != 0
    finally:
        terminal.process.kill()


def test_without_a_terminal_on_both_sides_there_is_none_inside(cove):
    script = "test -t 0 || echo no input; test -t 1 || echo no output"
    with Terminal(
        ["sh", "-c", '"$@" | cat', "sh", *map(str, cove.words("sh", "-c", script))]
    ) as terminal:
        terminal.expect("no input\r\nno output\r\n")
        assert terminal.wait() == 0
    done = subprocess.run(
        cove.words("sh", "-c", script),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=CLEAR,
        check=True,
    )
    assert done.stdout == b"no input\nno output\n"


def test_json_at_a_terminal_is_json(cove):
    with Terminal(cove.words("--json", "sh", "-c", "test -t 1 || echo none")) as terminal:
        terminal.expect(r'"stdout":"none\\n"')
        assert terminal.wait() == 0
        assert terminal.modes() == terminal.before
