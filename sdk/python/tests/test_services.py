"""The guest's own services: kernels, REST service, code interpreter, the runtime of agent-sandbox.

They need a Python with ipykernel inside (`cove layer add python`). A server that has it is named by
COVE_TEST_URL, COVE_TEST_API_KEY and COVE_TEST_WORK, a directory it may show to sandboxes; else the private
one is tried."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
from marks import needs_root

import cove
from sandbox.agent import AgentVMConfig, AgentVMManager
from sandbox.configs import SandboxVMConfig
from sandbox.errors import CodeError, VMOperationError
from sandbox.executor import SandboxExecutor
from sandbox.python_executer import SandboxPythonExecutor

pytestmark = needs_root


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A server whose sandboxes have services, and a directory that it may show."""
    from cove import _server

    url = os.environ.get("COVE_TEST_URL")
    if url:
        yield url, os.environ["COVE_TEST_API_KEY"], Path(os.environ["COVE_TEST_WORK"])
        return
    made = _server.PrivateServer((str(tmp_path_factory.getbasetemp()),))
    yield made.url, made.api_key, tmp_path_factory.mktemp("work")
    made.stop()


@pytest.fixture(scope="module")
def services(place):
    """What answers in a sandbox there; each test says what it needs."""
    found = {}
    with cove.Sandbox.create(url=place[0], api_key=place[1]) as box:
        for name, port, path in (
            ("rest", 8765, "/health"),
            ("kernels", 8888, "/api/kernels"),
            ("runtime", 8888, "/"),
        ):
            try:
                reply = box.ports.get(port, path, timeout=60)
                found[name] = (
                    "" if reply.status_code == 200 else f"{reply.status_code} {reply.text[:200]}"
                )
            except httpx.HTTPError as problem:
                found[name] = str(problem)
        if not found["kernels"]:
            with box.ports.http(8888) as http:
                reply = http.post("/api/kernels", timeout=60)
                found["kernels"] = "" if reply.status_code == 201 else reply.text[:300]
    return found


@pytest.fixture(autouse=True)
def at_server(place, monkeypatch):
    monkeypatch.setenv("COVE_URL", place[0])
    monkeypatch.setenv("COVE_API_KEY", place[1])
    monkeypatch.chdir(place[2])


def need(services, name):
    if services[name]:
        pytest.skip(f"no {name} in this guest: {services[name]}")


def test_the_rest_service(services):
    need(services, "rest")
    with AgentVMManager(
        AgentVMConfig(unique_container_name=True, runtime_env={"FOO": "BAR"})
    ) as manager:
        assert manager.sandbox_health()["status"] == "ok"
        answer = manager.sandbox_execute_code("import os; print(os.environ['FOO']); 1/0")
        assert answer["stdout"] == "BAR\n" and answer["stderr"].endswith(
            "ZeroDivisionError: division by zero\n"
        )
        assert isinstance(manager.sandbox_list_installed_packages(), list)
        assert manager.sandbox_take_screenshot()["status"] == "error", "there is no display"
        executor = SandboxPythonExecutor(manager, [])
        assert executor("print('x')\nfinal_answer([1])") == ([1], "x\n", True)
        assert "serving" in manager.tail_server_logs()


def test_the_kernels(services):
    need(services, "kernels")
    with SandboxExecutor([], None, SandboxVMConfig(unique_container_name=True)) as executor:
        code = """
from math import sqrt
x = 9
_result = sqrt(x)
print("RESULT_PICKLE:" + base64.b64encode(pickle.dumps(_result)).decode())
"""
        assert executor.run_code_raise_errors(code) == (3.0, "")
        assert executor("print('before'); final_answer({'a': x})") == ({"a": 9}, "before\n", True)
        assert executor("final_answer('x' * 200_000)")[0] == "x" * 200_000
        with pytest.raises(CodeError, match="ZeroDivisionError"):
            executor("1/0")
        with pytest.raises(CodeError, match="cannot be sent"):
            executor("final_answer(lambda: 1)")
        executor.send_variables({"sent": [1]})
        executor.code_timeout = 2
        with pytest.raises(CodeError, match="interrupted"):
            executor("import time; time.sleep(60)")
        executor.code_timeout = None
        assert executor("final_answer(sent + [2])")[0] == [1, 2], "it goes on, with its variables"
        with pytest.raises(VMOperationError, match="kernel died"):
            executor("import os; os._exit(3)")


def test_the_code_interpreter(services):
    need(services, "kernels")
    with cove.Sandbox.create() as box:
        assert box.code.run("x = 20").error is None
        assert box.code.run("x + 22").text == "42"
        assert box.code.run("1/0").error.name == "ZeroDivisionError"
        shown = box.code.run("from IPython.display import HTML\nHTML('<b>x</b>')").results[0]
        assert shown.html == "<b>x</b>" and "text/html" in shown._repr_mimebundle_()
        other = box.code.create_context()
        assert box.code.run("x", context=other).error.name == "NameError"
        assert other.id in [c.id for c in box.code.contexts()]
        box.code.remove_context(other)


def test_the_real_client_of_agent_sandbox_by_our_router(services, place, monkeypatch, tmp_path):
    """Its claim is its own, made at a double of the API server, which names a sandbox of ours."""
    need(services, "runtime")
    real = pytest.importorskip("k8s_agent_sandbox")
    from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
    from kube import Cluster

    cluster = Cluster("v1beta1")
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f'clusters: [{{name: c, cluster: {{server: "{cluster.url}"}}}}]\n'
        "users: [{name: u, user: {token: secret-token}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    cluster.put("sandboxwarmpools", "default", "pool", {
        "metadata": {"name": "pool"},
        "spec": {"replicas": 1, "sandboxTemplateRef": {"name": "python-sandbox-template"}},
    })  # fmt: skip
    with cove.Sandbox.create() as box:
        cluster.name_of = lambda: box.id
        client = real.SandboxClient(
            connection_config=SandboxDirectConnectionConfig(api_url=place[0])
        )
        sandbox = client.create_sandbox("pool")
        try:
            result = sandbox.commands.run("echo 'Hello'")
            assert (result.stdout, result.exit_code) == ("Hello\n", 0)
            sandbox.files.write("dir/test.txt", "This is a test.")
            assert sandbox.files.read("dir/test.txt") == b"This is a test."
            assert [e.name for e in sandbox.files.list("dir")] == ["test.txt"]
            assert sandbox.files.exists("dir/test.txt") and not sandbox.files.exists("absent")
        finally:
            client.delete_all()
        assert cluster.names("sandboxclaims") == []
    cluster.close()
