"""The kernels of a sandbox of `cove serve`, which has a token: the real clients show it, and without it they get nothing."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jupyter_kernel_client
import pytest
import requests
from e2b_code_interpreter import Sandbox
from service import free_port, wait_for

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "e2e"))

from helpers import python_layer                    # noqa: E402
from helpers.guest import SANITIZED                 # noqa: E402
from helpers.serve import Serve                     # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to limit, map and mount"),
              pytest.mark.skipif(SANITIZED, reason="a sandbox has no place for a sanitizer's reports")]


@pytest.fixture(scope="module")
def server():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cove-ks-"))
    folder.chmod(0o755)
    (folder / "server/data").mkdir(parents=True)
    python_layer.put(folder / "server/data")
    started = Serve(folder / "server", "--ephemeral")
    started.preview = json.loads((started.data / "server.json").read_text())["preview_url"]
    yield started
    started.close()


@pytest.fixture(scope="module")
def box(server):
    made = server.create(timeout=600)
    made["jupyter"] = f"{server.preview}/{made['id']}/8888"
    assert requests.get(made["jupyter"] + "/api", timeout=60).status_code == 403
    return made


def test_the_code_interpreters_sdk_in_python(server):
    with Sandbox.create(timeout=300, **server.sdk()) as sandbox:
        assert sandbox.run_code("x = 41").error is None
        assert sandbox.run_code("x + 1").text == "42"
        context = sandbox.create_code_context()
        assert sandbox.run_code("x", context=context).error.name == "NameError"


JS = """
const { Sandbox } = require("@e2b/code-interpreter");
(async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300000 });
  await sandbox.runCode("x = 41");
  console.log((await sandbox.runCode("x + 1")).text);
  const context = await sandbox.createCodeContext();
  console.log((await sandbox.runCode("x", { context })).error.name);
  await sandbox.kill();
})();
"""


def test_the_code_interpreters_sdk_in_javascript(server, node):
    run = subprocess.run([node, "-e", JS], capture_output=True, text=True, timeout=120, env={**os.environ, **server.variables()})
    assert run.returncode == 0 and run.stdout == "42\nNameError\n", run.stderr[-2000:]


def test_jupyterlabs_own_client_library(box, node):
    """With its WebSockets, which say the token in the query."""
    run = subprocess.run([node, str(HERE / "jupyterlab.js"), box["jupyter"], box["token"]], capture_output=True, text=True, timeout=170)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    said = json.loads(run.stdout.splitlines()[-1])
    assert said["stream"] == "hello\n" and said["result"] == "42" and said["restarted"] == "NameError"


def test_jupyter_kernel_client(box):
    with jupyter_kernel_client.JupyterKernelClient(server_url=box["jupyter"], token=box["token"]) as client:
        assert client.execute("print(6 * 7)")["outputs"][0]["text"] == "42\n"


def test_jupyter_server_with_a_sandbox_as_its_gateway(box, tmp_path):
    """As JupyterLab in a browser has its kernels in a sandbox."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_TOKEN": "front"}
    with open(tmp_path / "log", "w") as log:
        lab = subprocess.Popen([sys.executable, "-m", "jupyter_server", f"--port={port}", "--ip=127.0.0.1", "--allow-root", "--no-browser",
                                f"--gateway-url={box['jupyter']}", f"--GatewayClient.auth_token={box['token']}",
                                f"--ServerApp.root_dir={tmp_path}"], env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def answers():
        assert lab.poll() is None, (tmp_path / "log").read_text()
        try:
            return requests.get(url + "/api", timeout=5).ok
        except requests.RequestException:
            return False
    try:
        wait_for(answers, "jupyter_server")
        with jupyter_kernel_client.JupyterKernelClient(server_url=url, token="front") as client:
            assert client.execute("print(6 * 7)")["outputs"][0]["text"] == "42\n"
    finally:
        lab.terminate()
        lab.wait(30)
