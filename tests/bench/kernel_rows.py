"""kernel_rows.py - the rows about Jupyter kernels, beside jupyter_kernel_gateway with the same kernel and the same
client, and beside plain ZeroMQ."""
import re
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

    def parents(self):
        """Warmed ones: what the service has started and is no kernel."""
        kernels = {int(pid) for pid in re.findall(r'msg="kernel started".* pid=(\d+)', self.log())}
        return [pid for pid in children(self.pid()) if pid not in kernels]

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


def family_mib(pid, depth=9):
    """A process and what it has started, so many steps down: proportional shares, so that pages in common count once."""
    below = children(pid) if depth else []
    return pss_kib(pid) / 1024 + sum(family_mib(child, depth - 1) for child in below)


def holding(side, *figures):
    """The figures while one client is connected to an idle kernel."""
    process = subprocess.Popen([VENV / "bin/python", CLIENT, "hold", side.url, "8"], stdout=subprocess.PIPE, text=True)
    if "ready" not in process.stdout.readline():
        raise CannotMeasure(f"no idle client at {side.url}")
    time.sleep(3)
    got = [figure() for figure in figures]
    process.wait(60)
    return got


def wait_alone(pid):
    deadline = time.monotonic() + 30
    while children(pid):
        if time.monotonic() > deadline:
            raise CannotMeasure("the warmed parent does not end")
        time.sleep(0.1)


def memory(bench, gateway):
    """What was started in advance counts: right behind the first connection it is there, and after kernel.rest-ms
    without a client it is not."""
    service = Service(bench, "--set", "kernel.rest-ms=4000")
    request(service.port, "GET", "/api")
    service.wait_parked(1)
    peer = [family_mib(gateway.process.pid)]
    begun = family_mib(service.pid())
    wait_alone(service.pid())
    yield Result("kernels' service, no kernel (PSS)", "MiB", [family_mib(service.pid())], peer, "jupyter_kernel_gateway", ("<=", 0.05),
                 note=f"after kernel.rest-ms; right behind the first connection {begun:.1f} MiB, with parent and parked kernel")
    # kernels are children on both sides
    alone, ours, everything = holding(service, lambda: family_mib(service.pid(), 0),
                                      lambda: family_mib(service.pid(), 0) + sum(pss_kib(p) / 1024 for p in service.parents()),
                                      lambda: family_mib(service.pid()))
    theirs, = holding(gateway, lambda: family_mib(gateway.process.pid, 0))
    yield Result("kernels' service, one idle client (PSS)", "MiB", [ours], [theirs], "jupyter_kernel_gateway",
                 note=f"kernels apart, the warmed parent counted; without it {alone:.1f} MiB, with the kernels {everything:.1f} MiB")
    service.stop()


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

    yield from memory(bench, gateway)
    gateway.stop()


KERNEL_ROWS = {"kernels": kernels}
