"""A `cove serve` of a test's own, as strangers on the network see it, and what is asked of it."""

import http.client
import os
import resource
import shutil
import signal
import subprocess
import tempfile

BUILD = os.environ["COVE_BUILD"]
READY = "cove: ready on http://"
# Of a test's server little is asked: the volume may be small, and nothing has to be ready.
SMALL = {"volume.initial-bytes": 256 << 20, "volume.step-bytes": 512 << 20,
         "volume.low-bytes": 128 << 20, "pool.size": 0}


class Server:
    """Started when made; close() ends it, its sandboxes with it, and takes its files away."""

    def __init__(self, *, files=None, **settings):
        self.folder = tempfile.mkdtemp(prefix="cove-network-")
        os.chmod(self.folder, 0o755)
        self.data = os.path.join(self.folder, "data")
        words = [f"--set={name}={value}"
                 for name, value in {**SMALL, **settings}.items()]
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "cove"), "serve", "--ephemeral", "--listen", "127.0.0.1:0",
                 "--data", self.data, "--run-dir", os.path.join(self.folder, "run"), *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                 (files, files))))
        for line in self.process.stdout:
            if line.startswith(READY):
                self.port = int(line.rpartition(":")[2])
                break
        else:
            raise AssertionError(f"it did not start: {self.told()}")
        with open(os.path.join(self.data, "admin.key"), encoding="ascii") as file:
            self.key = file.read().strip()

    def told(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def ask(self, method, path, body=None, *, key=None, timeout=20):
        """(status, body) over a connection of its own."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            link.request(method, path, body, headers | ({"X-API-Key": key} if key else {}))
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def metric(self, name):
        text = self.ask("GET", "/metrics")[1].decode()
        return float(next(line for line in text.splitlines()
                          if line.startswith(name + " ")).split()[-1])

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stdout.close()
        subprocess.run(["umount", os.path.join(self.data, "volume")], check=False,
                       capture_output=True)
        shutil.rmtree(self.folder)
