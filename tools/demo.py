"""demo.py - commands in sandboxes, then one guest driven by the real E2B SDK: what happened, and how
long it took."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BOLD, OFF = ("\033[1m", "\033[m") if sys.stdout.isatty() else ("", "")


def timed(what, work):
    """Runs a step and prints its time and result in one line."""
    started = time.monotonic()
    result = work()
    took = (time.monotonic() - started) * 1000
    shown = f"  {result}" if isinstance(result, (str, list, bool)) else ""
    print(f"{BOLD}{took:9.1f} ms{OFF}  {what:44}{shown}", flush=True)
    return result


def start_guest(program, directory):
    """Starts the guest on a free port of loopback; returns it with its address."""
    ready, signal = os.pipe()
    log = open(directory / "guest.log", "w")
    guest = subprocess.Popen(
        [program, "--listen", "127.0.0.1:0", "--ready-fd", str(signal)],
        pass_fds=[signal], stderr=log, stdin=subprocess.DEVNULL)
    os.close(signal)
    if os.read(ready, 1) != b"\n":
        sys.exit(f"demo: the guest did not start:\n{(directory / 'guest.log').read_text()}")
    os.close(ready)
    for word in (directory / "guest.log").read_text().split():
        if word.startswith("address="):
            return guest, word.removeprefix("address=")
    sys.exit("demo: the guest did not say where it listens")


def give_home(address, directory):
    """A home of its own: the demo neither runs nor times this machine's login scripts."""
    body = json.dumps({"envVars": {"HOME": str(directory)}}).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://{address}/init", body)).close()


def show(sandbox, directory):
    run = sandbox.commands.run
    timed("a command", lambda: run("echo hello from pid $$").stdout.strip())
    timed("Python", lambda: run("python3 -c 'print(sum(range(10**6)))'").stdout.strip())
    timed("ten more commands", lambda: len([run("true") for _ in range(10)]))

    path = f"{directory}/notes/today.txt"
    timed("write a file", lambda: sandbox.files.write(path, "made by the demo\n").name)
    timed("read it back", lambda: sandbox.files.read(path).strip())
    timed("list its directory", lambda: [e.name for e in sandbox.files.list(f"{directory}/notes")])

    handle = timed("a command in the background",
                   lambda: run("for i in 1 2 3; do echo $i; sleep 0.05; done", background=True))
    pid = handle.pid
    handle.disconnect()
    time.sleep(0.1)
    timed("left, came back: nothing is lost",
          lambda: sandbox.commands.connect(pid).wait().stdout.split())

    data = bytes(range(256)) * 4096 * 32
    timed("upload 32 MiB", lambda: sandbox.files.write(f"{directory}/big", data).name)
    timed("download 32 MiB, compared",
          lambda: bytes(sandbox.files.read(f"{directory}/big", format="bytes")) == data)


def cove_run(cove, data, *arguments):
    """One command in a sandbox of its own; returns what --json says about it."""
    done = subprocess.run([cove, "run", "--private", "--json", "--data-dir", data, *arguments], capture_output=True,
                          text=True, check=False)
    if not done.stdout:
        sys.exit(f"demo: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    if "error" in result:
        sys.exit(f"demo: {result['error']}\n(try: {cove} doctor)")
    return result


def show_run(cove, data):
    def out(*arguments):
        return cove_run(cove, data, *arguments)["stdout"].strip()

    timed("the first sandbox on this machine", lambda: out("--", "echo", "hello"))
    timed("Python in a sandbox", lambda: out("--", "python3", "-c", "print(sum(range(10**6)))"))
    timed("who and where", lambda: out("--", "sh", "-c", "id -un; hostname; ls /home | wc -l").split())
    timed("it is root, and cannot mount", lambda: cove_run(
        cove, data, "-u", "root", "--", "mount", "-t", "tmpfs", "none", "/mnt")["stderr"].strip())
    for _ in range(5):
        result = cove_run(cove, data, "--", "true")
    print(f"           true: {result['create_us'] / 1000:.1f} ms to make the sandbox, {result['run_us'] / 1000:.1f} to run, "
          f"{result['end_us'] / 1000:.1f} to leave nothing")
    met = timed("64 MiB of memory, 1 GiB wanted", lambda: cove_run(
        cove, data, "-m", "64M", "--", "python3", "-c", "bytearray(1 << 30)"))
    print(f"           exit {met['exit_code']}; limits met: {met['limits_met'] or 'none'}; "
          f"not enforced here: {met['not_enforced'] or 'none'}")


def detach(data):
    """The volume stays mounted between runs, for the next one; the demo's goes."""
    if os.path.ismount(data / "volume"):
        subprocess.run(["umount", data / "volume"], check=False)


def main():
    directory = Path(tempfile.mkdtemp(prefix="cove-demo-"))
    os.environ.update(E2B_DEBUG="true", E2B_API_KEY="demo")
    started = time.monotonic()
    guest = None
    try:
        show_run(sys.argv[2], directory / "data")
        guest, address = timed("start the guest", lambda: start_guest(sys.argv[1], directory))
        give_home(address, directory)
        os.environ["E2B_SANDBOX_URL"] = f"http://{address}"
        from e2b import Sandbox                     # reads the environment when it is imported
        sandbox = timed("the E2B SDK connects", Sandbox.create)
        show(sandbox, directory)
    finally:
        if guest:
            guest.terminate()
            print(f"the guest ended with status {guest.wait(10)}, "
                  f"{time.monotonic() - started:.1f} s in all")
        detach(directory / "data")
        shutil.rmtree(directory, ignore_errors=True)


main()
