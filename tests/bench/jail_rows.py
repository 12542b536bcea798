"""jail_rows.py - the rows about sandboxes: making, using and ending them beside the kernel's floor,
bubblewrap and the container runtimes of the distribution. What each side does is in
docs/benchmarks.md."""
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from harness import CannotMeasure, need
from result import Result, alternate, percentile, samples

FEW, MANY = 10, 100                     # runs a round: of what takes tens of milliseconds, and less
HELD = 1000


def root_only():
    if os.geteuid() != 0:
        raise CannotMeasure("sandboxes with limits need root")


class Place:
    """A data directory on the disk (layers need a file system, not memory), and a tiny root file
    system for the peers that want one: true and what it is linked with."""

    def __init__(self, bench):
        root_only()
        self.bench = bench
        self.dir = Path(bench.options.dir or "/var/tmp") / f"cove-bench-{os.getpid()}"
        self.data, self.root, self.work = (self.dir / n for n in ("data", "root", "work"))

    def __enter__(self):
        for path in (self.dir, self.data, self.work):
            path.mkdir(mode=0o755)
        self.data.chmod(0o700)
        self.fill_root()
        self.cove("true")               # makes the volume and template host
        return self

    def __exit__(self, *_):
        for _ in range(100):            # an engine that was just ended may still hold it
            if subprocess.run(["umount", self.data / "volume"], stderr=subprocess.DEVNULL,
                              check=False).returncode == 0:
                break
            time.sleep(0.1)
        self.bench.stop(*reversed(self.bench.processes))    # dockerd leaves its own directory mounted
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.dir}/")), reverse=True):
            subprocess.run(["umount", mount], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def fill_root(self):
        for name in ("proc", "dev", "tmp", "sys", "etc", "usr/bin"):
            (self.root / name).mkdir(parents=True)
        listed = subprocess.run(["ldd", "/usr/bin/true"], capture_output=True, text=True, check=True).stdout
        files = ["/usr/bin/true"] + [w for w in listed.split() if w.startswith("/")]
        for name in files:
            target = self.root / os.path.realpath(name).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, target)
            alias = self.root / name.lstrip("/")
            if not alias.exists():
                alias.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(name, alias)
        if not (self.root / "bin").exists():
            (self.root / "bin").symlink_to("usr/bin")

    def cove(self, *command, options=()):
        done = subprocess.run([self.bench.built("cove"), "run", "--private", "--data-dir", self.data, *options,
                               "--", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotMeasure(f"cove run {command[0]}: {done.stderr.strip()}")
        return done.stdout

    def engine(self, mode, count, program="/bin/true"):
        return samples([self.bench.built("tests/bench/bench-engine"), str(self.data), mode, str(count),
                        program], cores=self.bench.cores)

    def spawn(self, count, *argv, prefix=()):
        out = samples([*prefix, self.bench.built("tests/bench/bench-spawn"), str(count),
                       *map(str, argv)], cores=self.bench.cores)
        return statistics.median(out["spawn"]) / 1e6


def middle(values):
    return statistics.median(values) / 1e6


# ---- making and ending ----

BWRAP = ["--unshare-all", "--ro-bind", None, "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true"]


def sandbox(bench):
    with Place(bench) as place:
        bwrap = [str(place.root) if a is None else a for a in BWRAP]
        gone, create = [], []

        def ours():
            out = place.engine("cold", MANY)
            gone.extend(out["gone"])
            create.append(middle(out["create"]))
            return middle(out["total"])

        def floor():
            return middle(samples([bench.built("tests/bench/bench-floor"), str(place.root), str(place.work), str(MANY),
                                   "/bin/true"], cores=bench.cores)["floor"])

        a, b, c = alternate(bench.options.rounds, ours, floor,
                            lambda: place.spawn(MANY, need("bwrap"), *bwrap))
        note = f"create {statistics.median(create):.2f} ms"
        yield Result("sandbox: create, true, gone", "ms", a, b, "the same from bare system calls",
                     ("<=", 1.25), note=note)
        yield Result("sandbox: create, true, gone", "ms", a, c, "bubblewrap, no limits, no layer, no filter",
                     ("<=", 1.0))
        yield Result("sandbox: destroy", "ms", [middle(gone)], bar=("<=", 2), absolute=True,
                     note=f"p99 {percentile(gone, 99) / 1e6:.1f} ms")


# ---- whole programs ----

class Runtime:
    """crun, runc: a bundle whose only process is true."""

    def __init__(self, place, name):
        self.place, self.program = place, need(name)
        self.bundle = place.dir / f"bundle-{name}"
        self.bundle.mkdir()
        subprocess.run([self.program, "spec"], cwd=self.bundle, check=True, stdout=subprocess.DEVNULL)
        path = self.bundle / "config.json"
        config = json.loads(path.read_text())
        config["process"].update(args=["/bin/true"], terminal=False)
        config["root"] = {"path": str(place.root), "readonly": True}
        limits = {"memory": {"limit": 2 << 30}, "pids": {"limit": 1024},
                  "cpu": {"quota": 200000, "period": 100000}}
        config["linux"].setdefault("resources", {}).update(limits)
        path.write_text(json.dumps(config))

    def time(self):
        # crun refuses a cgroup v2 beside v1 controllers: it gets a mount namespace without it
        hide = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\""
        return self.place.spawn(FEW, self.program, "run", "--bundle", self.bundle, f"cove-bench-{os.getpid()}",
                                prefix=("unshare", "-m", "sh", "-c", hide, "sh"))


class Docker:
    def __init__(self, place):
        need("dockerd")
        self.place, self.host = place, f"unix://{place.dir}/docker.sock"
        d = place.dir / "docker"
        place.bench.start("dockerd", "--data-root", d / "data", "--exec-root", d / "exec", "-H", self.host,
                          "--pidfile", d / "pid", "--iptables=false", "--bridge=none",
                          core=place.bench.cores)
        deadline = time.monotonic() + 30
        while self.docker("version").returncode:
            if time.monotonic() > deadline:
                raise CannotMeasure("dockerd does not start")
            time.sleep(0.2)
        tar = place.dir / "root.tar"
        subprocess.run(["tar", "-C", place.root, "-cf", tar, "."], check=True)
        if self.docker("import", tar, "cove-bench").returncode:
            raise CannotMeasure("docker import failed")

    def docker(self, *argv):
        return subprocess.run(["docker", "-H", self.host, *map(str, argv)], capture_output=True, check=False)

    def time(self):
        return self.place.spawn(FEW // 2, "docker", "-H", self.host, "run", "--rm", "--network", "none",
                                "--memory", "2g", "--pids-limit", "1024", "cove-bench", "/bin/true")


def podman(place):
    argv = [need("podman"), "--root", place.dir / "podman", "--runroot", place.dir / "podman-run",
            "--cgroup-manager", "cgroupfs", "run", "--rm", "--network", "none", "--ulimit", "nofile=4096:4096",
            "--ulimit", "nproc=4096:4096", "--rootfs", place.root, "/bin/true"]
    hide = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\""
    return lambda: place.spawn(FEW // 2, *argv, prefix=("unshare", "-m", "sh", "-c", hide, "sh"))


def runsc(place):
    return lambda: place.spawn(FEW // 2, need("runsc"), "--network=none", f"--root={place.dir}/runsc", "do",
                               "--root", place.root, "/bin/true")


PEERS = [("crun run", lambda p: Runtime(p, "crun").time), ("runc run", lambda p: Runtime(p, "runc").time),
         ("podman run", podman), ("docker run", lambda p: Docker(p).time), ("runsc do", runsc)]


def run(bench):
    """The first is the bar; one that does not work here is named and left out."""
    with Place(bench) as place:
        command = [bench.built("cove"), "run", "--private", "--data-dir", place.data, "--", "/bin/true"]
        sides, names, without = [lambda: place.spawn(FEW, *command)], [], []
        for name, make in PEERS:
            try:
                side = make(place)
                side()                  # also says whether it works at all
                sides.append(side)
                names.append(name)
            except (CannotMeasure, subprocess.CalledProcessError) as problem:
                without.append(f"{name}: {str(problem)[:120]}")
        ours, *peers = alternate(bench.options.rounds, *sides)
        for name, figures in zip(names, peers):
            yield Result("cove run -- true", "ms", ours, figures, name, ("<=", 1.0))
        bench.stop(*reversed(bench.processes))
        if without:
            raise CannotMeasure("; ".join(without))


# ---- using ----

LOOP = "import time\nb=time.perf_counter()\nx=0\nfor i in range(4000000): x+=i*i\nprint(time.perf_counter()-b)"
COMPILE = """
import subprocess, tempfile, time
d = tempfile.mkdtemp()
for i in range(50):
    open(f"{d}/f{i}.c", "w").write("#include <stdio.h>\\n#include <stdlib.h>\\n" +
        "".join(f"int f{i}_{j}(int x) {{ return x * {j} + {i}; }}\\n" for j in range(200)))
b = time.perf_counter()
for i in range(50):
    subprocess.run(["gcc", "-O1", "-c", f"{d}/f{i}.c", "-o", f"{d}/f{i}.o"], check=True)
print(time.perf_counter() - b)
import shutil; shutil.rmtree(d)
"""
FILES = """
import os, shutil, tempfile, time
d = tempfile.mkdtemp()
b = time.perf_counter()
for i in range(10000):
    with open(f"{d}/{i}", "wb") as f: f.write(b"x" * 4096)
print(time.perf_counter() - b)
shutil.rmtree(d)
"""


def inside(bench):
    with Place(bench) as place:
        runs = [place.engine("exec", 500) for _ in range(bench.options.rounds)]
        guest, bare = ([middle(r[k]) * 1000 for r in runs] for k in ("guest", "bare"))
        yield Result("true in a running sandbox", "us", guest, bare, "posix_spawn and wait", ("<=", 1.4),
                     note="p99 {:.0f} and {:.0f} us".format(*(percentile(
                         [ns for r in runs for ns in r[k]], 99) / 1e3 for k in ("guest", "bare"))))

        def outside(code):
            env = {**os.environ, "TMPDIR": str(place.work)}
            return float(subprocess.run(["/usr/bin/python3", "-c", code], env=env, capture_output=True, text=True,
                                        check=True).stdout)

        def within(code):
            return float(place.cove("/usr/bin/python3", "-c", code))

        for what, code, invert, bar in [("Python loop", LOOP, True, (">=", 0.97)),
                                        ("compiling 50 C files", COMPILE, False, ("<=", 1.1)),
                                        ("writing 10,000 small files", FILES, False, ("<=", 1.6))]:
            a, b = alternate(bench.options.rounds, lambda c=code: within(c), lambda c=code: outside(c))
            if invert:                  # speed, not time
                a, b = [1 / v for v in a], [1 / v for v in b]
            yield Result(what, "1/s" if invert else "s", a, b, "on the host", bar)


def held(bench):
    with Place(bench) as place:
        alone = place.engine("exec", 200)
        out = place.engine("hold", HELD)
        yield Result(f"{HELD:,} idle sandboxes, each", "MiB", [out["bytes"][0] / (1 << 20)], bar=("<=", 1.2),
                     absolute=True, note=f"made in {out['fill'][0] / 1e6:.1f} ms each; kernel memory included")
        yield Result(f"true in one of {HELD:,}", "us", [middle(out["exec"]) * 1000],
                     [middle(alone["guest"]) * 1000], "in a single one", ("<=", 1.15))
        yield Result(f"destroy, one of {HELD:,}", "ms", [middle(out["gone"])], bar=("<=", 2), absolute=True,
                     note=f"p99 {percentile(out['gone'], 99) / 1e6:.1f} ms")


JAIL_ROWS = {"sandbox": sandbox, "run": run, "inside": inside, "held": held}
