"""network_lab - runs a command in a network namespace that is a machine with an internet beside it.

usage: unshare --net --mount python3 network_lab.py COMMAND...

The machine has a public and a private address and is its own metadata service; everything listens.
In the command, @DENIED@ stands for "ADDRESS PORT ..." of what no sandbox may reach, @REACHABLE@ for
an address of the internet. All of it is gone with this process."""

import contextlib
import socket
import subprocess
import sys

PORT = 7777
MACHINE, INTERNET = "11.0.113.9", "11.0.113.5"
OWN = ["10.99.0.1", "169.254.169.254"]
GATEWAY = "10.201.0.1"
ELSEWHERE = ["192.168.99.1", "100.100.100.200"]     # not the machine: private, and more metadata

SERVER = f"""
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", {PORT})); s.listen(64)
print("ready", flush=True); sys.stdin.read()
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def inside(pid, *words):
    subprocess.run(["nsenter", "--net", f"--target={pid}", "ip", *words], check=True)


def build(pid):
    ip("link", "set", "lo", "up")
    ip("link", "add", "wan", "type", "veth", "peer", "name", "wan", "netns", str(pid))
    inside(pid, "link", "set", "lo", "up")
    for address in [INTERNET + "/24", *(other + "/32" for other in ELSEWHERE)]:
        inside(pid, "addr", "add", address, "dev", "wan")
    inside(pid, "link", "set", "wan", "up")
    for address in [MACHINE + "/24", *(own + "/32" for own in OWN)]:
        ip("addr", "add", address, "dev", "wan")
    ip("link", "set", "wan", "up")
    ip("route", "add", "default", "via", INTERNET)


def main(command):
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "lab", "/run"], check=True)     # what a keeper keeps
    internet = subprocess.Popen(["unshare", "--net", sys.executable, "-c", SERVER],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        internet.stdout.readline()
        build(internet.pid)
        listener = socket.create_server(("0.0.0.0", PORT))
        with contextlib.closing(listener):
            targets = [MACHINE, *OWN, GATEWAY, *ELSEWHERE]
            denied = " ".join(f"{address} {PORT}" for address in targets) + f" {GATEWAY} 22"
            words = [word.replace("@DENIED@", denied).replace("@REACHABLE@", f"{INTERNET} {PORT}")
                     for word in command]
            return subprocess.run(words).returncode
    finally:
        internet.stdin.close()
        internet.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
