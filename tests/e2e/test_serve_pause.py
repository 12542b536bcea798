"""Sandboxes that stand still, through `cove serve`: by E2B's SDKs in both lines, by its own API, at
the end of their time, and woken by a request. Nothing is lost: not by many rounds, not by kill -9,
not by a restart of the machine (everything killed, and another boot id)."""

import concurrent.futures
import contextlib
import datetime
import hashlib
import http.client
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import textwrap
import time

import pytest
from e2b import Sandbox, SandboxQuery, SandboxState

from helpers import boxfile
from helpers.cove import CLEAR, COVE
from helpers.guest import SLOWER
from helpers.machine import cgroups_named, collect_orphans
from helpers.proc import alive, wait_until
from helpers.sdk import PREVIOUS
from helpers.serve import Serve, descendants

pytestmark = pytest.mark.sdk

ENVD = 49983
PORT = 8000
NODE = os.environ.get("COVE_NODE")
ROUNDS = int(os.environ.get("COVE_PAUSE_ROUNDS", "60"))     # 1000 before a release
FORMER = b"00000000-0000-0000-0000-000000000000"

# What runs inside: counts its requests, streams numbers, echoes after an upgrade.
INSIDE = textwrap.dedent("""
    import http.server, time
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        count = 0
        def do_GET(self):
            if self.path == "/stream":
                return self.stream()
            if self.headers.get("Upgrade") == "echo":
                return self.echo()
            if self.path == "/slow":
                Handler.count = 1 << 20
                time.sleep(600)
            Handler.count += 1
            said = str(Handler.count).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
        def stream(self):
            self.send_response(200)
            self.end_headers()
            for i in range(100000):
                self.wfile.write(b"%d\\n" % i)
                time.sleep(0.01)
        def echo(self):
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            while data := self.connection.recv(65536):
                self.connection.sendall(data)
            self.close_connection = True
    http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
""")


def state_of(server, id):
    return server.ok("GET", f"/v1/sandboxes/{id}")["state"]


def pause(server, id, **more):
    return server.ok("POST", f"/v1/sandboxes/{id}/pause", **more)


def resume(server, id, **body):
    return server.ok("POST", f"/v1/sandboxes/{id}/resume", body)


def events(server, id):
    return server.ok("GET", f"/v1/sandboxes/{id}/events?limit=1000")["events"]


def kinds(server, id):
    return [event["kind"] for event in events(server, id)]


@pytest.fixture
def sdk(server):
    """Sandbox.create() of the line under test; what it made is ended."""
    made = []

    def create(**more):
        made.append(Sandbox.create(**{"timeout": 120} | more, **server.sdk()))
        return made[-1]

    yield create
    for one in made:
        one.kill()


@contextlib.contextmanager
def web_server(server, **more):
    made = server.create(timeout=600, **more)
    connected = Sandbox.connect(made["id"], **server.sdk())
    connected.files.write("/home/user/server.py", INSIDE)
    connected.commands.run("python3 server.py", background=True)
    wait_until(lambda: get(server, made["id"]).status == 200, "its server is up")
    yield made["id"]
    server.call("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.fixture
def box(server):
    """A sandbox with a web server inside, which a request wakes."""
    with web_server(server, auto_resume=True) as id:
        yield id


def get(server, id, path="/", port=PORT, **headers):
    return server.call("GET", path, key=None, headers={"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": str(port)} | headers)


# ---- by E2B's SDKs

def test_a_sandbox_goes_on_where_it_was(server, sdk):
    sandbox = sdk()
    id = sandbox.sandbox_id
    sandbox.files.write("/home/user/kept", "every byte")
    sandbox.commands.run("while :; do echo x >> ticks; sleep 0.01; done", background=True)
    wait_until(lambda: sandbox.files.exists("/home/user/ticks"), "it counts")
    assert sandbox.is_running()
    assert sandbox.pause()
    assert not sandbox.pause()          # it is
    assert not sandbox.is_running()
    info = sandbox.get_info()
    assert info.state == SandboxState.PAUSED
    for wanted, there in ((SandboxState.PAUSED, True), (SandboxState.RUNNING, False)):
        pages = Sandbox.list(query=SandboxQuery(state=[wanted]), **server.sdk())
        assert (id in [one.sandbox_id for one in pages.next_items()]) == there
    assert id in [one.sandbox_id for one in Sandbox.list(**server.sdk()).next_items()]
    with pytest.raises(Exception, match="not found|was not found|not running|timeout"):
        sandbox.commands.run("true")
    again = Sandbox.connect(id, timeout=60, **server.sdk())
    assert again.is_running() and again.get_info().state == SandboxState.RUNNING
    assert again.files.read("/home/user/kept") == "every byte"
    before = again.files.read("/home/user/ticks")
    wait_until(lambda: len(again.files.read("/home/user/ticks")) > len(before), "its command goes on")
    left = (again.get_info().end_at - again.get_info().started_at).total_seconds()
    assert left < 120
    assert sandbox.connect(timeout=300).is_running()            # of one that runs: more time


def test_files_may_be_kept_alone(server, sdk):
    sandbox = sdk()
    sandbox.files.write("/home/user/kept", "every byte")
    sandbox.commands.run("sleep 1000", background=True)
    assert sandbox.pause(keep_memory=False) if PREVIOUS else sandbox.pause(mode="filesystem")
    again = sandbox.connect()
    assert again.files.read("/home/user/kept") == "every byte"
    assert "sleep" not in again.commands.run("cat /proc/[0-9]*/comm").stdout
    said = [(event["kind"], event.get("detail", {}).get("memory")) for event in events(server, sandbox.sandbox_id)]
    assert ("paused", False) in said and "restarted" in [kind for kind, _ in said]


def test_memory_may_be_dropped_by_whoever_resumes(server):
    id = server.create(timeout=300)["id"]
    pause(server, id)
    assert resume(server, id, memory=False)["state"] == "running"
    assert kinds(server, id)[-2:] == ["paused", "restarted"]
    assert server.ok("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})["state"] == "paused"
    resume(server, id)
    assert kinds(server, id)[-2:] == ["paused", "restarted"]


def test_at_its_end_it_may_keep_files_alone(server):
    made = server.create(timeout=1, on_expiry="pause-files")
    assert made["on_expiry"] == "pause-files"
    wait_until(lambda: state_of(server, made["id"]) == "paused", "it is paused")
    resume(server, made["id"], timeout=60)
    assert kinds(server, made["id"])[-2:] == ["paused", "restarted"]


def test_at_its_timeout_it_is_paused(server, sdk):
    sandbox = sdk(timeout=3, lifecycle={"on_timeout": "pause"})
    assert sandbox.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": False}
    sandbox.files.write("/home/user/kept", "yes")
    wait_until(lambda: state_of(server, sandbox.sandbox_id) == "paused", "it is paused")
    time.sleep(2.5)                     # beyond what the keeper would give one that is to end
    assert state_of(server, sandbox.sandbox_id) == "paused"
    assert not sandbox.is_running()
    sandbox.connect(timeout=60)
    assert sandbox.files.read("/home/user/kept") == "yes"
    said = events(server, sandbox.sandbox_id)[2]
    assert said["kind"] == "paused" and said["actor"] == "system" and "time-out of 3 s" in said["text"]


def test_a_call_wakes_it(server, sdk):
    sandbox = sdk(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
    wait_until(lambda: state_of(server, sandbox.sandbox_id) == "paused", "it is paused")
    assert not sandbox.is_running()     # asking that wakes nobody
    assert state_of(server, sandbox.sandbox_id) == "paused"
    assert sandbox.commands.run("echo awake").stdout == "awake\n"
    assert sandbox.is_running()
    left = sandbox.get_info().end_at - datetime.datetime.now(datetime.timezone.utc)
    assert 240 < left.total_seconds() <= 301            # not the two seconds again
    sandbox.set_timeout(1)
    wait_until(lambda: state_of(server, sandbox.sandbox_id) == "paused", "and again")


def test_time_outs_and_the_end_of_a_paused_one(server, sdk):
    sandbox = sdk()
    sandbox.pause()
    sandbox.set_timeout(30)
    assert state_of(server, sandbox.sandbox_id) == "paused"
    resumed = resume(server, sandbox.sandbox_id)
    assert resumed["timeout"] == 30 and "ends" in resumed
    assert "ends" not in pause(server, sandbox.sandbox_id)
    assert sandbox.kill() and not sandbox.kill()
    assert not list(server.data.joinpath("paused").glob(sandbox.sandbox_id))


@pytest.mark.parametrize("version", ["", "/v2"])
def test_both_generations_of_connect(server, version):
    id = server.create()["id"]
    body = {"timeout": 60}
    assert server.call("POST", f"/sandboxes/{id}/pause").status == 204
    assert server.call("POST", f"/sandboxes/{id}/pause", {}).status == 409
    assert server.call("POST", f"{version}/sandboxes/{id}/connect", body).status == 201
    assert server.call("POST", f"{version}/sandboxes/{id}/connect", body).status == 200
    assert server.call("POST", f"/sandboxes/{id}/resume", body).status == 409
    server.ok("DELETE", f"/sandboxes/{id}", status=204)


JS = """
const { Sandbox } = require("e2b");
(async () => {
  const made = await Sandbox.create({ timeoutMs: 60000 });
  await made.files.write("/home/user/kept", "js");
  const first = await made.pause();
  const second = await Sandbox.pause(made.sandboxId);
  const running = await made.isRunning();
  const state = (await made.getInfo()).state;
  const again = await Sandbox.connect(made.sandboxId);
  const text = await again.files.read("/home/user/kept");
  const auto = await Sandbox.create({ timeoutMs: 1000,
      lifecycle: { onTimeout: "pause", autoResume: true } });
  await new Promise((done) => setTimeout(done, 1500));
  const paused = (await auto.getInfo()).state;
  const said = (await auto.commands.run("echo woken")).stdout;
  console.log(JSON.stringify({ first, second, running, state, text, paused, said }));
  await again.kill();
  await auto.kill();
})();
"""


@pytest.mark.skipif(not NODE, reason="there is no Node to run E2B's JavaScript SDK with")
def test_the_javascript_sdk(server):
    done = subprocess.run([NODE, "-e", JS], env=os.environ | server.variables(), capture_output=True,
                          text=True, timeout=50 * SLOWER)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "first": True, "second": False, "running": False, "state": "paused", "text": "js",
        "paused": "paused", "said": "woken\n"}


# ---- woken by a request

def test_a_request_waits_and_then_proceeds(server, box):
    before = int(get(server, box).body)
    pause(server, box)
    reply = get(server, box)
    assert reply.status == 200 and int(reply.body) == before + 1        # the very same process
    assert state_of(server, box) == "running"


def test_many_requests_wake_it_once(server, box):
    pause(server, box)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: get(server, box), range(32)))
    assert [reply.status for reply in replies] == [200] * 32
    assert kinds(server, box).count("resumed") == 1


def test_an_upgraded_connection_wakes_it_and_outlives_the_next_pause(server, box):
    pause(server, box)
    with server.upgraded({"Host": "x", "E2b-Sandbox-Id": box, "E2b-Sandbox-Port": PORT}) as s:
        s.sendall(b"hello")
        assert s.recv(5) == b"hello"
        pause(server, box)
        s.sendall(b"while it stands still")
        s.settimeout(0.3)
        with pytest.raises(TimeoutError):
            s.recv(1)
        resume(server, box)
        s.settimeout(20 * SLOWER)
        assert s.recv(100) == b"while it stands still"


def test_a_stream_goes_on_without_a_gap(server, box):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as c:
        c.request("GET", "/stream", headers={"E2b-Sandbox-Id": box, "E2b-Sandbox-Port": str(PORT)})
        answer = c.getresponse()
        for number in range(200):
            if number % 50 == 25:
                pause(server, box)
                time.sleep(0.05)
                resume(server, box)
            assert answer.readline() == b"%d\n" % number


@pytest.mark.parametrize("wakes, status, words", [(True, 409, "changing its state"), (False, 502, "was not found")])
def test_a_request_that_a_pause_overtakes_is_told_so(server, wakes, status, words):
    with web_server(server, auto_resume=wakes) as box, concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, server, box, "/slow")
        wait_until(lambda: int(get(server, box).body) > 1 << 20, "it is under way")
        pause(server, box)
        reply = slow.result(10 * SLOWER)
    assert reply.status == status and words in reply.message


def test_without_auto_resume_it_was_not_found(server):
    id = server.create()["id"]
    pause(server, id)
    for path, port in (("/health", ENVD), ("/", PORT)):
        reply = get(server, id, path, port)
        assert reply.status == 502 and "was not found" in reply.message
    assert state_of(server, id) == "paused"
    server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)


def test_a_stranger_wakes_no_private_one(server):
    made = server.create(public=False, auto_resume=True)
    pause(server, made["id"])
    assert get(server, made["id"]).status == 403
    assert get(server, made["id"], **{"E2b-Traffic-Access-Token": "x"}).status == 403
    assert state_of(server, made["id"]) == "paused"
    assert get(server, made["id"], **{"E2b-Traffic-Access-Token": made["traffic_token"]}).status == 502
    assert state_of(server, made["id"]) == "running"            # nothing listens there, but it runs
    server.ok("DELETE", f"/v1/sandboxes/{made['id']}", status=204)


# ---- our own API and command line

def test_the_native_api(server):
    made = server.create(on_expiry="pause", auto_resume=True, timeout=300)
    id = made["id"]
    assert made["on_expiry"] == "pause" and made["auto_resume"]
    assert pause(server, id)["state"] == "paused"
    assert server.call("POST", f"/v1/sandboxes/{id}/pause").status == 409
    assert id in [one["id"] for one in server.ok("GET", "/v1/sandboxes")["sandboxes"]]
    assert resume(server, id, timeout=60)["timeout"] == 60
    assert server.call("POST", f"/v1/sandboxes/{id}/resume", {}).status == 409
    assert server.call("POST", f"/v1/sandboxes/{id}/resume", {"timeout": -1}).status == 400
    other = server.user("somebody")
    assert server.call("POST", f"/v1/sandboxes/{id}/pause", key=other).status == 404
    said = [event for event in events(server, id) if event["kind"] == "paused"][0]["detail"]
    assert said["flush_ms"] > 0 and said["other_ms"] > 0
    server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)


def test_the_command_line(server):
    def cove(*words, status=0):
        done = subprocess.run([COVE, *words], env=CLEAR | server.variables(), capture_output=True, text=True,
                              timeout=30 * SLOWER)
        assert done.returncode == status, done
        return done.stdout

    one, two = (cove("create", "--on-expiry", "pause", "--auto-resume").strip() for _ in range(2))
    assert cove("pause", one, two) == f"{one}\n{two}\n"
    assert cove("ps", "--state", "paused").count("paused") == 2
    cove("pause", one, status=1)
    assert json.loads(cove("resume", "--json", "--timeout", "5m", one)) == {"ids": [one]}
    assert cove("exec", two, "--", "echo", "woken") == "woken\n"
    cove("resume", one, two, status=1)
    cove("kill", one, two)


# ---- what it costs

def usage_ns(id):
    """Processor time, as the kernel counts it, wherever it does."""
    for path in cgroups_named(f"box-{id}"):
        if (path / "cpuacct.usage").exists():
            return int((path / "cpuacct.usage").read_text())
        if (path / "cpu.stat").exists() and (text := (path / "cpu.stat").read_text()).startswith("usage"):
            return int(text.split()[1]) * 1000
    pytest.skip("the kernel counts no processor time here")


def test_a_paused_one_uses_no_processor(server, sdk):
    sandbox = sdk()
    sandbox.commands.run("while :; do :; done", background=True)
    busy = usage_ns(sandbox.sandbox_id)
    wait_until(lambda: usage_ns(sandbox.sandbox_id) > busy + 50_000_000, "it is busy")
    sandbox.pause()
    before = usage_ns(sandbox.sandbox_id)
    time.sleep(1)
    assert usage_ns(sandbox.sandbox_id) == before


def test_the_guest_says_how_long_it_stood_still(server, sdk):
    sandbox = sdk()
    headers = {"X-Access-Token": server.ok("GET", f"/v1/sandboxes/{sandbox.sandbox_id}")["token"]}

    def metrics():
        return get(server, sandbox.sandbox_id, "/metrics", ENVD, **headers).json

    assert (metrics()["pauses"], metrics()["paused_ms"]) == (0, 0)
    before = int(sandbox.commands.run("date +%s%N").stdout)
    sandbox.pause()
    time.sleep(1.1)
    sandbox.connect()
    wait_until(lambda: metrics()["pauses"] == 1, "it has been told")
    assert 1000 <= metrics()["paused_ms"] < 20_000
    assert int(sandbox.commands.run("date +%s%N").stdout) - before > 1_000_000_000      # clocks went on
    assert [e for e in events(server, sandbox.sandbox_id) if e["kind"] == "resumed"][0]["detail"]["paused_ms"] >= 1000


# ---- nothing is lost

class Files:
    """Files that a sandbox should have, and what is in them."""

    def __init__(self, seed):
        self.random, self.want = random.Random(seed), {}

    def write(self, sandbox):
        for _ in range(self.random.randint(1, 3)):
            name = f"/home/user/f{self.random.randint(0, 40)}"
            data = self.random.randbytes(self.random.choice((0, 1, 4096, 70_000)))
            sandbox.files.write(name, data)
            self.want[name] = hashlib.sha256(data).hexdigest()

    def check(self, sandbox):
        said = sandbox.commands.run("find /home/user -name 'f*' -type f -exec sha256sum {} +").stdout
        assert dict(line.split()[::-1] for line in said.splitlines()) == self.want


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_rounds_lose_nothing(sdk):
    sandbox, seed = sdk(timeout=1800), random.randrange(1 << 32)
    files = Files(seed)
    sandbox.commands.run("i=0; while echo $i >> log; do i=$((i+1)); sleep 0.002; done", background=True)
    for round in range(ROUNDS):
        files.write(sandbox)
        assert sandbox.pause(), (seed, round)
        sandbox.connect(timeout=1800)
        files.check(sandbox)
    numbers = sandbox.files.read("/home/user/log").split()
    assert numbers == [str(i) for i in range(len(numbers))], seed


@pytest.fixture
def own(folder):
    """A server of the test's own, whose parts may be killed."""
    started = Serve(os.path.join(folder, "serve"), "--set", "pool.size=1",
                    "--set", f"volume.initial-bytes={256 << 20}")
    yield started
    if not started.running():
        started.start()
    started.end_all()
    started.close()


def processes_of(ids):
    """Of sandboxes."""
    for path in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and any(f"/box-{id}" in (path / "cgroup").read_text() for id in ids):
                yield int(path.name)


def kill_all(pids):
    """A first thread that has ended is no end: the others may still be at it, and a resume then finds a process."""
    ends = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ends.append(os.pidfd_open(pid))
            os.kill(pid, signal.SIGKILL)
    for end in ends:
        assert select.select([end], [], [], 20)[0], "they have ended"
        os.close(end)
    wait_until(lambda: collect_orphans() or not any(map(alive, pids)), "they have ended", 20)


def kill_server(own):
    """kill -9 of the monitor, the server, the keeper and its helpers."""
    kill_all([own.process.pid, *(pid for pid in descendants(own.process.pid) if pid not in
                                 set(processes_of(os.listdir(own.place / "boxes"))))])
    own.process.wait()
    own.process.stdout.close()


@pytest.mark.timeout(180)
def test_kill_9_of_everything_at_any_moment(own):
    """Paused or running, each is one of the two afterwards, works, and has its files."""
    boxes = {}
    for i in range(3):
        id = own.create(timeout=0)["id"]
        sandbox = Sandbox.connect(id, **own.sdk())
        boxes[id] = Files(i)
        boxes[id].write(sandbox)
    for moment in (0, 0.002, 0.005, 0.01, 0.03):
        with concurrent.futures.ThreadPoolExecutor(len(boxes)) as pool:
            def flip(id):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    own.call("POST", f"/v1/sandboxes/{id}/pause")
                    own.call("POST", f"/v1/sandboxes/{id}/resume", {})
            waits = [pool.submit(flip, id) for id in boxes]
            time.sleep(moment)
            kill_server(own)
            for wait in waits:
                wait.result()
        own.start()
        for id, files in boxes.items():
            state = state_of(own, id)
            assert state in ("running", "paused"), (id, state)
            sandbox = Sandbox.connect(id, timeout=600, **own.sdk())
            files.check(sandbox)
            files.write(sandbox)


def of_former_boot(own):
    boot = own.data / "boot"
    boot.write_bytes(FORMER + boot.read_bytes()[len(FORMER):])
    for path in [*(own.data / "paused").iterdir(), *(own.place / "boxes").iterdir()]:
        boxfile.set_boot(path, FORMER)


@pytest.mark.timeout(120)
def test_a_restart_of_the_machine(own):
    paused = Sandbox.create(timeout=600, envs={"COLOUR": "green"}, **own.sdk())
    files = Files(7)
    files.write(paused)
    paused.commands.run("sleep 1000", background=True)
    paused.commands.run("sudo sh -c 'echo kept > /etc/kept; rm /etc/issue.net; touch /usr/local/kept'; true")
    running = Sandbox.create(timeout=600, **own.sdk())
    paused.pause()
    inside = list(processes_of(os.listdir(own.place / "boxes")))
    kill_server(own)
    kill_all(inside)
    of_former_boot(own)
    own.unmount()
    own.start()
    options = own.sdk()
    assert state_of(own, paused.sandbox_id) == "paused"
    assert own.call("GET", f"/sandboxes/{running.sandbox_id}").status == 404
    ended = own.ok("GET", f"/v1/sandboxes/{running.sandbox_id}")
    assert ended["state"] == "ended" and ended["reason"].startswith("itself: ")
    again = Sandbox.connect(paused.sandbox_id, timeout=60, **options)
    files.check(again)
    assert again.commands.run("echo $COLOUR; cat /etc/kept; ls /usr/local/kept").stdout == \
        "green\nkept\n/usr/local/kept\n"
    assert "sleep 1000" not in [" ".join([p.cmd, *p.args]) for p in again.commands.list()]
    assert again.commands.run("pgrep -x sleep || echo none").stdout == "none\n"
    assert get(own, paused.sandbox_id, "/metrics", ENVD).status == 401, "it lets strangers in"
    assert kinds(own, paused.sandbox_id)[-2:] == ["paused", "restarted"]
    again.pause()                       # it is one like any other
    Sandbox.connect(paused.sandbox_id, timeout=60, **options)
    files.check(again)
    assert kinds(own, paused.sandbox_id)[-2:] == ["paused", "resumed"]
    wait_until(lambda: not [path for path in (own.data / "volume" / "layers").iterdir()
                            if running.sandbox_id in path.name], "what ran has left nothing")


def test_processes_killed_while_paused(own):
    sandbox = Sandbox.create(timeout=600, **own.sdk())
    files = Files(3)
    files.write(sandbox)
    sandbox.pause()
    kill_all(list(processes_of([sandbox.sandbox_id])))
    assert state_of(own, sandbox.sandbox_id) == "paused"
    sandbox.connect()
    files.check(sandbox)
    assert kinds(own, sandbox.sandbox_id)[-1] == "restarted"
    sandbox.kill()


def test_a_paused_one_is_kept_as_long_as_the_operator_says(folder):
    short = Serve(os.path.join(folder, "serve"), "--ephemeral", "--paused-retention", "1s", "--set", "pool.size=0",
                  "--set", f"volume.initial-bytes={256 << 20}")
    try:
        id = short.create(timeout=600)["id"]
        assert "ends" in pause(short, id)
        wait_until(lambda: state_of(short, id) == "ended", "it has ended", 20)
        assert short.ok("GET", f"/v1/sandboxes/{id}")["reason"].startswith("retention: ")
    finally:
        short.close()
