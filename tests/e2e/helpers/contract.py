"""A client of the control-plane contract: logs in, asks, and looks at the envelope of every answer."""

import json
import urllib.parse
import uuid

BASE = "/agent/sandboxes/sandboxes"
PASSWORD = "correct-horse-9"


def add_user(server, name, role="user", password=PASSWORD, **more):
    """A user with a password; one that is there already stays."""
    made = server.call("POST", "/v1/users", {"name": name, "role": role, "password": password} | more)
    assert made.status in (201, 409), made
    return name


def sign_in(server, name, password=PASSWORD):
    query = urllib.parse.urlencode({"username": name, "password": password})
    return server.call("POST", f"/api/v1/auth/login/swagger?{query}", key=None)


class Contract:
    """One user's view of it."""

    def __init__(self, server, name, password=PASSWORD):
        self.server, self.name = server, name
        reply = sign_in(server, name, password)
        assert reply.status == 200, reply
        self.token = reply.json["access_token"]

    def headers(self):
        return {"Authorization": f"Bearer {self.token}"}

    def call(self, method, path, body=None, headers=None):
        """Any answer; it is in the envelope, and says whose request it was."""
        target = path if path.startswith("/") else f"{BASE}/{path}"
        reply = self.server.call(method, target, body, key=None, headers=self.headers() | (headers or {}))
        said = reply.json
        assert said["code"] == reply.status and isinstance(said["msg"], str) and "data" in said, reply
        if reply.status != 200:
            assert said["data"] is None
        if reply.status not in (200, 401):
            uuid.UUID(said["trace_id"])
            assert said["trace_id"] == reply.headers["x-request-id"]
        return reply

    def ok(self, method, path, body=None, headers=None):
        """The data of an answer that is a success."""
        reply = self.call(method, path, body, headers)
        assert reply.status == 200 and reply.json["msg"] == "Request success", reply
        return reply.json["data"]

    def refused(self, status, method, path, body=None, words="", headers=None):
        reply = self.call(method, path, body, headers)
        assert reply.status == status and words in reply.json["msg"], reply
        return reply

    # ---- sandboxes

    def create(self, **body):
        return self.ok("POST", "create", {"user_id": "somebody"} | body)

    def run(self, box, command, **more):
        return self.ok("POST", "run-cmd", {"sandbox_id": box, "command": command} | more)

    def write(self, box, path, content, **more):
        return self.ok("POST", "write-file",
                       {"sandbox_id": box, "file_path": path, "content": content} | more)

    def read(self, box, path):
        return self.ok("POST", "read-file", {"sandbox_id": box, "file_path": path})

    def status(self, box):
        return self.ok("GET", f"{box}/status")["status"]

    def info(self, box):
        return self.ok("GET", f"{box}/info")

    def delete(self, box):
        return self.ok("DELETE", box)

    def upload(self, fields):
        """fields: name and bytes, in their order."""
        mark = "boundary" + uuid.uuid4().hex
        body = b"".join(
            f'--{mark}\r\nContent-Disposition: form-data; name="{name}"'.encode()
            + (b'; filename="f"' if name == "file" else b"") + b"\r\n\r\n" + value + b"\r\n"
            for name, value in fields) + f"--{mark}--\r\n".encode()
        return self.call("POST", "upload-file", body,
                         {"Content-Type": f"multipart/form-data; boundary={mark}"})


def endpoints(document):
    """Every operation of an OpenAPI document: (method, path, row)."""
    return [(method.upper(), path, row) for path, item in document["paths"].items()
            for method, row in item.items()]


def body_of(row, values):
    """A body for an operation: what its schema demands, from values by name."""
    content = row.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return None
    schema = content["application/json"]["schema"]
    return {name: values[name] for name in schema.get("required", [])}


def dumps(value):
    return json.dumps(value).encode()
