"""agentic_sandbox, with Cove on one machine and with a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kube import Cluster

import cove
from agentic_sandbox import SandboxClient, SandboxError, SandboxTimeoutError
from cove import _server

HERE = Path(__file__).resolve().parent
CLIENT = HERE.parent / "test_client.py"


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


# --- Cove ------------------------------------------------------------------------------------


def test_the_documents_example(server, capsys):
    # The client will dynamically discover the IP of the 'external-http-gateway'
    with SandboxClient(
        template_name="python-sandbox-template",
        namespace="default",
        gateway_name="external-http-gateway",
    ) as sandbox:
        result = sandbox.run("echo 'Hello, World!'")
        print(result.stdout)
    assert capsys.readouterr().out == "Hello, World!\n\n"


def test_files_and_status(server):
    with SandboxClient("python-sandbox-template") as sandbox:
        assert sandbox.is_ready()
        sandbox.write("a/b.bin", bytes(range(256)))
        assert sandbox.read("/app/a/b.bin") == sandbox.read("a/b.bin") == bytes(range(256))
        sandbox.write("t.txt", "ä")
        found = sandbox.run("cat t.txt; pwd; echo e >&2; exit 4")
        assert (found.stdout, found.stderr, found.exit_code) == ("ä/app\n", "e\n", 4)
        with pytest.raises(SandboxError, match="absent"):
            sandbox.read("absent")
        with pytest.raises(ValueError, match="leads out"):
            sandbox.read("../etc/passwd")
        with pytest.raises(TimeoutError) as late:
            sandbox.run("sleep 60", timeout=1)
        assert isinstance(late.value, RuntimeError), "which is what failed requests are"
    assert not sandbox.is_ready()


def test_it_is_deleted_on_an_error(server):
    with pytest.raises(ZeroDivisionError):
        with SandboxClient("python-sandbox-template"):
            raise ZeroDivisionError
    assert cove.Sandbox.list() == []


def test_the_error_of_the_block_is_the_one_that_is_seen(server, monkeypatch):
    own = _server.PrivateServer()
    monkeypatch.setenv("COVE_URL", own.url)
    monkeypatch.setenv("COVE_API_KEY", own.api_key)
    with pytest.raises(ZeroDivisionError):
        with SandboxClient("python-sandbox-template"):
            own.stop()  # so that deleting fails, too
            raise ZeroDivisionError


@pytest.mark.parametrize("text", ["clusters: [", "just a text", "clusters: 3"])
def test_a_kubeconfig_that_does_not_load_is_none(server, monkeypatch, tmp_path, text):
    pytest.importorskip("kubernetes", reason="the package kubernetes is not installed")
    config = tmp_path / "broken"
    config.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    with SandboxClient("python-sandbox-template") as sandbox:
        assert sandbox.run("echo x").stdout == "x\n"


def test_an_unknown_template_is_named_with_the_list(server):
    with pytest.raises(SandboxError, match=r"no template 'zz'.*host"):
        SandboxClient("zz").__enter__()
    assert cove.Sandbox.list() == []


def test_without_a_block_there_is_no_sandbox():
    with pytest.raises(SandboxError, match="with"):
        SandboxClient("x").run("true")


def test_the_test_client(server):
    command = [sys.executable, str(CLIENT), "--gateway-name=external-http-gateway"]
    env = {**os.environ, "COVE_URL": server.url, "COVE_API_KEY": server.api_key}
    found = subprocess.run(command, capture_output=True, text=True, env=env)
    assert found.returncode == 0, found.stderr
    assert "command execution passed" in found.stdout and "file operations passed" in found.stdout


# --- a cluster -------------------------------------------------------------------------------


@pytest.fixture(params=["v1alpha1", "v1beta1"])
def cluster(request, monkeypatch, tmp_path):
    pytest.importorskip("kubernetes", reason="the package kubernetes is not installed")
    made = Cluster(request.param)
    config = tmp_path / "config"
    config.write_text(f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{made.url}"}}}}]
users: [{{name: u, user: {{token: secret-token}}}}]
""")
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    yield made
    assert made.names("sandboxclaims") == [], "a claim is left"
    made.close()


def test_a_claim_and_a_gateway(cluster):
    cluster.gateway(after=0.2)
    with SandboxClient("python-sandbox-template", gateway_name="external-http-gateway") as sandbox:
        assert sandbox.claim_name.startswith("sandbox-claim-") and len(sandbox.claim_name) == 22
        assert cluster.names("sandboxclaims") == [sandbox.claim_name]
        assert sandbox.run("echo x").stdout == "ran echo x\n"
        sandbox.write("dir/a.txt", "hi")
        assert sandbox.read("dir/a.txt") == b"hi"
        with pytest.raises(SandboxError, match="404 File not found"):
            sandbox.read("absent")
    assert cluster.names("sandboxwarmpools") == [], "the pool that was made for us is left"


@pytest.mark.parametrize("cluster", ["v1beta1"], indirect=True)  # before, claims named templates
def test_a_pool_that_exists_is_used(cluster):
    cluster.put("sandboxwarmpools", "default", "warm", {
        "metadata": {"name": "warm"},
        "spec": {"replicas": 2, "sandboxTemplateRef": {"name": "python-sandbox-template"}},
    })  # fmt: skip
    with SandboxClient("python-sandbox-template", api_url=cluster.url) as sandbox:
        assert sandbox.sandbox_name == "warm-x7k2p" != sandbox.claim_name
        assert sandbox.run("x").exit_code == 0
    assert cluster.names("sandboxwarmpools") == ["warm"]


def test_a_command_is_never_run_twice(cluster):
    with SandboxClient("python-sandbox-template", api_url=cluster.url) as sandbox:
        cluster.fail_router = [503]
        with pytest.raises(SandboxError, match="503"):
            sandbox.run("once")
        assert cluster.runs == []
        sandbox.write("f", "1")
        cluster.fail_router = [502, 503]
        assert sandbox.read("f") == b"1"


def test_a_runtime_that_does_not_answer_is_a_timeout(cluster):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with SandboxClient("python-sandbox-template", api_url=url) as sandbox:
            with pytest.raises(SandboxTimeoutError):
                sandbox.run("sleep 60", timeout=0.5)


def test_an_unknown_template_ends_the_wait(cluster):
    with pytest.raises(SandboxError, match="TemplateNotFound"):
        SandboxClient("zz", api_url=cluster.url).__enter__()


def test_a_gateway_without_an_address_is_a_timeout(cluster):
    cluster.gateway(after=3600)
    client = SandboxClient(
        "python-sandbox-template", gateway_name="external-http-gateway", gateway_ready_timeout=1
    )
    with pytest.raises(TimeoutError, match="external-http-gateway"):
        client.__enter__()


def test_a_sandbox_that_never_becomes_ready_is_a_timeout(cluster):
    cluster.delay = 5
    client = SandboxClient("python-sandbox-template", api_url=cluster.url, sandbox_ready_timeout=1)
    with pytest.raises(TimeoutError, match="not ready in time"):
        client.__enter__()


def test_a_watch_that_is_too_old_is_begun_again(cluster):
    cluster.gone_watch = 2
    with SandboxClient("python-sandbox-template", api_url=cluster.url) as sandbox:
        assert sandbox.run("x").exit_code == 0


def test_a_refused_token_is_the_clusters_sentence(cluster, tmp_path):
    config = Path(os.environ["KUBECONFIG"])
    config.write_text(config.read_text().replace("secret-token", "wrong"))
    with pytest.raises(SandboxError, match="401: Unauthorized"):
        SandboxClient("python-sandbox-template", api_url=cluster.url).__enter__()
