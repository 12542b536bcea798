"""`cove-guest services` on this machine, as the documents' start script would be."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess

from . import proc
from .guest import BINARY, COMPLAINTS, SLOWER
from .serve import Reply


class Services:
    """Started when made, on a port of its own; stop() ends it and looks at what is left."""

    def __init__(self, folder, *options, env=None):
        self.folder = pathlib.Path(folder)
        self.home, self.shared = self.folder / "home", self.folder / "shared"
        self.home.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "services.txt"
        clear = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home), "PORT": "0",
                 "HOST": "127.0.0.1", "SHARED_DIR": str(self.shared)}
        kept = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([BINARY, "services", "rest", *options], env=clear | kept | (env or {}),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        proc.wait_until(lambda: self.ports() or self.process.poll() is not None, "the services", 20 * SLOWER)
        assert self.process.poll() is None, self.told()
        self.port = self.ports()["rest"]

    def told(self):
        return self.log.read_text(errors="replace")

    def said(self):
        """What the service itself says, in its own log."""
        return (self.shared / "sandbox-services.log").read_text(errors="replace")

    def ports(self):
        return {name: int(port) for name, port in re.findall(r'\\"(\w+)\\":(\d{3,5})}', self.told())}

    def child(self):
        """The service's process; None while it does not run."""
        found = proc.children(self.process.pid)
        return found.pop() if found else None

    def call(self, method, path, body=None, timeout=50 * SLOWER, headers=None):
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Reply(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def execute(self, code, **more):
        reply = self.call("POST", "/execute", {"code": code} | more)
        assert reply.status == 200, reply
        return reply.json

    def stop(self):
        family = [self.process.pid, *proc.children(self.process.pid)]
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20 * SLOWER)
        assert status == 0 and not any(word in self.told() for word in COMPLAINTS), (status, self.told())
        proc.wait_until(lambda: not any(map(proc.alive, family)), f"{family} are left", 10)
