"""harness.py - what every row of the benchmark needs: a place for its files, servers on one core and
load on another, the CPU time and memory of a process, and a run of wrk.

Every process that is started here is ended here, by its own id, however the run ends."""
import ctypes
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class CannotMeasure(Exception):
    """A row has no figure: something is missing, or what ran is not what should be measured."""


def need(program):
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/go/bin")
    if not path:
        raise CannotMeasure(f"{program} is not installed (tools/deps bench)")
    return path


class Bench:
    """One run: a temporary directory, two cores, and the processes that are to be ended."""

    def __init__(self, options):
        self.options = options
        self.build = Path(options.build).resolve()
        cores = sorted(os.sched_getaffinity(0))
        self.cores = set(cores)
        self.server_core, self.load_core = cores[0], cores[1 % len(cores)]
        self.processes = []
        self.dir = None

    def __enter__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="cove-bench-",
                                         dir=self.options.dir or roomy_memory()))
        self.dir.chmod(0o755)
        os.sched_setaffinity(0, {self.load_core})
        try:
            os.nice(-10)                # all that is compared alike; spares us other people's work
        except OSError:
            pass
        for limit in (1 << 16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
                break
            except (ValueError, OSError):
                continue                # the hard limit is not ours to raise
        return self

    def __exit__(self, *_):
        self.stop(*reversed(self.processes))
        shutil.rmtree(self.dir, ignore_errors=True)

    def built(self, name):
        path = self.build / name
        if not path.exists():
            raise CannotMeasure(f"{path} is not there: run make")
        return str(path)

    def start(self, *argv, core=None, **more):
        """Starts a server on the server's core, or the one or ones given; it dies with us even when
        we are killed."""
        cores = core if isinstance(core, set) else {self.server_core if core is None else core}
        parent = os.getpid()

        def prepare():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            os.sched_setaffinity(0, cores)
            if os.getppid() != parent:
                os._exit(1)

        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **more}
        log = open(self.dir / "stderr.log", "ab")
        process = subprocess.Popen([str(a) for a in argv], stderr=log, preexec_fn=prepare, **more)
        log.close()
        self.processes.append(process)
        return process

    def stop(self, *processes):
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process in self.processes:
                self.processes.remove(process)

    def serve(self, *argv, port, core=None):
        """Starts a server and waits until its port answers."""
        process = self.start(*argv, core=core)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            except OSError:
                time.sleep(0.01)
        tail = (self.dir / "stderr.log").read_text(errors="replace")[-500:]
        raise CannotMeasure(f"{argv[0]} does not serve on port {port}: {tail.strip()}")

    def guest(self, core=None):
        """A guest on a free port: its process and the port."""
        port = free_port()
        return self.serve(self.built("cove-guest"), "--listen", f"127.0.0.1:{port}", port=port,
                          core=core), port

    def httpd(self, *more):
        port = free_port()
        return self.serve(self.built("tests/bench/bench-httpd"), "--listen", f"127.0.0.1:{port}",
                          *more, port=port), port

    def wrk(self, port, path="/", connections=64, seconds=None, script=None):
        """One run of the load generator; a run with errors is no measurement."""
        seconds = seconds or self.options.seconds
        argv = [need("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s"]
        argv += ["-s", str(script)] if script else []
        out = subprocess.run([*argv, f"http://127.0.0.1:{port}{path}"], capture_output=True,
                             text=True, check=False).stdout
        if re.search(r"Socket errors|Non-2xx", out) or "Requests/sec" not in out:
            raise CannotMeasure("wrk saw errors: " + " ".join(out.split()[-40:]))
        return Load(int(re.search(r"(\d+) requests in", out)[1]),
                    float(re.search(r"Requests/sec:\s*([\d.]+)", out)[1]))


def roomy_memory():
    """A file system in memory, so that a disk's moods are not measured; None where it is small."""
    try:
        fs = os.statvfs("/dev/shm")
        with open("/proc/meminfo", encoding="ascii") as f:
            free = int(re.search(r"^MemAvailable:\s*(\d+)", f.read(), re.M)[1]) << 10
    except (OSError, TypeError):
        return None
    roomy = min(fs.f_bavail * fs.f_frsize, free) >= 6 << 30 and os.access("/dev/shm", os.W_OK)
    return "/dev/shm" if roomy else None


class Load:
    def __init__(self, requests, per_second):
        self.requests, self.per_second = requests, per_second


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- what /proc says about a process ----

def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_ns(pid):
    """CPU time of all threads that live, in nanoseconds (user, system, and what the kernel does in
    their name: on loopback that includes the receiving side's softirq)."""
    try:
        return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    except (OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def status_kib(pid, key):
    return int(re.search(rf"^{key}:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def pss_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s*(\d+)", text, re.M)[1])


def busy_share(seconds):
    """How much of the machine's time others use, the hypervisor's other guests among them."""
    def times():
        fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    (all_before, idle_before), _, (all_after, idle_after) = times(), time.sleep(seconds), times()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def reset_peak(pid):
    """Makes VmHWM start again at the present size; false where the kernel does not let us."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        return True
    except OSError:
        return False
