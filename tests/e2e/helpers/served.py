"""The guest of a sandbox of `cove serve`, as far as it can be had: spoken to through the router, with
an agent beside it, and looked at from the host."""

import time

from . import proc, there
from .serve import Serve
from .wire import Wire

ENVD = 49983                            # the port by which the router knows the guest
LIFE_S = 3600
DISK_BYTES = 8 << 30


class Served:
    def __init__(self, server: Serve, **create):
        self.server, self.port, self.url = server, server.port, server.url
        made = server.create(**{"timeout": LIFE_S, "limits": {"disk_bytes": DISK_BYTES}} | create)
        self.id, self.token = made["id"], made.get("token")
        self.routing = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(ENVD)}
        token = {"X-Access-Token": self.token} if self.token else {}
        self.wire = Wire(port=self.port, routing=self.routing | token)
        self.stranger = Wire(port=self.port, routing=self.routing)      # does not know the token
        self.agent = there.Agent(self.id, server.variables())
        there.current = there.current or self.agent
        self.pid = self.find_guest()
        self.pids = {self.pid, server.worker()}

    own_watches = 1                     # the server's, of its templates

    def find_guest(self):
        """Its pid on the host: it has started the agent's process."""
        agents = [pid for pid in proc.with_argument(f"agent-of-{self.id}")
                  if proc.command_line(pid)[0] == there.PYTHON.encode()]
        assert len(agents) == 1, agents
        return proc.parent(agents[0])

    # memory and descriptors are those of the guest and of the server in front of it

    def rss_kib(self):
        return sum(proc.status_kib(pid, "VmRSS") for pid in self.pids)

    def peak_rss_kib(self):
        return sum(proc.status_kib(pid, "VmHWM") for pid in self.pids)

    def forget_peak(self):
        for pid in self.pids:
            proc.forget_peak(pid)

    def descriptors(self):
        return {(pid, fd): target for pid in self.pids
                for fd, target in proc.descriptors(pid).items()}

    def settle(self, wanted, timeout):
        proc.hang_up(self.port)
        until = time.monotonic() + timeout
        while len(self.descriptors()) > wanted and time.monotonic() < until:
            time.sleep(0.05)
        return self.descriptors()

    def stop(self):
        self.agent.close()
        if there.current is self.agent:
            there.current = None
        assert self.server.call("DELETE", f"/v1/sandboxes/{self.id}").status == 204
        proc.wait_until(lambda: not proc.alive(self.pid), "the guest to be gone")
