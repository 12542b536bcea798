"""services_rows.py - the rows about the services inside a sandbox, beside the Python programs they stand
in for."""
import os
import subprocess
import sys
import time

from harness import HERE, ROOT, CannotMeasure, cpu_ns, children, free_port, pss_kib
from result import Result, alternate
from rows import request

PEER = ["fastapi==0.115.*", "uvicorn[standard]==0.34.*"]


def python_with_fastapi():
    """Kept in .cache; made when it is missing."""
    place = ROOT / ".cache/bench-fastapi"
    if not (place / "complete").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True, capture_output=True)
            subprocess.run([place / "bin/pip", "install", "-q", *PEER], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as problem:
            raise CannotMeasure(f"FastAPI cannot be installed: {problem}") from None
        (place / "complete").touch()
    return place / "bin/python"


def start_rest(bench):
    """The service as pid 1 of a sandbox starts it: behind its door. Its process and port."""
    port = free_port()
    home = bench.dir / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "SHARED_DIR": str(home), "PORT": str(port), "HOST": "127.0.0.1"}
    door = bench.start(bench.built("cove-guest"), "services", "rest", env=env)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            request(port, "GET", "/health")
            return door, children(door.pid)[0], port
        except OSError:
            time.sleep(0.01)
    raise CannotMeasure("the REST service does not answer")


def start_peer(bench):
    port = free_port()
    process = bench.serve(python_with_fastapi(), "-m", "uvicorn", "--app-dir", HERE / "peers", "--port", str(port),
                          "--no-access-log", "--log-level", "warning", "rest_app:app", port=port)
    request(port, "GET", "/health")
    return process, port


def services(bench):
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    peer, peer_port = start_peer(bench)
    door, pid, port = start_rest(bench)
    used = {}

    def load(name, owner, at):
        before = cpu_ns(owner)
        done = bench.wrk(at, "/health")
        used.setdefault(name, []).append((cpu_ns(owner) - before) / done.requests / 1000)
        return done.per_second

    ours, theirs = alternate(bench.options.rounds, lambda: load("ours", pid, port),
                             lambda: load("peer", peer.pid, peer_port))
    yield Result("REST service, GET /health", "req/s", ours, theirs, "FastAPI on uvicorn", (">=", 8),
                 note=f"CPU {min(used['ours']):.1f} and {min(used['peer']):.1f} us/req")
    memory = pss_kib(pid) / 1024
    yield Result("REST service, memory after it (PSS)", "MiB", [memory], [pss_kib(peer.pid) / 1024], "FastAPI on uvicorn",
                 ("<=", 0.1), note=f"its door {pss_kib(door.pid)} KiB; before the first use nothing runs")
    bench.stop(door, peer)


SERVICES_ROWS = {"services": services}
