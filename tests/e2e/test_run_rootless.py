"""`cove run` without root: the same in the caller's own user namespace, and what is missing is said."""

import json
import os
import pathlib
import subprocess

import pytest

from helpers.cove import CLEAR, FAILED, for_anybody

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
NOBODY = 65534


@pytest.fixture(scope="module")
def nobody(workspace):
    """Runs the program, from a place that anyone can reach, as a user with nothing but a home."""
    home = pathlib.Path(workspace) / "nobody"
    home.mkdir()
    program = for_anybody(home)
    os.chown(home, NOBODY, NOBODY)

    def run(*words, status=0):
        done = subprocess.run([program, "run", *words], capture_output=True, text=True, timeout=60, cwd=home,
                              user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.DEVNULL,
                              env={**CLEAR, "HOME": str(home)})
        if "user namespace" in done.stderr and done.returncode == FAILED:
            pytest.skip(f"no user namespaces for ordinary users: {done.stderr.strip()}")
        assert done.returncode == status, done.stderr
        return done

    return run


def test_a_command_runs_as_the_only_id_there_is(nobody):
    assert nobody("sh", "-c", "id -u; echo x > ~/file; cat ~/file; python3 -c 'print(6 * 7)'").stdout == \
        "0\nx\n42\n"


def test_a_boot_id_of_its_own_is_there_too(nobody):
    script = "f=/proc/sys/kernel/random/boot_id; echo x > $f; cat $f"
    said = [nobody("sh", "-c", script).stdout.strip() for _ in range(2)]
    machines = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert [len(one) for one in said] == [36, 36] and len({machines, *said}) == 3


def test_exit_codes_and_json(nobody):
    assert nobody("sh", "-c", "exit 7", status=7).stderr == ""
    told = json.loads(nobody("--json", "true").stdout)
    assert {"memory", "cpus", "pids", "disk"} <= set(told["not_enforced"])


def test_a_limit_that_is_asked_for_and_not_enforced_is_said(nobody):
    said = nobody("--memory", "64M", "true").stderr
    assert said == "cove run: the limit 'memory' is not enforced here (cove doctor says why)\n"


def test_an_open_network_is_refused(nobody):
    assert "network open needs root" in nobody("--network", "open", "true", status=FAILED).stderr


def test_only_loopback_is_there_and_it_is_up(nobody):
    done = nobody("python3", "-c", "import socket; s = socket.create_server(('127.0.0.1', 0)); "
                  "socket.create_connection(s.getsockname()); print(sorted(n for _, n in socket.if_nameindex()))")
    assert done.stdout == "['lo']\n"


def test_the_machines_usr_is_there_to_read(nobody):
    done = nobody("sh", "-c", "touch /usr/bin/new || touch /new && ls /new")
    assert done.stdout == "/new\n"


def test_services_run_as_the_only_id_there_is(nobody):
    said = nobody("sh", "-c", "curl -s --max-time 60 localhost:8765/execute -d '{\"code\": \"import os; print(os.getuid())\"}'")
    assert json.loads(said.stdout) == {"stdout": "0\n", "stderr": ""}


def test_nothing_is_left(nobody):
    def made():                         # others may work here meanwhile
        done = subprocess.run(["find", "/tmp", "-maxdepth", "1", "-name", "cove-*", "-uid", str(NOBODY)],
                              capture_output=True, text=True)
        return set(done.stdout.split())

    before = made()
    for _ in range(5):
        nobody("true")
    assert made() <= before
    layers = [p for p in pathlib.Path(nobody("sh", "-c", "echo").args[0]).parent.rglob("run-*")]
    assert layers == []
