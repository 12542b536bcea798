"""contract_rows.py - the control-plane contract beside the stack it was written for."""
import json
import os
import statistics
import subprocess
import time
import urllib.parse
import urllib.request

from harness import HERE, ROOT, CannotMeasure, free_port
from jail_rows import Place
from result import Result, alternate
from rows import Side
from serve_rows import Server, name_of

BASE, PASSWORD = "/agent/sandboxes/sandboxes", "of-the-benchmark-1"
SECRET = "a secret of the bench's own, of 32 bytes or more"
BOX, SESSION = "29ef1923-20e4-4e41-9d76-1fffafbaaaeb", "5a0c2c1e-7a43-4c7a-9b0e-0d2f5b9f1a11"
LOGINS = 10


def python():
    path = ROOT / ".cache/venv-bench/bin/python"
    if not path.exists():
        raise CannotMeasure("FastAPI is not installed (tools/deps bench)")
    return path


def with_token(place, name, token):
    script = place.dir / f"{name}.lua"
    script.write_text(f'wrk.headers["Authorization"] = "Bearer {token}"\n')
    return script


class Peer:
    """FastAPI and uvicorn with one worker on the server's core; the same call, SQLite in the same memory."""

    def __init__(self, place):
        bench, port = place.bench, free_port()
        made = subprocess.run([python(), "-c", "import jwt, sys, time; print(jwt.encode({'session_uuid': sys.argv[1], "
                               "'exp': int(time.time()) + 86400, 'sub': '7'}, sys.argv[2], 'HS256'))", SESSION, SECRET],
                              capture_output=True, text=True, check=True).stdout.strip()
        self.process = bench.serve(python(), HERE / "peers/status.py", str(port), place.dir / "peer.db", SECRET,
                                   port=port)
        self.side = Side(bench, self.process.pid, port, f"{BASE}/{BOX}/status", with_token(place, "peer", made))


def log_in(server):
    query = urllib.parse.urlencode({"username": "bench", "password": PASSWORD})
    began = time.perf_counter()
    token = server.ask("POST", f"/api/v1/auth/login/swagger?{query}")["access_token"]
    return token, (time.perf_counter() - began) * 1000


def create(server, token):
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}{BASE}/create", data=b'{"user_id":"bench"}',
                                   headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)["data"]["sandbox_id"]


def status(bench):
    with Place(bench) as place, Server(place, "contract", 0) as server:
        server.ask("POST", "/v1/users", {"name": "bench", "password": PASSWORD, "multi_login": True})
        logins = [log_in(server) for _ in range(LOGINS)]
        token = logins[-1][0]
        worker = next(p for p in server.processes() if name_of(p) == "cove-serve")
        os.sched_setaffinity(worker, {bench.server_core})
        box = create(server, token)
        ours = Side(bench, worker, server.port, f"{BASE}/{box}/status", with_token(place, "ours", token))
        peer = Peer(place)
        for side in (ours, peer.side):
            side.warm_up()
        mine, theirs = alternate(bench.options.rounds, ours.rate, peer.side.rate)
        bench.stop(peer.process)
        yield Result("status of the contract", "1/s", mine, theirs, "FastAPI, uvicorn, SQLite", (">=", 10),
                     note=f"{ours.cost} and {peer.side.cost} us of CPU")
        yield Result("login of the contract", "ms", [statistics.median(ms for _, ms in logins)], bar=("<=", 500),
                     absolute=True, note="slow on purpose: yescrypt")


CONTRACT_ROWS = {"contract": status}
