"""The guest itself: health, metrics, environment, init, CORS, command line, listening, ending."""

import json
import os
import pwd
import signal
import socket
import subprocess
import threading
import time

import pytest
from e2b import AuthenticationException, CommandExitException, SandboxException

from helpers import proc
from helpers.guest import BINARY, SLOWER, GuestFailed
from helpers.wire import Wire, files_path

pytestmark = pytest.mark.sdk

core = pytest.mark.core


def init(wire, **body):
    return wire.request("POST", "/init", json.dumps(body), {"Content-Type": "application/json"})


# --- health and metrics ----------------------------------------------------------------------

@core
def test_health_is_204_without_a_body(wire, sandbox):
    reply = wire.get("/health")
    assert (reply.status, reply.body) == (204, b"")
    assert sandbox.is_running() is True


def test_metrics_are_plausible(wire, folder):
    before = time.time()
    wire.get("/metrics")
    reply = wire.get("/metrics")
    m = reply.json
    assert set(m) == {"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache",
                      "mem_total_mib", "mem_used_mib", "disk_used", "disk_total", "pauses", "paused_ms"}
    assert before - 2 <= m["ts"] <= time.time() + 2
    assert m["cpu_count"] == len(os.sched_getaffinity(0))
    assert 0 <= m["cpu_used_pct"] <= 100
    assert m["mem_total"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < m["mem_used"] < m["mem_total"]
    assert m["mem_total_mib"] == m["mem_total"] >> 20
    root = os.statvfs("/")
    assert m["disk_total"] == root.f_blocks * root.f_frsize
    assert 0 < m["disk_used"] <= m["disk_total"]


def test_metrics_see_a_busy_processor(start_guest):
    wire = start_guest().wire
    wire.get("/metrics")
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        time.sleep(0.5)
        busy.kill()
    assert wire.get("/metrics").json["cpu_used_pct"] >= 100 / os.cpu_count() * 0.5


# --- environment and init --------------------------------------------------------------------

@core
def test_init_replaces_the_global_environment(start_guest):
    guest = start_guest()
    assert guest.wire.get("/envs").json == {}
    assert init(guest.wire, envVars={"A": "1", "Ž": "🐎\n"}).status == 204
    assert guest.wire.get("/envs").json == {"A": "1", "Ž": "🐎\n"}
    assert init(guest.wire, envVars={"B": "2"}).status == 204
    assert guest.wire.get("/envs").json == {"B": "2"}
    assert guest.wire.start("/bin/sh", "-c", "echo $A-$B").collect().stdout == b"-2\n"


def test_init_refuses_names_that_cannot_be(start_guest):
    wire = start_guest().wire
    assert init(wire, envVars={"GOOD": "1"}).status == 204
    for name in ("", "A=B"):
        assert init(wire, envVars={name: "x"}).status == 400
    assert wire.get("/envs").json == {"GOOD": "1"}


@core
def test_init_sets_the_default_directory(start_guest, folder):
    guest = start_guest()
    init(guest.wire, defaultWorkdir=folder)
    assert guest.wire.start("pwd").collect().stdout.decode() == folder + "\n"
    assert guest.wire.filesystem("Stat", {"path": ""}).json["entry"]["path"] == folder


def test_init_sets_the_default_user(start_guest, as_root):
    guest = start_guest()
    init(guest.wire, defaultUser="daemon", defaultWorkdir="/")
    assert guest.wire.start("id", "-un").collect().stdout == b"daemon\n"


def test_init_passes_over_what_is_the_control_planes(start_guest):
    wire = start_guest().wire
    assert init(wire, envVars={}, timestamp="2026-01-01T00:00:00Z", volumeMounts=[],
                hyperloopIP="10.0.0.1", lifecycleID="x", caBundle="y").status == 204


# --- CORS ------------------------------------------------------------------------------------

@core
@pytest.mark.parametrize("path", ["/files?path=/x", "/process.Process/Start", "/health"])
def test_a_browsers_preflight_is_answered(wire, path):
    reply = wire.request("OPTIONS", path, headers={
        "Origin": "https://example.com", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,x-access-token"})
    assert reply.status in (200, 204)
    assert reply.headers["Access-Control-Allow-Origin"] == "*"
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
    assert "x-access-token" in reply.headers["Access-Control-Allow-Headers"].lower()


@core
def test_every_answer_may_be_read_by_a_browser(wire, folder):
    for reply in (wire.get("/health"), wire.get(files_path(f"{folder}/nothing")),
                  wire.process("List", {}), wire.get("/no/such/route")):
        assert reply.headers["Access-Control-Allow-Origin"] == "*"


# --- command line ----------------------------------------------------------------------------

def test_help_version_and_openapi_answer_and_end():
    run = lambda *args: subprocess.run([BINARY, *args], capture_output=True, text=True, check=True,
                                       stdin=subprocess.DEVNULL).stdout
    assert "--listen" in run("--help")
    assert run("--version").startswith("cove-guest ")
    api = json.loads(run("--openapi"))
    assert api["openapi"].startswith("3.1")
    assert {"/files", "/health", "/process.Process/Start",
            "/filesystem.Filesystem/WatchDir"} <= set(api["paths"])


@pytest.mark.parametrize("options, words", [
    (["--no-such"], "--no-such"), (["extra"], "extra"), (["--set", "no.such=1"], "no.such"),
    (["--set", "process.keep-ms=x"], "process.keep-ms"), (["--listen", "nonsense"], "nonsense"),
    (["--token-file", "/no/such"], "/no/such"), (["--root", "/no/such"], "/no/such"),
    (["--user", "no-such-user"], "no-such-user"), (["--listen-fd", "99"], "99"),
    (["--log-level", "loud"], "loud")])
def test_a_wrong_option_is_named_and_nothing_starts(options, words):
    run = subprocess.run([BINARY, *options], capture_output=True, text=True, check=False,
                         stdin=subprocess.DEVNULL, timeout=20)
    assert run.returncode == 2
    assert run.stderr.startswith("cove-guest: ")
    assert words in run.stderr


def test_an_address_in_use_is_told(guest, folder):
    run = subprocess.run([BINARY, "--listen", f"127.0.0.1:{guest.port}"], capture_output=True,
                         text=True, check=False, stdin=subprocess.DEVNULL, timeout=20)
    assert run.returncode == 2
    assert "in use" in run.stderr


# --- listening -------------------------------------------------------------------------------

@core
def test_a_guest_serves_on_a_unix_socket(start_guest, folder):
    path = f"{folder}/socket"
    start_guest(listen=f"unix:{path}")
    wire = Wire(path=path)
    assert wire.get("/health").status == 204
    assert wire.start("/bin/echo", "hi").collect().stdout == b"hi\n"


@core
def test_a_guest_serves_on_a_socket_it_inherits(start_guest):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        start_guest("--listen-fd", listener.fileno(), listen=None, fds=[listener.fileno()])
    assert Wire(port=port).get("/health").status == 204


def test_a_guest_serves_on_several_addresses(start_guest, folder):
    guest = start_guest("--listen", f"unix:{folder}/one", "--listen", f"unix:{folder}/two")
    for wire in (guest.wire, Wire(path=f"{folder}/one"), Wire(path=f"{folder}/two")):
        assert wire.get("/health").status == 204


def test_a_descriptor_that_does_not_listen_is_refused(folder):
    with socket.socket() as idle:
        run = subprocess.run([BINARY, "--listen-fd", str(idle.fileno())], text=True, check=False,
                             capture_output=True, pass_fds=[idle.fileno()], timeout=20,
                             stdin=subprocess.DEVNULL)
    assert (run.returncode, "not a listening socket" in run.stderr) == (2, True)


# --- users -----------------------------------------------------------------------------------

@core
def test_a_guest_without_root_serves_its_own_user_only(start_guest, open_sandbox, folder, as_root):
    try:
        guest = start_guest(user=pwd.getpwnam("nobody").pw_uid)
    except (PermissionError, GuestFailed) as error:
        pytest.skip(f"nobody cannot run the binary here: {error}")
    sandbox = open_sandbox(guest)
    assert sandbox.commands.run("id -un", cwd="/").stdout == "nobody\n"
    assert sandbox.commands.run("id -un", cwd="/", user="nobody").stdout == "nobody\n"
    for call in (lambda: sandbox.commands.run("true", user="root"),
                 lambda: sandbox.files.read("/etc/hostname", user="root"),
                 lambda: sandbox.files.list("/", user="daemon")):
        with pytest.raises(AuthenticationException, match="cannot become"):
            call()
    os.chmod(folder, 0o700)
    with pytest.raises(SandboxException):
        sandbox.files.write(f"{folder}/mine", "x")
    assert "mine" not in os.listdir(folder)


# --- ending ----------------------------------------------------------------------------------

@core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_guest_and_its_processes(start_guest, number):
    guest = start_guest("--set", "process.stop-ms=3000")
    quick = guest.wire.start("/bin/sleep", "601")
    begun = time.monotonic()
    guest.stop(number)
    assert time.monotonic() - begun < 3
    assert not proc.alive(quick.pid)


def test_a_process_that_ignores_sigterm_is_killed_in_time(start_guest):
    guest = start_guest("--set", "process.stop-ms=500")
    stream = guest.wire.start("/bin/bash", "-c", "trap '' TERM; echo ready; sleep 602")
    assert next(stream.events()) == ("stdout", b"ready\n")
    begun = time.monotonic()
    guest.stop()
    assert 0.4 < time.monotonic() - begun < 4 * SLOWER
    assert not proc.alive(stream.pid)
    assert not proc.with_argument("602")


def test_a_guest_ends_in_the_middle_of_everything(start_guest, folder):
    """Streams, watches, a stalled download, an upload, and a terminal: all at once."""
    guest = start_guest()
    wire = guest.wire
    with open(f"{folder}/big", "wb") as out:
        out.truncate(256 << 20)
    download = wire.connect()
    download.request("GET", files_path(f"{folder}/big"))
    upload = wire.connect()
    upload.putrequest("POST", files_path(f"{folder}/up"))
    upload.putheader("Content-Type", "application/octet-stream")
    upload.putheader("Content-Length", "1000")
    upload.endheaders()
    upload.send(b"some")
    streams = [wire.start("/bin/sleep", "603"), wire.start("/usr/bin/yes"),
               wire.start("/bin/bash", "-i", pty={"size": {"cols": 80, "rows": 24}}),
               wire.stream("filesystem.Filesystem/WatchDir", {"path": folder, "recursive": True})]
    wire.filesystem("CreateWatcher", {"path": folder, "recursive": True})
    time.sleep(0.3)
    guest.stop()
    assert not os.path.exists(f"{folder}/up")
    for each in (*streams, download, upload):
        each.close()


def test_500_connections_at_once_are_served(start_guest):
    guest = start_guest()
    idle = [socket.create_connection(("127.0.0.1", guest.port)) for _ in range(500)]
    assert guest.wire.get("/health").status == 204
    for each in idle:
        each.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    for each in idle:
        each.settimeout(20)
        assert each.recv(4096).startswith(b"HTTP/1.1 204")
        each.close()


def test_requests_on_one_connection_may_follow_each_other_blindly(wire):
    with socket.create_connection(("127.0.0.1", wire.port)) as s:
        s.settimeout(20)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        data = b""
        while data.count(b"HTTP/1.1 204") < 50:
            chunk = s.recv(65536)
            assert chunk, "closed early"
            data += chunk


def test_many_clients_together_come_to_the_right_results(sandbox, wire, folder):
    failures = []

    def work(number):
        try:
            for i in range(15):
                path = f"{folder}/{number}-{i}"
                assert wire.upload(path, path.encode()).status == 200
                assert sandbox.commands.run(f"cat {path}").stdout == path
                assert wire.get(files_path(path)).text == path
                try:
                    sandbox.commands.run(f"exit {i + 1}")
                except CommandExitException as error:
                    assert error.exit_code == i + 1
        except BaseException as error:          # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
