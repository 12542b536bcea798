"""demo.py - what Cove is, in a minute: a server on this machine, sandboxes made by the unmodified E2B
SDK, code run in them, a web server inside reached through the router, a Jupyter kernel that works, and
everything gone again; each step with the time it took."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

BOLD, OFF = ("\033[1m", "\033[m") if sys.stdout.isatty() else ("", "")


def timed(what, work):
    """Runs a step and prints its time and result in one line."""
    started = time.monotonic()
    result = work()
    took = (time.monotonic() - started) * 1000
    shown = f"  {result}" if isinstance(result, (str, list, bool)) else ""
    print(f"{BOLD}{took:9.1f} ms{OFF}  {what:46}{shown}", flush=True)
    return result


class Server:
    """`cove serve` on directories of the demo's own. It ends with us, whatever happens: the lifeline's
    other end is ours."""

    def __init__(self, cove, directory):
        self.data, self.log = directory / "data", directory / "serve.log"
        lifeline, self.lifeline = os.pipe()
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [cove, "serve", "--data", self.data, "--run-dir", directory / "run", "--listen", "127.0.0.1:0",
                 "--ephemeral", "--lifeline", str(lifeline), "--log-level", "warn"],
                pass_fds=[lifeline], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        os.close(lifeline)
        self.url = next((line.split()[-1] for line in self.process.stdout if "ready on" in line), None)
        if not self.url:
            sys.exit(f"demo: the server did not start:\n{self.log.read_text()}\n(try: {cove} doctor)")

    def key(self):
        return (self.data / "admin.key").read_text().strip()

    def end(self):
        os.close(self.lifeline)
        return f"status {self.process.wait(60)}"


def show_one(sandbox):
    run = sandbox.commands.run
    timed("Python in it", lambda: run("python3 -c 'print(sum(range(10**6)))'").stdout.strip())
    timed("who and where", lambda: run("id -un; hostname; ls /home | wc -l").stdout.split())
    timed("ten more commands", lambda: str(len([run("true") for _ in range(10)])))
    timed("write a file, read it back",
          lambda: sandbox.files.write("notes/today.txt", "kept") and sandbox.files.read("notes/today.txt"))
    handle = timed("a command in the background",
                   lambda: run("sleep 0.05; for i in 1 2 3; do echo $i; done", background=True))
    pid = handle.pid
    handle.disconnect()
    time.sleep(0.1)
    timed("left, came back: nothing is lost", lambda: sandbox.commands.connect(pid).wait().stdout.split())
    data = bytes(range(256)) * 4096 * 32
    timed("upload 32 MiB", lambda: sandbox.files.write("big", data).name)
    timed("download 32 MiB, compared", lambda: bytes(sandbox.files.read("big", format="bytes")) == data)


def fetch(server, sandbox, port):
    """The port inside, by the host name that the SDK gives out."""
    host = sandbox.get_host(port)
    request = urllib.request.Request(server.url + "/hello.txt", headers={"Host": host})
    deadline = time.monotonic() + 10
    while True:
        try:
            return urllib.request.urlopen(request, timeout=5).read().decode().strip()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def show_web(server, sandbox):
    sandbox.files.write("site/hello.txt", "hello from inside")
    sandbox.commands.run("exec python3 -m http.server 8080 -d site", background=True)
    timed("a web server in it, through the router", lambda: fetch(server, sandbox, 8080))
    timed("the same once more", lambda: fetch(server, sandbox, 8080))


# ---- kernels

SIEVE = """
def primes(n):
    sieve = bytearray([1]) * (n + 1)
    sieve[:2] = b"\\0\\0"
    for i in range(2, int(n ** 0.5) + 1):
        if sieve[i]:
            sieve[i * i::i] = bytes(len(range(i * i, n + 1, i)))
    return [i for i, p in enumerate(sieve) if p]
found = primes(1_000_000)
"""
GAPS = """
from collections import Counter
gaps = Counter(b - a for a, b in zip(found, found[1:]))
f"{len(found)} primes below a million; the commonest gaps: {gaps.most_common(3)}"
"""


def take_layer(kept, data):
    """The Python layer that tools/python-layer keeps, as `cove layer add python` would have put it there."""
    if not kept.is_dir():
        return
    data.mkdir()
    if subprocess.run(["cp", "-al", kept, data], capture_output=True, check=False).returncode:     # another file system
        shutil.rmtree(data / "layers", ignore_errors=True)
        subprocess.run(["cp", "-a", kept, data], check=False)


def execute(server, sandbox, code):
    """As the code interpreter's SDKs do it: a stream of JSON, one object in a line. Returns result or error."""
    request = urllib.request.Request(server.url + "/execute", json.dumps({"code": code}).encode(),
                                     {"Host": sandbox.get_host(49999), "Content-Type": "application/json",
                                      "X-API-Key": server.key()})
    try:
        lines = urllib.request.urlopen(request, timeout=60).read().decode().splitlines()
    except urllib.error.HTTPError as e:
        return None, e.read().decode().strip()
    for event in map(json.loads, lines):
        if event["type"] == "error":
            return None, event["value"]
        if event["type"] == "result":
            return event["text"].strip("'\""), None
    return "", None


def show_kernel(server, sandbox):
    started = time.monotonic()
    value, missing = execute(server, sandbox, SIEVE)
    if value is None:
        print(f"           no kernel here: {missing}")
        return
    print(f"{BOLD}{(time.monotonic() - started) * 1000:9.1f} ms{OFF}  a Jupyter kernel starts, sieves primes", flush=True)
    timed("its next cell knows them", lambda: execute(server, sandbox, GAPS)[0])


def show_many(Sandbox):
    made, took = [], []
    for _ in range(20):
        started = time.monotonic()
        made.append(Sandbox.create(timeout=60))
        took.append((time.monotonic() - started) * 1000)
        time.sleep(0.05)
    print(f"           20 more sandboxes by the SDK: {statistics.median(took):.1f} ms each (median), "
          f"the fastest {min(took):.1f}")
    timed("end all of them", lambda: all(s.kill() for s in made))


def main():
    cove = os.path.abspath(sys.argv[1])
    directory = Path(tempfile.mkdtemp(prefix="cove-demo-"))
    directory.chmod(0o755)
    started = time.monotonic()
    try:
        take_layer(Path(".cache/python-layer/layers"), directory / "data")
        server = timed("the server is up, on a fresh data directory", lambda: Server(cove, directory))
        os.environ.update(E2B_API_URL=server.url, E2B_SANDBOX_URL=server.url, E2B_API_KEY=server.key())
        from e2b import Sandbox                     # reads the environment when it is imported
        sandbox = timed("the E2B SDK makes a sandbox", lambda: Sandbox.create(timeout=300, metadata={"is": "a demo"}))
        show_one(sandbox)
        show_web(server, sandbox)
        show_kernel(server, sandbox)
        timed("end it", sandbox.kill)
        show_many(Sandbox)
        timed("end the server, with all that it made", server.end)
        print(f"{time.monotonic() - started:.1f} s in all; nothing is left")
    finally:
        if os.path.ismount(directory / "data/volume"):
            subprocess.run(["umount", directory / "data/volume"], check=False)
        shutil.rmtree(directory, ignore_errors=True)


main()
