"""The package `sandbox`: what its managers ask the services inside."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import threading
from pathlib import Path

import pytest
from machines import STANDIN
from marks import needs_root

from sandbox import (
    VMOperationError,
    VMState,
    _generated,
)
from sandbox.agent import AgentVMConfig, AgentVMManager
from sandbox.configs import SandboxVMConfig
from sandbox.errors import CodeError
from sandbox.executor import SandboxExecutor
from sandbox.python_executer import SandboxPythonExecutor
from sandbox.sandbox import SandboxClient, SandboxVMManager

pytestmark = [needs_root, pytest.mark.usefixtures("at_vm_server")]


def test_an_agents_machine(tmp_path):
    config = AgentVMConfig(
        host_server_dir=STANDIN, runtime_env={"FOO": "BAR"}, sandbox_server_port=8800
    )
    with AgentVMManager(config) as manager:
        assert (
            manager.sandbox_health()["status"] == manager.sandbox_client.health()["status"] == "ok"
        )
        code = "import os; print(os.environ['FOO'], os.environ['DISPLAY'], os.environ['DEBUG'])"
        answer = manager.sandbox_execute_code(code)
        assert answer == {"stdout": "BAR :0 1\n", "stderr": ""}
        assert manager.sandbox_client.execute_code(code) == answer
        assert "ZeroDivisionError" in manager.sandbox_execute_code("1/0").get("stderr")
        assert "nope" in manager.sandbox_execute_code("", ["nope"])["stderr"]
        assert manager.sandbox_take_screenshot()["screen_size"] == [3, 4]
        assert manager.sandbox_take_screenshot("pillow") == manager.sandbox_client.take_screenshot(
            "pillow"
        )
        with pytest.raises(VMOperationError, match="eyes"):
            manager.sandbox_take_screenshot("eyes")
        assert manager.sandbox_list_installed_packages()[0]["name"] == "pip"
        assert manager.sandbox_start_recording() == {"status": "recording_started"}
        assert manager.sandbox_client.start_recording() == {"status": "already_recording"}
        assert manager.sandbox_stop_recording()["num_actions"] == 0
        assert manager.sandbox_client.stop_recording() == {"status": "not_recording"}
        assert "serving 8800 0" in manager.tail_server_logs()
        assert manager.tail_server_logs(1).count("\n") == 0

        generated = Path("docker/vms/snapshots/qemu/sandbox-client/sandbox_rest_server_client")
        assert (generated / "api" / "default" / "health_check_health_get.py").exists()
        assert {"models", "client.py", "types.py", "errors.py"} <= set(os.listdir(generated))

        # As the document calls it.
        import importlib

        package = manager.generated_client.package.__name__
        module = importlib.import_module(f"{package}.api.default.health_check_health_get")
        parsed = module.sync_detailed(client=manager.generated_client.client).parsed
        assert parsed.status == "ok"

        executor = SandboxPythonExecutor(manager, [])
        assert executor.run_code_raise_errors("print('log')\nfinal_answer({'a': 1})", True) == (
            {"a": 1},
            "log\n",
        )
        executor.send_variables({"v": [1, 2]})
        assert executor("final_answer(v)") == ([1, 2], "", True)
        with pytest.raises(CodeError, match="ZeroDivisionError"):
            executor.run_code_raise_errors("1/0")
        with pytest.raises(CodeError, match="nope"):
            SandboxPythonExecutor(manager, ["nope"])
        assert executor.get_installed_packages() == ["pip"]
        executor.cleanup()
    assert not Path("docker").exists()


def test_the_client_is_made_again_when_the_document_changed_or_on_request():
    config = AgentVMConfig(unique_container_name=True)
    with AgentVMManager(config) as manager:
        assert manager.generated_client.regenerated
        manager.start_agent_vm()
        assert not manager.generated_client.regenerated, "nothing had changed"
        config.force_regenerate_client = True
        manager.start_agent_vm()
        assert manager.generated_client.regenerated


def test_two_machines_have_two_clients():
    def make(version):
        return AgentVMManager(
            AgentVMConfig(
                host_server_dir=STANDIN,
                unique_container_name=True,
                runtime_env={"STANDIN_VERSION": version},
            )
        )

    with make("1.0") as one, make("2.0") as two:
        assert one.generated_client.package.__name__ != two.generated_client.package.__name__
        assert one.cfg.client_output_dir != two.cfg.client_output_dir
        assert one.cfg.host_sandbox_server_port != two.cfg.host_sandbox_server_port
        assert one.sandbox_health() == two.sandbox_health()


def test_a_service_that_does_not_come_is_an_error_with_its_words(tmp_path, monkeypatch):
    monkeypatch.setattr(AgentVMManager, "start_timeout", 2.0)
    own = tmp_path / "broken"
    own.mkdir()
    (own / "start.sh").write_text("#!/bin/sh\necho no uv here >&2\nexit 1\n")
    with pytest.raises(VMOperationError, match="no uv here"):
        AgentVMManager(AgentVMConfig(host_server_dir=own)).__enter__()


def test_reconnect_and_preserve(config):
    with SandboxVMManager(config, preserve_on_exit=True) as manager:
        first = manager.container.id
        assert manager.sandbox_health()["kernel_status"] == "reachable"
    again = SandboxVMManager(config)
    try:
        again.reconnect()
        assert again.container.id == first
        assert again.state is VMState.RUNNING
        assert again.ssh.exec_command("echo x")["stdout"] == "x\n"
    finally:
        again.cleanup()
    with pytest.raises(VMOperationError, match="no machine"):
        SandboxVMManager(config).reconnect()
    with pytest.raises(VMOperationError):
        again.tail_server_logs()


def test_a_client_by_address(config):
    with SandboxVMManager(config).sandbox_vm_context() as manager:
        client = SandboxClient("localhost", int(manager.cfg.host_sandbox_server_port))
        assert client.health()["status"] == "ok"
        client = SandboxClient(host="127.0.0.1", port=1)
        with pytest.raises(VMOperationError, match=r"127\.0\.0\.1:1"):
            client.health()


def test_a_log_that_is_a_link_is_not_followed(config):
    with SandboxVMManager(config) as manager:
        log = f"/shared/{config.sandbox_server_log}"
        manager.container.commands.run(f"rm {log}; ln -s /etc/passwd {log}", check=True)
        with pytest.raises(VMOperationError, match="no log"):
            manager.tail_server_logs()
        manager.container.commands.run(f"rm {log}; mkfifo {log}", check=True)
        with pytest.raises(VMOperationError, match="no log"):
            manager.tail_server_logs()


def test_a_document_that_would_be_code_is_refused(config):
    with SandboxVMManager(config) as manager:
        document = json.loads(_generated._fetch(manager.base_url))
        assert document["info"]["title"] == "Sandbox REST Server"
        document["info"]["description"] = '"""\nimport os\n"""'
        document["components"]["schemas"]["X"] = {"type": "string", "enum": ["a'b"]}
        with pytest.raises(ValueError, match="enum"):
            _generated.harmless(document)
        del document["components"]["schemas"]["X"]
        assert "description" not in _generated.harmless(document)["info"]


@contextlib.contextmanager
def a_service_that_says(body):
    class Says(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Says) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made.server_port
        finally:
            made.shutdown()
            thread.join()


@pytest.mark.parametrize("body", [b"[1, 2]", b"3", b"null", b"nonsense", b'"text"'])
def test_an_answer_of_another_shape_is_an_error_of_ours(body):
    with a_service_that_says(body) as port:
        with pytest.raises(VMOperationError, match="/health"):
            SandboxClient("localhost", port).health()


@pytest.mark.parametrize("depth", [300, 600, 900, 5000])
def test_a_document_that_is_too_deep_is_an_error_of_ours(depth):
    body = b'{"a":' * depth + b"1" + b"}" * depth
    with a_service_that_says(body) as port:
        try:
            _generated._fetch(f"http://127.0.0.1:{port}")
        except VMOperationError as problem:
            assert "openapi.json" in str(problem)


def test_an_answer_that_is_not_what_the_document_says(config):
    with SandboxVMManager(config) as manager:
        assert manager.sandbox_health()["status"] == "ok"
        for body in (b"[1, 2]", b'{"detail": [3]}', b"nonsense", b"null"):
            with a_service_that_says(body) as port:
                client = manager.generated_client.client
                manager.generated_client.client = type(client)(base_url=f"http://127.0.0.1:{port}")
                try:
                    with pytest.raises(VMOperationError):
                        manager.sandbox_health()
                        manager.sandbox_take_screenshot()
                finally:
                    manager.generated_client.client.get_httpx_client().close()
                    manager.generated_client.client = client


def test_the_services_are_where_the_configuration_has_them():
    config = SandboxVMConfig(
        unique_container_name=True, sandbox_jupyter_kernel_port=8899, sandbox_server_port=8799,
        sandbox_jupyter_kernel_log="k.log", sandbox_services_log="s.log", vm_ram="512M",
    )  # fmt: skip
    with SandboxExecutor([], None, config) as executor:
        assert executor("final_answer(1)")[0] == 1
        assert executor.vm.container.forwards[8899] == config.host_sandbox_jupyter_kernel_port
        assert executor.vm.container.forwards[8799] == config.host_sandbox_server_port
        assert executor.vm.sandbox_health()["status"] == "ok"
        assert {"k.log", "s.log"} <= set(os.listdir(config.container_shared_dir))
