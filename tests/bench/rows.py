"""rows.py - the rows of the benchmark. Each measures ours and its peer in turns and yields Result
lines; what both sides do, and what the figures do not say, is in docs/benchmarks.md.

A round measures both sides once. Odd rounds begin with the peer, so that neither always runs on
the warmer machine. The ratio of a row is the median of the rounds' ratios."""
import http.client
import json
import os
import socket
import statistics
import subprocess
import time
import zlib
from urllib.parse import quote

from harness import (HERE, CannotMeasure, children, cpu_ns, free_port, need, pss_kib, reset_peak,
                     status_kib)
from jail_rows import JAIL_ROWS
from result import Result, alternate, percentile, samples

MIB = 1 << 20
HELLO = "Hello, world"
JOB = '{"name":"build-and-test","count":41,"tags":["linux","amd64","nightly","team-core"] }'


def request(port, method, target, body=None, kind="application/json"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, target, body, {"Content-Type": kind} if body else {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status >= 300:
        raise CannotMeasure(f"{method} {target}: {answer.status} {text[:200]!r}")
    return answer, text


# ---- guest: memory and start ----

COPIES, SETTLE_S = 50, 3


def idle_guests(bench):
    sockets = [bench.dir / f"guest-{i}" for i in range(COPIES)]
    guests = [bench.start(bench.built("cove-guest"), "--listen", f"unix:{s}") for s in sockets]
    for path in sockets:
        ask_health(path)
    time.sleep(SETTLE_S)
    pss = [pss_kib(g.pid) for g in guests]
    rss = [status_kib(g.pid, "VmRSS") for g in guests]
    bench.stop(*guests)
    return statistics.mean(pss), statistics.mean(rss)


def ask_health(path):
    deadline = time.monotonic() + 5
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(path))
                s.sendall(b"GET /health HTTP/1.1\r\nHost: guest\r\n\r\n")
                if not s.recv(4096).startswith(b"HTTP/1.1 204"):
                    raise CannotMeasure("the guest's /health does not answer 204")
                return
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise CannotMeasure("a guest does not start") from None
            time.sleep(0.01)


def guest(bench):
    pss, rss = idle_guests(bench)
    yield Result("guest, idle: memory (PSS)", "KiB", [pss], bar=("<=", 120), absolute=True,
                 note=f"mean of {COPIES} copies; RSS {rss:.0f} KiB")
    argv = [bench.built("tests/bench/bench-start"), str(COPIES),
            bench.built("tests/bench/bench-noop"), bench.built("cove-guest")]
    runs = [samples(argv) for _ in range(bench.options.rounds)]
    ours, peer = ([statistics.median(r[name]) / 1e6 for r in runs] for name in ("guest", "noop"))
    p99 = percentile([ns for r in runs for ns in r["guest"]], 99) / 1e6
    yield Result("guest, start to ready", "ms", ours, peer, "static no-op program", ("<=", 2),
                 absolute=True, note=f"p99 {p99:.2f} ms")


# ---- one command ----

def command(bench):
    """Judged with guest, client and both kinds of commands wherever the kernel puts them, as they
    run in use. Beside it: guest and its commands on one core and the client on the other, and all
    on one; the difference between them is what wake-ups across cores cost on this machine."""
    places = {"free": (bench.cores, bench.cores), "on two cores": (bench.server_core, None),
              "on one": (bench.load_core, None)}
    guests = {name: bench.guest(core=core) for name, (core, _) in places.items()}

    def run(name):
        return lambda: samples([bench.built("tests/bench/bench-exec"),
                                f"127.0.0.1:{guests[name][1]}", "500", "/bin/true"],
                               places[name][1])

    def ratio(runs):
        return statistics.median(statistics.median(r["guest"]) / statistics.median(r["bare"])
                                 for r in runs)

    runs = dict(zip(places, alternate(bench.options.rounds, *map(run, places))))
    bench.stop(*(process for process, _ in guests.values()))
    judged = runs.pop("free")
    ours, peer = ([statistics.median(r[name]) / 1e3 for r in judged] for name in ("guest", "bare"))
    p99 = [percentile([ns for r in judged for ns in r[n]], 99) / 1e3 for n in ("guest", "bare")]
    beside = ", ".join(f"{ratio(r):.2f} {name}" for name, r in runs.items())
    yield Result("true, through the guest", "us", ours, peer, "posix_spawn and wait", ("<=", 1.4),
                 note=f"p99 {p99[0]:.0f} and {p99[1]:.0f} us; pinned: {beside}")


# ---- HTTP servers ----

class Nginx:
    """nginx with one worker on the server's core, from peers/nginx.conf."""

    def __init__(self, bench, core=None, backend=9, json_body="{}"):
        self.ports = {name: free_port() for name in ("small", "front", "files")}
        self.dir = bench.dir / f"nginx-{self.ports['small']}"
        self.files_dir = self.dir / "files"
        self.files_dir.mkdir(parents=True)
        words = {"user": "user root root;" if os.geteuid() == 0 else "", "dir": self.dir,
                 "files_dir": self.files_dir, "backend": backend, "hello": HELLO,
                 "json": json_body, **self.ports}
        text = (HERE / "peers/nginx.conf").read_text()
        for word, value in words.items():
            text = text.replace(f"@{word}@", str(value))
        conf = self.dir / "nginx.conf"
        conf.write_text(text)
        self.master = bench.serve(need("nginx"), "-p", self.dir, "-c", conf,
                                  port=self.ports["small"], core=core)
        self.worker, = children(self.master.pid)


def build_go(bench):
    """The Go peer, built once; module mode and downloads are not needed and switched off."""
    program = bench.dir / "go-http"
    env = {**os.environ, "GO111MODULE": "off", "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    if "HOME" not in env:
        env.setdefault("GOCACHE", str(bench.dir / "go-cache"))
    done = subprocess.run([need("go"), "build", "-o", program, HERE / "peers/http.go"], env=env,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMeasure("go build: " + done.stderr.strip()[-300:])
    return program


class Side:
    """One side of an HTTP row: where to send the load, and whose CPU time counts."""

    def __init__(self, bench, pid, port, path="/", script=None):
        self.bench, self.pid, self.port, self.path, self.script = bench, pid, port, path, script
        self.cpu_us = []

    def rate(self, seconds=None):
        before = cpu_ns(self.pid)
        load = self.bench.wrk(self.port, self.path, seconds=seconds, script=self.script)
        self.cpu_us.append((cpu_ns(self.pid) - before) / 1e3 / load.requests)
        return load.per_second

    def warm_up(self):
        self.rate(seconds=1)
        self.cpu_us.clear()

    @property
    def cost(self):
        return f"{statistics.median(self.cpu_us):.1f}"


def rates(bench, *sides):
    """Requests per second of several sides in turns: a list per side."""
    for side in sides:
        side.warm_up()
    figures = [[] for _ in sides]
    for i in range(bench.options.rounds):
        for j in range(len(sides)):
            at = (i + j) % len(sides)
            figures[at].append(sides[at].rate())
    return figures


def small(bench):
    ours, port = bench.httpd()
    _, text = request(port, "GET", "/")
    _, answer = request(port, "POST", "/json", JOB)
    nginx = Nginx(bench, json_body=answer.decode())
    same = request(nginx.ports["small"], "GET", "/")[1] == text and \
        request(nginx.ports["small"], "POST", "/json", JOB)[1] == answer
    if not same:
        raise CannotMeasure("nginx does not answer what bench-httpd answers")
    yield from small_get(bench, ours.pid, port, nginx)
    yield from small_json(bench, ours.pid, port, nginx, answer)
    bench.stop(ours, nginx.master)


def small_get(bench, pid, port, nginx):
    a = Side(bench, pid, port)
    b = Side(bench, nginx.worker, nginx.ports["small"])
    ours, peer = rates(bench, a, b)
    yield Result("GET, 13 bytes", "req/s", ours, peer, "nginx return 200", (">=", 0.9),
                 note=f"CPU {a.cost} and {b.cost} us/req")


def small_json(bench, pid, port, nginx, answer):
    script = bench.dir / "post.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.body = '{JOB}'\n"
                      "wrk.headers['Content-Type'] = 'application/json'\n")
    go_port = free_port()
    go = None
    try:
        go = bench.serve("/usr/bin/env", "GOMAXPROCS=1", build_go(bench), f"127.0.0.1:{go_port}",
                         port=go_port)
        if json.loads(request(go_port, "POST", "/json", JOB)[1]) != json.loads(answer):
            raise CannotMeasure("the Go peer does not answer what bench-httpd answers")
        go_problem = None
    except CannotMeasure as problem:
        go_problem = problem
    sides = [Side(bench, pid, port, "/json", script),
             Side(bench, nginx.worker, nginx.ports["small"], "/json", script)]
    sides += [Side(bench, go.pid, go_port, "/json", script)] if not go_problem else []
    ours, *peers = rates(bench, *sides)
    yield Result("POST, JSON read and written", "req/s", ours, peers[0],
                 "nginx return 200, reads no JSON", (">=", 0.6),
                 note=f"CPU {sides[0].cost} and {sides[1].cost} us/req; {len(JOB)} bytes in, "
                      f"{len(answer)} out")
    if go_problem:
        raise go_problem
    yield Result("POST, JSON read and written", "req/s", ours, peers[1], "Go net/http", (">=", 1.3),
                 note=f"CPU {sides[0].cost} and {sides[2].cost} us/req")
    bench.stop(go)


def proxy(bench):
    backend = Nginx(bench, core=bench.load_core)
    upstream = backend.ports["small"]
    ours, port = bench.httpd("--upstream", f"127.0.0.1:{upstream}")
    nginx = Nginx(bench, backend=upstream)
    a, b = Side(bench, ours.pid, port), Side(bench, nginx.worker, nginx.ports["front"])
    if request(port, "GET", "/")[1] != request(b.port, "GET", "/")[1]:
        raise CannotMeasure("the two proxies do not answer the same")
    a.warm_up()
    b.warm_up()
    rate = {a: [], b: []}

    def measure(side):
        rate[side].append(side.rate())
        return side.cpu_us[-1]

    mine, peer = alternate(bench.options.rounds, lambda: measure(a), lambda: measure(b))
    yield Result("reverse proxy, CPU per request", "us", mine, peer, "nginx proxy_pass", ("<=", 1.1),
                 note="{:.0f} and {:.0f} req/s".format(*(statistics.median(rate[s]) for s in (a, b))))
    bench.stop(ours, nginx.master, backend.master)


# ---- whole files ----

SIZE, TRANSFERS = 1 << 30, 3            # a figure is the mean of several transfers in a row


def make_file(path):
    """A file that does not compress or share blocks by accident; its checksum."""
    block, crc = os.urandom(MIB), 0
    with open(path, "wb") as f:
        for _ in range(SIZE // MIB):
            f.write(block)
            crc = zlib.crc32(block, crc)
    return crc


def checksum(path):
    crc = 0
    with open(path, "rb") as f:
        while block := f.read(MIB):
            crc = zlib.crc32(block, crc)
    return crc


def read_head(s):
    head = b""
    while b"\r\n\r\n" not in head:
        part = s.recv(4096)
        if not part:
            raise CannotMeasure("the connection closed before an answer")
        head += part
    head, _, rest = head.partition(b"\r\n\r\n")
    if head.split()[1][:1] != b"2":
        raise CannotMeasure(f"{head.splitlines()[0]!r} {rest[:200]!r}")
    return head, rest


def download(port, target, crc=None):
    """Seconds for the whole file. Without a checksum to verify the bytes are dropped in the kernel
    (MSG_TRUNC), so that the reader costs as little as it can and the server is what is measured."""
    buffer = bytearray(MIB)
    view, flags = memoryview(buffer), 0 if crc is not None else socket.MSG_TRUNC
    with socket.create_connection(("127.0.0.1", port)) as s:
        began = time.monotonic()
        s.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, rest = read_head(s)
        if f"content-length: {SIZE}".encode() not in head.lower():
            raise CannotMeasure("the download is not as long as the file")
        got, sum_ = len(rest), zlib.crc32(rest)
        while got < SIZE:
            n = s.recv_into(view, MIB, flags)
            if not n:
                raise CannotMeasure("the download broke off")
            got += n
            if crc is not None:
                sum_ = zlib.crc32(view[:n], sum_)
        took = time.monotonic() - began
    if crc is not None and sum_ != crc:
        raise CannotMeasure("the download is not what is in the file")
    return took


def upload(port, method, target, source):
    """Seconds from the request to the answer; the source goes by sendfile from the page cache."""
    with socket.create_connection(("127.0.0.1", port)) as s, open(source, "rb") as f:
        began = time.monotonic()
        s.sendall(f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {SIZE}\r\n"
                  "Content-Type: application/octet-stream\r\n\r\n".encode())
        s.sendfile(f)
        read_head(s)
        return time.monotonic() - began


class Transfer:
    """Downloads and uploads of one server, with its CPU time for each GiB."""

    def __init__(self, pid, port, method, target, new):
        self.pid, self.port, self.method, self.target, self.new = pid, port, method, target, new
        self.cpu_s = {"down": [], "up": []}

    def rate(self, kind, transfer):
        before, seconds = cpu_ns(self.pid), 0
        for _ in range(TRANSFERS):
            self.new.unlink(missing_ok=True)
            seconds += transfer()
        self.cpu_s[kind].append((cpu_ns(self.pid) - before) / 1e9 / TRANSFERS)
        return TRANSFERS * SIZE / MIB / seconds

    def down(self):
        return self.rate("down", lambda: download(self.port, self.target("big")))

    def up(self, source):
        return self.rate("up", lambda: upload(self.port, self.method, self.target("new"), source))

    def verify(self, source, crc):
        """The warm-up: one transfer each way, looked at byte by byte."""
        download(self.port, self.target("big"), crc)
        self.new.unlink(missing_ok=True)
        upload(self.port, self.method, self.target("new"), source)
        if checksum(self.new) != crc:
            raise CannotMeasure("the upload is not what was sent")


def costs(kind, *transfers):
    return "CPU " + " and ".join(f"{statistics.median(t.cpu_s[kind]):.2f}" for t in transfers) + \
        " s/GiB"


def files(bench):
    room = os.statvfs(bench.dir)
    if room.f_bavail * room.f_frsize < 4 * SIZE:
        raise CannotMeasure(f"{bench.dir} has no room for 4 GiB (choose another with --dir)")
    nginx = Nginx(bench)
    big = nginx.files_dir / "big"
    crc = make_file(big)
    process, port = bench.guest()
    request(port, "GET", "/health")
    before = status_kib(process.pid, "VmRSS")
    reset_peak(process.pid)
    new = nginx.files_dir / "new"
    ours = Transfer(process.pid, port, "POST",
                    lambda name: f"/files?path={quote(str(nginx.files_dir / name))}", new)
    peer = Transfer(nginx.worker, nginx.ports["files"], "PUT", lambda name: f"/{name}", new)
    for side in (ours, peer):
        side.verify(big, crc)
    a, b = alternate(bench.options.rounds, ours.down, peer.down)
    yield Result("download of 1 GiB", "MiB/s", a, b, "nginx sendfile", (">=", 0.9),
                 note=costs("down", ours, peer))
    a, b = alternate(bench.options.rounds, lambda: ours.up(big), lambda: peer.up(big))
    yield Result("upload of 1 GiB", "MiB/s", a, b, "nginx DAV PUT", (">=", 0.7),
                 note=costs("up", ours, peer))
    peak = status_kib(process.pid, "VmHWM")
    yield Result("guest, growth during both", "MiB", [(peak - before) / 1024], bar=("<=", 8),
                 absolute=True, note=f"peak RSS {peak} KiB, {before} KiB before")
    bench.stop(process, nginx.master)
    big.unlink()
    new.unlink(missing_ok=True)


# ---- many idle connections ----

IDLE = 10_000


class Holder:
    """bench-idle at work: holds connections and counts them on request."""

    def __init__(self, bench, port):
        self.process = bench.start(bench.built("tests/bench/bench-idle"), f"127.0.0.1:{port}",
                                   IDLE, core=bench.load_core, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.check()

    def check(self):
        line = self.process.stdout.readline()
        if line != f"open {IDLE}\n":
            raise CannotMeasure(f"wanted {IDLE} open connections, got {line.strip() or 'none'} "
                                "(limit of open files?)")

    def recount(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.check()


def idle(bench):
    full, full_port = bench.httpd()
    empty, empty_port = bench.httpd()
    with_idle, without = Side(bench, full.pid, full_port), Side(bench, empty.pid, empty_port)
    for side in (with_idle, without):
        side.warm_up()
    before = status_kib(full.pid, "VmRSS")
    holder = Holder(bench, full_port)
    busy = status_kib(full.pid, "VmRSS")
    time.sleep(SETTLE_S)
    each = (status_kib(full.pid, "VmRSS") - before) / IDLE
    yield Result("10,000 idle connections, each", "KiB", [each], bar=("<=", 16), absolute=True,
                 note=f"{(busy - before) / IDLE:.1f} KiB right after the last request")
    for side in (with_idle, without):
        side.warm_up()
    a, b = alternate(bench.options.rounds, with_idle.rate, without.rate)
    holder.recount()
    yield Result("64 active beside 10,000 idle", "req/s", a, b, "the same without idle ones",
                 (">=", 0.85), note=f"CPU {with_idle.cost} and {without.cost} us/req")
    bench.stop(holder.process, full, empty)


ROWS = {"guest": guest, "exec": command, "small": small, "proxy": proxy, "files": files,
        "idle": idle, **JAIL_ROWS}
