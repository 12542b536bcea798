"""kernel_rows.py - the rows about Jupyter kernels, beside jupyter_kernel_gateway with the same kernel and the same
client, and beside plain ZeroMQ."""
import statistics
import subprocess
import time
from pathlib import Path

from harness import HERE, ROOT, CannotMeasure, children, free_port, pss_kib
from result import Result, alternate
from rows import request

VENV = ROOT / ".cache/venv-kernels"
CLIENT = HERE / "peers/kernel_client.py"
TRIPS, STREAM = 200, 10_000


def environment(bench, name):
    home = bench.dir / name
    home.mkdir(exist_ok=True)
    return {"PATH": f"{VENV}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(VENV), "HOME": str(home), "SHARED_DIR": str(home)}


def client(mode, url, *more):
    try:
        run = subprocess.run([VENV / "bin/python", CLIENT, mode, url, *map(str, more)], capture_output=True, text=True, timeout=100, check=False)
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"{mode} at {url}: no end within 100 s") from None
    if run.returncode:
        raise CannotMeasure(run.stderr.strip()[-300:])
    return [float(line) for line in run.stdout.split()]


class Service:
    """Ours, behind its door."""

    def __init__(self, bench, *options):
        self.bench, self.port = bench, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = environment(bench, f"kernels-{self.port}") | {
            "JUPYTER_KERNEL_GATEWAY_APP_HOST": "127.0.0.1", "JUPYTER_KERNEL_GATEWAY_APP_PORT": str(self.port),
            "COVE_INTERPRETER_HOST": "127.0.0.1", "COVE_INTERPRETER_PORT": str(free_port())}
        self.door = bench.start(bench.built("cove-guest"), "services", "kernels", *options, env=self.env, core=bench.cores)
        time.sleep(0.3)

    def log(self):
        path = Path(self.env["SHARED_DIR"]) / "jupyter-kernel.log"
        return path.read_text() if path.exists() else ""

    def pid(self):
        return children(self.door.pid)[0]

    def wait_parked(self, beyond):
        """Until one more kernel has been started than asked for, and had the time to be ready."""
        deadline = time.monotonic() + 30
        while self.log().count("kernel started") < beyond:
            if time.monotonic() > deadline:
                raise CannotMeasure("no kernel is parked")
            time.sleep(0.05)
        time.sleep(1.5)

    def stop(self):
        self.bench.stop(self.door)


class Gateway:
    def __init__(self, bench):
        self.bench, self.port = bench, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = bench.start(VENV / "bin/jupyter-kernelgateway", "--ip=127.0.0.1", f"--port={self.port}",
                                   "--ZMQChannelsWebsocketConnection.iopub_msg_rate_limit=0",
                                   "--ZMQChannelsWebsocketConnection.iopub_data_rate_limit=0",
                                   env=environment(bench, "gateway"), core=bench.cores)
        deadline = time.monotonic() + 60
        while True:
            try:
                request(self.port, "GET", "/api")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise CannotMeasure("jupyter_kernel_gateway does not start") from None
                time.sleep(0.1)

    def stop(self):
        self.bench.stop(self.process)


def parked(service):
    """One that waits; the figure is of no use unless one did, so its taking is looked for."""
    service.wait_parked(service.log().count("kernel ended") + 1)
    return client("first", service.url)[0]


def cold(bench):
    service = Service(bench)
    figure = client("first", service.url)[0]
    service.stop()
    return figure


def kernels(bench):
    if not (VENV / ".stamp").exists() and not (VENV / "bin/jupyter-kernelgateway").exists():
        raise CannotMeasure("no clients: tools/deps kernels")
    gateway, service = Gateway(bench), Service(bench)
    client("first", gateway.url)
    client("first", service.url)                # both sides have started a kernel before
    service.wait_parked(2)
    rounds = bench.options.rounds

    ours, theirs = alternate(rounds, lambda: parked(service), lambda: client("first", gateway.url)[0])
    yield Result("kernel, POST to first reply, parked", "ms", ours, theirs, "jupyter_kernel_gateway", ("<=", 0.05))
    ours, theirs = alternate(rounds, lambda: client("pair", service.url)[0], lambda: client("pair", gateway.url)[0])
    yield Result("kernel, POST to first reply, the next", "ms", ours, theirs, "jupyter_kernel_gateway", ("<=", 0.4))
    ours, theirs = alternate(rounds, lambda: cold(bench), lambda: client("first", gateway.url)[0])
    yield Result("kernel, POST to first reply, cold", "ms", ours, theirs, "jupyter_kernel_gateway", ("<=", 0.9),
                 note="ours starts the service too; the gateway runs")

    def trip(url):
        return statistics.median(client("trips", url, TRIPS))

    ours, theirs, plain = alternate(rounds, lambda: trip(service.url), lambda: trip(gateway.url), lambda: statistics.median(client("raw", "-", TRIPS)))
    yield Result("kernel, execute round trip", "ms", ours, theirs, "jupyter_kernel_gateway", ("<=", 0.15))
    yield Result("kernel, execute round trip", "ms", ours, plain, "ZeroMQ from Python", ("<=", 1.25))
    ours, theirs = alternate(rounds, lambda: client("stream", service.url, STREAM)[0], lambda: client("stream", gateway.url, STREAM)[0])
    yield Result("kernel, 10,000 stream messages (v1)", "msg/s", ours, theirs, "jupyter_kernel_gateway", (">=", 3))
    service.stop()

    bare = Service(bench, "--set", "kernel.park=0")
    request(bare.port, "GET", "/api")
    time.sleep(3)
    pid = bare.pid()
    alone, peer = pss_kib(pid) / 1024, pss_kib(gateway.process.pid) / 1024
    zygote = sum(pss_kib(p) for p in children(pid)) / 1024
    yield Result("kernels' service, no kernel (PSS)", "MiB", [alone], [peer], "jupyter_kernel_gateway", ("<=", 0.05),
                 note=f"with the warmed parent {alone + zygote:.1f} MiB")
    bare.stop()
    gateway.stop()


KERNEL_ROWS = {"kernels": kernels}
