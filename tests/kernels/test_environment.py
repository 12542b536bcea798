"""What /init of the guest says reaches services that run already. A guest as a process of this machine: in a sandbox
only the control plane may ask for /init."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import requests
from service import free_port, wait_for

pytestmark = pytest.mark.core


class Guest:
    def __init__(self, directory, *options):
        self.dir, self.port = pathlib.Path(directory), free_port()
        self.ports = {"JUPYTER_KERNEL_GATEWAY_APP_PORT": str(free_port()), "COVE_INTERPRETER_PORT": str(free_port())}
        self.process = subprocess.Popen(
            [os.environ["COVE_GUEST"], "--services", "--listen", f"127.0.0.1:{self.port}", "--log-level", "warn", *options],
            stdin=subprocess.DEVNULL, stderr=open(self.dir / "stderr", "w"))
        wait_for(lambda: self.process.poll() is not None or self.answers(), "the guest")

    def answers(self):
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/health", timeout=10).status_code == 204
        except OSError:
            return False

    def init(self, **variables):
        """The environment of this test's sandbox, and more."""
        venv = pathlib.Path(sys.executable).parent.parent
        env = {"COVE_SERVICES": "kernels", "HOME": str(self.dir), "XDG_RUNTIME_DIR": str(self.dir), "SHARED_DIR": str(self.dir),
               "VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{os.environ['PATH']}", **self.ports, **variables}
        assert requests.post(f"http://127.0.0.1:{self.port}/init", json={"envVars": env}, timeout=60).status_code == 204

    def kernels(self):
        return next(s for s in requests.get(f"http://127.0.0.1:{self.port}/services", timeout=60).json() if s["name"] == "kernels")

    def execute(self, code, **more):
        answer = requests.post(f"http://127.0.0.1:{self.ports['COVE_INTERPRETER_PORT']}/execute", json={"code": code, **more}, timeout=120)
        assert answer.status_code == 200, answer.text
        return "".join(m["text"] for m in map(json.loads, answer.text.splitlines()) if m["type"] == "stdout")

    def api(self, path):
        return requests.get(f"http://127.0.0.1:{self.ports['JUPYTER_KERNEL_GATEWAY_APP_PORT']}{path}", timeout=60).status_code

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.fixture
def guest(tmp_path):
    one = Guest(tmp_path)
    yield one
    one.stop()


def test_contexts_follow_the_sandboxs_environment(guest):
    show = "import os; print(os.environ.get('A'), os.environ.get('GONE'))"
    shell = "echo $A ${GONE-None}"
    guest.init(A="1", GONE="x")
    assert guest.execute(show) == "1 x\n"
    assert guest.execute(shell, language="bash") == "1 x\n"
    guest.init(**{"A": "it's \"2\"\n", "a b": "no name for a shell"})
    assert guest.execute("import os; print(repr(os.environ['A']), 'GONE' in os.environ)") == repr("it's \"2\"\n") + " False\n"
    assert guest.execute(shell, language="bash") == "it's \"2\" None\n"
    assert guest.execute("import os; print(os.environ['A'])", env_vars={"A": "3"}) == "3\n"
    assert guest.execute("import os; print(os.environ['A'][:4])") == "it's\n"
    assert guest.kernels()["starts"] == 1


def test_a_token_is_asked_for_as_soon_as_the_environment_has_one(guest):
    guest.init()
    assert guest.api("/api/kernels") == 200
    for _ in range(50):                 # whoever saw /init answered finds it in force
        guest.init(KG_AUTH_TOKEN="s3cret")
        assert guest.api("/api/kernels") == 401
        assert guest.api("/api/kernels?token=s3cret") == 200
        guest.init()
        assert guest.api("/api/kernels") == 200
    assert guest.kernels()["starts"] == 1


def test_a_large_environment_arrives_whole(guest):
    guest.init()
    assert guest.execute("x = 1; print(x)") == "1\n"
    guest.init(**{f"V{n}": "x" * 1000 for n in range(300)})
    assert guest.execute("import os; print(sum(len(os.environ[f'V{n}']) for n in range(300)))") == "300000\n"


def test_a_warm_service_runs_before_anybody_asks_and_moves_when_told(tmp_path):
    guest = Guest(tmp_path, "--warm", "kernels")
    try:
        guest.init()
        wait_for(lambda: guest.kernels()["state"] == "running", "the service")
        wait_for(lambda: "kernel parked" in (tmp_path / "jupyter-kernel.log").read_text(), "a parked kernel")
        assert guest.kernels()["ports"]["jupyter"] == int(guest.ports["JUPYTER_KERNEL_GATEWAY_APP_PORT"])
        assert guest.execute("print(1)") == "1\n"
    finally:
        guest.stop()


def test_one_that_is_told_to_move_before_it_is_ready_is_warm_there_too(tmp_path):
    """It is ended in the middle of its start, which is no failure: nothing may be put off."""
    for n in range(8):
        (tmp_path / str(n)).mkdir()
        guest = Guest(tmp_path / str(n), "--warm", "kernels", "--set", "services.stop-ms=0")
        try:
            guest.init()
            wait_for(lambda: guest.kernels()["state"] == "running", "the service")
            assert guest.kernels()["failures"] == 0
        finally:
            guest.stop()
