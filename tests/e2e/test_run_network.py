"""Where the sandboxes' network meets one that the machine has: said at once, and moved by a setting."""

import os
import subprocess
import time

import pytest

from helpers.cove import CLEAR, COVE, FAILED

pytestmark = pytest.mark.core

# A machine of its own: its network has one interface with the routes of a VPN, and nothing runs on it.
MACHINE = """
set -e
mount --make-rprivate /; mount -t tmpfs machine /run
ip link set lo up; ip link add vpn type veth peer name far
ip addr add 172.30.0.2/24 dev vpn; ip link set vpn up; ip link set far up
for route in $ROUTES; do ip route add $route via 172.30.0.1; done
exec "$@"
"""
AT_ONCE_S = 5                           # it was 14, and on a machine that does nothing else


@pytest.fixture
def machine(cove):
    if os.geteuid():
        pytest.skip("a network on this machine's side needs root")

    def run(routes, *words):
        return subprocess.run(
            ["unshare", "--net", "--mount", "sh", "-c", MACHINE, "sh", COVE, "run", "--private", "--data-dir",
             cove.data, *words], env={**CLEAR, "ROUTES": routes}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60)
    return run


OPEN = "--network", "open"


def test_a_route_into_the_network_is_named_at_once(machine):
    began = time.monotonic()
    done = machine("10.201.7.0/24 10.202.0.0/15", *OPEN, "true")
    assert time.monotonic() - began < AT_ONCE_S
    assert done.returncode == FAILED
    assert done.stderr == ("cove run: network 'open': the sandbox network 10.201.0.0/16 overlaps this host's "
                           "route to 10.201.7.0/24: move it with --set network.subnet=10.204.0.0/16\n")


def test_the_network_moves_where_the_error_says(machine):
    script = "hostname -I 2>/dev/null || true; cat /proc/net/fib_trie; cat /etc/resolv.conf"
    done = machine("10.201.7.0/24", *OPEN, "--set", "network.subnet=10.204.0.0/16", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert "10.204." in done.stdout and "nameserver 10.204.0.1" in done.stdout
    assert "10.201." not in done.stdout


def test_without_such_a_route_nothing_is_said(machine):
    assert machine("10.200.0.0/16", *OPEN, "true").returncode == 0


def test_none_needs_no_network(machine):
    assert machine("10.201.7.0/24", "true").returncode == 0


CONNECT = """
import socket
try:
    socket.create_connection(("172.30.0.9", 80), timeout=0.5)
except ConnectionRefusedError:
    print("refused")
except OSError:
    print("nobody answers")
"""


@pytest.mark.parametrize("allow, said", [
    ((), "refused"),
    (("--network-allow", "172.30.0.0/24"), "nobody answers"),
    (("--network-allow", "172.30.1.0/24"), "refused"),
])
def test_a_private_network_is_reached_where_the_operator_says_so(machine, allow, said):
    done = machine("", *OPEN, *allow, "python3", "-c", CONNECT)
    assert (done.returncode, done.stdout) == (0, said + "\n"), done.stderr


@pytest.mark.parametrize("setting, part", [
    ("network.subnet=10.0.0.0/8", "network.subnet must be an IPv4 /16"),
    ("network.subnet=10.9.8.0/16", "bits set behind its prefix"),
    ("network.bridge=br-1", "network.bridge must be 1 to 9 letters and digits"),
    ("network.bridge=abcdefghijk", "network.bridge must be shorter than 10 bytes"),
    ("network.allow=10.9.8.0/16", "bits set behind its prefix"),
    ("network.nonsense=1", "there is no setting 'network.nonsense'"),
])
def test_a_setting_that_means_nothing_is_refused(cove, setting, part):
    assert part in cove.failed("--set", setting, "true")
