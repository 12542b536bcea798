"""The guest's own services: kernels, REST service, code interpreter, the runtime of agent-sandbox; and
packages from the index, real agents of smolagents, real plots."""

from __future__ import annotations

import base64
import time

import pytest
from marks import needs_root

import cove
from sandbox.agent import AgentVMConfig, AgentVMManager
from sandbox.configs import SandboxVMConfig
from sandbox.errors import CodeError
from sandbox.executor import SandboxExecutor
from sandbox.python_executer import SandboxPythonExecutor

pytestmark = [needs_root, pytest.mark.usefixtures("at_vm_server")]


@pytest.mark.network
def test_the_rest_service():
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
        executor = SandboxPythonExecutor(manager, ["python-dateutil"])  # whose module is dateutil
        assert executor("import dateutil\nfinal_answer(1)").output == 1
        assert executor("print('x')\nfinal_answer([1])") == ([1], "x\n", True)
        assert "serving" in manager.tail_server_logs()


@pytest.mark.network
def test_packages_are_installed_from_the_index():
    """With uv, in both services: what one installs the other sees, and the machine's neighbour does not."""
    with SandboxExecutor(
        ["humanize"], None, SandboxVMConfig(unique_container_name=True)
    ) as executor:
        assert executor.installed_packages == ["humanize"]
        assert executor("import humanize\nfinal_answer(humanize.ordinal(3))")[0] == "3rd"
        answer = executor.vm.sandbox_execute_code(
            "import iniconfig, humanize; print('both')", ["iniconfig"]
        )
        assert answer["stdout"] == "both\n", answer["stderr"]
        assert "iniconfig" in {p["name"] for p in executor.vm.sandbox_list_installed_packages()}
        with pytest.raises(CodeError, match="no-such-package-anywhere"):
            executor.install_packages(["no-such-package-anywhere"])
    with cove.Sandbox.create() as other:
        assert other.code.run("import humanize").error.name == "ModuleNotFoundError"


def test_the_code_interpreter():
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


def test_code_that_takes_too_long_is_interrupted_also_while_it_talks():
    with cove.Sandbox.create() as box:
        box.code.run("i = 0")  # a kernel that has to start first may be silent for as long
        with pytest.raises(cove.DeadlineError, match="2 s"):
            box.code.run("import time\nfor i in range(600): print(i); time.sleep(0.1)", timeout=2)
        assert box.code.run("i < 500").text == "True"


def test_a_result_of_many_megabytes_comes_in_one_piece_and_soon():
    with cove.Sandbox.create() as box:
        box.code.run("text = 'x' * 20_000_000")
        begun = time.process_time()
        assert len(box.code.run("text").text) == 20_000_000
        assert time.process_time() - begun < 5  # of this process alone: it joins the pieces once


def test_a_figure_of_matplotlib():
    with cove.Sandbox.create() as box:
        shown = box.code.run(
            "import matplotlib.pyplot as plt, numpy\nx = numpy.arange(4)\n"
            "plt.plot(x, x ** 2, label='squares')\nplt.title('Growth')\nplt.show()"
        )
        assert shown.error is None, shown.error
        figure = shown.results[0]
        assert base64.b64decode(figure.png).startswith(b"\x89PNG")
        assert (figure.chart["type"], figure.chart["title"]) == ("line", "Growth")
        assert figure.chart["elements"][0]["points"][-1] == [3, 9]


def test_the_real_client_of_agent_sandbox_by_our_router(vm_server, monkeypatch, tmp_path):
    """Its claim is its own, made at a double of the API server, which names a sandbox of ours."""
    real = pytest.importorskip("k8s_agent_sandbox")
    import kubernetes
    from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
    from kube import Cluster

    made, init = [], kubernetes.client.ApiClient.__init__

    def noted(self, *args, **kwargs):
        made.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(kubernetes.client.ApiClient, "__init__", noted)
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
            connection_config=SandboxDirectConnectionConfig(
                api_url=vm_server.url,
                extra_headers={"Authorization": f"Bearer {vm_server.api_key}"},
            )
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
    for api in made:  # it keeps its connections to the end of the process
        api.rest_client.pool_manager.clear()
    cluster.close()
