"""The package `sandbox`: configurations, managers, executors. The services are the guest's own. A stand-in,
brought as a user's own server code, takes their place where that is the point, where a screen is
needed, and where the document of the service has to change."""

from __future__ import annotations

import base64
import codecs
import collections
import concurrent.futures
import contextlib
import datetime
import decimal
import fractions
import http.server
import json
import os
import pickle
import socket
import stat
import threading
import time
import uuid
from pathlib import Path

import pytest
from marks import needs_root

import cove
from cove import _server
from sandbox import (
    VMConfig,
    VMCreationError,
    VMManager,
    VMOperationError,
    VMState,
    _generated,
    _results,
)
from sandbox.agent import AgentVMConfig, AgentVMManager
from sandbox.configs import DefaultPort, SandboxVMConfig
from sandbox.errors import CodeError, RemoteCommandError, SSHError, VMManagerError
from sandbox.executor import SandboxExecutor
from sandbox.python_executer import SandboxPythonExecutor
from sandbox.sandbox import SandboxClient, SandboxVMManager
from sandbox.ssh import SSHClient, SSHConfig

pytestmark = [needs_root, pytest.mark.usefixtures("at_vm_server")]
HERE = Path(__file__).resolve().parent
STANDIN = HERE / "standin"


@pytest.fixture
def config(request):
    return SandboxVMConfig(
        unique_container_name=True,
        vm_ram="512M",
        vm_cpu_cores=1,
        vm_disk_size="1G",
    )


# --- configurations --------------------------------------------------------------------------


def test_the_defaults_are_the_documents():
    config = SandboxVMConfig()
    wanted = {
        "container_image": "qemux/qemu", "container_name": "qemu", "unique_container_name": False,
        "restart_policy": "always", "vm_ram": "4G", "vm_cpu_cores": 4, "vm_disk_size": "16G",
        "vm_boot_image": "ubuntu", "host_vnc_port": 8006, "host_ssh_port": 2222, "extra_ports": {},
        "root_dir": Path("docker").resolve(), "guest_shared_dir": Path("/shared"), "enable_debug": True,
        "extra_env": {}, "host_sandbox_server_host": "localhost", "host_sandbox_server_port": 8765,
        "host_server_dir": Path("server/"), "sandbox_server_host": "0.0.0.0", "sandbox_server_port": 8765,
        "sandbox_server_dir": Path("/home/user/server"), "sandbox_server_display": ":0",
        "sandbox_server_xauth": "/run/user/1000/gdm/Xauthority", "sandbox_server_log": "sandbox-server.log",
        "force_regenerate_client": False, "host_sandbox_jupyter_kernel_host": "localhost",
        "host_sandbox_jupyter_kernel_port": 8888, "sandbox_jupyter_kernel_name": "sandbox-kernel",
        "sandbox_jupyter_kernel_host": "0.0.0.0", "sandbox_jupyter_kernel_port": 8888,
        "sandbox_jupyter_kernel_log": "jupyter-kernel.log",
    }  # fmt: skip
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert config.runtime_env == {"DISPLAY": ":0", "XAUTHORITY": "/run/user/1000/gdm/Xauthority"}
    assert not Path("docker").exists(), "a configuration alone makes nothing"


def test_the_documents_own_configuration():
    config = SandboxVMConfig(
        # Host -> Container Port Mappings
        host_sandbox_server_host="localhost",
        host_sandbox_server_port=8765,
        host_sandbox_jupyter_kernel_host="localhost",
        host_sandbox_jupyter_kernel_port=8888,
        # FastAPI Server inside the container
        sandbox_server_host="0.0.0.0",
        sandbox_server_port=8765,
        sandbox_server_dir=Path("/home/user/server"),
        sandbox_server_log="sandbox-server.log",
        # Jupyter Kernel Gateway inside the container
        sandbox_jupyter_kernel_name="sandbox-kernel",
        sandbox_jupyter_kernel_host="0.0.0.0",
        sandbox_jupyter_kernel_port=8888,
        sandbox_jupyter_kernel_log="jupyter-kernel.log",
        # PyAutoGUI and display forwarding
        sandbox_server_display=":0",
        sandbox_server_xauth="/run/user/1000/gdm/Xauthority",
        # Local path to bind-mount server code into the VM
        host_server_dir=Path("server/"),
        # Docker/QEMU container options
        container_image="qemux/qemu",
        container_name="qemu",
        unique_container_name=True,
        restart_policy="always",
        vm_ram="4G",
        vm_cpu_cores=4,
        vm_disk_size="16G",
        vm_boot_image="ubuntu",
        # Networking (VNC, SSH, and additional ports)
        host_vnc_port=8006,
        host_ssh_port=2222,
        extra_ports={
            "8765/tcp": 8765,
            "8888/tcp": 8888,
            5900: 5900,  # e.g. VNC
        },
        # Paths
        root_dir=Path("docker"),
        guest_shared_dir=Path("/shared"),
        # Runtime customization
        enable_debug=True,
        runtime_env={"FOO": "BAR"},
    )
    assert config.container_name.startswith("qemu_")
    assert config.environment()["FOO"] == "BAR"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vm_ram", "lots"), ("vm_disk_size", "-1G"), ("vm_cpu_cores", 0), ("restart_policy", "perhaps"),
        ("container_name", "a/b"), ("host_ssh_port", 70000), ("host_vnc_port", 0), ("extra_ports", {"x": 1}),
        ("extra_ports", {80: 99999}), ("guest_shared_dir", "shared"), ("sandbox_server_log", "../log"),
        ("backend", "cloud"), ("sandbox_server_port", 0), ("sandbox_jupyter_kernel_port", 65536),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field(field, value):
    with pytest.raises(VMCreationError, match=field):
        SandboxVMConfig(**{field: value})


def test_a_server_directory_without_a_start_script(tmp_path):
    (tmp_path / "server").mkdir()
    with pytest.raises(VMCreationError, match=r"start\.sh"):
        AgentVMConfig(host_server_dir=tmp_path / "server")


def test_another_type_of_config_is_a_type_error():
    with pytest.raises(TypeError, match="SandboxVMConfig"):
        SandboxVMManager(AgentVMConfig())
    with pytest.raises(TypeError, match="AgentVMConfig"):
        AgentVMManager(SandboxVMConfig())
    with pytest.raises(TypeError, match="VMConfig"):
        VMManager({"vm_ram": "1G"})


def test_a_backend_that_is_not_here_says_so():
    for backend in ("qemu", "docker"):
        manager = VMManager(VMConfig(backend=backend))
        with pytest.raises(VMCreationError, match=f"backend='{backend}'.*it has: local"):
            manager.create_container()
        assert manager.state is VMState.ERROR


# --- every field has an effect: the table of docs/python.md, walked ----------------------------


def test_every_field_of_the_configuration_is_in_the_table_of_the_docs():
    import dataclasses
    import re

    text = (HERE.parents[2] / "docs" / "python.md").read_text()
    table = text.split("## Fields of a configuration", 1)[1].split("\n## ", 1)[0]
    named = set(
        re.findall(
            r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line)
        )
    )
    fields = {
        f.name for c in (SandboxVMConfig, AgentVMConfig, VMConfig) for f in dataclasses.fields(c)
    }
    assert fields <= named, f"not in docs/python.md: {sorted(fields - named)}"


def test_limits_names_environment_and_directories():
    seen = []
    manager = VMManager(
        VMConfig(
            vm_ram="300M", vm_cpu_cores=2, vm_disk_size="700M", container_name="mine", extra_env={"E": "1"},
            guest_shared_dir=Path("/data"), root_dir=Path("elsewhere"), extra_ports={"9000/tcp": free_port()},
        )
    )  # fmt: skip
    manager.on_state_change = lambda state: (seen.append(state), 1 / 0)
    try:
        box = manager.create_container()
        info = box.info()
        assert info.limits.memory_bytes == 300 << 20
        assert info.limits.cpu_milli == 2000
        assert info.limits.disk_bytes == 700 << 20
        assert info.metadata["container_name"] == info.label == "mine"
        assert box.commands.run("echo $E $SHARED_DIR; echo in > /data/f").stdout == "1 /data\n"
        assert Path("elsewhere/shared/mine/f").read_text() == "in\n"
        Path("elsewhere/shared/mine/g").write_text("out")
        assert box.commands.run("cat /data/g", user="root").stdout == "out"
        assert set(box.forwards) == {8006, 22, 9000}
    finally:
        manager.cleanup()
        manager.cleanup()
    assert seen == [VMState.CREATING, VMState.RUNNING, VMState.STOPPED, VMState.STOPPED]
    assert not Path("elsewhere").exists(), "its directories are left"


def test_the_storage_stays_if_asked():
    manager = VMManager(VMConfig())
    manager.create_container().commands.run("echo x > /shared/x", check=True)
    manager.cleanup(delete_storage=False)
    assert Path("docker/shared/qemu/x").read_text() == "x\n"


def test_a_machine_of_the_same_name_is_used_again():
    first, second = (
        VMManager(VMConfig(container_name="same")),
        VMManager(VMConfig(container_name="same")),
    )
    try:
        assert first.create_container().id == second.create_container().id
        assert second.cfg.host_ssh_port == first.cfg.host_ssh_port
    finally:
        first.cleanup()
        second.cleanup()


def test_managers_of_one_name_that_start_together_have_one_machine():
    managers = [VMManager(VMConfig(container_name="one")) for _ in range(6)]
    try:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            boxes = list(pool.map(VMManager.create_container, managers))
        assert len({box.id for box in boxes}) == 1
    finally:
        for manager in managers:
            manager.cleanup()


def test_a_directory_is_not_for_machines_of_two_servers(monkeypatch, tmp_path):
    """As of two programs in one directory, each with a private server."""
    first = VMManager(VMConfig(container_name="both"))
    other = _server.PrivateServer((str(tmp_path),))
    try:
        box = first.create_container()
        monkeypatch.setenv("COVE_URL", other.url)
        monkeypatch.setenv("COVE_API_KEY", other.api_key)
        second = VMManager(VMConfig(container_name="both"))
        with pytest.raises(VMCreationError, match="unique_container_name"):
            second.create_container()
        second.cleanup()
        assert box.commands.run("echo x > /shared/x; cat /shared/x").stdout == "x\n"
        assert (first.cfg.container_shared_dir / "x").exists(), "it was deleted under the first"
        first.cleanup()
        second.create_container()
        second.cleanup()
    finally:
        first.cleanup()
        other.stop()
    assert not Path("docker").exists()


def test_machines_that_come_and_go_do_not_take_each_others_directories():
    def one(number):
        for _ in range(4):
            manager = VMManager(VMConfig(container_name=f"n{number}", vm_ram="128M"))
            try:
                manager.create_container().commands.run("echo x > /shared/x", check=True)
                assert (manager.cfg.container_shared_dir / "x").exists()
            finally:
                manager.cleanup()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(6)))
    assert not Path("docker").exists()


def test_directories_deeper_than_python_goes_are_deleted_too():
    manager = VMManager(VMConfig())
    box = manager.create_container()
    code = "import os\nfor _ in range(3000): os.mkdir('d' * 20); os.chdir('d' * 20)"
    box.commands.run("python3", ["-c", code], cwd="/shared", check=True)
    manager.cleanup()
    assert manager.state is VMState.STOPPED and not Path("docker").exists()


def test_a_port_nobody_asked_for_stays_one_when_a_machine_is_used_again():
    config = VMConfig(container_name="again")
    first, second = VMManager(VMConfig(container_name="again")), VMManager(config)
    try:
        first.create_container()
        second.create_container()
    finally:
        first.cleanup()
        second.cleanup()
    with socket.create_server(("127.0.0.1", int(config.host_ssh_port))):
        third = VMManager(config)
        try:
            assert third.create_container().forwards[22] == config.host_ssh_port
        finally:
            third.cleanup()


def test_unique_names_are_unique(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1700000000.5)  # as of two processes in one second
    names = {VMConfig(unique_container_name=True).container_name for _ in range(50)}
    assert len(names) == 50 and all(name.startswith("qemu_1700000000_") for name in names)


@pytest.mark.parametrize(
    "image", ["ubuntu", "qemux/qemu", "python-sandbox-template", "base", "host"]
)
def test_names_of_images(image):
    manager = VMManager(
        VMConfig(container_image=image, vm_boot_image="ubuntu", unique_container_name=True)
    )
    try:
        assert manager.create_container().info().template in ("base", "host")
    finally:
        manager.cleanup()


def test_an_unknown_image_is_an_error_with_the_list():
    with pytest.raises(VMCreationError, match=r"no template 'windows'.*host"):
        VMManager(VMConfig(vm_boot_image="windows")).create_container()
    with pytest.raises(VMCreationError, match="two templates"):
        VMManager(VMConfig(vm_boot_image="a", container_image="b")).create_container()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_default_port_that_is_taken_moves_and_says_where():
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        wanted = taken.getsockname()[1]
        manager = VMManager(VMConfig(host_ssh_port=DefaultPort(wanted)))
        try:
            box = manager.create_container()
            assert manager.cfg.host_ssh_port > wanted
            assert box.forwards[22] == manager.cfg.host_ssh_port
        finally:
            manager.cleanup()


def test_an_explicit_port_that_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(VMCreationError, match=f"host_ssh_port={port}"):
            VMManager(VMConfig(host_ssh_port=port)).create_container()
        with pytest.raises(VMCreationError, match=f"extra_ports.*{port}"):
            VMManager(VMConfig(extra_ports={80: port})).create_container()


def test_ports_lead_to_a_server_that_is_elsewhere(config, monkeypatch):
    monkeypatch.setattr(VMManager, "_server_is_here", lambda self: False)
    with SandboxVMManager(config, preserve_on_exit=True) as manager:
        assert manager.container.forwards == {}, "nothing of it is on the server's machine"
        assert manager.sandbox_health()["status"] == "ok"
        first = manager.container.id
    with pytest.raises(VMOperationError):
        SandboxClient("localhost", int(config.host_sandbox_server_port)).health()
    with SandboxVMManager(config) as again:
        assert again.container.id == first
        assert again.sandbox_health()["status"] == "ok"


def test_a_port_that_is_taken_here_leaves_no_machine_there(monkeypatch):
    monkeypatch.setattr(VMManager, "_server_is_here", lambda self: False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(VMManager, "_ports", lambda self: [(port, 22)])
        with pytest.raises(VMCreationError, match="no free ports"):
            VMManager(VMConfig(unique_container_name=True)).create_container()
    assert cove.Sandbox.list() == []


def test_a_machine_that_dies_is_started_again():
    manager = VMManager(VMConfig(restart_policy="always"))
    try:
        box = manager.create_container()
        port = manager.cfg.host_ssh_port
        box.commands.run("echo kept > /shared/kept; echo own > own", check=True)
        seen = []
        manager.on_state_change = seen.append
        kill_first_process(box)
        wait_for(lambda: seen == [VMState.CREATING, VMState.RUNNING])
        assert manager.container is box and box.is_running()
        assert box.commands.run("cat /shared/kept own").stdout == "kept\nown\n"
        assert box.info().forwards[0].host_port in (port, manager.cfg.host_vnc_port)
        assert "restarted" in [event.kind for event in box.events()]
    finally:
        manager.cleanup()


def test_services_and_kernels_answer_again_after_it_died(config):
    with SandboxVMManager(config) as manager:
        manager.container.commands.run("mkdir -p ~/mine; echo 'x = 5' > ~/mine/m.py", check=True)
        kill_first_process(manager.container)
        wait_for(lambda: "restarted" in [event.kind for event in manager.container.events()])
        code = "import sys; sys.path.insert(0, '/home/user/mine'); import m; print(m.x)"
        assert manager.sandbox_execute_code(code)["stdout"] == "5\n"
        assert manager.container.code.run("1 + 1").text == "2"


def test_own_server_code_is_started_again():
    config = AgentVMConfig(host_server_dir=STANDIN, unique_container_name=True)
    with AgentVMManager(config) as manager:
        kill_first_process(manager.container)
        wait_for(lambda: "restarted" in [event.kind for event in manager.container.events()])
        wait_for(lambda: manager._answers(f"{manager.base_url}/health"))


def test_without_the_policy_it_stays_dead():
    manager = VMManager(VMConfig(restart_policy="no"))
    try:
        box = manager.create_container()
        kill_first_process(box)
        wait_for(lambda: not box.is_running())
        time.sleep(0.5)
        assert manager.container is box
    finally:
        manager.cleanup()


def kill_first_process(box):
    try:
        box.commands.run("kill -TERM 1; sleep 60", user="root", timeout=30)
    except cove.CoveError:
        pass  # the connection goes with it


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- services --------------------------------------------------------------------------------


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


# --- executors -------------------------------------------------------------------------------


@pytest.fixture
def executor(config):
    with SandboxExecutor([], None, config) as made:
        yield made


def test_the_documents_code_gives_its_object(executor):
    code = """
from math import sqrt
x = 9
_result = sqrt(x)
print("RESULT_PICKLE:" + base64.b64encode(pickle.dumps(_result)).decode())
"""
    assert executor.run_code_raise_errors(code) == (3.0, "")
    assert executor.run_code_raise_errors("print(x)") == (None, "9\n"), "variables are kept"


def test_results(executor):
    run = executor.run_code_raise_errors
    assert run("print('before')\nfinal_answer([1, 'a', None])", return_final_answer=True) == (
        [1, "a", None],
        "before\n",
    )
    assert (
        run("final_answer({'d': __import__('datetime').date(2026, 1, 2)})", True)[0]["d"].year
        == 2026
    )
    text, _ = run("final_answer('x' * 200_000)", True)
    assert text == "x" * 200_000
    assert executor("1 + 1") == (None, "", False)
    assert executor("y = 2\nfinal_answer(\n  y * 21\n)") == (42, "", True)
    assert executor("final_answer(answer=5)").output == 5


FINAL_ANSWERS = [
    ("final_answer(1)\nfinal_answer(2)", (1, "", True)),
    ("for n in range(9):\n    print(n)\n    if n == 1:\n        final_answer(n)", (1, "0\n1\n", True)),
    ("def f():\n    try:\n        final_answer([3])\n    except Exception: pass\nf()", ([3], "", True)),
    ("if 0:\n    final_answer(1)\nprint('on')", (None, "on\n", False)),
    ("given = [4]\nfinal_answer(*given)", (4, "", True)),
]  # fmt: skip


def test_a_final_answer_anywhere_in_the_code(executor):
    """As agents write it: in a branch, a loop, a function, more than one. The first that is reached counts."""
    with AgentVMManager(AgentVMConfig(unique_container_name=True)) as manager:
        for run in (executor, SandboxPythonExecutor(manager, [])):
            for code, wanted in FINAL_ANSWERS:
                assert run(code) == wanted, code
                assert run("print('next')") == (None, "next\n", False)


def test_a_final_answer_beside_a_magic(executor):
    result, logs, final = executor("!echo magic\nfinal_answer(3)")
    assert (result, logs.split(), final) == (3, ["magic"], True)
    with pytest.raises(CodeError, match="ZeroDivisionError"):
        executor("if True:\n    final_answer(1/0)")


def test_types_that_are_not_plain_come_as_json(executor):
    code = "import dataclasses\n@dataclasses.dataclass\nclass P:\n  a: int\nfinal_answer([P(1), {2, 3}])"
    assert executor.run_code_raise_errors(code, True)[0] == [{"a": 1}, [2, 3]]


def test_a_result_that_cannot_be_sent(executor):
    with pytest.raises(CodeError, match=r"cannot be sent|pickle"):
        executor.run_code_raise_errors("final_answer(lambda: 1)", True)


def test_a_hostile_pickle_does_nothing(executor, tmp_path):
    victim = tmp_path / "touched"
    evil = base64.b64encode(b"cos\nsystem\n(S'touch " + str(victim).encode() + b"'\ntR.").decode()
    with pytest.raises(CodeError, match=r"os\.system.*allow_pickle"):
        executor.run_code_raise_errors(f"print('RESULT_PICKLE:{evil}')")
    assert not victim.exists()
    executor.allow_pickle = True
    value, _ = executor.run_code_raise_errors("final_answer(Exception('x'))", True)
    assert isinstance(value, Exception)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, frozenset("ab"), bytearray(b"x\xff"), collections.deque([1, 2], 5), b"\x00\xff",
        fractions.Fraction(-1, 3), decimal.Decimal("1.5"), collections.OrderedDict(a=1), range(9), 2 + 1j,
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), uuid.UUID(int=5), 10**50,
        collections.Counter("aab"), {"a": [None, True, 1.5, ("b",)]},
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_plain_data_comes_back_in_every_protocol_that_is_in_use(value):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = base64.b64encode(pickle.dumps(value, protocol)).decode()
        assert _results.load({"pickle": found}, False) == value


class Reduces:
    def __init__(self, kind, *given):
        self.made_by = (kind, given)

    def __reduce__(self):
        return self.made_by


@pytest.mark.parametrize(
    "bomb",
    [
        Reduces(set, range(10**12)), Reduces(frozenset, range(10**12)), Reduces(bytearray, 10**13),
        Reduces(collections.deque, range(10**12)), Reduces(collections.Counter, range(10**12)),
        Reduces(fractions.Fraction, "1e999999999"),
        Reduces(codecs.encode, "x", "rot13"), Reduces(eval, "1"), Reduces(getattr, "x", "join"),
    ],
    ids=lambda bomb: bomb.made_by[0].__name__,
)  # fmt: skip
def test_a_pickle_that_is_larger_than_it_looks_is_refused(bomb):
    found = base64.b64encode(pickle.dumps(bomb)).decode()
    with pytest.raises(VMOperationError, match="may not bring here"):
        _results.load({"pickle": found}, False)


@pytest.mark.parametrize(
    "name", ["uuid UUID", "uuid SafeUUID", "collections Counter", "ipaddress IPv4Address", "builtins set",
             "datetime date", "decimal Decimal", "collections OrderedDict"],
)  # fmt: skip
def test_a_pickle_cannot_change_a_class(name):
    """BUILD with a pair sets attributes of whatever is on the stack, which may be a class of ours."""
    module, kind = name.split()
    evil = f"c{module}\n{kind}\n".encode() + b"(N(dVtouched\nI1\nstb."
    with pytest.raises(VMOperationError):
        _results.load({"pickle": base64.b64encode(evil).decode()}, False)
    assert not hasattr(getattr(__import__(module), kind), "touched")


def test_a_machine_that_ends_under_its_executor(config):
    config.restart_policy = "no"
    with SandboxExecutor([], None, config) as executor:
        ending = threading.Timer(1, executor.vm.container.kill)
        ending.start()
        with pytest.raises(VMOperationError, match="connection to the kernel is lost"):
            executor.run_code_raise_errors("import time; time.sleep(600)")
        ending.join()
        with pytest.raises(VMOperationError):
            executor.run_code_raise_errors("1")
        with pytest.raises(VMOperationError):
            executor.vm.sandbox_client.health()


def test_a_server_that_goes_under_its_executor(config, monkeypatch, tmp_path):
    monkeypatch.delenv("COVE_URL")
    monkeypatch.delenv("COVE_API_KEY")
    with SandboxExecutor([], None, config) as executor:  # on a private server of this directory
        ending = threading.Timer(1, _server.private((str(config.root_dir),)).stop)
        ending.start()
        with pytest.raises(VMOperationError, match="connection to the kernel is lost"):
            executor.run_code_raise_errors("import time; time.sleep(600)")
        ending.join()
        with pytest.raises(VMManagerError):
            executor.vm.sandbox_health()
    assert executor.vm.state is VMState.STOPPED, "cleanup works without a server"
    assert not Path("docker").exists()


def test_errors_have_the_whole_traceback_without_colours(executor):
    with pytest.raises(CodeError) as caught:
        executor.run_code_raise_errors("def f():\n    return 1/0\nprint('x')\nf()")
    text = str(caught.value)
    assert "ZeroDivisionError" in text and "in f" in text and "\x1b" not in text
    with pytest.raises(CodeError, match="SyntaxError"):
        executor.run_code_raise_errors("def", return_final_answer=True)
    with pytest.raises(CodeError, match="no final answer"):
        executor.run_code_raise_errors("1", return_final_answer=True)
    assert executor.run_code_raise_errors("print(1)")[1] == "1\n", "it goes on"


def test_variables_and_packages(executor):
    executor.send_variables({"sent": {"k": [1, 2]}})
    assert executor("final_answer(sent['k'][1])")[0] == 2
    with pytest.raises(VMOperationError, match="not the name of a package"):
        executor.install_packages(["x; rm -rf /"])
    with pytest.raises(CodeError):
        executor.install_packages(["no-such-package-anywhere"])
    for wanted in (["iniconfig>=1,<3"], ["iniconfig >= 1, != 99"]):
        assert executor.install_packages(wanted) == wanted


def test_a_dead_kernel_and_a_slow_code(executor):
    with pytest.raises(VMOperationError, match="kernel died"):
        executor.run_code_raise_errors("import os; os._exit(3)")
    wait_for(lambda: answers(executor))
    executor.send_variables({"sent": [1]})
    executor.code_timeout = 1
    with pytest.raises(CodeError, match="longer than 1 s"):
        executor.run_code_raise_errors("import time; time.sleep(600)")
    executor.code_timeout = None
    assert executor("final_answer(sent + [2])")[0] == [1, 2], "it goes on, with its variables"


def test_a_kernel_that_was_started_again_has_the_documents_imports(executor):
    with pytest.raises(VMOperationError, match="kernel died"):
        executor.run_code_raise_errors("import os; os._exit(3)")
    wait_for(lambda: answers(executor))
    code = "print('RESULT_PICKLE:' + base64.b64encode(pickle.dumps(7)).decode())"
    assert executor.run_code_raise_errors(code)[0] == 7


def test_an_executor_that_nobody_used_for_a_while_goes_on(executor, monkeypatch):
    """The guest closes a connection whose peer answers no pings: not an error of the next code."""
    executor("x = 5")
    monkeypatch.setattr("sandbox._kernel._QUIET_S", 0.0)
    executor._kernel._socket.sock.shutdown(socket.SHUT_RDWR)
    assert executor("final_answer(x)")[0] == 5, "variables are kept"


def test_threads_share_an_executor(executor):
    def one(number):
        code = f"import time; time.sleep(0.2)\nfinal_answer({number})"
        return executor.run_code_raise_errors(code, True)[0]

    pool = concurrent.futures.ThreadPoolExecutor(4)
    try:
        found = [pool.submit(one, number) for number in range(4)]
        assert [f.result(60) for f in found] == [0, 1, 2, 3]
    finally:
        executor.cleanup()  # ends what would wait for ever
        pool.shutdown()


def test_an_executor_goes_on_after_its_machine_was_started_again(executor):
    kill_first_process(executor.vm.container)
    wait_for(lambda: "restarted" in [event.kind for event in executor.vm.container.events()])
    with pytest.raises(VMOperationError, match=r"lost|is gone"):
        executor("x = 1")
    wait_for(lambda: answers(executor))


def answers(executor):
    try:
        return executor("final_answer(1)")[0] == 1
    except VMOperationError:
        return False


def test_cleanup_is_idempotent_and_final(config):
    executor = SandboxExecutor([], None, config)
    assert "serving" in executor.tail_server_logs()
    threads = threading.active_count()
    executor.cleanup()
    executor.cleanup()
    executor.delete()
    assert threading.active_count() <= threads
    with pytest.raises(VMOperationError, match="cleaned up"):
        executor.run_code_raise_errors("1")


def test_a_constructor_that_fails_leaves_nothing(config):
    with pytest.raises(CodeError):
        SandboxExecutor(["no-such-package-anywhere"], None, config)
    assert cove.Sandbox.list() == []


def test_a_kernel_of_an_unknown_kind_is_the_default_one(config):
    config.sandbox_jupyter_kernel_name = "sandbox-kernel"
    with SandboxExecutor([], None, config) as executor:
        assert executor("final_answer(1)")[0] == 1


def test_an_agent_of_smolagents(config):
    smolagents = pytest.importorskip("smolagents")

    class Model(smolagents.Model):
        said = iter(
            ["<code>\nx = double(4)\nprint(x)\n</code>", "<code>\nfinal_answer(x + 1)\n</code>"]
        )

        def generate(self, messages, **_):
            return smolagents.ChatMessage(
                role="assistant", content="Thought: go\n" + next(self.said)
            )

    from smolagents import tool

    @tool
    def double(n: int) -> int:
        """Twice the number.

        Args:
            n: the number
        """
        return n * 2

    from smolagents.monitoring import AgentLogger, LogLevel

    with SandboxExecutor([], AgentLogger(LogLevel.OFF), config) as executor:
        agent = smolagents.CodeAgent(
            tools=[double], model=Model(), executor=executor, verbosity_level=0
        )
        assert agent.run("double it") == 9


def test_twenty_machines_at_once():
    together = threading.Barrier(20)

    def one(number):
        config = SandboxVMConfig(container_name=f"m{number}", vm_ram="256M", vm_cpu_cores=1)
        with SandboxExecutor([], None, config) as executor:
            together.wait(120)  # all of them run now, so no port can have been used twice
            executor.send_variables({"n": number})
            executor.vm.container.commands.run(f"echo {number} > /shared/who", check=True)
            ports = (config.host_sandbox_server_port, config.host_sandbox_jupyter_kernel_port)
            return (
                executor("final_answer(n)")[0],
                (config.container_shared_dir / "who").read_text(),
                ports,
            )

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        found = list(pool.map(one, range(20)))
    assert [(n, text) for n, text, _ in found] == [(n, f"{n}\n") for n in range(20)]
    assert len({p for _, _, ports in found for p in ports}) == 40


# --- SSH -------------------------------------------------------------------------------------


def test_ssh_calls_over_the_api(tmp_path):
    manager = VMManager(VMConfig(), ssh_cfg=SSHConfig(command_timeout=5))
    try:
        manager.create_container()
        ssh = manager.ssh
        ssh.connect()
        found = ssh.exec_command("echo $A; pwd", cwd="/tmp", env={"A": "b c"})
        assert found == {"status": 0, "stdout": "b c\n/tmp\n", "stderr": ""}
        assert ssh.exec_command("id -u", as_root=True)["stdout"] == "0\n"
        assert ssh.exec_command("sleep 0.1; echo x > /tmp/later", block=False) is None
        wait_for(lambda: manager.container.files.exists("/tmp/later"))
        with pytest.raises(RemoteCommandError, match="status 3") as caught:
            ssh.exec_command("echo why >&2; exit 3")
        assert (caught.value.status, caught.value.stderr, caught.value.cmd[:4]) == (
            3,
            "why\n",
            "echo",
        )
        with pytest.raises(TimeoutError):
            ssh.exec_command("sleep 100")

        source = tmp_path / "code"
        (source / "sub").mkdir(parents=True)
        (source / "sub" / "a.py").write_text("1")
        (source / "skip").mkdir()
        (source / "skip" / "b").write_text("2")
        ssh.transfer_directory(source, "/home/user/code", exclude=["skip"])
        sftp = ssh.get_sftp()
        assert sftp.listdir("/home/user/code") == ["sub"]
        sftp.get("/home/user/code/sub/a.py", str(tmp_path / "back"))
        assert (tmp_path / "back").read_text() == "1"
        sftp.rename("/home/user/code/sub/a.py", "/home/user/c.py")
        sftp.chmod("/home/user/c.py", 0o700)
        assert sftp.stat("/home/user/c.py").st_mode == stat.S_IFREG | 0o700
        with sftp.open("/home/user/c.py", "a") as out:
            out.write("2")
        with sftp.open("/home/user/c.py") as back:
            assert back.read() == b"12"
        sizes = {a.filename: a.st_size for a in sftp.listdir_attr("/home/user")}
        assert sizes["c.py"] == 2
        with pytest.raises(OSError, match="not empty"):
            sftp.rmdir("/home/user/code")
        with pytest.raises(FileNotFoundError):
            sftp.remove("/home/user/absent")
        sftp.mkdir("/home/user/made")

        shell = manager.ssh_shell()
        assert "42" in ssh.send_command(shell, "echo $((6*7))", timeout=30)
        assert "43" in ssh.send_command(shell, "sleep 0.2; echo $((6*7+1))", timeout=30)
        shell.close()
    finally:
        manager.cleanup()
    with pytest.raises(SSHError):
        SSHClient(SSHConfig(port=1, initial_delay=0, max_retries=1)).connect()


def test_real_ssh_where_the_machine_has_an_sshd(tmp_path):
    pytest.importorskip("paramiko", reason="the package paramiko is not installed")
    manager = VMManager(VMConfig(unique_container_name=True))
    try:
        box = manager.create_container()
        install = (
            "apt-get update -q && DEBIAN_FRONTEND=noninteractive "
            "apt-get install -y -q --no-install-recommends openssh-server"
        )
        box.commands.run(install, user="root", timeout=300, check=True)
        ssh = manager.ssh
        ssh.connect()
        assert not ssh.over_api
        found = ssh.exec_command("id -un; echo $A; pwd", cwd="/tmp", env={"A": "b c"})
        assert found == {"status": 0, "stdout": "user\nb c\n/tmp\n", "stderr": ""}
        assert ssh.exec_command("id -u", as_root=True)["stdout"] == "0\n"
        with pytest.raises(RemoteCommandError, match="status 3"):
            ssh.exec_command("exit 3")
        much = ssh.exec_command("head -c 5000000 /dev/zero >&2; echo done")
        assert much["stdout"] == "done\n" and len(much["stderr"]) == 5000000
        ssh.cfg.command_timeout = 2
        with pytest.raises(TimeoutError, match="longer than 2 s"):
            ssh.exec_command("sleep 100")
        ssh.cfg.command_timeout = 60
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "a.py").write_text("1")
        ssh.transfer_directory(tmp_path / "code", "/home/user/code")
        assert ssh.get_sftp().listdir("/home/user/code") == ["a.py"]
        shell = manager.ssh_shell()
        assert "42" in ssh.send_command(shell, "echo $((6*7))", timeout=30)
    finally:
        manager.cleanup()


def test_errors_are_a_family():
    assert issubclass(RemoteCommandError, VMOperationError)
    assert all(issubclass(e, VMManagerError) for e in (VMCreationError, VMOperationError, SSHError))
    assert pickle.dumps(VMState.RUNNING)
