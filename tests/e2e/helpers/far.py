"""A client on a network of its own, which can be cut off without a word: as when a machine loses its power."""

import ctypes
import os
import socket
import subprocess
import threading

from .wire import Connection

CLONE_NEWNET = 0x40000000
NEAR, FAR = "198.18.77.1", "198.18.77.2"


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


class Far:
    """with Far() as far: wire.start(..., kind=far.connection(small=True)) reaches what listens on NEAR."""

    def __enter__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE)
        try:
            self.holder.stdout.read(1)
            inside = ("nsenter", "--target", str(self.holder.pid), "--net", "ip")
            run("ip", "link", "add", "cove-near", "type", "veth", "peer", "name", "cove-far", "netns", str(self.holder.pid))
            run("ip", "address", "add", f"{NEAR}/24", "dev", "cove-near")
            run("ip", "link", "set", "cove-near", "up")
            run(*inside, "address", "add", f"{FAR}/24", "dev", "cove-far")
            run(*inside, "link", "set", "cove-far", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # The network goes with its last process, but some time after it.
        subprocess.run(["ip", "link", "delete", "cove-near"], capture_output=True, check=False)
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()

    def cut(self):
        """From now on nothing goes through, and nobody is told."""
        run("nsenter", "--target", str(self.holder.pid), "--net", "ip", "link", "set", "cove-far", "down")

    def connection(self, small=False):
        pid = self.holder.pid

        class FarConnection(Connection):
            def connect(self):
                self.sock = socket_of(pid)
                if small:
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                self.sock.settimeout(self.timeout)
                self.sock.connect((NEAR, self.port))

        return FarConnection


def socket_of(pid):
    """One that belongs to that process's network: a socket stays where its maker was."""
    made = []

    def make():
        with open(f"/proc/{pid}/ns/net", "rb") as network:
            if not ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET):
                made.append(socket.socket())

    thread = threading.Thread(target=make)      # that namespace is the thread's, and goes with it
    thread.start()
    thread.join()
    assert made, f"setns: {os.strerror(ctypes.get_errno())}"
    return made[0]
