"""What waits in a sandbox's sockets, through `cove serve`: it counts as memory, a sandbox above its limit is ended,
and the event log says how much the sockets held. And ping, for sandboxes that ask for it."""

import os
import subprocess

import pytest
from e2b import Sandbox

from helpers.cove import CLEAR, COVE
from helpers.guest import SLOWER
from helpers.proc import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="without root no limit is enforced")

LIMITS = {"memory_bytes": 64 << 20}
# What is asked for does not exist, the answers repeat it, and nobody reads them: 1,500 sockets are 300 MiB.
FILL = """python3 -c '
import socket, struct, time
keep = []
for _ in range(1500):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    for _ in range(13):
        s.send(struct.pack("=IHHII", 16000, 200, 5, 1, 0) + bytes(15984))
    keep.append(s)
time.sleep(60)
'"""
PING = "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); print(1)'"


def events(server, id):
    return server.ok("GET", f"/v1/sandboxes/{id}/events?limit=1000")["events"]


def fill(server, id):
    Sandbox.connect(id, **server.sdk()).commands.run(FILL, background=True)


def test_it_ends_and_the_log_says_why(server):
    id = server.create(timeout=600, limits=LIMITS)["id"]
    fill(server, id)
    wait_until(lambda: server.ok("GET", f"/v1/sandboxes/{id}")["state"] == "ended", "it has ended", 30 * SLOWER)
    reason = server.ok("GET", f"/v1/sandboxes/{id}")["reason"]
    assert reason.startswith("memory: the limit 'memory' of 64 MiB was met (in use: ")
    assert reason.endswith(" waited in sockets)")
    detail, = (event["detail"] for event in events(server, id) if event["kind"] == "limit")
    assert detail["limit"] == "memory" and detail["value"] == 64 << 20
    assert detail["use"] > 64 << 20 and 32 << 20 < detail["sockets"] <= detail["use"]


def test_one_that_is_to_restart_is_started_again(server):
    id = server.create(timeout=600, limits=LIMITS, restart="always")["id"]
    fill(server, id)
    wait_until(lambda: "restarted" in [event["kind"] for event in events(server, id)], "it is back", 30 * SLOWER)
    assert Sandbox.connect(id, **server.sdk()).commands.run("echo here").stdout == "here\n"
    server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)


def test_ping_is_for_those_that_ask(server):
    ids = [server.create(timeout=60)["id"], server.create(timeout=60, ping=True)["id"]]
    made = subprocess.run([COVE, "create", "--ping"], env=CLEAR | server.variables(), capture_output=True, text=True)
    ids.append(made.stdout.strip())
    said = [Sandbox.connect(id, **server.sdk()).commands.run(PING + " 2>/dev/null || echo 0").stdout for id in ids]
    assert said == ["0\n", "1\n", "1\n"]
    for id in ids:
        server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)
