"""SSHClient as a client of a real SSH server, which here is paramiko's, with commands of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import threading

import pytest

from sandbox.errors import RemoteCommandError, SSHError
from sandbox.ssh import SSHClient, SSHConfig

paramiko = pytest.importorskip("paramiko", reason="the package paramiko is not installed")


class Server(paramiko.ServerInterface):
    def check_auth_password(self, username, password):
        good = (username, password) == ("user", "password")
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        def run():
            done = subprocess.run(
                ["sh", "-c", command.decode()], capture_output=True, stdin=subprocess.DEVNULL
            )
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()

        threading.Thread(target=run, daemon=True).start()
        return True


class Files(paramiko.SFTPServerInterface):
    def mkdir(self, path, attr):
        os.mkdir(path)
        return paramiko.SFTP_OK

    def stat(self, path):
        return paramiko.SFTPAttributes.from_stat(os.stat(path))

    lstat = stat

    def chattr(self, path, attr):
        os.chmod(path, attr.st_mode)
        return paramiko.SFTP_OK

    def open(self, path, flags, attr):
        handle = paramiko.SFTPHandle(flags)
        handle.writefile = open(path, "wb")  # noqa: SIM115 - the handle closes it
        return handle


@pytest.fixture
def port():
    listener = socket.create_server(("127.0.0.1", 0))
    key, transports = paramiko.ECDSAKey.generate(), []

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, Files)
            transports.append(transport)
            try:
                transport.start_server(server=Server())
            except (paramiko.SSHException, EOFError, OSError):  # a client that left
                pass

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)
    for transport in transports:
        transport.close()


def test_commands_and_files(port, tmp_path):
    config = SSHConfig(
        hostname="127.0.0.1", port=port, initial_delay=0, max_retries=2, retry_delay=0.1
    )
    with SSHClient(config) as ssh:
        assert not ssh.over_api
        found = ssh.exec_command("echo $A; pwd", cwd="/tmp", env={"A": "b c"})
        assert found == {"status": 0, "stdout": "b c\n/tmp\n", "stderr": ""}
        with pytest.raises(RemoteCommandError, match="why") as caught:
            ssh.exec_command("echo why >&2; exit 3")
        assert caught.value.status == 3
        source = tmp_path / "code"
        (source / "sub").mkdir(parents=True)
        (source / "sub" / "run").write_text("x")
        (source / "sub" / "run").chmod(0o700)
        (source / "skip").write_text("no")
        ssh.transfer_directory(source, tmp_path / "there", exclude=["skip"])
        assert (tmp_path / "there" / "sub" / "run").stat().st_mode & 0o777 == 0o700
        assert not (tmp_path / "there" / "skip").exists()
    ssh.close()


def test_a_wrong_password_is_an_error(port):
    config = SSHConfig(
        hostname="127.0.0.1", port=port, password="no", initial_delay=0, max_retries=1
    )
    with pytest.raises(SSHError, match="127"):
        SSHClient(config).connect()
