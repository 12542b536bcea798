"""Templates that say `kernels: warm`: the kernels' service runs from a sandbox's beginning, so that one of the warm
pool holds a parked kernel, which learns from /init whose it has become."""

import json
import os
import pathlib
import re
import subprocess
import time

import pytest

from helpers import python_layer
from helpers.cove import CLEAR, COVE
from helpers.guest import SANITIZED, SLOWER
from helpers.proc import wait_until
from helpers.serve import Serve

pytestmark = [pytest.mark.timeout(300 * SLOWER),
              pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to limit, map and mount"),
              pytest.mark.skipif(SANITIZED, reason="a sandbox has no place for a sanitizer's reports")]
PARKED = re.compile(r'msg="?kernel parked.* pid=(\d+)')


def template(data, *words):
    done = subprocess.run([COVE, "template", *words, "--data-dir", data], capture_output=True, text=True, env=CLEAR)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(workspace):
    if python_layer.why_not():
        pytest.skip(python_layer.why_not())
    folder = pathlib.Path(workspace, "warm")
    data = folder / "data"
    data.mkdir(parents=True)
    python_layer.put(data)
    template(data, "add", "warm", "host", "--kernels", "warm")
    assert json.loads(template(data, "list", "--json"))[1]["kernels"] == "warm"
    started = Serve(folder, "--set", "pool.size=1")
    yield started
    started.end_all()
    started.close()


class Box:
    def __init__(self, server, template="warm", **variables):
        self.server = server
        made = server.ok("POST", "/sandboxes", {"templateID": template, "timeout": 600, "envVars": variables}, status=201)
        self.id = made["sandboxID"]

    def ask(self, port, method, path, body=None, status=200):
        headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port)}
        reply = self.server.call(method, path, body, headers=headers)
        assert status is None or reply.status == status, reply
        return reply

    def kernels(self):
        return next(one for one in self.ask(49983, "GET", "/services").json if one["name"] == "kernels")

    def log(self):
        return self.ask(49983, "GET", "/files?path=/shared/jupyter-kernel.log", status=None).body.decode()

    def parked(self):
        """The process that was started in advance, or None."""
        found = PARKED.findall(self.log())
        return int(found[0]) if found else None

    def execute(self, code, **more):
        lines = self.ask(49999, "POST", "/execute", {"code": code, **more}).body.decode().splitlines()
        return "".join(m["text"] for m in map(json.loads, lines) if m["type"] == "stdout")

    def end(self):
        assert self.server.call("DELETE", f"/sandboxes/{self.id}").status in (204, 404)


@pytest.fixture
def create(server):
    made = []

    def one(*words, **variables):
        made.append(Box(server, *words, **variables))
        return made[-1]

    yield one
    for box in made:
        box.end()


def test_the_template_says_it_and_an_ordinary_one_does_not(create):
    warm, plain = create(), create("host")
    wait_until(lambda: warm.kernels()["state"] == "running", "the kernels do not start by themselves", 60 * SLOWER)
    wait_until(warm.parked, "no kernel is parked", 60 * SLOWER)
    assert warm.kernels()["starts"] == 1
    assert plain.kernels()["state"] == "waiting"


def test_a_sandbox_of_the_pool_holds_a_parked_kernel_that_learns_whose_it_is(create):
    box, pause = create(WHOSE="mine"), 3    # from now on the pool keeps one
    while not box.parked():
        assert pause < 60, "the pool has no sandbox with a parked kernel"
        time.sleep(pause)                   # on a slow machine parking takes its time
        box.end()
        box, pause = create(WHOSE="mine", HOME="/tmp"), pause * 1.5
    kernel = box.parked()
    said = box.execute("import os; print(os.getpid(), os.environ['WHOSE'])")
    assert said.split() == [str(kernel), "mine"]
    assert box.kernels()["starts"] == 1


def test_a_token_of_the_environment_guards_kernels_that_began_before_it(create):
    box = create(KG_AUTH_TOKEN="s3cret")
    wait_until(lambda: box.kernels()["state"] == "running", "the kernels do not start by themselves", 60 * SLOWER)
    box.ask(8888, "GET", "/api/kernels", status=401)
    box.ask(8888, "GET", "/api/kernels?token=s3cret")


def test_who_wants_the_ports_otherwise_gets_them(create):
    none = create(COVE_SERVICES="rest")
    wait_until(lambda: none.kernels()["state"] == "off", "the kernels were not wanted", 30 * SLOWER)
    moved = create(JUPYTER_KERNEL_GATEWAY_APP_PORT="9123")
    wait_until(lambda: moved.kernels()["state"] == "running", "the kernels do not start again", 60 * SLOWER)
    assert moved.kernels()["ports"]["jupyter"] == 9123
    moved.ask(9123, "GET", "/api/kernels")
