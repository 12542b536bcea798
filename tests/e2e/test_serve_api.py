"""The control API of `cove serve`, as HTTP: statuses, bodies, headers; bad input on every route,
generated from the document that the server makes of its own tables; what belongs to whom."""

import concurrent.futures
import datetime
import html.parser
import http.client
import json
import re
import time
import urllib.parse

import pytest

UNKNOWN = "i" + "0" * 20
SENTENCE = "doesn't exist or you don't have access to it"


@pytest.fixture
def box(server):
    """A sandbox of the admin's; ended after the test."""
    made = server.create(timeout=120, metadata={"of": "box"})
    yield made
    server.call("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.fixture(scope="module")
def stranger(server):
    """Another user's key."""
    return server.user("stranger")


def refused(reply, status, words=""):
    """Errors have one form: the status in the body too, and a sentence."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["code"] == status and words in reply.message, reply
    assert reply.headers["x-request-id"]


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


# ---- the server itself

def test_health_needs_no_key_and_all_answers_have_an_id(server):
    reply = server.call("GET", "/health", key=None)
    assert reply.status == 200 and reply.json["status"] == "healthy" and reply.json["version"]
    assert reply.headers["x-request-id"]
    reply = server.call("GET", "/health", key=None, headers={"X-Request-ID": "mine-1"})
    assert reply.headers["x-request-id"] == "mine-1"
    refused(server.call("GET", "/nothing", key=None), 404, "/nothing")
    refused(server.call("PUT", "/health", key=None), 405, "GET")


def test_metrics_are_prometheus_text(server, box):
    reply = server.call("GET", "/metrics", key=None)
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/plain")
    values = [line for line in reply.body.decode().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z_]+(\{[^}]*\})? -?[0-9.e+]+|[a-z_]+(\{[^}]*\})? \+?Inf', line)
               for line in values), values
    assert any(line.startswith("cove_build_info{version=") for line in values)
    # behind a proxy the peer says nothing: then a key is needed, an admin's
    far = {"X-Forwarded-For": "192.0.2.1"}
    refused(server.call("GET", "/metrics", key=None, headers=far), 401)
    assert server.call("GET", "/metrics", headers=far).status == 200


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.outside = set(), []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        if "src" in attributes or (tag == "link" and "href" in attributes):
            self.outside.append(attributes)


def test_the_page_shows_every_call_and_needs_nothing_else(server):
    reply = server.call("GET", "/docs", key=None)
    policy = reply.headers["content-security-policy"]
    assert reply.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    page = Page()
    page.feed(reply.body.decode())
    operations = {row["operationId"] for item in server.document()["paths"].values()
                  for row in item.values()}
    assert operations <= page.ids and page.outside == []


# ---- who asks

def test_without_a_key_every_route_but_the_open_ones_answers_401(server):
    for path, item in server.document()["paths"].items():
        for method, row in item.items():
            target = re.sub(r"\{\w+\}", UNKNOWN, path)
            for key in (None, "e2b_" + "0" * 40, "x", "ä", "a" * 4000):
                if row.get("security") == []:
                    continue
                sent = key and key.encode().decode("latin-1")
                reply = server.call(method.upper(), target, key=sent)
                refused(reply, 401)
                assert "retry-after" not in reply.headers


def test_a_bearer_token_is_as_good(server):
    headers = {"Authorization": f"Bearer {server.key}"}
    reply = server.call("GET", "/v1/me", key=None, headers=headers)
    assert reply.json == {"user": "admin", "admin": True}


def test_users_do_not_see_what_is_anothers(server, box, stranger):
    document = server.document()["paths"]
    tried = 0
    for path, item in document.items():
        for method, row in item.items():
            first = re.search(r"\{(\w+)\}", path)
            if not first or first[1] not in ("id", "sandboxID") or path.startswith(("/v1/keys", "/v1/orphans")):
                continue
            target = re.sub(r"\{\w+\}", box["id"], path, count=1)
            target += "?port=80" if path.endswith("/tunnel") else ""
            body = {"timeout": 5} if path.endswith(("/timeout", "/connect")) else None
            body = {"pids": 50} if path.endswith("/limits") else body
            refused(server.call(method.upper(), target, body, key=stranger), 404, SENTENCE)
            tried += 1
    assert tried > 20
    assert server.ok("GET", f"/v1/sandboxes/{box['id']}")["state"] == "running"
    for path in ("/v2/sandboxes", "/sandboxes"):
        assert server.ok("GET", path, key=stranger) == []
    assert server.ok("GET", "/v1/sandboxes", key=stranger)["sandboxes"] == []
    refused(server.call("GET", "/v1/sandboxes?all=true", key=stranger), 403)
    refused(server.call("DELETE", "/v1/sandboxes?all=true", key=stranger), 403)
    refused(server.call("GET", "/v1/users", key=stranger), 403, "stranger")
    refused(server.call("GET", "/v1/keys?user=admin", key=stranger), 403)


def test_an_admin_sees_and_ends_everybodys(server, stranger):
    made = server.create(key=stranger)
    assert server.ok("GET", f"/v1/sandboxes/{made['uuid']}")["owner"] == "stranger"
    everybodys = server.ok("GET", "/v1/sandboxes?all=true")["sandboxes"]
    assert made["id"] in [one["id"] for one in everybodys]
    assert made["id"] not in [one["sandboxID"] for one in server.ok("GET", "/v2/sandboxes")]
    assert server.call("DELETE", f"/sandboxes/{made['id']}").status == 204
    refused(server.call("GET", f"/sandboxes/{made['id']}", key=stranger), 404)


def test_users_keys_and_locks(server):
    key = server.user("ann")
    assert server.ok("GET", "/v1/me", key=key) == {"user": "ann", "admin": False}
    shown = server.ok("GET", "/v1/keys", key=key)["keys"]
    assert all(key.startswith(one["begins"]) and key != one["begins"] for one in shown[-1:])
    assert server.ok("PATCH", "/v1/users/ann", {"locked": True})["locked"]
    assert server.call("GET", "/v1/me", key=key).status in (401, 403)
    server.ok("PATCH", "/v1/users/ann", {"locked": False, "password": "long enough"})
    assert server.ok("GET", "/v1/users/ann")["has_password"]
    second = server.ok("POST", "/v1/keys", {"name": "second"}, status=201, key=key)
    assert server.call("DELETE", f"/v1/keys/{second['id']}", key=key).status == 204
    refused(server.call("GET", "/v1/me", key=second["key"]), 401)
    refused(server.call("PATCH", "/v1/users/admin", {"locked": True}), 409)
    refused(server.call("POST", "/v1/users", {"name": "ann"}), 409, "ann")
    refused(server.call("GET", "/v1/users/nobody"), 404)


# ---- E2B

E2B_DETAIL = {"templateID", "sandboxID", "clientID", "startedAt", "endAt", "envdVersion",
              "cpuCount", "memoryMB", "diskSizeMB", "state"}


@pytest.mark.parametrize("path", ["/v2/sandboxes", "/sandboxes"])
def test_create_info_and_end_in_both_generations(server, path):
    made = server.ok("POST", path, {"templateID": "base", "timeout": 60, "metadata": {"a": "b"},
                                    "envVars": {"X": "1"}, "something": {"of": ["the future"]}},
                     status=201)
    assert {"templateID", "sandboxID", "clientID", "envdVersion", "domain"} <= made.keys()
    assert re.fullmatch(r"i[a-z0-9]{20}", made["sandboxID"])
    assert ("envdAccessToken" in made) == (path == "/v2/sandboxes")
    one = f"/sandboxes/{made['sandboxID']}"

    def length():
        info = server.ok("GET", one)
        return (when(info["endAt"]) - when(info["startedAt"])).total_seconds()

    info = server.ok("GET", one)
    assert E2B_DETAIL <= info.keys()
    assert info["state"] == "running" and info["metadata"] == {"a": "b"}
    assert info["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
    assert 55 <= length() <= 65
    for generation, body in ("/v2", {}), ("", {"timeout": 600}):
        again = server.ok("POST", f"{generation}{one}/connect", body)
        assert again["sandboxID"] == made["sandboxID"]
        assert again.get("envdAccessToken") == made.get("envdAccessToken")
    assert length() > 550
    assert server.call("POST", f"{one}/timeout", {"timeout": 30}).status == 204
    assert server.call("POST", f"{one}/refreshes", {"duration": 5}).status == 204
    assert length() < 60
    refused(server.call("POST", f"{one}/resume", {}), 409)
    reply = server.call("DELETE", one)
    assert (reply.status, reply.body) == (204, b"")
    for method, rest in ("DELETE", ""), ("GET", ""), ("POST", "/connect"), ("POST", "/timeout"):
        refused(server.call(method, one + rest, {"timeout": 1}), 404, SENTENCE)


def test_a_timeout_ends_a_sandbox_and_zero_ends_it_at_once(server):
    made = server.ok("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 1}, status=201)
    until = time.monotonic() + 10
    while server.call("GET", f"/sandboxes/{made['sandboxID']}").status == 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    ended = server.ok("GET", f"/v1/sandboxes/{made['sandboxID']}")
    assert ended["state"] == "ended" and ended["reason"] and "token" not in ended
    made = server.create()
    assert server.call("POST", f"/sandboxes/{made['id']}/timeout", {"timeout": 0}).status == 204
    until = time.monotonic() + 10
    while server.call("GET", f"/sandboxes/{made['id']}").status == 200:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_lists_page_filter_and_sort(server):
    key = server.user("lister")
    bodies = [{"templateID": "base", "metadata": {"odd": str(i % 2), "odd name=&": "ä %+"}}
              for i in range(5)]
    ids = [server.ok("POST", "/v2/sandboxes", body, status=201, key=key)["sandboxID"]
           for body in bodies]
    try:
        seen, token = [], ""
        while True:
            reply = server.call("GET", f"/v2/sandboxes?limit=2&nextToken={token}", key=key)
            seen += [one["sandboxID"] for one in reply.json]
            token = reply.headers.get("x-next-token", "")
            if not token:
                break
            assert len(reply.json) == 2
        ascending = server.ok("GET", "/v2/sandboxes?order=asc&state=running,paused", key=key)
        starts = [when(one["startedAt"]) for one in ascending]
        assert starts == sorted(starts) and sorted(seen) == sorted(ids)
        assert [one["sandboxID"] for one in ascending] == seen[::-1]
        assert all(E2B_DETAIL <= one.keys() for one in ascending)

        def wanted(pairs):
            quoted = {urllib.parse.quote(k): urllib.parse.quote(v) for k, v in pairs.items()}
            query = urllib.parse.urlencode({"metadata": urllib.parse.urlencode(quoted)})
            return [one["sandboxID"] for one in server.ok("GET", f"/v2/sandboxes?{query}", key=key)]

        assert set(wanted({"odd": "1"})) == {ids[3], ids[1]}
        assert set(wanted({"odd": "0", "odd name=&": "ä %+"})) == {ids[4], ids[2], ids[0]}
        assert wanted({"odd": "2"}) == wanted({"even": "1"}) == []
        query = urllib.parse.urlencode({"startedAfter": starts[2].isoformat()})
        late = server.ok("GET", f"/v2/sandboxes?{query}", key=key)
        assert len(late) <= 3 and all(when(one["startedAt"]) >= starts[2] for one in late)
        assert server.ok("GET", "/v2/sandboxes?template=other", key=key) == []
        assert len(server.ok("GET", "/v2/sandboxes?template=base", key=key)) == 5
    finally:
        assert server.ok("DELETE", "/v1/sandboxes", key=key) == {"ended": 5}
    assert len(server.ok("GET", "/v1/sandboxes?ended=true", key=key)["sandboxes"]) == 5


def test_the_same_key_and_request_make_one_sandbox(server):
    def create(key, **body):
        return server.call("POST", "/v2/sandboxes", {"templateID": "base"} | body,
                           headers={"Idempotency-Key": key})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: create("same-one", timeout=77), range(8)))
    made = {reply.json["sandboxID"] for reply in replies if reply.status == 201}
    # whoever comes while the first one is still at it may be told to wait
    assert len(made) == 1 and {reply.status for reply in replies} <= {201, 409}, replies
    again = create("same-one", timeout=77)
    assert (again.status, {again.json["sandboxID"]}) == (201, made)
    refused(create("same-one", timeout=78), 409)
    for bad in ("UPPER", "a_b", "x" * 256, "a b"):
        refused(create(bad), 400, "Idempotency-Key")
    for id in made:
        assert server.call("DELETE", f"/sandboxes/{id}").status == 204


@pytest.mark.parametrize("fields, status, words", [
    ({"templateID": "no-such-template"}, 404, "no-such-template"),
    ({"templateID": "../../etc"}, 400, "template"),
    ({"timeout": 0}, 400, "timeout"),
    ({"timeout": 10 ** 9}, 400, "timeout"),
    ({"timeout": "60"}, 400, "timeout"),
    ({"metadata": {"a": 1}}, 400, "metadata.a"),
    ({"metadata": {"a": "x" * (1 << 18)}}, 400, "metadata"),
    ({"envVars": {"A=B": "x"}}, 400, "A=B"),
    ({"iam": {"tokens": {"a": {"audience": "b"}}}}, 501, "iam"),
    ({"volumeMounts": [{"name": "a", "path": "/b"}]}, 501, "volumeMounts"),
    ({"network": {"denyOut": ["10.0.0.0/8"]}}, 400, "network.denyOut"),
    ({"network": {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}}, 400, "network.allowOut"),
    ({"network": {"egressProxy": {"address": "a:1"}}}, 400, "network.egressProxy"),
    ({"network": {"dnsServers": ["1.1.1.1"]}}, 400, "network.dnsServers"),
])
def test_what_create_cannot_do_it_refuses_by_name(server, fields, status, words):
    reply = server.call("POST", "/v2/sandboxes", {"templateID": "base"} | fields)
    refused(reply, status, words)
    if status == 501:
        assert reply.headers["should-retry"] == "false"


def test_what_sdks_send_without_meaning_it_is_taken(server):
    made = server.ok("POST", "/v2/sandboxes", {
        "templateID": "base", "autoPause": False, "autoResume": {"enabled": False},
        "mcp": {"a": {}}, "iam": None, "volumeMounts": [], "timeout": None, "metadata": None,
        "network": {"allowOut": [], "denyOut": ["0.0.0.0/0"], "egressProxy": None, "rules": {},
                    "allowPublicTraffic": False}}, status=201)
    info = server.ok("GET", f"/sandboxes/{made['sandboxID']}")
    assert made["trafficAccessToken"] and info["allowInternetAccess"] is False
    assert info["network"] == {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False}
    url = f"/sandboxes/{made['sandboxID']}/network"
    assert server.call("PUT", url, {"allow_internet_access": False}).status == 204
    refused(server.call("PUT", url, {}), 501, "network")
    server.call("DELETE", f"/sandboxes/{made['sandboxID']}")


def test_a_chunked_body_without_a_length_is_read(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    pieces = [b'{"templateID":', b'"ba', b'se"}']
    connection.request("POST", "/v2/sandboxes", iter(pieces), {"X-API-Key": server.key},
                       encode_chunked=True)
    answer = connection.getresponse()
    made = json.loads(answer.read())
    connection.close()
    assert answer.status == 201
    server.call("DELETE", f"/sandboxes/{made['sandboxID']}")


def test_calls_that_follow_later_say_so(server, box):
    later = [(method.upper(), path) for path, item in server.document()["paths"].items()
             for method, row in item.items() if list(row["responses"]) == ["default"]]
    assert len(later) > 15
    for method, path in later:
        reply = server.call(method, re.sub(r"\{\w+\}", box["id"], path), {})
        refused(reply, 501)
        assert reply.headers["should-retry"] == "false"
    for path in ("/snapshots", "/volumes", "/secrets"):
        assert server.ok("GET", path) == []
    names = {one["templateID"] for one in server.ok("GET", "/templates")}
    assert names == {one["name"] for one in server.ok("GET", "/v1/templates")["templates"]} != set()


def test_metrics_and_logs_of_a_sandbox(server, box):
    metrics = server.ok("GET", f"/sandboxes/{box['id']}/metrics")
    assert {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal",
            "memCache", "diskUsed", "diskTotal"} == metrics[-1].keys()
    assert 0 < metrics[-1]["memUsed"] < metrics[-1]["memTotal"]
    both = server.ok("GET", f"/sandboxes/metrics?sandbox_ids={box['id']},{UNKNOWN}")
    assert list(both["sandboxes"]) == [box["id"]]
    assert server.ok("GET", f"/sandboxes/{box['id']}/metrics?start=1&end=2") == []
    logs = server.ok("GET", f"/v2/sandboxes/{box['id']}/logs")["logs"]
    assert logs and all({"timestamp", "message", "level", "fields"} == one.keys() for one in logs)
    back = server.ok("GET", f"/v2/sandboxes/{box['id']}/logs?direction=backward")["logs"]
    assert back == logs[::-1]
    assert server.ok("GET", f"/v2/sandboxes/{box['id']}/logs?search=no-such-words")["logs"] == []
    first = server.ok("GET", f"/sandboxes/{box['id']}/logs?limit=1")
    assert len(first["logs"]) == len(first["logEntries"]) == 1 and first["logs"][0]["line"]
    refused(server.call("GET", f"/v2/sandboxes/{box['id']}/logs?level=loud"), 400, "level")


# ---- native

def test_a_sandbox_with_everything(server, folder):
    made = server.create(
        timeout=0, idle=300, metadata={"a": "b"}, env={"A": "1"}, network="none", public=False,
        label="mine", strict=True, limits={"memory_bytes": 64 << 20, "pids": 40},
        forwards=[{"host_port": 0, "port": 8080}])
    try:
        assert made["limits"]["memory_bytes"] == 64 << 20 and made["limits"]["pids"] == 40
        assert "ends" not in made and made["traffic_token"] and made["token"] and made["strict"]
        assert (made["timeout"], made["idle"], made["owner"]) == (0, 300, "admin")
        assert server.ok("GET", f"/v1/sandboxes/{made['uuid']}") == made
        changed = server.ok("PATCH", f"/v1/sandboxes/{made['id']}/limits", {"pids": 80})
        assert changed["limits"]["pids"] == 80 and changed["limits"]["memory_bytes"] == 64 << 20
        stat = server.ok("GET", f"/v1/sandboxes/{made['id']}/stat")
        assert stat["limits"]["pids"] == 80 and stat["pids"] >= 1 and stat["memory_bytes"] > 0
        timed = server.ok("POST", f"/v1/sandboxes/{made['id']}/timeout", {"timeout": 100})
        assert timed["timeout"] == 100 and timed["ends"]
        kept = server.ok("POST", f"/v1/sandboxes/{made['id']}/timeout",
                         {"timeout": 5, "extend": True})
        assert kept["ends"] == timed["ends"]
        assert server.ok("GET", f"/v1/sandboxes/{made['id']}/metrics")["samples"]
    finally:
        server.call("DELETE", f"/v1/sandboxes/{made['id']}")
    mounts = [{"host": folder, "guest": "/x"}]
    refused(server.call("POST", "/v1/sandboxes", {"mounts": mounts}), 403, "--allow-mount")


def test_events_can_be_waited_for(server):
    made = server.create()
    events = server.ok("GET", f"/v1/sandboxes/{made['id']}/events")["events"]
    assert {"created", "started"} <= {one["kind"] for one in events}
    assert all(one["actor"] and one["text"] for one in events)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.ok, "GET", f"/v1/sandboxes/{made['id']}/events"
                              f"?after={events[-1]['seq']}&wait=20")
        time.sleep(0.3)
        assert not waiting.done()
        server.call("DELETE", f"/v1/sandboxes/{made['id']}")
        later = waiting.result(10)["events"]
    assert [one["kind"] for one in later][-1:] and later[0]["seq"] > events[-1]["seq"]
    ended = [one for one in server.ok("GET", f"/v1/sandboxes/{made['id']}/events")["events"]
             if one["kind"] == "ended"]
    assert len(ended) == 1 and ended[0]["actor"] == "admin"


# ---- bad input, from the document

WRONG = {
    "string": [1, True, [], {}],
    "integer": ["1", 1.5, True, [], {}, 10 ** 30],
    "boolean": ["true", 1, [], {}],
    "number": ["1", [], {}],
    "array": ["x", 1, {}],
    "object": ["x", 1, []],
}


def good(schema):
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: good(schema["properties"][name]) for name in schema.get("required", [])}
    return {"string": "x" * schema.get("minLength", 1), "integer": max(1, schema.get("minimum", 1)),
            "boolean": False, "array": [], None: {}}[kind]


def wrong(schema):
    values = list(WRONG.get(schema.get("type"), []))
    if "enum" in schema:
        values += ["", "no-such-name", -7]
    if schema.get("type") == "integer" and schema.get("maximum", 1 << 62) < 1 << 62:
        values += [schema["maximum"] + 1, schema.get("minimum", 0) - 1]
    if "maxLength" in schema:
        values += ["x" * (schema["maxLength"] + 1)]
    if schema.get("minLength"):
        values += [""]
    if "maxItems" in schema:
        values += [[good(schema["items"])] * (schema["maxItems"] + 1)]
    if "additionalProperties" in schema:
        values += [{"k": 1}, {"k": None}, {"k": {}}]
    return values


def fields(schema, *above):
    for name, below in schema.get("properties", {}).items():
        yield (*above, name), below
        yield from fields(below, *above, name)
        if below.get("type") == "array":
            yield from ((( *above, name, 0, *inner), one)
                        for inner, one in fields(below["items"]))


def with_value(schema, names, value):
    """A body that is good but for one field."""
    body = good(schema)
    at, below = body, schema
    for i, name in enumerate(names[:-1]):
        below = below["items"] if name == 0 else below["properties"][name]
        if name == 0:
            at = at[0]
            continue
        if names[i + 1] == 0:
            at[name] = [good(below["items"])]
        else:
            at.setdefault(name, good(below))
        at = at[name]
    at[names[-1]] = value
    return body


def operations(server):
    for path, item in server.document()["paths"].items():
        for method, row in item.items():
            yield method.upper(), path, row


def body_of(row):
    return row.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")


def test_every_field_refuses_every_wrong_value(server, box):
    tried = 0
    for method, path, row in operations(server):
        schema = body_of(row)
        if not schema:
            continue
        target = re.sub(r"\{(id|sandboxID)\}", box["id"], path).replace("{name}", "admin")
        for names, field in fields(schema):
            for value in wrong(field):
                reply = server.call(method, target, with_value(schema, names, value))
                assert reply.status == 400, (method, path, names, value, reply)
                if value != 10 ** 30:   # beyond what a JSON integer can be here
                    refused(reply, 400, str([name for name in names if name != 0][-1]))
                tried += 1
    assert tried > 200


def test_bodies_that_are_no_object_unknown_fields_and_huge_ones(server, box):
    for method, path, row in operations(server):
        schema = body_of(row)
        if not schema:
            continue
        target = re.sub(r"\{(id|sandboxID)\}", box["id"], path).replace("{name}", "admin")
        for bad in (b"{", b"[]", b"7", b'"x"', b"null", b"\xff", b'{"a":}', b"[" * 100000,
                    b'{"a":1}{"b":2}', b'{"a":1,"a":2}'):
            reply = server.call(method, target, bad)
            assert reply.status in (400, 413), (method, path, bad[:20], reply)
        reply = server.call(method, target, b"{" + b" " * (2 << 20) + b"}")
        assert reply.status == 413, (method, path, reply)
        if path.startswith("/v1/"):
            refused(server.call(method, target, good(schema) | {"no_such": 1}), 400, "no_such")
        for name in schema.get("required", []):
            body = good(schema)
            del body[name]
            refused(server.call(method, target, body), 400, name)


def test_every_query_parameter_refuses_every_wrong_value(server, box):
    for method, path, row in operations(server):
        target = re.sub(r"\{\w+\}", box["id"], path)
        given = [one for one in row.get("parameters", []) if one["in"] == "query"]
        rest = "".join(f"&{one['name']}={good(one['schema'])}"
                       for one in given if one.get("required"))
        for one in given:
            schema, name = one["schema"], one["name"]
            bad = {"integer": ["x", "1.5", "", "9" * 30], "boolean": ["maybe", "2", ""]}
            bad = bad.get(schema["type"], []) + (["no-such"] if "enum" in schema else [])
            bad += [schema["maximum"] + 1] if schema.get("maximum", 1 << 62) < 1 << 62 else []
            if schema.get("maxLength", 1 << 20) < 4096:
                bad += ["x" * (schema["maxLength"] + 1)]
            bad += ["%zz", "%ff", "%00"]
            for value in bad:
                others = rest.replace(f"&{name}={good(schema)}", "")
                reply = server.call(method, f"{target}?{name}={value}{others}", None)
                refused(reply, 400)
            reply = server.call(method, f"{target}?{name}={good(schema)}&{name}={good(schema)}")
            refused(reply, 400, name)
        if given and path.startswith("/v1/"):
            refused(server.call(method, f"{target}?no_such=1{rest}"), 400, "no_such")


def test_ids_that_cannot_be_are_404_everywhere(server):
    ids = [UNKNOWN, "x", "I" + "0" * 20, "i" + "0" * 21, "%2e%2e", "%2Fetc", "a" * 2000, "%C3%A4",
           "00000000-0000-0000-0000-000000000000", "i'%20or%201=1"]
    for method, path, row in operations(server):
        first = re.search(r"\{(\w+)\}", path)
        if not first or first[1] not in ("id", "sandboxID") or path.startswith("/v1/keys"):
            continue
        body = good(body_of(row)) if body_of(row) else None
        if path.endswith("/limits"):
            body = {"pids": 50}
        for id in ids:
            target = re.sub(r"\{\w+\}", id, path) + ("?port=80" if path.endswith("/tunnel") else "")
            reply = server.call(method, target, body)
            refused(reply, 404)


def test_the_server_is_well_after_all_that(server):
    assert server.running()
    assert server.ok("GET", "/health", key=None)["status"] == "healthy"
    assert " level=error" not in server.told()
