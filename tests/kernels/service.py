"""The kernels' service as a process of this machine, and a client that speaks both WebSocket dialects."""
import base64
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid

import requests
import websocket

V1 = "v1.kernel.websocket.jupyter.org"


def wait_for(condition, what, seconds=60):
    """Waits until the condition gives something true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def free_port():
    """For programs that cannot choose one themselves. Not of those that the system hands out: somebody's connection could
    have it before the program does."""
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", random.SystemRandom().randrange(10000, 32000)))
                return s.getsockname()[1]
            except OSError:
                pass


class Service:
    """`cove-guest services kernels` with ports, a home and a shared directory of its own."""

    def __init__(self, directory, *options, **variables):
        self.dir = pathlib.Path(directory)
        self.home, self.shared = self.dir / "home", self.dir / "shared"
        for path in self.home, self.shared, self.dir / "run":
            path.mkdir(exist_ok=True)
        venv = pathlib.Path(sys.executable).parent.parent
        env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "JUPYTER", "KG_"))}
        env |= {
            "VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{os.environ['PATH']}", "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.dir / "run"), "SHARED_DIR": str(self.shared),
            "JUPYTER_KERNEL_GATEWAY_APP_HOST": "127.0.0.1", "COVE_INTERPRETER_HOST": "127.0.0.1",
            "JUPYTER_KERNEL_GATEWAY_APP_PORT": "0", "COVE_INTERPRETER_PORT": "0",
            "SANDBOX_BASE_DIR": str(self.dir / "app"), **variables,
        }
        self.process = subprocess.Popen([os.environ["COVE_GUEST"], "services", "kernels", *options], env=env,
                                        stdin=subprocess.DEVNULL, stderr=open(self.dir / "stderr", "w"))
        self.token = variables.get("KG_AUTH_TOKEN", "")
        self.jupyter, self.interpreter = wait_for(self.ports, "the service's ports")
        self.url = f"http://127.0.0.1:{self.jupyter}"
        self.interpreter_url = f"http://127.0.0.1:{self.interpreter}"

    def ports(self):
        """Those that it was given, by what it says of itself."""
        said = (self.dir / "stderr").read_text()
        assert self.process.poll() is None, said
        found = re.search(r'\\"jupyter\\":(\d+),\\"interpreter\\":(\d+)', said)
        return found and tuple(map(int, found.groups()))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def log(self):
        path = self.shared / "jupyter-kernel.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ---- REST ----

    def call(self, method, path, expect=None, **kwargs):
        if self.token:
            kwargs.setdefault("headers", {}).setdefault("Authorization", f"token {self.token}")
        answer = requests.request(method, self.url + path, timeout=120, **kwargs)
        if expect is not None:
            assert answer.status_code == expect, (method, path, answer.status_code, answer.text)
        return answer

    def start_kernel(self, **body):
        return self.call("POST", "/api/kernels", 201, json=body).json()["id"]

    def state(self, kernel):
        return self.call("GET", f"/api/kernels/{kernel}", 200).json()["execution_state"]

    def end_kernel(self, kernel):
        self.call("DELETE", f"/api/kernels/{kernel}", 204)

    def connect(self, kernel, v1=False, session=None, **kwargs):
        return Channels(self, kernel, v1, session or uuid.uuid4().hex, **kwargs)


class Kernel:
    """A kernel and a connection to it, for a `with`."""

    def __init__(self, service, v1=True, **body):
        self.service, self.v1, self.body = service, v1, body

    def __enter__(self):
        self.id = self.service.start_kernel(**self.body)
        self.channels = self.service.connect(self.id, self.v1)
        self.channels.id = self.id
        return self.channels

    def __exit__(self, *_):
        self.channels.close()
        self.service.call("DELETE", f"/api/kernels/{self.id}")


# ---- the two dialects ----

def encode_v1(channel, message, buffers):
    parts = [channel.encode()] + [json.dumps(message[k]).encode()
                                  for k in ("header", "parent_header", "metadata", "content")] + list(buffers)
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def decode_v1(frame):
    n, = struct.unpack_from("<Q", frame)
    offsets = struct.unpack_from(f"<{n}Q", frame, 8)
    assert offsets[0] == 8 * (n + 1) and offsets[-1] == len(frame)
    parts = [frame[a:b] for a, b in zip(offsets, offsets[1:])]
    header, parent, metadata, content = map(json.loads, parts[1:5])
    return {"channel": parts[0].decode(), "header": header, "parent_header": parent, "metadata": metadata,
            "content": content, "buffers": parts[5:]}


def encode_default(channel, message, buffers):
    text = json.dumps({**message, "channel": channel}).encode()
    if not buffers:
        return text.decode()
    parts = [text, *buffers]
    offsets = [4 * (len(parts) + 1)]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f">{len(offsets) + 1}I", len(parts), *offsets) + b"".join(parts)


def decode_default(frame):
    if isinstance(frame, str):
        return json.loads(frame)
    n, = struct.unpack_from(">I", frame)
    offsets = list(struct.unpack_from(f">{n}I", frame, 4)) + [len(frame)]
    parts = [frame[a:b] for a, b in zip(offsets, offsets[1:])]
    return {**json.loads(parts[0]), "buffers": parts[1:]}


class Run:
    """What came of one execute request."""

    def __init__(self):
        self.streams = {"stdout": [], "stderr": []}
        self.errors, self.results, self.messages, self.reply = [], [], [], None

    @property
    def out(self):
        return "".join(self.streams["stdout"])

    @property
    def err(self):
        return "".join(self.streams["stderr"])

    @property
    def value(self):
        return self.results[-1]["text/plain"] if self.results else None


class Channels:
    def __init__(self, service, kernel, v1, session, **kwargs):
        self.v1, self.session = v1, session
        token = f"&token={service.token}" if service.token else ""
        self.ws = websocket.create_connection(
            f"ws://127.0.0.1:{service.jupyter}/api/kernels/{kernel}/channels?session_id={session}{token}",
            subprotocols=[V1] if v1 else None, timeout=120, **kwargs)
        assert self.ws.subprotocol == (V1 if v1 else None)

    def send(self, kind, content, channel="shell", buffers=(), parent=None):
        message = {"header": {"msg_id": uuid.uuid4().hex, "username": "test", "session": self.session,
                              "date": "2026-01-01T00:00:00Z", "msg_type": kind, "version": "5.3"},
                   "parent_header": parent or {}, "metadata": {}, "content": content}
        if self.v1:
            self.ws.send_binary(encode_v1(channel, message, buffers))
        else:
            frame = encode_default(channel, message, buffers)
            (self.ws.send if isinstance(frame, str) else self.ws.send_binary)(frame)
        return message["header"]["msg_id"]

    def receive(self):
        frame = self.ws.recv()
        assert frame, "the connection was closed"
        message = decode_v1(frame) if self.v1 else decode_default(frame)
        if not self.v1:
            assert message["msg_id"] == message["header"]["msg_id"]
            assert message["msg_type"] == message["header"]["msg_type"]
        return message

    def execute(self, code, **content):
        return self.send("execute_request", {"code": code, "silent": False, "store_history": True,
                                             "user_expressions": {}, "allow_stdin": False, **content})

    def follow(self, request, answer=None):
        """Reads until both the reply and idle of a request came."""
        run, idle = Run(), False
        while not (run.reply and idle):
            m = self.receive()
            kind, content = m["header"]["msg_type"], m["content"]
            if m["parent_header"].get("msg_id") != request:
                continue
            run.messages.append(m)
            if kind == "stream":
                run.streams[content["name"]].append(content["text"])
            elif kind in ("execute_result", "display_data"):
                run.results.append(content["data"])
            elif kind == "error":
                run.errors.append(content)
            elif kind == "input_request":
                self.send("input_reply", {"value": answer, "status": "ok"}, "stdin", parent=m["header"])
            elif kind == "status":
                idle = content["execution_state"] == "idle"
            elif m["channel"] in ("shell", "control"):
                run.reply = m
        return run

    def run(self, code, answer=None, **content):
        return self.follow(self.execute(code, allow_stdin=answer is not None, **content), answer)

    def wait_status(self, state):
        while True:
            m = self.receive()
            if m["header"]["msg_type"] == "status" and m["content"]["execution_state"] == state:
                return m

    def close(self):
        self.ws.close()


def result_pickle(text):
    """RESULT_PICKLE of the documents: the marker at the start of any line."""
    for line in text.splitlines():
        if line.startswith("RESULT_PICKLE:"):
            return base64.b64decode(line[len("RESULT_PICKLE:"):].strip())
    return None
