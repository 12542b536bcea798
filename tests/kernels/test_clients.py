"""The real clients of the Jupyter world, unmodified."""
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

import jupyter_kernel_client
import nbformat
import pytest
import requests
from service import Service, free_port, wait_for

HERE = pathlib.Path(__file__).parent

CONFTEST = """
import os, pytest

@pytest.fixture
def jupyter_server():
    yield (os.environ["TESTED_PORT"], os.environ["TESTED_TOKEN"])
"""


SHARES = 6


@pytest.fixture(scope="module")
def client_suite(tmp_path_factory):
    """The tests in its wheel, with their server replaced by ours, running. Most of their time goes to websocket-client,
    which waits ten seconds for itself when the answer to its Close comes quickly: meanwhile the others have the processor."""
    tmp_path = tmp_path_factory.mktemp("suite")
    service = Service(tempfile.mkdtemp(prefix="cove-k-"), KG_AUTH_TOKEN="suite-token")
    source = pathlib.Path(jupyter_kernel_client.__file__).parent / "tests"
    for file in source.glob("test_*.py"):
        shutil.copy(file, tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    env = {**os.environ, "TESTED_PORT": str(service.jupyter), "TESTED_TOKEN": "suite-token",
           "USER": pwd.getpwuid(os.getuid()).pw_name}
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    listed = subprocess.run([*pytest_, "--collect-only", str(tmp_path)], env=env, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    assert len(tests) > 10, listed.stdout[-3000:]
    shares = [subprocess.Popen([*pytest_, *tests[n::SHARES]], env=env, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT) for n in range(SHARES)]
    yield shares
    for share in shares:
        share.kill()
        share.communicate()
    service.stop()
    shutil.rmtree(service.dir)


@pytest.fixture(autouse=True)
def meanwhile(request):
    """The first test here starts it, where it is run at all."""
    if any(item.name == "test_the_suite_of_jupyter_kernel_client_passes" for item in request.session.items):
        request.getfixturevalue("client_suite")


@pytest.fixture
def gateway(start_service, tmp_path):
    """A jupyter_server that has all its kernels from us."""
    service, port = start_service(KG_AUTH_TOKEN="gw"), free_port()
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_TOKEN": "front"}
    server = subprocess.Popen([sys.executable, "-m", "jupyter_server", f"--port={port}", "--ip=127.0.0.1", "--allow-root", "--no-browser",
                               f"--gateway-url={service.url}", "--GatewayClient.auth_token=gw", f"--ServerApp.root_dir={tmp_path}",
                               "--GatewayClient.request_timeout=120"],
                              env=env, stdout=open(tmp_path / "log", "w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def answers():
        assert server.poll() is None, (tmp_path / "log").read_text()
        try:
            return requests.get(url + "/api", timeout=5).ok
        except requests.RequestException:
            return False

    wait_for(answers, "jupyter_server")
    yield url, service, tmp_path
    server.terminate()
    server.wait(30)


def test_jupyter_server_uses_us_as_its_gateway(gateway):
    url, service, tmp_path = gateway
    headers = {"Authorization": "token front"}
    specs = requests.get(url + "/api/kernelspecs", headers=headers, timeout=60).json()
    assert "sandbox-kernel" in specs["kernelspecs"]
    session = requests.post(url + "/api/sessions", headers=headers, timeout=60,
                            json={"path": "n.ipynb", "type": "notebook", "name": "n", "kernel": {"name": "python3"}})
    assert session.status_code == 201, (session.text, (tmp_path / "log").read_text()[-3000:])
    kernel = session.json()["kernel"]["id"]
    assert kernel in [k["id"] for k in service.call("GET", "/api/kernels").json()]
    with jupyter_kernel_client.JupyterKernelClient(server_url=url, token="front", kernel_id=kernel) as client:
        reply = client.execute("print(6 * 7)")
        assert reply["outputs"][0]["text"] == "42\n"
    assert requests.post(url + f"/api/kernels/{kernel}/interrupt", headers=headers, timeout=60).status_code == 204
    assert requests.post(url + f"/api/kernels/{kernel}/restart", headers=headers, timeout=60).status_code == 200
    assert requests.delete(url + f"/api/kernels/{kernel}", headers=headers, timeout=60).status_code == 204
    service.call("GET", f"/api/kernels/{kernel}", 404)


NOTEBOOK = """
import asyncio, json, sys
import nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelClient, GatewayKernelManager, GatewayMappingKernelManager
from nbclient import NotebookClient

GatewayClient.instance().url = sys.argv[1]

class Manager(GatewayKernelManager):
    client_class = "jupyter_server.gateway.managers.GatewayKernelClient"
    client_factory = GatewayKernelClient

cells = [nbformat.v4.new_code_cell(c) for c in (
    "import numpy as np\\nx = np.arange(5)", "print(x.sum())", "x * 2", "%matplotlib inline\\nimport matplotlib.pyplot as plt\\nplt.plot(x);")]
book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}})
client = NotebookClient(book, kernel_name="python3", kernel_manager_class=Manager, timeout=120)
client.execute()
print(nbformat.writes(book))
"""


def test_nbclient_executes_a_notebook_through_the_gateway_manager(start_service):
    service = start_service()           # its WebSocket never carries the token
    run = subprocess.run([sys.executable, "-c", NOTEBOOK, service.url], capture_output=True, text=True, timeout=170)
    assert run.returncode == 0, run.stderr[-4000:]
    book = nbformat.reads(run.stdout, 4)
    outputs = [cell.outputs for cell in book.cells]
    assert outputs[1][0].text == "10\n" and "array" in outputs[2][0].data["text/plain"]
    assert any("image/png" in o.get("data", {}) for o in outputs[3])


def test_jupyterlabs_own_client_library_works(start_service, node):
    service = start_service(KG_AUTH_TOKEN="lab")
    run = subprocess.run([node, str(HERE / "jupyterlab.js"), service.url, "lab"], capture_output=True, text=True, timeout=170,
                         env={**os.environ})
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    said = json.loads(run.stdout.splitlines()[-1])
    assert said == {
        "specs": True, "protocol": "v1.kernel.websocket.jupyter.org", "stream": "hello\n", "result": "42", "error": "ZeroDivisionError",
        "display": True, "input": "hi Ann\n", "comm": [1, 2, 3], "interrupted": "KeyboardInterrupt", "restarted": "NameError",
        "reconnected": "5", "session": True, "autorestart": True, "gone": True,
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_suite_of_jupyter_kernel_client_passes(client_suite):
    for share in client_suite:
        said = share.communicate(timeout=590)[0]
        assert share.returncode == 0, said[-6000:]
