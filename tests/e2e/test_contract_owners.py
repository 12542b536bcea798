"""Two users and an admin over every endpoint: nobody reaches another's sandbox, by whichever of its names
and whichever way in."""

import base64
import hashlib
import http.client
import json
import time
import urllib.parse

import pytest

from helpers.contract import BASE, Contract, add_user, body_of, endpoints
from helpers.guest import SLOWER
from helpers.proc import wait_until
from helpers.serve import Reply

ENVD = 49983


@pytest.fixture(scope="module")
def users(server):
    return {name: Contract(server, add_user(server, name, role))
            for name, role in (("alice", "user"), ("bob", "user"), ("chief", "admin"))}


@pytest.fixture(scope="module")
def hers(users):
    """A sandbox of Alice's, with a file and a server inside."""
    made = users["alice"].create(user_id="bob")         # a label, and gives Bob nothing
    box = made["sandbox_id"]
    users["alice"].write(box, "/home/user/secret.txt", "alice's")
    yield made
    users["alice"].call("DELETE", box)


def values(box):
    return {"sandbox_id": box, "user_id": "alice", "command": "cat secret.txt", "file_path": "secret.txt",
            "content": "bob was here", "port": 8080, "timeout_seconds": 60, "url": "https://example.com/",
            "sandbox_path": "secret.txt", "presigned_url": "https://example.com/"}


def every_call(server, box):
    """Each operation on that sandbox, as (method, target, body or form)."""
    for method, path, row in endpoints(server.ok("GET", "/openapi.json", key=None)):
        if row["operationId"] in ("create_sandbox", "login", "login_swagger", "logout", "refresh_token"):
            continue
        query = {item["name"]: {"sandbox_id": box, "directory_path": "/tmp/bobs"}[item["name"]]
                 for item in row.get("parameters", [])
                 if item["in"] == "query" and item.get("required")}
        target = path.replace("{sandbox_id}", box) + ("?" + urllib.parse.urlencode(query) if query else "")
        yield row["operationId"], method, target, body_of(row, values(box))


@pytest.mark.core
def test_another_user_finds_nothing_by_any_endpoint(users, hers, server):
    calls = 0
    for name in (hers["sandbox_id"], hers["provider_sandbox_id"], hers["sandbox_id"].upper()):
        for operation, method, target, body in every_call(server, name):
            if operation == "upload_file":
                reply = users["bob"].upload([("sandbox_id", name.encode()), ("file_path", b"x"),
                                             ("file", b"bob")])
            else:
                reply = users["bob"].call(method, target, body)
            assert reply.status == 404, (operation, reply)
            assert reply.json["msg"] == f"Sandbox {name} not found"
            calls += 1
    assert calls == 15 * 3
    # no difference to one that nobody has; and nothing has happened to it
    assert users["alice"].status(hers["sandbox_id"]) == "running"
    assert users["alice"].read(hers["sandbox_id"], "secret.txt")["content"] == "alice's"


def test_nor_by_the_other_facades(users, hers, server):
    for name in (hers["sandbox_id"], hers["provider_sandbox_id"]):
        for method, path, body in (
                ("GET", f"/v1/sandboxes/{name}", None), ("DELETE", f"/v1/sandboxes/{name}", None),
                ("POST", f"/v1/sandboxes/{name}/timeout", {"timeout": 1}),
                ("POST", f"/v1/sandboxes/{name}/pause", None),
                ("POST", f"/v1/sandboxes/{name}/resume", {}),
                ("GET", f"/v1/sandboxes/{name}/processes", None),
                ("DELETE", f"/v1/sandboxes/{name}/processes/1", None),
                ("GET", f"/v1/sandboxes/{name}/tunnel?port=80", None),
                ("GET", f"/sandboxes/{name}", None), ("DELETE", f"/sandboxes/{name}", None),
                ("POST", f"/sandboxes/{name}/pause", {}),
                ("POST", f"/v2/sandboxes/{name}/connect", {"timeout": 1})):
            reply = server.call(method, path, body, key=None, headers=users["bob"].headers())
            assert reply.status == 404, (method, path, reply)
    listed = server.call("GET", "/v1/sandboxes", key=None, headers=users["bob"].headers())
    assert hers["provider_sandbox_id"].encode() not in listed.body


def test_an_admin_may(users, hers):
    chief = users["chief"]
    for name in (hers["sandbox_id"], hers["provider_sandbox_id"]):
        assert chief.status(name) == "running"
        assert chief.read(name, "secret.txt")["content"] == "alice's"
        assert chief.run(name, "echo seen")["success"] is True
    assert chief.info(hers["sandbox_id"])["user_id"] == "bob"


# ---- by the router

def knock(port, host=None, path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30 * SLOWER)
    try:
        connection.request("GET", path, headers=({"Host": host} if host else {})
                           | {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return Reply(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()


def ways(server, box, port, path, **headers):
    """By name, by headers of both kinds, by path."""
    preview = next((urllib.parse.urlsplit(line.split()[-1]).port for line in server.said
                    if "previews on" in line), None)
    yield knock(server.port, f"{port}-{box}.localhost", path, **headers)
    yield knock(server.port, None, path, E2b_Sandbox_Id=box, E2b_Sandbox_Port=str(port), **headers)
    yield knock(server.port, None, path, X_Sandbox_ID=box, X_Sandbox_Port=str(port), **headers)
    if preview:
        yield knock(preview, None, f"/{box}/{port}{path}", **headers)


def test_the_guest_itself_lets_nobody_in_without_its_token(users, hers, server):
    for name in (hers["provider_sandbox_id"], hers["sandbox_id"]):
        for reply in ways(server, name, ENVD, "/files?path=/home/user/secret.txt",
                          Authorization=f"Bearer {users['bob'].token}"):
            assert reply.status in (401, 404), reply
            assert b"alice's" not in reply.body


def test_a_private_sandbox_has_no_open_port(users, server):
    alice, bob = users["alice"], users["bob"]
    made = server.call("POST", "/v1/sandboxes", {"public": False}, key=None, headers=alice.headers()).json
    try:
        alice.write(made["id"], "/tmp/w/index.html", "alice's")
        alice.run(made["id"], "cd /tmp/w && python3 -m http.server 8080", background=True)
        token = made["traffic_token"]
        wait_until(lambda: knock(server.port, f"8080-{made['id']}.localhost", "/",
                                 E2B_Traffic_Access_Token=token).body == b"alice's",
                   "no port", 30 * SLOWER, 0.1)
        for name in (made["id"], made["uuid"]):
            for reply in ways(server, name, 8080, "/", Authorization=f"Bearer {bob.token}"):
                assert reply.status in (400, 401, 403, 404), reply
                assert b"alice's" not in reply.body
        # by agent-sandbox's headers the login of the owner, or of an admin, is enough
        for user in (alice, users["chief"]):
            reply = knock(server.port, None, "/", X_Sandbox_ID=made["id"], X_Sandbox_Port="8080",
                          Authorization=f"Bearer {user.token}")
            assert reply.status == 200 and reply.body == b"alice's", reply
    finally:
        alice.delete(made["id"])


def sign(path, operation, user, token, expires):
    """A signed URL's parameters, as the SDKs make them."""
    text = f"{path}:{operation}:{user}:{token}:{expires}"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return urllib.parse.urlencode({"path": path, "username": user, "signature": f"v1_{digest}",
                                   "signature_expiration": expires})


def test_a_signed_url_needs_the_token_of_that_sandbox(users, hers, server):
    alice, bob = users["alice"], users["bob"]
    token = server.call("GET", f"/v1/sandboxes/{hers['sandbox_id']}", key=None,
                        headers=alice.headers()).json["token"]
    his = server.call("POST", "/v1/sandboxes", {}, key=None, headers=bob.headers()).json
    until = int(time.time()) + 600
    box = hers["provider_sandbox_id"]
    try:
        def fetch(secret):
            query = sign("/home/user/secret.txt", "read", "user", secret, until)
            return list(ways(server, box, ENVD, f"/files?{query}"))

        assert any(reply.status == 200 and reply.body == b"alice's" for reply in fetch(token))
        for secret in (his["token"], bob.token, "", token[:-1]):
            for reply in fetch(secret):
                assert reply.status in (401, 404) and b"alice's" not in reply.body, reply
    finally:
        bob.delete(his["id"])


def test_keys_and_logins_name_the_same_user(users, hers, server):
    key = server.ok("POST", "/v1/keys?user=alice", {}, status=201)["key"]
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
        reply = server.call("GET", f"{BASE}/{hers['sandbox_id']}/status", key=None, headers=headers)
        assert reply.status == 200, reply
    other = server.ok("POST", "/v1/keys?user=bob", {}, status=201)["key"]
    reply = server.call("GET", f"{BASE}/{hers['sandbox_id']}/status", key=other)
    assert reply.status == 404 and json.loads(reply.body)["data"] is None
