"""The package `sandbox` over real SSH: the machine has an sshd of this one's, or installs one, from the
Debian mirror that this one uses."""

from __future__ import annotations

import pytest
from marks import needs_root

from sandbox import VMConfig, VMManager
from sandbox.errors import RemoteCommandError

pytestmark = [needs_root, pytest.mark.network, pytest.mark.usefixtures("at_vm_server")]
INSTALL = (
    "apt-get update -q && DEBIAN_FRONTEND=noninteractive "
    "apt-get install -y -q --no-install-recommends openssh-server"
)


def test_real_ssh_where_the_machine_has_an_sshd(tmp_path):
    pytest.importorskip("paramiko", reason="the package paramiko is not installed")
    manager = VMManager(VMConfig(unique_container_name=True))
    try:
        box = manager.create_container()
        if not box.files.exists("/usr/sbin/sshd"):  # this machine has none either
            box.commands.run(INSTALL, user="root", timeout=300, check=True)
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
