"""What a server asks a keeper for: its templates, figures for metrics, and a freeze that nobody else
waits for."""

import os
import subprocess

import pytest

from helpers.cove import CLEAR, COVE
from helpers.keeper import OPEN, REPLY, VERB, full, request
from helpers.proc import wait_until

pytestmark = pytest.mark.core

MIB = 1 << 20
POPULATE = """
import mmap
while True:
    mmap.mmap(-1, 512 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
"""


@pytest.fixture
def client(start_keeper):
    with start_keeper().client() as connected:
        yield connected


def add_template(cove, name, folder, *options):
    subprocess.run([COVE, "template", "add", "--data-dir", cove.data, *options, name, folder],
                   check=True, capture_output=True, env=CLEAR)


def remove_template(cove, name):
    subprocess.run([COVE, "template", "remove", "--data-dir", cove.data, name],
                   check=True, capture_output=True, env=CLEAR)


def all_templates(client):
    found = client.templates()
    while page := client.templates(after=found[-1]["name"]):
        assert len(page) <= 5
        found += page
    return found


def test_templates_are_read_in_parts(client, cove, folder):
    root = os.path.join(folder, "root")
    os.mkdir(root)
    names = [f"t{n}-{os.getpid()}" for n in range(7)]
    for name in names:
        add_template(cove, name, root, "--user", "ann", "--workdir", "/srv", "--memory", "64m")
    try:
        found = all_templates(client)
        assert found[0]["name"] == found[0]["kind"] == "host"
        assert found[0]["memory_bytes"] == 0 and found[0]["user"] == ""
        added = [one for one in found if one["name"] in names]
        assert [one["name"] for one in added] == names
        for one in added:
            assert one["kind"] == "directory" and one["memory_bytes"] == 64 * MIB
            assert (one["user"], one["workdir"]) == ("ann", "/srv")
    finally:
        for name in names:
            remove_template(cove, name)
    assert not [one for one in all_templates(client) if one["name"] in names]


def test_an_alias_that_was_taken_makes_a_sandbox_outdated(client, cove, folder):
    root = os.path.join(folder, "root")
    os.mkdir(root)
    client.create("one", template="mcp-gateway")
    state = client.stat("one")
    assert (state["template"], state["outdated"]) == ("mcp-gateway", 0)
    add_template(cove, "mcp-gateway", root)
    try:
        assert client.stat("one")["outdated"] == 1
    finally:
        remove_template(cove, "mcp-gateway")
    assert client.stat("one")["outdated"] == 0


def test_traffic_and_cache_are_measured(client):
    client.create("one", network=OPEN)
    client.create("two")
    assert client.stat("one")["net_tx"] < 100_000
    # the gateway answers or refuses: either way there are packets
    client.wire("one").run("python3", "-c", """if True:
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        gateway = open("/etc/resolv.conf").read().split("nameserver ")[1].split()[0]
        for _ in range(100):
            s.sendto(bytes(1000), (gateway, 53))
        """)
    wait_until(lambda: client.stat("one")["net_tx"] > 100_000, "it has sent")
    client.wire("two").run("sh", "-c", "head -c 20000000 /dev/zero > file")
    quiet = client.stat("two")
    assert quiet["net_tx"] == quiet["net_rx"] == 0
    assert 20_000_000 <= quiet["memory_cache"] <= quiet["memory"]


def test_limits_that_stay_keep_what_they_were(client):
    client.create("one", memory_bytes=300 * MIB, lifetime_ms=1_000_000)
    before = client.stat("one")
    reply = client.call("limits", "one", request("limits")[64:64 + 64]).state
    assert reply["memory_bytes"] == 300 * MIB and reply["left_ms"] <= before["left_ms"]


def test_others_are_served_while_a_freeze_takes_its_time(client):
    """A process that fills memory in one system call cannot be stopped before that returns."""
    client.create("one")
    with client.wire("one").start("python3", "-c", POPULATE):
        wait_until(lambda: client.stat("one")["memory"] > 100 * MIB, "it is at work")
        overtaken = False
        for serial in range(1000, 1200, 2):
            client.send(request("freeze", "one", serial=serial))
            client.send(request("list", serial=serial + 1))
            first, second = client.answer(), client.answer()
            overtaken = first.verb == VERB["list"]
            frozen = second if overtaken else first
            assert frozen.kind == REPLY and frozen.verb == VERB["freeze"]
            assert not frozen.code or "did not freeze within 2000 ms" in frozen.message, frozen
            assert client.stat("one")["frozen"] == (not frozen.code)
            client.call("thaw", "one")
            if overtaken:
                break
        assert overtaken


def test_a_freeze_that_is_undone_or_overtaken_by_the_end_is_answered(client):
    client.create("one")
    with client.wire("one").start("python3", "-c", POPULATE):
        wait_until(lambda: client.stat("one")["memory"] > 100 * MIB, "it is at work")
        for serial in range(1000, 1200, 2):
            client.send(request("freeze", "one", serial=serial))
            client.send(request("thaw", "one", serial=serial + 1))
            answers = [client.answer(), client.answer()]
            assert sorted(one.serial for one in answers) == [serial, serial + 1]
            if "was thawed before it was frozen" in answers[0].message:
                break
        client.send(request("freeze", "one", serial=2000))
        client.send(request("kill", "one", serial=2001))
        answers = {one.serial: one for one in (client.answer(), client.answer())}
        assert answers[2001].code == 0
        assert not answers[2000].code or "has ended" in answers[2000].message
    assert full("one") not in client.list_all()
