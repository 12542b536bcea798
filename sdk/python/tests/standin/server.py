"""The two services of the documents, as a user's own server code would be: the REST service on $PORT and a
kernel gateway on $JUPYTER_KERNEL_GATEWAY_APP_PORT. Standard library only; runs inside the sandbox."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import struct
import subprocess
import sys
import threading
import traceback
import urllib.parse
import uuid

PORT = int(os.environ.get("PORT", "8765"))
KERNEL_PORT = int(os.environ.get("JUPYTER_KERNEL_GATEWAY_APP_PORT", "0"))
VERSION = os.environ.get("STANDIN_VERSION", "0.1.0")


def schema(**properties):
    kinds = {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "a": {"type": "array", "items": {"type": "integer"}},
    }
    required = [name for name, kind in properties.items() if not kind.endswith("?")]
    found = {name: kinds[kind[0]] for name, kind in properties.items()}
    return {"type": "object", "properties": found, "required": required}


def operation(id, reply, query=None, body=None):
    answer = {"description": "done", "content": {"application/json": {"schema": reply}}}
    found = {"operationId": id, "summary": id, "responses": {"200": answer}}
    if query:
        name, choices, default = query
        kind = {"type": "string", "enum": choices, **({"default": default} if default else {})}
        found["parameters"] = [
            {"name": name, "in": "query", "required": not default, "schema": kind}
        ]
    if body:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": ref(body)}},
        }
    return found


def ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Sandbox REST Server", "version": VERSION},
    "paths": {
        "/health": {"get": operation("health_check_health_get", ref("HealthResponse"))},
        "/packages": {"get": operation(
            "get_installed_packages_packages_get", {"type": "array", "items": ref("PackageInfo")})},
        "/execute": {"post": operation("run_code_execute_post", ref("ExecuteResponse"), body="CodeRequest")},
        "/screenshot": {"get": operation(
            "screenshot_endpoint_screenshot_get", ref("ScreenshotResponse"),
            query=("method", ["pyautogui", "pillow"], "pyautogui"))},
        "/record": {"get": operation(
            "record_record_get", ref("RecordResponse"), query=("mode", ["start", "stop"], None))},
    },
    "components": {"schemas": {
        "CodeRequest": {"type": "object", "required": ["code"], "properties": {
            "code": {"type": "string"},
            "packages": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}}},
        "HealthResponse": schema(status="s", kernel_status="s?"),
        "ExecuteResponse": schema(stdout="s", stderr="s"),
        "ScreenshotResponse": schema(screenshot_path="s", mouse_position="a", screen_size="a"),
        "PackageInfo": schema(name="s", version="s"),
        "RecordResponse": schema(status="s", recording_file="s?", num_actions="i?"),
    }},
}  # fmt: skip


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def log_message(self, text, *args):
        print(text % args, file=sys.stderr, flush=True)


class Rest(Quiet):
    recording = False

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/record":
            start, was = query["mode"] == "start", Rest.recording
            Rest.recording = start
            if start:
                return self.answer(
                    200, {"status": "already_recording" if was else "recording_started"}
                )
            if not was:
                return self.answer(200, {"status": "not_recording"})
            return self.answer(
                200,
                {
                    "status": "recording_stopped",
                    "recording_file": "recordings/r.json",
                    "num_actions": 0,
                },
            )
        table = {
            "/health": {"status": "ok", "kernel_status": "reachable"},
            "/openapi.json": DOCUMENT,
            "/packages": [{"name": "pip", "version": "1.0"}],
            "/screenshot": {
                "screenshot_path": "screenshots/a.png",
                "mouse_position": [1, 2],
                "screen_size": [3, 4],
            },
        }
        return (
            self.answer(200, table[url.path])
            if url.path in table
            else self.answer(404, {"detail": "Not Found"})
        )

    def do_POST(self):
        asked = self.body()
        if asked.get("packages"):
            names = ", ".join(asked["packages"])
            return self.answer(
                200, {"stdout": "", "stderr": f"Failed to install {names}\nno such package"}
            )
        done = subprocess.run([sys.executable, "-c", asked["code"]], capture_output=True, text=True)
        return self.answer(200, {"stdout": done.stdout, "stderr": done.stderr})


# --- kernels ---------------------------------------------------------------------------------

kernels = {}


class Gateway(Quiet):
    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        if path == "/api":
            return self.answer(200, {"version": "2"})
        if path == "/api/kernels":
            return self.answer(200, [{"id": id} for id in kernels])
        parts = path.split("/")
        if len(parts) == 5 and parts[4] == "channels" and parts[3] in kernels:
            return self.socket(kernels[parts[3]])
        return self.answer(404, {"message": "no"})

    def do_POST(self):
        name = self.body().get("name")
        if self.path != "/api/kernels":
            return self.answer(204, None)
        if name and name != os.environ.get("JUPYTER_KERNEL_NAME"):
            return self.answer(404, {"message": f"no kernel {name}"})
        id = str(uuid.uuid4())
        kernels[id] = {"__name__": "__main__"}
        return self.answer(201, {"id": id, "name": name})

    def do_DELETE(self):
        kernels.pop(self.path.split("/")[-1], None)
        self.answer(204, None)

    def socket(self, state):
        self.close_connection = True
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        while True:
            asked = self.receive()
            if asked is None:
                return
            self.run(state, json.loads(asked))

    def receive(self):
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        size = head[1] & 127
        if size > 125:
            size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
        mask = self.rfile.read(4)
        data = self.rfile.read(size)
        long = int.from_bytes((mask * (size // 4 + 1))[:size], "big") ^ int.from_bytes(data, "big")
        return long.to_bytes(size, "big")

    def tell(self, parent, kind, content):
        message = {
            "msg_type": kind,
            "header": {"msg_type": kind},
            "parent_header": parent,
            "content": content,
        }
        raw = json.dumps(message).encode()
        head = bytes([0x81, 127]) + struct.pack(">Q", len(raw))
        self.wfile.write(head + raw)

    def run(self, state, asked):
        parent, code = asked["header"], asked["content"]["code"]
        self.tell({"msg_id": "another"}, "stream", {"name": "stdout", "text": "not ours"})
        self.tell(parent, "status", {"execution_state": "busy"})
        if code.strip() == "die":
            self.tell({}, "status", {"execution_state": "dead"})
            return
        out, err, failed = io.StringIO(), io.StringIO(), None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                exec(compile(code, "<cell>", "exec"), state)
            except BaseException:
                failed = traceback.format_exc()
        # All of a stream in one message, cut where a kernel might.
        for name, text in (("stdout", out.getvalue()), ("stderr", err.getvalue())):
            for at in range(0, len(text), 100_000):
                self.tell(parent, "stream", {"name": name, "text": text[at : at + 100_000]})
        if failed:
            lines = ["\x1b[31m" + line + "\x1b[0m" for line in failed.splitlines()]
            self.tell(parent, "error", {"ename": "E", "evalue": "v", "traceback": lines})
        self.tell(parent, "execute_reply", {"status": "ok"})
        self.tell(parent, "status", {"execution_state": "idle"})


servers = [http.server.ThreadingHTTPServer((os.environ.get("HOST", "0.0.0.0"), PORT), Rest)]
if KERNEL_PORT:
    servers.append(http.server.ThreadingHTTPServer(("0.0.0.0", KERNEL_PORT), Gateway))
print("serving", PORT, KERNEL_PORT, flush=True)
for server in servers[1:]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
servers[0].serve_forever()
