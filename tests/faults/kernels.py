"""Kernels of a sandbox, as the SDKs' code interpreter has them, and what else its services are asked for."""

import contextlib
import http.client
import json
import time

from crowd import PATIENCE_S

REST, INTERPRETER = 8765, 49999


def ask(box, port, method, path, body=None):
    """A request to a port of a sandbox, tried again while a part is down or says that it is busy."""
    headers, until = {"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": str(port)}, time.monotonic() + PATIENCE_S
    if box.token:
        headers["X-Access-Token"] = box.token
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            reply = box.world.call(method, path, body, headers=headers)
            if reply.status not in (429, 502, 503):
                return reply
        assert time.monotonic() < until, f"{method} {path} is not answered"
        time.sleep(0.2)


def context(box):
    """A new kernel."""
    reply = ask(box, INTERPRETER, "POST", "/contexts", {"language": "python", "cwd": "/home/user"})
    assert reply.status in (200, 201), reply
    return reply.json["id"]


def lines(box, ident, code):
    """What it answers."""
    reply = ask(box, INTERPRETER, "POST", "/execute", {"context_id": ident, "code": code})
    assert reply.status == 200, reply
    return [json.loads(line) for line in reply.body.decode().splitlines() if line.strip()]


def said(box, ident, code):
    found = lines(box, ident, code)
    errors = [line for line in found if line["type"] == "error"]
    assert not errors, errors
    return "".join(line.get("text", "") for line in found if line["type"] == "stdout")
