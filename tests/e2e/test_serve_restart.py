"""Sandboxes with `restart: always`, through `cove serve`: whatever kills their first process, they come back on
their files, with their environment, tokens, ports and what is left of their time."""

import contextlib
import http.client
import os
import signal
import subprocess
import threading
import time

import pytest
from e2b import Sandbox

from helpers.cove import CLEAR, COVE
from helpers.guest import SLOWER
from helpers.machine import comm
from helpers.proc import alive, children, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a guest is killed from outside, and ports need root")


def events(server, id):
    return [event["kind"] for event in server.ok("GET", f"/v1/sandboxes/{id}/events?limit=1000")["events"]]


def first_process(id):
    """Of its machine, as this one sees it."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cgroup") as groups, open(f"/proc/{entry}/status") as status:
                    inside = [line for line in status if line.startswith("NSpid:")]
                    if id in groups.read() and inside and inside[0].split()[-1] == "1":
                        return int(entry)
            except OSError:
                continue
    raise AssertionError(f"{id} has no first process")


def back(server, id, times):
    wait_until(lambda: events(server, id).count("restarted") >= times
               and server.ok("GET", f"/v1/sandboxes/{id}")["state"] == "running", "it is back", 30 * SLOWER)


def test_it_comes_back_on_its_files(server):
    made = server.create(timeout=600, restart="always", env={"A": "b"}, forwards=[{"host_port": 0, "port": 8000}])
    assert made["restart"] == "always"
    id = made["id"]
    box = Sandbox.connect(id, **server.sdk())
    box.files.write("/home/user/kept", "every byte")
    for times in (1, 2):
        pid = first_process(id)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid), "it is dead")
        back(server, id, times)
        again = Sandbox.connect(id, **server.sdk())
        assert again.files.read("/home/user/kept") == "every byte"
        assert again.commands.run("echo $A").stdout == "b\n"
    answer = server.call("GET", "/files?path=/home/user/kept", key=None,
                         headers={"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "49983"})
    assert answer.status == 401, "its guest still demands the token"
    now = server.ok("GET", f"/v1/sandboxes/{id}")
    assert (now["forwards"], now["ends"]) == (made["forwards"], made["ends"])
    server.call("DELETE", f"/v1/sandboxes/{id}")
    assert server.ok("GET", f"/v1/sandboxes/{id}")["state"] == "ended"


def test_a_kill_is_the_end_and_so_is_death_without_the_option(server):
    always, never = server.create(timeout=600, restart="always")["id"], server.create(timeout=600)["id"]
    assert server.ok("GET", f"/v1/sandboxes/{never}")["restart"] == "no"
    os.kill(first_process(never), signal.SIGKILL)
    wait_until(lambda: server.ok("GET", f"/v1/sandboxes/{never}")["state"] == "ended", "it has ended", 30 * SLOWER)
    server.ok("DELETE", f"/v1/sandboxes/{always}", status=204)
    assert "restarted" not in events(server, always)


def test_by_command_line(server):
    said = subprocess.run([COVE, "create", "--restart", "always"], env=CLEAR | server.variables(), capture_output=True,
                          text=True, check=True)
    id = said.stdout.strip()
    assert server.ok("GET", f"/v1/sandboxes/{id}")["restart"] == "always"
    os.kill(first_process(id), signal.SIGKILL)
    back(server, id, 1)
    server.call("DELETE", f"/v1/sandboxes/{id}")


def test_one_that_died_without_a_server_or_keeper_comes_back(server):
    id = server.create(timeout=600, restart="always")["id"]
    Sandbox.connect(id, **server.sdk()).files.write("/home/user/kept", "x")
    pid = first_process(id)
    os.kill(server.worker(), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "it is dead")
    wait_until(server.running, "the server is there again", 30 * SLOWER)
    back(server, id, 1)
    assert Sandbox.connect(id, **server.sdk()).files.read("/home/user/kept") == "x"
    server.call("DELETE", f"/v1/sandboxes/{id}")


def test_a_pause_whose_server_died_does_not_come_later(server):
    """It waits at the keeper: the next server is told that the sandbox runs, and may not find it frozen then."""
    id = server.create(timeout=600)["id"]
    keeper, = (pid for pid in children(server.process.pid) if comm(pid) == "cove-keep")
    worker = server.worker()

    def pause():
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.call("POST", f"/v1/sandboxes/{id}/pause", {})

    asks = threading.Thread(target=pause)
    os.kill(keeper, signal.SIGSTOP)
    try:
        asks.start()
        time.sleep(0.5)
        os.kill(worker, signal.SIGKILL)
        asks.join()
        wait_until(lambda: not alive(worker), "it is dead")
        time.sleep(0.5)                 # the next one asks the keeper, too
    finally:
        os.kill(keeper, signal.SIGCONT)
    wait_until(lambda: server.ok("GET", f"/v1/sandboxes/{id}")["state"] == "running", "it runs", 30 * SLOWER)
    for _ in range(5):
        assert Sandbox.connect(id, **server.sdk()).commands.run("echo up", request_timeout=20).stdout == "up\n"
        time.sleep(0.1)
    server.ok("DELETE", f"/v1/sandboxes/{id}", status=204)
