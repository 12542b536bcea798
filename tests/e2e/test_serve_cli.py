"""The commands that speak to a server, as their users call them."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import termios

import pytest

from helpers import proc
from helpers.cli import Cli, box, cli  # noqa: F401: the last two are fixtures
from helpers.cove import CLEAR, COVE
from helpers.proc import wait_until
from helpers.serve import Serve
from helpers.terminal import Terminal

pytestmark = pytest.mark.core

ID = r"i[a-z0-9]{20}"


# --- finding the server ----------------------------------------------------------------------

def test_without_a_server_it_is_said_how_to_start_one(folder):
    for words in (["ps"], ["create"], ["kill", "--all"], ["exec", "i1", "true"]):
        done = subprocess.run([COVE, *words], env=CLEAR | {"COVE_DATA": folder},
                              capture_output=True, text=True)
        assert done.returncode == (125 if words[0] == "exec" else 1)
        assert done.stderr == (
            f"cove {words[0]}: there is no server: COVE_URL is not set, and none runs on {folder} "
            "(start one: cove serve)\n")


def test_a_server_that_has_ended_is_told_from_none(folder):
    pathlib.Path(folder, "server.json").write_text('{"url":"http://127.0.0.1:1","pid":1}')
    pathlib.Path(folder, "admin.key").write_text("e2b_0\n")
    done = subprocess.run([COVE, "ps", "--data", folder], env=CLEAR, capture_output=True, text=True)
    assert done.stderr == ("cove ps: http://127.0.0.1:1: Connection refused (the server has ended; "
                           "start one: cove serve)\n")


@pytest.mark.parametrize("env, said", [
    ({"COVE_URL": "http://127.0.0.1:1"},
     "COVE_URL is set, but COVE_API_KEY is not (`cove key add` there makes one)"),
    ({"COVE_URL": "http://127.0.0.1:1", "COVE_API_KEY": "x"},
     "http://127.0.0.1:1: Connection refused"),
    ({"COVE_URL": "here", "COVE_API_KEY": "x"},
     "COVE_URL: 'here' does not begin with http:// or https://"),
    ({"COVE_URL": "http://127.0.0.1:1", "COVE_API_KEY": "a\r\nX-Evil: b"},
     "what COVE_API_KEY holds is not an API key"),
])
def test_a_wrong_address_is_one_line(env, said):
    done = subprocess.run([COVE, "ps"], env=CLEAR | env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"cove ps: {said}\n")


def test_a_key_that_is_refused(server):
    wrong = Cli(server, COVE_URL=server.url, COVE_API_KEY="e2b_" + "0" * 40)
    assert wrong.failed("ps") == f"cove ps: {server.url} refuses the key in COVE_API_KEY"


def test_an_option_wins_over_the_variable(server):
    other = Cli(server, COVE_URL="http://127.0.0.1:1", COVE_API_KEY="x")
    assert other.text("ps", "--data", server.data).startswith("ID ")


def test_a_server_with_a_private_authority(folder):
    """Trusted by who finds it by its data directory, or is given the certificate."""
    data = os.path.join(folder, "data")
    subprocess.run([COVE, "tls", "init", "--data", data], env=CLEAR, check=True, capture_output=True)
    pem = {name: os.path.join(data, "tls", name) for name in ("ca.pem", "server.pem", "server.key")}
    server = Serve(folder, "--ephemeral", "--tls-cert", pem["server.pem"], "--tls-key",
                   pem["server.key"])
    try:
        assert server.url.startswith("https://")
        near = Cli(server)
        box = near.text("create").strip()
        assert near("exec", box, "cat", input=b"x" * 300_000).stdout == b"x" * 300_000
        far = {"COVE_URL": server.url, "COVE_API_KEY": server.key}
        assert "certificate" in Cli(server, **far).failed("ps")
        assert box in Cli(server, COVE_CA_FILE=pem["ca.pem"], **far).text("ps")
        assert box in Cli(server, SSL_CERT_FILE=pem["ca.pem"], **far).text("ps")
        big = os.path.join(folder, "big")
        pathlib.Path(big).write_bytes(os.urandom(5 << 20))
        near.text("cp", big, f"{box}:big")
        near.text("cp", f"{box}:big", big + "2")
        assert pathlib.Path(big).read_bytes() == pathlib.Path(big + "2").read_bytes()
        with near.started("forward", "--json", box, "0:7003") as process:
            port = json.loads(process.stdout.readline())["forwards"][0]["local"]
            near("exec", "-d", box, "python3", "-c", COUNTER.format(port=7003))
            wait_until(lambda: forwarded(port, 3 << 20) == str(3 << 20).encode(), "no way in", 20)
    finally:
        server.close()


# --- create, ps, kill ------------------------------------------------------------------------

def test_a_sandbox_from_create_to_kill(cli):
    box = cli.text("create", "--metadata", "who=me", "--env", "GREETING=hello").strip()
    assert re.fullmatch(ID, box)
    assert cli.said(box, "echo $GREETING") == "hello"
    line = next(line for line in cli.text("ps").splitlines() if line.startswith(box))
    assert re.fullmatch(box + r"\s+base\s+running\s+\d+s\s+[45]m\s+2G", line)
    assert box in {one["id"] for one in cli.json("ps", "--metadata", "who=me")}
    assert cli.json("ps", "--metadata", "who=you") == []
    assert cli.text("kill", box) == box + "\n"
    assert box not in cli.text("ps")
    assert box in cli.text("ps", "--ended", "--all")
    assert "has ended" in cli.failed("exec", box, "true", status=125) \
        or "exist" in cli.failed("exec", box, "true", status=125)


def test_create_says_what_it_made(cli):
    made = cli.json("create", "-m", "128M", "--cpus", "0.5", "--pids", "77", "--timeout", "1h",
                    "--network", "none", "--strict", "--label", "somebody")
    limits = made["limits"]
    assert (limits["memory_bytes"], limits["cpu_milli"], limits["pids"]) == (128 << 20, 500, 77)
    assert (made["network"], made["strict"], made["timeout"]) == ("none", True, 3600)
    assert made["label"] == "somebody"
    cli("kill", made["id"])


def test_time_over_is_the_end(cli):
    box = cli.text("create", "--timeout", "1s").strip()
    wait_until(lambda: box not in cli.text("ps"), "it lives on", 20)


def test_a_template_that_takes_an_alias_is_what_the_next_sandbox_has(folder, as_root):
    """Neither one of those that wait, nor the machine's own files where it cannot be read."""
    server = Serve(os.path.join(folder, "server"), "--ephemeral", "--set", "pool.size=1")
    cli, there = Cli(server), pathlib.Path(folder, "root")

    def where():
        return cli.said(cli.text("create", "--template", "desktop").strip(), "pwd")

    try:
        home = where()
        wait_until(lambda: re.search(r'cove_pool_ready{template="desktop".*} 1',
                                     server.call("GET", "/metrics", key=None).body.decode()), "none waits")
        cli("template", "add", "--data-dir", str(server.data), "desktop", "host", "--workdir", "/srv")
        assert where() == "/srv" != home
        there.mkdir()
        cli("template", "add", "--data-dir", str(server.data), "ubuntu", str(there))
        there.rmdir()
        assert str(there) in cli.failed("create", "--template", "ubuntu")
    finally:
        server.close()


@pytest.mark.parametrize("words, said", [
    (["--template", "nothing"], "there is no template 'nothing'"),
    (["--memory", "1k"], "memory"),
    (["--memory", "0"], "--memory: 0 is no limit"),
    (["--mount", "/etc:/x"], "--allow-mount"),
    (["--mount", "/etc"], "--mount: '/etc' is not HOST:GUEST or HOST:GUEST:ro"),
    (["--forward", "x:1"], "--forward: 'x:1' is not HOST-PORT:PORT or HOST-PORT:PORT:public (try 8080:80)"),
    (["--metadata", "x"], "--metadata: 'x' is not NAME=VALUE"),
])
def test_what_create_refuses(cli, words, said):
    assert said in cli.failed("create", *words)


def test_kill_ends_all_it_can(cli):
    boxes = [cli.text("create").strip() for _ in range(2)]
    done = cli("kill", boxes[0], "inone", boxes[1], status=1)
    assert done.stdout.decode().split() == boxes
    assert len(done.stderr.splitlines()) == 1
    assert "missing" in cli.failed("kill", status=2)
    assert "together" in cli.failed("kill", "--all", "i1", status=2)
    assert "is no sandbox id" in cli.failed("kill", "../users")


def test_kill_all_is_all_of_ones_own(cli):
    ann, ben = cli.as_user("ann"), cli.as_user("ben")
    mine = {ann.text("create").strip() for _ in range(3)}
    other = ben.text("create").strip()
    assert {one["id"] for one in ann.json("ps")} == mine
    assert "exist" in ann.failed("kill", other)
    assert ann.text("kill", "--all") == "3 ended\n"
    assert ann.json("ps") == []
    assert ben.json("kill", "--all") == {"ended": 1}


# --- exec ------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [0, 1, 77, 124, 125, 126, 127, 255])
def test_the_exit_code_is_the_commands_own(cli, box, code):
    done = cli("exec", box, "--", "sh", "-c", f"exit {code}", status=code)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_streams_are_kept_apart(cli, box):
    done = cli("exec", box, "sh", "-c", "cat; echo err >&2", input=b"in\0\xff")
    assert (done.stdout, done.stderr) == (b"in\0\xff", b"err\n")


def test_much_passes_both_ways(cli, box):
    data = random.Random(5).randbytes(8 << 20)
    assert cli("exec", box, "cat", input=data).stdout == data


def test_options_may_stand_on_both_sides_of_the_id(cli, box):
    for words in (["-u", "root", box, "id", "-un"], [box, "-u", "root", "--", "id", "-un"]):
        assert cli.text("exec", *words) == "root\n"
    assert cli.text("exec", "-w", "/tmp", box, "-e", "A=b", "sh", "-c", "pwd; echo $A") == "/tmp\nb\n"
    assert cli.text("exec", box, "echo", "-u", "x", "--", "y") == "-u x -- y\n"


def test_a_signal_goes_to_the_command(cli, box):
    with cli.started("exec", box, "sh", "-c",
                     "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done") as p:
        assert p.stdout.readline() == "ready\n"
        p.send_signal(signal.SIGTERM)
        assert p.communicate(timeout=20)[0] == "got\n"
        assert p.returncode == 9


def test_how_it_ends_otherwise(cli, box):
    cli("exec", box, "sh", "-c", "kill -KILL $$", status=137)
    assert cli.failed("exec", box, "nothing-like-it", status=127).startswith(
        "cove exec: cannot execute nothing-like-it: ")
    assert cli.failed("exec", box, "/etc/passwd", status=126)
    assert "nobody-like-it" in cli.failed("exec", "-u", "nobody-like-it", box, "true", status=125)
    assert "COMMAND is missing" in cli.failed("exec", box, status=125)
    said = cli.json("exec", box, "sh", "-c", "echo o; echo e >&2; exit 3", status=3)
    assert (said["exit_code"], said["stdout"], said["stderr"]) == (3, "o\n", "e\n")


def test_a_sandbox_that_ends_meanwhile_says_so(cli):
    box = cli.text("create").strip()
    with cli.started("exec", box, "sh", "-c", "echo ready; sleep 100") as p:
        assert p.stdout.readline() == "ready\n"
        cli("kill", box)
        err = p.communicate(timeout=20)[1]
        assert p.returncode == 125
        assert err.startswith(f"cove exec: sandbox {box} has ended"), err


def test_a_detached_command_goes_on_and_its_output_is_kept(cli, box):
    pid = cli.text("exec", "-d", box, "sh", "-c", "echo one; echo two >&2; exec sleep 100").strip()
    wait_until(lambda: cli("logs", box, pid).stdout == b"one\n", "no output", 10)
    assert cli("logs", box, pid).stderr == b"two\n"
    assert cli.said(box, f"cat /proc/{pid}/comm") == "sleep"
    cli.said(box, f"kill {pid}")
    lines = cli("logs", "-f", "--json", box, pid).stdout.splitlines()
    assert json.loads(lines[-1]) == {"exit_code": 128 + signal.SIGTERM}
    assert "no process 99999 runs" in cli.failed("logs", box, "99999")
    assert "'x' is no process id" in cli.failed("logs", box, "x")


def test_logs_follow_a_process_to_its_end(cli, box):
    script = "for i in 1 2 3; do echo $i; sleep 0.1; done"
    pid = cli.json("exec", "-d", box, "sh", "-c", script)["pid"]
    assert cli.text("logs", "-f", box, str(pid)) == "1\n2\n3\n"


# --- shell -----------------------------------------------------------------------------------

@pytest.fixture
def shell(cli, box):
    with Terminal([COVE, "shell", "-e", "PROMPT_COMMAND=PS1=at:", box], env=cli.env) as terminal:
        terminal.expect("at:")
        terminal.line("bind 'set enable-bracketed-paste off'; PROMPT_COMMAND=; PS1=at:; echo plain")
        terminal.expect("plain\r\n.*at:")
        yield terminal


def test_a_shell_is_a_real_terminal(shell):
    assert shell.modes() != shell.before
    shell.line("tty; stty size; echo $TERM; shopt -q login_shell && echo login")
    shell.expect(r"/dev/pts/\d+\r\n33 90\r\nxterm\r\nlogin\r\n")
    shell.resize(120, 40)
    shell.line("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.02; done; echo re''sized")
    shell.expect("resized\r\n")
    shell.line("exit 6")
    assert shell.wait() == 6
    assert shell.modes() == shell.before


def test_keys_are_the_shells_own(shell):
    # It has no children: one that is stopped between vfork() and exec() would keep its parent from stopping.
    shell.line("sh -c 'trap \"echo on\" CONT; echo be\"gun\"; while :; do :; done'")
    shell.expect("begun\r\n")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.line("fg")
    shell.expect("\non\r\n")
    shell.type("\x03")
    shell.line("echo status $?")
    shell.expect("status 130\r\nat:")     # the shell reads keys again, not the terminal lines
    shell.type("\x04")
    shell.wait()
    assert shell.modes() == shell.before


def test_a_shell_that_was_stopped_takes_the_terminal_again(shell):
    shell.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: proc.state(shell.process.pid) == "T", "it is stopped")
    raw = shell.modes()
    termios.tcsetattr(shell.slave, termios.TCSANOW, shell.before)   # as its caller's shell would
    shell.process.send_signal(signal.SIGCONT)
    wait_until(lambda: shell.modes() == raw, "the terminal is not raw again", 10)
    shell.line("exit 2")
    assert shell.wait() == 2
    assert shell.modes() == shell.before


def test_a_shell_that_is_killed_leaves_the_terminal_as_it_was(shell):
    # Not by bash: a signal that it takes between the echo and the exec is lost with its handler.
    shell.line("trap '' TERM; exec sh -c 'echo be\"gun\"; exec sleep 100'")
    shell.expect("begun\r\n")
    shell.process.send_signal(signal.SIGHUP)
    assert shell.wait() == 128 + signal.SIGHUP
    assert shell.modes() == shell.before


def test_a_shell_reads_commands_from_a_pipe(cli, box):
    done = cli("shell", box, input=b"echo $0; exit 4\n", status=4)
    assert done.stdout == b"bash\n"


# --- logs, events ----------------------------------------------------------------------------

def test_the_life_of_a_sandbox_is_told(cli):
    box = cli.text("create").strip()
    with cli.started("events", "-f", "--json", box) as follower:
        assert json.loads(follower.stdout.readline())["kind"] == "created"
        cli("kill", box)
        rest = [json.loads(line) for line in follower.communicate(timeout=20)[0].splitlines()]
        assert follower.returncode == 0
    assert rest[-1]["kind"] == "ended" and rest[-1]["actor"] == "admin"
    kinds = [line.split()[1] for line in cli.text("events", box).splitlines()]
    assert kinds[0] == "created" and kinds[-1] == "ended"
    lines = cli.text("logs", box).splitlines()
    assert len(lines) == len(kinds) and " created: " in lines[0]
    assert cli.text("logs", "--tail", "1", box).splitlines() == lines[-1:]


# --- forward ---------------------------------------------------------------------------------

COUNTER = """
import socket
with socket.create_server(("127.0.0.1", {port})) as server:
    print("ready", flush=True)
    while True:
        peer, _ = server.accept()
        n = 0
        while data := peer.recv(65536):
            n += len(data)
        peer.sendall(str(n).encode())
        peer.close()
"""


def forwarded(port, size):
    """What COUNTER answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as peer:
            peer.sendall(b"x" * size)
            peer.shutdown(socket.SHUT_WR)
            return peer.recv(100)
    except OSError:                     # nothing listens inside yet
        return None


def test_any_protocol_passes_a_forwarded_port(cli, box):
    pid = cli.text("exec", "-d", box, "python3", "-uc", COUNTER.format(port=7001)).strip()
    wait_until(lambda: cli("logs", box, pid).stdout == b"ready\n", "it does not listen", 10)
    with cli.started("forward", "--json", box, "0:7001", "0:7002") as process:
        made = json.loads(process.stdout.readline())["forwards"]
        assert [one["port"] for one in made] == [7001, 7002]
        for size in 0, 1, 5 << 20:
            assert forwarded(made[0]["local"], size) == str(size).encode()
        with socket.create_connection(("127.0.0.1", made[1]["local"]), 20) as peer:
            assert peer.recv(100) == b""
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1] == "cove forward: port 7002 is not open\n"
        assert process.returncode == 0
    cli.said(box, f"kill {pid}")


@pytest.mark.parametrize("words, said", [
    (["x"], "'x' is not PORT or LOCAL:PORT (try 8080:80)"),
    (["0"], "'0' is not PORT"),
    (["--bind", "nowhere", "1:1"], "--bind"),
])
def test_what_forward_refuses(cli, box, words, said):
    assert said in cli.failed("forward", box, *words)


def test_the_guests_own_port_is_not_tunnelled(server, box):
    reply = server.call("GET", f"/v1/sandboxes/{box}/tunnel?port=49983",
                        headers={"Connection": "Upgrade", "Upgrade": "cove-tunnel"})
    assert reply.status == 403
    assert server.call("GET", f"/v1/sandboxes/{box}/tunnel?port=80").status == 426
    assert server.call("GET", f"/v1/sandboxes/{box}/tunnel").status == 400


# --- users, keys -----------------------------------------------------------------------------

def test_a_user_from_beginning_to_lock(cli, server):
    name = "u" + os.urandom(3).hex()
    assert cli.text("user", "add", name, "--password", input=b"correct horse\n").startswith(
        f"user {name}: added")
    row = next(line for line in cli.text("user", "list").splitlines() if line.startswith(name))
    assert row.split()[1:4] == ["user", "no", "yes"]
    done = cli("key", "add", "laptop", "--user", name)
    key = done.stdout.decode().strip()
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", key)
    ident = re.search(rb"its id is (\S+)", done.stderr)[1].decode()
    user = Cli(server, COVE_URL=server.url, COVE_API_KEY=key)
    assert user.json("ps") == []
    assert "admin" in user.failed("user", "list")
    assert key not in user.text("key", "list") and ident in user.text("key", "list")
    assert cli.text("user", "lock", name) == f"user {name}: locked\n"
    assert "refuses the key" in user.failed("ps") or "locked" in user.failed("ps")
    cli.text("user", "unlock", name)
    assert user.json("ps") == []
    cli.text("key", "remove", ident, "--user", name)
    assert "refuses the key" in user.failed("ps")


def test_a_password_is_not_echoed(cli):
    name = "u" + os.urandom(3).hex()
    cli("user", "add", name)
    with Terminal([COVE, "user", "passwd", name], env=cli.env) as terminal:
        terminal.expect("password: ")
        terminal.line("hidden secret")
        terminal.expect("once more: ")
        terminal.line("hidden secret")
        assert terminal.wait() == 0
        assert "hidden" not in terminal.text
        assert terminal.modes() == terminal.before
    with Terminal([COVE, "user", "passwd", name], env=cli.env) as terminal:
        terminal.expect("password: ")
        terminal.line("hidden secret")
        terminal.expect("once more: ")
        terminal.line("something else")
        assert terminal.wait() == 1
        assert terminal.modes() == terminal.before
    assert "no password" in cli.failed("user", "passwd", name)


# --- config ----------------------------------------------------------------------------------

def config(folder, *words, **env):
    done = subprocess.run([COVE, "config", "--json", *words], env=CLEAR | env, cwd=folder,
                          capture_output=True, text=True, check=True)
    return {row["name"]: (row["value"], row["from"]) for row in json.loads(done.stdout)}


def test_every_setting_says_where_it_comes_from(folder):
    pathlib.Path(folder, ".env").write_text(
        "# ours\nCOVE_LISTEN=127.0.0.1:1\nexport COVE_DOMAIN='from.file'\n"
        "COVE_ADMIN_PASSWORD=secret\n")
    rows = config(folder, "--", "--log-level", "warn", "--set", "http.idle-ms=777",
                  COVE_LISTEN="127.0.0.1:2", COVE_API_KEY="e2b_secret")
    assert rows["listen"] == ("127.0.0.1:2", "environment COVE_LISTEN")
    assert rows["domain"] == ("from.file", ".env:3")
    assert rows["log-level"] == ("warn", "flag")
    assert rows["log-format"] == ("logfmt", "default")
    assert rows["http.idle-ms"] == ("777", "flag")
    assert rows["COVE_ADMIN_PASSWORD"] == ("********", ".env:4")
    assert rows["COVE_API_KEY"] == ("********", "environment COVE_API_KEY")
    assert "secret" not in json.dumps(rows)


def test_a_bad_file_is_named_with_its_line(folder):
    pathlib.Path(folder, "bad").write_text("A=1\nB\n")
    done = subprocess.run([COVE, "config", "--config", "bad"], env=CLEAR, cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("cove config: bad: line 2: not NAME=VALUE")
