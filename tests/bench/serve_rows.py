"""serve_rows.py - the rows about `cove serve`: sandboxes asked for over its API, beside a bare spawn,
the kernel's floor and the container runtimes; and requests through its router beside nginx."""
import http.client
import json
import os
import signal
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path

from harness import CannotMeasure, children, free_port, pss_kib
from jail_rows import Docker, Place, Runtime
from result import Result, alternate, percentile, samples
from rows import Nginx, Side, request

ONES, BURST, FLOW = 60, 100, 200
READY_S = 60


class Server:
    """`cove serve` on a directory of the bench's own, with a pool of that size."""

    def __init__(self, place, name, pool):
        self.place, self.port = place, free_port()
        self.data, self.run = place.dir / f"serve-{name}", place.dir / f"run-{name}"
        self.run.mkdir(mode=0o755)
        bench = place.bench
        self.process = bench.start(
            bench.built("cove"), "serve", "--data", self.data, "--run-dir", self.run, "--listen",
            f"127.0.0.1:{self.port}", "--preview-listen", "none", "--ephemeral", "--log-level", "warn",
            "--set", f"pool.size={pool}", "--set", f"pool.memory-bytes={4 << 30}", core=bench.cores)
        self.wait_ready(pool)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.place.bench.stop(self.process)
        subprocess.run(["umount", self.data / "volume"], stderr=subprocess.DEVNULL, check=False)

    def get(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"X-API-Key": self.key})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read().decode()

    @property
    def key(self):
        return (self.data / "admin.key").read_text().strip()

    def ask(self, method, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method=method, data=body and json.dumps(body).encode(),
            headers={"X-API-Key": self.key, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text else None

    def warm(self):
        """How many jails wait."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith("cove_pool_ready")]
        return sum(float(line.split()[-1]) for line in lines)

    def wait_ready(self, pool):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.warm() >= pool:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        log = (self.place.bench.dir / "stderr.log").read_text(errors="replace")[-400:]
        raise CannotMeasure(f"the server was not ready with {pool} waiting: {log.strip()}")

    def measure(self, mode, count, pause_ms=0):
        bench = self.place.bench
        os.environ.update(COVE_API_KEY=self.key, PAUSE_MS=str(pause_ms))
        try:
            return samples([bench.built("tests/bench/bench-serve"), str(self.port), mode, str(count), "/bin/true"],
                           cores=bench.cores)
        finally:
            del os.environ["COVE_API_KEY"]

    def processes(self):
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children(pid)
        return found


def name_of(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


def middle(values):
    return statistics.median(values) / 1e6


def floor_ms(place, count):
    return sum(samples([place.bench.built("tests/bench/bench-floor"), str(place.root), str(place.work), str(count),
                        "/bin/true"], cores=place.bench.cores)["floor"]) / 1e6


def warm(bench):
    with Place(bench) as place, Server(place, "warm", 8) as server:
        docker = Docker(place)
        runs = [server.measure("each", ONES, pause_ms=30) for _ in range(bench.options.rounds)]
        create, ran, bare = ([middle(r[k]) for r in runs] for k in ("create", "ran", "bare"))
        all_ran, all_bare = ([ns for r in runs for ns in r[k]] for k in ("ran", "bare"))
        yield Result("warm create over the API", "ms", create, bare, "posix_spawn of true and wait", ("<=", 2.0))
        yield Result("warm create over the API", "ms", create, [docker.time() for _ in runs], "docker run",
                     ("<=", 0.01))
        yield Result("warm create to the end of true", "ms", ran, bare, "posix_spawn of true and wait", ("<=", 3.0))
        yield Result("the same, p99 against the peer's p50", "ms", [percentile(all_ran, 99) / 1e6],
                     [middle(all_bare)], "posix_spawn of true and wait", ("<=", 12.0))


def cold(bench):
    with Place(bench) as place, Server(place, "cold", 0) as server:
        crun = Runtime(place, "crun")
        ours, floor, peer = alternate(bench.options.rounds, lambda: middle(server.measure("each", ONES)["total"]),
                                      lambda: floor_ms(place, ONES) / ONES, crun.time)
        yield Result("cold create, true, kill over the API", "ms", ours, floor, "the same from bare system calls",
                     ("<=", 1.6))
        yield Result("cold create, true, kill over the API", "ms", ours, peer, "crun run", ("<=", 0.75))
        burst, floor = alternate(bench.options.rounds, lambda: middle(server.measure("burst", BURST)["burst"]),
                                 lambda: floor_ms(place, BURST))
        yield Result(f"burst of {BURST}, no pool", "ms", burst, floor, f"{BURST} from bare system calls", ("<=", 2.0))
        flow, floor = alternate(bench.options.rounds, lambda: 1000 / middle(server.measure("flow", FLOW)["flow"]),
                                lambda: FLOW * 1000 / floor_ms(place, FLOW))
        yield Result("create, true, kill without a pause", "1/s", flow, floor, "from bare system calls", (">=", 0.65))


def burst(bench):
    with Place(bench) as place, Server(place, "burst", BURST) as server:
        took = []
        for _ in range(bench.options.rounds):
            server.wait_ready(BURST)
            took.append(middle(server.measure("burst", BURST)["burst"]))
        yield Result(f"burst of {BURST}, pool of {BURST}", "ms", took, bar=("<=", 300), absolute=True,
                     note="each has run a command")


def footprint(bench):
    with Place(bench) as place, Server(place, "idle", 0) as server:
        time.sleep(10)                  # what was needed to start goes back to the kernel
        parts = server.processes()
        yield Result("server, keeper and monitor, idle", "MiB", [sum(map(pss_kib, parts)) / 1024], bar=("<=", 20),
                     absolute=True, note=f"{len(parts)} processes")


PAUSES = 40


def paused(bench):
    """A sandbox with a command that writes now and then. Writing files out depends on the disk, and is told apart."""
    with Place(bench) as place, Server(place, "paused", 0) as server:
        path = "/v1/sandboxes/" + server.ask("POST", "/v1/sandboxes", {"timeout": 600})["id"]
        env = {**os.environ, "COVE_URL": f"http://127.0.0.1:{server.port}", "COVE_API_KEY": server.key}
        bench.start(bench.built("cove"), "exec", path.rsplit("/", 1)[1], "--", "sh", "-c",
                    "while :; do date >> log; sleep 0.01; done", env=env, core=bench.load_core)
        stops, flushes, goes = [], [], []
        for _ in range(bench.options.rounds):
            took = {"pause": [], "resume": []}
            for _ in range(PAUSES):
                for verb, body in (("pause", None), ("resume", {})):
                    began = time.perf_counter()
                    server.ask("POST", f"{path}/{verb}", body)
                    took[verb].append((time.perf_counter() - began) * 1000)
                time.sleep(0.02)
            said = [event["detail"]["flush_ms"] for event in server.ask("GET", f"{path}/events?limit=1000")["events"]
                    if event["kind"] == "paused"][-PAUSES:]
            stops.append(statistics.median(whole - flush for whole, flush in zip(took["pause"], said)))
            flushes.append(statistics.median(said))
            goes.append(statistics.median(took["resume"]))
        flush = statistics.median(flushes)
        yield Result("pause over the API", "ms", stops, bar=("<=", 5), absolute=True,
                     note=f"and {flush:.1f} ms to write its files out")
        yield Result("resume over the API", "ms", goes, bar=("<=", 5), absolute=True)


ADOPTED, KILLS = 500, ("cove-serve", "cove-keep")


def answered_ms(server, ids):
    """From the kill of server and keeper until the API has answered for every sandbox, that it runs."""
    victims = [pid for pid in server.processes() if name_of(pid) in KILLS]
    headers = {"X-API-Key": server.key}
    begun, connection, done = time.monotonic(), None, 0
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    while done < len(ids):
        try:
            connection = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", f"/v1/sandboxes/{ids[done]}", headers=headers)
            answer = connection.getresponse()
            assert json.loads(answer.read())["state"] == "running"
            done += 1
        except (OSError, http.client.HTTPException):    # cut off by the kill
            connection = None
    return (time.monotonic() - begun) * 1000


def adoption(bench):
    with Place(bench) as place, Server(place, "adoption", 0) as server:
        ids = [server.ask("POST", "/v1/sandboxes", {"timeout": 3600, "network": "none"})["id"]
               for _ in range(ADOPTED)]
        took = []
        for _ in range(bench.options.rounds):
            time.sleep(11)              # one that has run so long is started again at once
            took.append(answered_ms(server, ids))
        yield Result(f"adoption of {ADOPTED} after kill -9", "ms", took, bar=("<=", 1000), absolute=True,
                     note="until the API has answered for all, one by one")


INSIDE = """daemon off; worker_processes 1; error_log stderr; pid /tmp/nginx.pid;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p;
  fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{text}"; }} }} }}"""
PORT = 8080


def routed(bench):
    """One small answer of an nginx: inside a sandbox through our router, outside through another nginx."""
    with Place(bench) as place, Server(place, "routed", 0) as server:
        box = server.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600})["sandboxID"]
        backend = Nginx(bench, core=bench.load_core)
        text = request(backend.ports["small"], "GET", "/")[1].decode()
        peer = Nginx(bench, backend=backend.ports["small"])
        config = INSIDE.format(port=PORT, text=text)
        env = {**os.environ, "COVE_URL": f"http://127.0.0.1:{server.port}", "COVE_API_KEY": server.key}
        bench.start(bench.built("cove"), "exec", box, "--", "sh", "-c",
                    'printf %s "$1" > /tmp/nginx.conf && exec nginx -c /tmp/nginx.conf', "sh", config, env=env,
                    core=bench.load_core)
        script = place.dir / "routed.lua"
        script.write_text(f'wrk.headers["E2b-Sandbox-Id"] = "{box}"\nwrk.headers["E2b-Sandbox-Port"] = "{PORT}"\n')
        worker = next(p for p in server.processes() if name_of(p) == "cove-serve")
        os.sched_setaffinity(worker, {bench.server_core})
        a, b = Side(bench, worker, server.port, "/", script), Side(bench, peer.worker, peer.ports["front"])
        a.warm_up()
        b.warm_up()
        rate = {a: [], b: []}

        def measure(side):
            rate[side].append(side.rate())
            return side.cpu_us[-1]

        mine, theirs = alternate(bench.options.rounds, lambda: measure(a), lambda: measure(b))
        yield Result("proxied to a port inside, CPU per request", "us", mine, theirs, "nginx proxy_pass", ("<=", 1.2),
                     note="{:.0f} and {:.0f} req/s".format(*(statistics.median(rate[s]) for s in (a, b))))
        bench.stop(peer.master, backend.master)


SERVE_ROWS = {"warm": warm, "cold": cold, "burst": burst, "footprint": footprint, "paused": paused, "routed": routed,
              "adoption": adoption}
