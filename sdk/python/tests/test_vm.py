"""The package `sandbox`: configurations and managers. The services are the guest's own. A stand-in,
brought as a user's own server code, takes their place where that is the point, where a screen is
needed, and where the document of the service has to change."""

from __future__ import annotations

import concurrent.futures
import pickle
import socket
import stat
import time
from pathlib import Path

import pytest
from machines import STANDIN, kill_first_process, wait_for
from marks import needs_root

import cove
from cove import _server
from sandbox import (
    VMConfig,
    VMCreationError,
    VMManager,
    VMOperationError,
    VMState,
)
from sandbox.agent import AgentVMConfig, AgentVMManager
from sandbox.configs import DefaultPort, SandboxVMConfig
from sandbox.errors import RemoteCommandError, SSHError, VMManagerError
from sandbox.sandbox import SandboxClient, SandboxVMManager
from sandbox.ssh import SSHClient, SSHConfig

pytestmark = [needs_root, pytest.mark.usefixtures("at_vm_server")]
HERE = Path(__file__).resolve().parent


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


# --- SSH -------------------------------------------------------------------------------------


def test_ssh_calls_over_the_api(tmp_path, monkeypatch):
    """As in a machine without an sshd, whether or not this one has one: see test_vm_ssh.py for those."""
    monkeypatch.setattr(SSHClient, "_has_sshd", lambda self: False)
    manager = VMManager(VMConfig(), ssh_cfg=SSHConfig(command_timeout=5))
    try:
        manager.create_container()
        ssh = manager.ssh
        ssh.connect()
        assert ssh.over_api
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


def test_errors_are_a_family():
    assert issubclass(RemoteCommandError, VMOperationError)
    assert all(issubclass(e, VMManagerError) for e in (VMCreationError, VMOperationError, SSHError))
    assert pickle.dumps(VMState.RUNNING)
