"""`cove serve` as processes: how it starts and ends, what it says and what it keeps to itself, and
what becomes of sandboxes when one of its parts is killed."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

import pytest
from e2b import Sandbox

from helpers import machine, proc
from helpers.cove import CLEAR, for_anybody
from helpers.guest import SANITIZED, SLOWER
from helpers.proc import wait_until
from helpers.serve import READY, Serve

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to limit, map and mount"),
              pytest.mark.timeout(180)]

KEY, PASSWORD = "e2b_" + 10 * "c0de", "correct-horse-battery"
PSS_KIB = 20 << 10                      # of all processes of an idle server


class Server(Serve):
    """A server whose processes can be looked at one by one."""

    def parts(self):
        """Pids by name: the monitor, its children and theirs, without sandboxes."""
        found, todo = {}, [self.process.pid]
        while todo:
            pid = todo.pop()
            with contextlib.suppress(OSError):  # it may just have ended
                if machine.comm(pid) == "cove-zygote" and proc.status_words(pid, "Uid")[0] != "0":
                    continue            # a sandbox: a copy of the zygote
                found.setdefault(machine.comm(pid), pid)
                todo += sorted(proc.children(pid), key=proc.begun, reverse=True)
        return found    # of two the older one: a sandbox is a copy of the zygote for a moment

    def part(self, name):
        return wait_until(lambda: self.parts().get(name), f"no {name}", 10 * SLOWER)

    def kill(self, *names):
        """All at once: none of them sees another one's end."""
        parts = self.parts()
        pids = [parts[name] for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if "cove-monitor" in names:
            self.process.wait(10)
            self.process.stdout.close()
        return pids

    def answers(self):
        try:
            return self.call("GET", "/health", key=None).status == 200
        except OSError:
            return False

    def sandbox(self, **more):
        return Sandbox.create(**self.sdk(timeout=300, **more))

    def again(self, sandbox):
        """The same sandbox, asked for anew: the server may have another port by now."""
        return Sandbox.connect(sandbox.sandbox_id, **self.sdk())

    def end_and_close(self):
        if not self.running():
            self.start()
        self.end_all()
        self.close()


@pytest.fixture(scope="module")
def home(workspace):
    """A data directory that has been used before: the volume and template host are made."""
    path = pathlib.Path(tempfile.mkdtemp(dir=workspace, prefix="serve-"))
    first = Server(path)
    first.close()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(home):
    """Starts servers on that directory, one after the other; the last one's sandboxes end."""
    started = []

    def begin(*options, env=None):
        started.append(Server(home, *options, env=env))
        return started[-1]

    yield begin
    for server in started:
        server.process.stdout.close()
    if started:
        started[-1].end_and_close()


def words(folder, *options):
    folder = pathlib.Path(folder)
    return [for_anybody(folder), "serve", "--data", folder / "data", "--run-dir", folder / "run",
            *(("--listen", "127.0.0.1:0") if "--listen" not in options else ()), *options]


def refused(folder, *options, status=1, env=None, **more):
    """The one line in which a server that does not start says why."""
    done = subprocess.run(words(folder, *options), capture_output=True, text=True, timeout=60,
                          env=CLEAR | (env or {}), cwd=folder, **more)
    assert done.returncode == status and done.stdout == "", done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("cove serve: "), lines
    return lines[0].removeprefix("cove serve: ")


def exposed(server, secret):
    """Where others could read it: arguments, environments, the log."""
    found = []
    for name, pid in server.parts().items():
        for kind in "cmdline", "environ":
            try:
                text = pathlib.Path(f"/proc/{pid}/{kind}").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue                # it has just ended
            if secret.encode() in text:
                found.append(f"{kind} of {name}")
    if secret in server.log.read_text():
        found.append("the log")
    return found


def works(server, key):
    return server.call("GET", "/v1/users", key=key).status == 200


# ---- starting

def test_the_first_start_says_where_key_and_password_are_and_no_later_one_does(folder):
    server = Server(folder)
    try:
        key, password = server.key, (server.data / "admin.password").read_text().strip()
        # standard output is a pipe: somebody keeps what is said there
        assert f"{server.data}/admin.password" in server.said[0] and f"{server.data}/admin.key" in server.said[0]
        assert not any(key in line or password in line for line in server.said), server.said
        for name in "admin.key", "admin.password":
            mode = (server.data / name).stat()
            assert stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_uid == 0
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
        assert works(server, key) and not works(server, key[:-1])
        server.create(timeout=60)
        assert not exposed(server, key) and not exposed(server, password)
        server.stop()
        server.start()
        assert not any(key in line or password in line for line in server.said), server.said
        assert works(server, key)
        assert json.loads((server.data / "server.json").read_text())["url"] == server.url
    finally:
        server.end_and_close()
    assert not (server.data / "server.json").exists()


def test_a_terminal_is_told_key_and_password_once(folder, home):
    names = "admin.key", "admin.password"
    for name in names:
        (home / "data" / name).unlink()
    terminal, end = pty.openpty()
    words = [for_anybody(folder), "serve", "--ephemeral", "--data", home / "data", "--run-dir", home / "run",
             "--listen", "127.0.0.1:0", "--set", f"volume.initial-bytes={256 << 20}"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=end, env=CLEAR, cwd=home) as process:
        os.close(end)
        said = b""
        try:
            while READY.encode() not in said:
                assert select.select([terminal], [], [], 60 * SLOWER)[0], said
                said += os.read(terminal, 4096)
            key, password = ((home / "data" / name).read_text().strip() for name in names)
            assert f"administrator: admin, password {password}\r\n" in said.decode()
            assert f"API key: {key}\r\n" in said.decode()
        finally:
            process.terminate()
    os.close(terminal)
    wait_until(lambda: not os.path.ismount(home / "data/volume")
               or not subprocess.run(["umount", home / "data/volume"], capture_output=True).returncode,
               "the volume is in use", 20, 0.2)


def test_given_secrets_are_said_nowhere(start, home):
    server = start()
    former = server.key
    server.stop()
    server = start(env={"COVE_API_KEY": KEY, "COVE_ADMIN_PASSWORD": PASSWORD})
    assert server.key == KEY and (home / "data/admin.password").read_text().strip() == PASSWORD
    assert works(server, KEY) and not works(server, former)
    assert not any(KEY in line or PASSWORD in line for line in server.said), server.said
    assert not exposed(server, KEY) and not exposed(server, PASSWORD)
    assert len(server.ok("GET", "/v1/keys")) == 1


def test_a_deleted_key_is_replaced(start, home):
    server = start()
    former = server.key
    server.stop()
    (home / "data/admin.key").unlink()
    server = start()
    assert server.key != former and any(f"{server.data}/admin.key" in line for line in server.said)
    assert works(server, server.key) and not works(server, former)


@pytest.mark.parametrize("variable, value, words", [
    ("COVE_API_KEY", "short", "16 to 63 characters"),
    ("COVE_API_KEY", "with a space in its middle", "printable ASCII"),
    ("COVE_API_KEY", 64 * "x", "16 to 63 characters"),
    ("COVE_ADMIN_PASSWORD", "short", "8 to "),
])
def test_a_secret_that_cannot_be_is_refused_and_changes_nothing(home, variable, value, words):
    before = (home / "data/admin.key").read_text()
    said = refused(home, env={variable: value})
    assert said.startswith(variable + ": ") and words in said and value not in said
    assert (home / "data/admin.key").read_text() == before


@pytest.mark.parametrize("address, words", [
    ("nonsense", "ADDR:PORT"),
    ("127.0.0.1:99999", "65535"),
    ("127.0.0.1:http", "65535"),
    ("localhost.example:80", "not an IP address"),
    ("192.0.2.1:8000", "Cannot assign requested address"),
])
def test_an_address_that_cannot_be_is_refused(home, address, words):
    said = refused(home, "--listen", address)
    assert said.startswith("--listen") and words in said
    assert said.count(address.rpartition(":")[0]) >= 1


def test_a_port_that_is_taken_is_refused(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(home, "--listen", f"127.0.0.1:{port}")
        assert said.startswith(f"--listen 127.0.0.1:{port}: ") and "in use" in said
        said = refused(home, "--preview-listen", f"127.0.0.1:{port}")
        assert said.startswith(f"--preview-listen 127.0.0.1:{port}: ") and "in use" in said


def test_a_second_server_on_one_data_directory_is_refused(start, home):
    server = start()
    said = refused(home)
    assert f"(pid {server.process.pid})" in said and str(home / "data") in said
    assert server.answers()


@pytest.mark.parametrize("options, words", [
    (["--log-level", "loud"], "debug"),
    (["--log-format", "xml"], "logfmt"),
    (["--tls-cert", "x.pem"], "--tls-key"),
    (["--lifeline", "77"], "77 is not open"),
    (["--set", "pool.size=many"], "pool.size"),
    (["--set", "no.such=1"], "no.such"),
    (["--config", "missing.env"], "missing.env"),
    (["extra"], "extra"),
])
def test_a_wrong_command_line_is_told_apart(home, options, words):
    assert words in refused(home, *options, status=2)


@pytest.mark.parametrize("options, words", [
    (["--user", "nobody-of-this-name"], "nobody-of-this-name"),
    (["--user", "root"], "root"),
    (["--tls-cert", "none.pem", "--tls-key", "none.pem"], "none.pem"),
])
def test_what_the_machine_lacks_is_said(home, options, words):
    assert words in refused(home, *options)


def test_a_damaged_store_ends_the_start_with_its_name(folder):
    state = pathlib.Path(folder) / "data/serve"
    state.mkdir(parents=True)
    (state / "cove.db").write_bytes(os.urandom(8192))
    before = machine.mounts()
    done = subprocess.run(words(folder), capture_output=True, text=True, timeout=60, env=CLEAR,
                          cwd=folder)
    assert done.returncode == 1 and READY not in done.stdout
    assert "cove.db" in done.stderr
    assert not [mount for mount in machine.mounts() - before if folder in mount]


def test_what_the_caller_left_open_is_closed(start, home):
    left, right = os.pipe()
    os.set_inheritable(right, True)
    process = subprocess.Popen(words(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=CLEAR, cwd=home, pass_fds=[right])
    os.close(right)
    try:
        assert select.select([left], [], [], 10)[0] and os.read(left, 1) == b""
        while READY not in process.stdout.readline().decode():
            continue
    finally:
        os.close(left)
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()


def test_another_user_takes_the_files_over(start, home):
    start(env={"COVE_API_KEY": KEY}).stop()
    server = start("--user", "nobody")
    assert works(server, KEY)
    owners = {path.owner() for path in (home / "data/serve").iterdir()}
    assert owners == {"nobody"}
    server.stop()
    assert works(start(), KEY)


# ---- ending

def count_up(sandbox):
    """Starts a command that goes on for long; its handle."""
    return sandbox.commands.run("i=0; while :; do i=$((i + 1)); echo $i; sleep 0.05; done",
                                background=True, timeout=0)


def check_it_counts(server, sandbox, pid):
    """The command is the same one, nothing of its output is lost, and it still says more."""
    seen = []
    handle = server.again(sandbox).commands.connect(pid, timeout=0)
    for out, _, _ in handle:
        seen += [int(line) for line in (out or "").split()]
        if seen and seen[-1] >= 20 and len(seen) > 1:
            break
    handle.disconnect()
    assert seen == list(range(seen[0], seen[0] + len(seen))), seen


def test_sandboxes_and_their_commands_outlive_a_server(start):
    server = start()
    sandbox = server.sandbox()
    pid = count_up(sandbox).pid
    sandbox.files.write("note", "kept")
    server.stop()
    assert not server.parts().get("cove-serve")
    server = start()
    again = server.again(sandbox)
    assert again.files.read("note") == "kept"
    check_it_counts(server, sandbox, pid)
    assert again.commands.run("echo $((6 * 7))").stdout == "42\n"
    assert [box.sandbox_id for box in Sandbox.list(**server.sdk()).next_items()] == \
        [sandbox.sandbox_id]


@pytest.fixture
def untouched(home):
    """The machine as it is without a server; a test has to leave it so."""
    machine.collect_orphans()
    before = machine.traces(home / "data")
    yield

    def left():
        machine.collect_orphans()
        return machine.traces(home / "data") - before

    wait_until(lambda: not left(), f"left behind: {sorted(left())}", 20 * SLOWER, 0.2)


@contextlib.contextmanager
def running(home, *options, **more):
    """A server that has to end by itself in the block."""
    server = Server(home, *options)
    try:
        yield server
        assert server.process.wait(60 * SLOWER) == more.get("status", 0), server.told()
    finally:
        server.process.stdout.close()
        if server.running():
            server.process.kill()


def test_an_ephemeral_server_leaves_nothing(untouched, home):
    with running(home, "--ephemeral") as server:
        for network in "open", "none":
            server.create(timeout=300, network=network)
        count_up(server.sandbox())
        server.process.terminate()


def test_a_server_without_sandboxes_leaves_nothing(untouched, home):
    with running(home) as server:
        server.ok("DELETE", f"/v1/sandboxes/{server.create(timeout=60)['id']}", status=204)
        server.process.terminate()


def test_what_is_typed_at_its_terminal_ends_it_in_order(untouched, home):
    process = subprocess.Popen(words(home, "--ephemeral"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=CLEAR,
                               cwd=home, process_group=0)
    with process, process.stdout:
        lines = iter(process.stdout.readline, b"")
        url = next(line for line in lines if line.startswith(READY.encode())).decode().split()[-1]
        key = (home / "data/admin.key").read_text().strip()
        Sandbox.create(api_key=key, api_url=url, sandbox_url=url, timeout=300)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30 * SLOWER) == 0


@pytest.mark.parametrize("after_s", [0, 0.02, 0.1, 0.3])
def test_one_that_is_told_to_end_while_it_starts_ends(untouched, home, after_s):
    process = subprocess.Popen(words(home), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, env=CLEAR, cwd=home)
    with process, process.stderr:
        time.sleep(after_s)
        process.terminate()
        assert process.wait(10 * SLOWER) in (0, -signal.SIGTERM), process.stderr.read()


def test_the_lifeline_ends_it(untouched, home):
    left, right = os.pipe()
    try:
        process = subprocess.Popen(words(home, "--ephemeral", "--lifeline", str(left)),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=CLEAR, cwd=home, pass_fds=[left])
        with process, process.stdout:
            while READY not in process.stdout.readline().decode():
                continue
            os.write(right, b"data on it is nothing")
            time.sleep(0.3)
            assert process.poll() is None
            os.close(right)
            right = None
            assert process.wait(30 * SLOWER) == 0
    finally:
        os.close(left)
        if right is not None:
            os.close(right)


def test_the_lifeline_may_be_standard_input_and_sees_its_holder_killed(untouched, home):
    holder = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    process = subprocess.Popen(words(home, "--ephemeral", "--lifeline", "0"), stdin=holder.stdout,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=CLEAR,
                               cwd=home)
    holder.stdout.close()
    with process, process.stdout:
        while READY not in process.stdout.readline().decode():
            continue
        holder.kill()
        holder.wait()
        assert process.wait(30 * SLOWER) == 0


def test_a_hang_up_keeps_it_serving(start):
    server = start()
    sandbox = server.sandbox()
    parts = server.parts()
    os.kill(parts["cove-monitor"], signal.SIGHUP)
    wait_until(lambda: "msg=reloaded" in server.log.read_text(), "it does not say so")
    assert server.parts() == parts and server.answers()
    assert sandbox.commands.run("echo still").stdout == "still\n"


# ---- logs and configuration

def test_logs_are_json_where_that_is_asked_for(start):
    server = start("--log-format", "json", "--log-level", "debug")
    begin = len(server.log.read_text().splitlines())
    server.create(timeout=60)
    wait_until(lambda: len(server.log.read_text().splitlines()) > begin, "it logs nothing")
    lines = server.log.read_text().splitlines()[begin:]
    for line in lines:
        assert {"time", "level", "msg"} <= set(json.loads(line))


def test_logs_can_be_off(folder, home):
    server = Server(home, "--log-level", "off")
    begin = server.log.stat().st_size
    server.create(timeout=60)
    server.end_all()
    server.stop()
    assert server.log.stat().st_size == begin
    server.process.stdout.close()


def test_flags_win_over_variables_and_those_over_the_file(start, home):
    (home / "settings").write_text("COVE_LOG_FORMAT=json\nCOVE_DOMAIN=file.example\n"
                                   "COVE_PREVIEW_LISTEN=none\nCOVE_SET=pool.size=0\n")
    env = {"COVE_DOMAIN": "variable.example", "COVE_LOG_LEVEL": "debug"}
    flags = ["--log-level", "info"]
    begin = (home / "serve.log").stat().st_size
    server = start("--config", home / "settings", *flags, env=env)
    made = server.create(timeout=60)
    assert made["domain"] == "variable.example"
    assert not any("previews" in line for line in server.said)
    levels = {json.loads(line)["level"] for line in server.log.read_text()[begin:].splitlines()}
    assert "info" in levels and "debug" not in levels
    done = subprocess.run([for_anybody(home), "config", "--json", "--config", home / "settings", "--",
                           *flags], capture_output=True, text=True, env=CLEAR | env, cwd=home)
    rows = {row["name"]: (row["value"], row["from"]) for row in json.loads(done.stdout)}
    assert rows["log-level"] == ("info", "flag")
    assert rows["domain"] == ("variable.example", "environment COVE_DOMAIN")
    assert rows["log-format"] == ("json", f"{home}/settings:1")
    assert rows["preview-listen"] == ("none", f"{home}/settings:3")
    assert rows["pool.size"][0] == "0"
    assert rows["listen"] == ("127.0.0.1:8000", "default")


def test_a_file_named_env_in_its_directory_is_read(start, home):
    (home / ".env").write_text(f"COVE_API_KEY={KEY}\nCOVE_DOMAIN=dot.example\n")
    try:
        server = start()
    finally:
        (home / ".env").unlink()
    assert server.key == KEY and server.create(timeout=60)["domain"] == "dot.example"
    assert not exposed(server, KEY)


# ---- crashes

@pytest.mark.parametrize("victims", [
    ["cove-serve"],
    ["cove-keep"],
    ["cove-serve", "cove-keep"],
    ["cove-monitor"],
    ["cove-monitor", "cove-serve", "cove-keep"],
], ids="+".join)
def test_whoever_is_killed_sandboxes_go_on(start, victims):
    server = start("--set", "pool.size=1")
    sandbox = server.sandbox()
    pid = count_up(sandbox).pid
    gone, at = server.kill(*victims), time.monotonic()
    if "cove-monitor" in victims:
        server = start("--set", "pool.size=1")
    wait_until(server.answers, "it does not answer again", 10 * SLOWER)
    assert server.again(sandbox).commands.run("echo here").stdout == "here\n"
    print(f"after {' and '.join(victims)}: {time.monotonic() - at:.3f} s")
    if not SANITIZED and "cove-monitor" not in victims:
        assert time.monotonic() - at < 1.5
    check_it_counts(server, sandbox, pid)
    assert not any(proc.alive(one) for one in gone)
    assert server.sandbox().commands.run("echo new").stdout == "new\n"


def test_a_create_whose_helper_dies_may_be_tried_again(start):
    """It is nobody's conflict: who asked has done nothing wrong, and the next one works."""
    server = start("--set", "pool.size=0", "--set", "keep.stock=0")
    netmaker = wait_until(lambda: server.parts().get("cove-net"), "no cove-net", 10 * SLOWER)
    os.kill(netmaker, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.call, "POST", "/v1/sandboxes", {"timeout": 60, "network": "none"})
        wait_until(lambda: server.ok("GET", "/v1/sandboxes?state=creating")["sandboxes"], "nobody asks", 10 * SLOWER)
        time.sleep(0.2 * SLOWER)        # the keeper has asked the one that stands still
        os.kill(netmaker, signal.SIGKILL)
        answer = asked.result(30)
    assert answer.status == 503 and "network maker" in answer.json["message"], answer
    wait_until(server.answers, "it does not answer again", 10 * SLOWER)
    assert server.create(timeout=60)["state"] == "running"


def test_a_part_that_is_started_again_says_nothing_twice(folder):
    server = Server(folder)
    try:
        former = server.part("cove-serve")
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: server.parts().get("cove-serve", former) != former, "no new server")
        wait_until(server.answers, "it does not answer again", 10 * SLOWER)
        assert not select.select([server.process.stdout], [], [], 0.5)[0]
        assert server.key not in server.log.read_text()
    finally:
        server.end_and_close()


def test_an_ephemeral_server_whose_monitor_is_killed_ends_its_sandboxes(untouched, home):
    server = Server(home, "--ephemeral")
    box = server.create(timeout=300)
    assert box["state"] == "running"
    pids = list(server.parts().values())
    server.kill("cove-monitor")
    wait_until(lambda: not any(map(proc.alive, pids)), "its parts go on", 20 * SLOWER)
    (home / "data/server.json").unlink()  # the monitor's own: the next one writes it anew


def test_parts_that_die_again_and_again_are_started_ever_later(start):
    server = start("--set", "pool.size=0")
    for _ in range(4):
        os.kill(server.part("cove-serve"), signal.SIGKILL)
        wait_until(server.answers, "it does not answer again", 10 * SLOWER)
    waits = [int(line.rpartition("in_ms=")[2]) for line in server.log.read_text().splitlines()
             if "in_ms=" in line][-4:]
    assert waits == sorted(waits) and waits[0] < waits[-1] <= 5000, waits


# ---- what it costs

def pss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise KeyError(pid)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is its own")
def test_an_idle_server_is_small(start):
    server = start("--set", "pool.size=0")
    server.ok("DELETE", f"/v1/sandboxes/{server.create(timeout=60)['id']}", status=204)
    time.sleep(7)                       # unused memory and threads are given back
    used = {name: pss_kib(pid) for name, pid in server.parts().items()}
    print(used, sum(used.values()))
    assert sum(used.values()) <= PSS_KIB, used
