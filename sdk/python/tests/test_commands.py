"""Commands and terminals, synchronous."""

from __future__ import annotations

import hashlib
import random
import time

import pytest

import cove
from cove import _wire


def test_a_command_gives_output_and_status(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == (
        "out\n",
        "err\n",
        7,
        False,
    )


def test_check_raises_with_the_result(sandbox):
    with pytest.raises(cove.CommandError, match="no good") as caught:
        sandbox.commands.run("echo no good >&2; false", check=True)
    assert caught.value.result.exit_code == 1


def test_a_program_gets_its_arguments_as_they_are(sandbox):
    result = sandbox.commands.run("printf", ["%s|", "a b", "$HOME", "*"])
    assert result.stdout == "a b|$HOME|*|"


def test_environment_directory_and_user(sandbox):
    result = sandbox.commands.run("echo $A; pwd; id -un", env={"A": "x y"}, cwd="/tmp", user="root")
    assert result.stdout == "x y\n/tmp\nroot\n"


def test_input_reaches_it_and_ends(sandbox):
    assert sandbox.commands.run("cat | wc -c", input=b"x" * 100_000).stdout.strip() == "100000"


def test_input_that_nobody_reads_is_no_error(sandbox):
    assert sandbox.commands.run("true", input="unread").exit_code == 0


def test_input_and_output_at_once_lose_nothing(sandbox):
    """More than any buffer between here and there, and than a request may have."""
    data = b"0123456789abcdef" * (20 << 16)
    result = sandbox.commands.run("cat", input=data)
    assert (len(result.stdout), result.lost_bytes) == (len(data), 0)
    assert result.stdout.encode() == data


def test_input_that_is_not_read_to_its_end_is_no_error(sandbox):
    line = "head -c1; exec <&-; sleep 1; echo"
    assert sandbox.commands.run(line, input=b"x" * 5_000_000).stdout == "x\n"
    with pytest.raises(cove.CommandError):
        sandbox.commands.run("head -c1; false", input=b"x" * 5_000_000, check=True)


def test_a_timeout_ends_one_that_has_not_read_its_input(sandbox):
    with pytest.raises(cove.DeadlineError):
        sandbox.commands.run("sleep 100", input=b"x" * 5_000_000, timeout=1)
    assert sandbox.commands.list() == []


@pytest.fixture
def brief(monkeypatch):
    """A request with input gives up after half a second, not 45."""
    monkeypatch.setattr("cove._sync.commands._INPUT_SHARE", 0.5 / 60)


def test_a_command_may_read_its_input_when_it_likes(sandbox, brief):
    data = random.Random(1).randbytes(300_000)
    result = sandbox.commands.run(
        "sleep 1; head -c100000 | wc -c; sleep 0.8; sha256sum", input=data, timeout=None
    )
    rest = hashlib.sha256(data[100_000:]).hexdigest()  # nothing twice, nothing left out
    assert result.stdout == f"100000\n{rest}  -\n"


def test_input_ends_with_the_command_though_another_holds_it(sandbox, brief):
    since = time.monotonic()
    result = sandbox.commands.run("sleep 100 & exit 3", input=b"x" * 5_000_000, timeout=None)
    assert result.exit_code == 3 and time.monotonic() - since < 20
    sandbox.commands.run("pkill sleep")


def test_writing_to_one_that_never_reads_is_late(sandbox, brief):
    running = sandbox.commands.start("sleep 100", stdin=True)
    with pytest.raises(cove.DeadlineError, match="read its input"):
        running.write(b"x" * 300_000)
    running.kill()
    running.close()


def test_a_connection_that_is_silent_is_made_again(sandbox, monkeypatch):
    """The server says each 50 s that a stream lives: here that is too seldom."""
    monkeypatch.setattr("cove._sync.guest._SILENCE_S", 0.4)
    result = sandbox.commands.run("echo begun; sleep 1.5; echo done", timeout=None)
    assert (result.stdout, result.exit_code) == ("begun\ndone\n", 0)


def test_callbacks_hear_output_while_it_runs(sandbox):
    heard = []
    sandbox.commands.run(
        "echo a; sleep 0.3; echo b; echo c >&2",
        on_stdout=lambda text: heard.append((text, time.monotonic())),
        on_stderr=lambda text: heard.append((text, time.monotonic())),
    )
    assert "".join(text for text, _ in heard if text != "c\n") == "a\nb\n"
    assert heard[-1][1] - heard[0][1] > 0.1


def test_a_timeout_ends_it_and_tells_what_it_wrote(sandbox):
    with pytest.raises(cove.DeadlineError) as caught:
        sandbox.commands.run("echo begun; sleep 100", timeout=2)
    assert caught.value.result.stdout == "begun\n"
    assert not caught.value.result.ok and caught.value.result.exit_code == -1
    assert isinstance(caught.value, TimeoutError)
    assert not [p for p in sandbox.commands.list() if "sleep 100" in " ".join(p.args)]


def test_a_background_command_outlives_its_reader(sandbox):
    running = sandbox.commands.start("for i in $(seq 1 5); do echo $i; sleep 0.2; done")
    assert next(iter(running)).text == "1\n"
    at = running.offset
    running.close()
    again = sandbox.commands.connect(running.pid, at)
    assert again.wait().stdout == "2\n3\n4\n5\n"


def test_reconnecting_without_an_offset_gives_what_nobody_read(sandbox):
    running = sandbox.commands.start("echo first; sleep 0.5; echo second")
    next(iter(running))
    running.close()
    assert sandbox.commands.connect(running.pid).wait().stdout == "second\n"


def test_a_broken_connection_goes_on_where_it_broke(sandbox):
    running = sandbox.commands.start("for i in $(seq 1 6); do echo line $i; sleep 0.2; done")
    pieces, seen = iter(running), []
    seen.append(next(pieces).text)
    # What a network would do: the sockets under the client die.
    for connection in list(sandbox.client.http._transport._pool.connections):
        stream = connection._connection._network_stream
        stream.get_extra_info("socket").shutdown(2)
    seen += [piece.text for piece in pieces]
    assert "".join(seen) == "".join(f"line {i}\n" for i in range(1, 7))
    assert running.exit_code == 0


def test_stdin_of_a_background_command(sandbox):
    running = sandbox.commands.start("read a; echo got $a", stdin=True)
    running.write("this\n")
    assert running.wait().stdout == "got this\n"


def test_kill_and_terminate(sandbox):
    running = sandbox.commands.start("sleep 1000", tag="sleeper")
    assert [p.tag for p in sandbox.commands.list()] == ["sleeper"]
    assert sandbox.commands.kill(running.pid) is True
    result = running.wait()
    assert (result.exit_code, result.ok) == (-1, False)
    assert "killed" in result.error
    assert sandbox.commands.kill(4_000_000) is False


def test_characters_cut_by_a_packet_are_whole(sandbox):
    script = (
        "import sys, time\nfor b in 'äöü€'.encode():\n"
        " sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.02)"
    )
    assert sandbox.commands.run("python3", ["-c", script]).stdout == "äöü€"


def test_a_megabyte_of_output_arrives_whole(sandbox):
    result = sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(result.stdout) == 3_000_000 and result.lost_bytes == 0


def test_a_gap_that_was_told_is_not_asked_for_again():
    """A connection that breaks right behind it goes on behind it."""
    reader = _wire.ProcessReader()

    def take(event):
        return "".join(piece.text for piece in reader.take({"event": event}))

    take({"start": {"pid": 7}, "offset": "0"})
    assert take({"data": {"stdout": "YWJj"}, "offset": "0"}) == "abc"
    take({"lost": {"bytes": "10"}, "offset": "3"})
    assert (reader.offset, reader.lost) == (13, 10)
    take({"start": {"pid": 7}, "offset": "13"})  # the new connection
    assert take({"data": {"stdout": "ZGVm"}, "offset": "13"}) == "def"
    assert (reader.offset, reader.text("stdout"), reader.result().lost_bytes) == (16, "abcdef", 10)


def test_output_that_is_not_kept_any_more_is_an_error_with_the_offset(sandbox):
    with sandbox.commands.start("read x; seq 500000", stdin=True) as running:
        pass
    running.write("\n")
    until = time.monotonic() + 20
    while any(process.pid == running.pid for process in sandbox.commands.list()):
        assert time.monotonic() < until
        time.sleep(0.05)
    with pytest.raises(cove.DataLossError) as caught:
        sandbox.commands.connect(running.pid, 0)
    first = int(str(caught.value).rpartition(" ")[2])
    assert sandbox.commands.connect(running.pid, first).wait().stdout.endswith("\n500000\n")
    kept = sandbox.commands.connect(running.pid).wait()
    assert kept.exit_code == 0


def test_a_missing_directory_is_a_sentence(sandbox):
    with pytest.raises(cove.InvalidRequestError, match="/nowhere"):
        sandbox.commands.run("true", cwd="/nowhere")


def test_a_terminal(sandbox):
    with sandbox.pty.create(cols=90, rows=20) as terminal:
        terminal.write("stty size\n")
        text = ""
        for output in terminal:
            text += output.text
            if "20 90" in text:
                break
        terminal.resize(100, 30)
        terminal.write("stty size; exit\n")
        result = terminal.wait()
    assert "30 100" in result.stdout and result.exit_code == 0
