"""The sixteen endpoints of the control-plane contract: their answers, their errors, files and commands of
every kind, the life of a sandbox, its ports."""

import base64
import concurrent.futures
import datetime
import http.client
import os
import pathlib
import time
import urllib.parse
import uuid

import pytest

from helpers.contract import BASE, Contract, add_user, endpoints, sign_in
from helpers.guest import SLOWER
from helpers.proc import wait_until
from helpers.serve import Serve

NOBODYS = str(uuid.UUID(int=0))
CONTRACT_IDS = {
    "create_sandbox", "connect_sandbox", "get_sandbox_status", "get_sandbox_info", "get_sandbox_urls",
    "run_cmd", "write_file", "read_file", "expose_port", "schedule_timeout", "pause_sandbox",
    "delete_sandbox", "upload_file", "upload_file_from_url", "download_to_presigned_url",
    "create_directory"}


@pytest.fixture(scope="module")
def user(server):
    add_user(server, "contractor", multi_login=True)
    return Contract(server, "contractor")


@pytest.fixture(scope="module")
def box(user):
    made = user.create()["sandbox_id"]
    yield made
    user.call("DELETE", made)


def when(text):
    assert text.endswith("Z")
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


# ---- creating and looking

def test_a_new_sandbox_is_described_in_full(user, server):
    made = user.create(user_id="demo")
    try:
        short, port = made["provider_sandbox_id"], server.port
        assert made == {
            "success": True, "sandbox_id": str(uuid.UUID(made["sandbox_id"])), "status": "running",
            "provider_sandbox_id": short, "message": "Sandbox created successfully",
            "mcp_url": f"http://6060-{short}.localhost:{port}",
            "vscode_url": f"http://9000-{short}.localhost:{port}"}
        info = user.info(made["sandbox_id"])
        assert set(info) == {"success", "id", "provider", "user_id", "provider_sandbox_id", "status",
                             "created_at", "started_at", "stopped_at", "last_activity_at", "message"}
        assert info["user_id"] == "demo" and info["id"] == made["sandbox_id"]
        assert info["provider"] == "local" and info["stopped_at"] is None
        now = datetime.datetime.now(datetime.timezone.utc)
        for name in ("created_at", "started_at", "last_activity_at"):
            assert abs((now - when(info[name])).total_seconds()) < 60 * SLOWER
        # every route takes either name
        for name in (made["sandbox_id"], short):
            assert user.ok("GET", f"{name}/status") == {
                "success": True, "sandbox_id": made["sandbox_id"], "status": "running",
                "provider_sandbox_id": short, "message": None}
        assert user.ok("GET", f"{short}/urls") == {
            "success": True, "sandbox_id": made["sandbox_id"], "mcp_url": made["mcp_url"],
            "vscode_url": made["vscode_url"]}
        # the other facades know it as what it is
        native = server.ok("GET", f"/v1/sandboxes/{short}")
        assert native["idle"] == 7200 and native["timeout"] == 0 and native["on_expiry"] == "pause"
        assert native["owner"] == "contractor" and native["label"] == "demo"
    finally:
        assert user.delete(made["sandbox_id"])["success"] is True
    user.refused(404, "GET", f"{made['sandbox_id']}/status",
                 words=f"Sandbox {made['sandbox_id']} not found")


def test_an_unknown_sandbox_is_404_by_its_name_everywhere(user):
    bodies = {"connect": {}, "run-cmd": {"command": "true"}, "expose-port": {"port": 80},
              "write-file": {"file_path": "/tmp/x", "content": ""}, "read-file": {"file_path": "/tmp/x"},
              "schedule-timeout": {"timeout_seconds": 60},
              "upload-file-from-url": {"file_path": "/tmp/x", "url": "https://example.com/"},
              "download-to-presigned-url": {"sandbox_path": "/x", "presigned_url": "https://example.com/"}}
    for name in (NOBODYS, "i" + "0" * 20, "nonsense"):
        sentence = f"Sandbox {name} not found"
        for path, body in bodies.items():
            user.refused(404, "POST", path, {"sandbox_id": name} | body, sentence)
        for path in ("status", "info", "urls"):
            user.refused(404, "GET", f"{name}/{path}", words=sentence)
        user.refused(404, "POST", f"{name}/pause", words=sentence)
        user.refused(404, "DELETE", name, words=sentence)
        user.refused(404, "POST", f"create-directory?sandbox_id={name}&directory_path=/tmp/x",
                     words=sentence)
        assert user.upload([("sandbox_id", name.encode()), ("file_path", b"/tmp/x"),
                            ("file", b"")]).json["msg"] == sentence


def test_bad_requests_are_422_and_name_the_field(user, box):
    for path, body, words in (
            ("create", {}, "'user_id' is missing"), ("create", {"user_id": 7}, "'user_id' must be"),
            ("create", {"user_id": None}, "'user_id' is missing"), ("create", [], "object"),
            ("create", b"{", "JSON"), ("create", b"", "'user_id'"),
            ("create", {"user_id": "x", "sandbox_template_id": "../etc"}, "template"),
            ("run-cmd", {"sandbox_id": box}, "'command' is missing"),
            ("run-cmd", {"sandbox_id": box, "command": "a", "background": "yes"}, "'background'"),
            ("expose-port", {"sandbox_id": box, "port": 0}, "'port' is 0"),
            ("expose-port", {"sandbox_id": box, "port": 65536}, "'port'"),
            ("schedule-timeout", {"sandbox_id": box, "timeout_seconds": 0}, "'timeout_seconds'"),
            ("schedule-timeout", {"sandbox_id": box, "timeout_seconds": 86401}, "'timeout_seconds'"),
            ("write-file", {"sandbox_id": box, "file_path": "/tmp/x"}, "'content' is missing"),
            ("read-file", {"sandbox_id": box, "file_path": ""}, "'file_path'"),
            ("create-directory", None, "'sandbox_id' is missing")):
        reply = user.refused(422, "POST", path, body, words)
        assert reply.json["msg"].startswith("请求参数非法: ")


def test_an_unknown_template_is_404(user):
    user.refused(404, "POST", "create", {"user_id": "x", "sandbox_template_id": "no-such"}, "no-such")


def test_request_ids_are_echoed_made_or_refused(user, box):
    mine = str(uuid.uuid4())
    reply = user.call("GET", f"{box}/status", headers={"X-Request-ID": mine})
    assert reply.headers["x-request-id"] == mine
    reply = user.refused(404, "GET", f"{NOBODYS}/status", headers={"X-Request-ID": mine})
    assert reply.json["trace_id"] == reply.headers["x-request-id"] == mine
    uuid.UUID(user.call("GET", f"{box}/status").headers["x-request-id"])
    for bad in ("1", "not-a-uuid", mine + "0", mine[:-1] + "g", ""):
        reply = user.server.call("GET", f"{BASE}/{box}/status", key=None,
                                 headers=user.headers() | {"X-Request-ID": bad})
        assert reply.status == 400
        assert reply.json == {"code": 400, "msg": "BAD_REQUEST", "data": None}


def test_a_wrong_method_says_which_are_right(user, box):
    assert user.refused(405, "GET", "create").headers["allow"]
    assert user.refused(405, "PUT", f"{box}/status").headers["allow"] == "GET"


# ---- commands

@pytest.mark.core
def test_a_command_that_works(user, box):
    ran = user.run(box, "echo 'Hello' && pwd && whoami")
    assert ran["success"] is True and ran["message"] == "Command executed successfully"
    assert ran["output"] == ran["stdout"] == "Hello\n/home/user\nuser\n"
    assert ran["stderr"] == "" and ran["exit_code"] == 0 and ran["truncated"] is False


def test_a_command_that_fails_is_an_answer_with_all_it_said(user, box):
    ran = user.run(box, "echo out; echo err >&2; exit 3")
    assert ran["success"] is False and ran["exit_code"] == 3
    assert (ran["stdout"], ran["stderr"]) == ("out\n", "err\n")
    assert sorted(ran["output"].split()) == ["err", "out"] and "exit code 3" in ran["message"]
    ran = user.run(box, "kill -9 $$")
    assert ran["success"] is False and ran["exit_code"] == 137
    assert user.run(box, "no-such-program-here")["exit_code"] == 127
    assert user.run(box, "")["success"] is True


def test_a_command_in_the_background_can_be_seen_and_ended(user, box):
    began = time.monotonic()
    ran = user.run(box, "echo began; sleep 1000", background=True)
    assert time.monotonic() - began < 100 and ran["success"] is True and ran["output"] == ""
    path = f"/v1/sandboxes/{box}/processes"

    def listed():
        reply = user.server.call("GET", path, key=None, headers=user.headers())
        assert reply.status == 200
        return {row["pid"]: row for row in reply.json["processes"]}

    assert listed()[ran["pid"]]["args"][-1] == "echo began; sleep 1000"
    assert user.server.call("DELETE", f"{path}/{ran['pid']}", key=None,
                            headers=user.headers()).status == 204
    wait_until(lambda: ran["pid"] not in listed(), "it goes on", 20 * SLOWER, 0.1)
    for bad in ("999999", "x", "0"):
        assert user.server.call("DELETE", f"{path}/{bad}", key=None,
                                headers=user.headers()).status == 404


def test_output_beyond_the_bound_is_left_out_and_said(user, box):
    ran = user.run(box, "head -c 20000000 /dev/zero | tr '\\0' x; echo >&2 end")
    assert ran["success"] is True and ran["truncated"] is True
    assert len(ran["stdout"]) == 8 << 20 and ran["stderr"] == "end\n"


def test_output_that_is_not_text_does_no_harm(user, box):
    ran = user.run(box, "printf '\\377\\000ok'")
    assert ran["stdout"].endswith("\0ok") and ran["success"] is True


def test_many_commands_at_once(user, box):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        ran = list(pool.map(lambda n: user.run(box, f"echo {n}")["output"], range(48)))
    assert ran == [f"{n}\n" for n in range(48)]


# ---- files

@pytest.mark.core
def test_text_comes_back_as_it_was(user, box):
    for number, text in enumerate(("", "line\n", "päivää 你好 🐚\n", "a\0b\r\n", "x" * 3_000_000)):
        path = f"/tmp/text/{number}"
        wrote = user.write(box, path, text)
        assert wrote == {"success": True, "content": None,
                         "message": f"File written successfully to {path}"}
        assert user.read(box, path) == {"success": True, "content": text, "message": None,
                                        "encoding": "utf-8"}
    assert user.run(box, "stat -c %s /tmp/text/0")["output"] == "0\n"


def test_bytes_come_back_as_they_were(user, box):
    raw = os.urandom(1 << 20) + b"\xff"
    user.write(box, "bytes", base64.b64encode(raw).decode(), encoding="base64")
    back = user.read(box, "/home/user/bytes")
    assert back["encoding"] == "base64" and base64.b64decode(back["content"]) == raw
    user.refused(422, "POST", "write-file", {"sandbox_id": box, "file_path": "b", "content": "!",
                                             "encoding": "base64"}, "base64")


def test_an_uploaded_form_in_either_order(user, box):
    raw = os.urandom(3 << 20)
    names = [("sandbox_id", box.encode()), ("file_path", b"/tmp/form/up")]
    for fields in (names + [("file", raw)], [("file", raw[::-1])] + names):
        reply = user.upload(fields + [("other", b"is passed over")])
        assert reply.status == 200 and reply.json["data"]["success"] is True, reply
        back = user.read(box, "/tmp/form/up")
        assert base64.b64decode(back["content"]) == dict(fields)["file"]
    assert user.upload(names + [("file", b"")]).status == 200
    assert user.read(box, "/tmp/form/up")["content"] == ""
    for fields, words in ((names, "'file' is missing"), (names[1:] + [("file", b"")], "'sandbox_id'"),
                          (names[:1] + [("file", b"")], "'file_path'"),
                          (names + [("file", b""), ("file", b"")], "twice")):
        reply = user.upload(fields)
        assert reply.status == 422 and words in reply.json["msg"], reply
    user.refused(422, "POST", "upload-file", {"sandbox_id": box}, "multipart")


def test_what_cannot_be_read_or_written_says_why(user, box):
    user.refused(404, "POST", "read-file", {"sandbox_id": box, "file_path": "/tmp/none"}, "/tmp/none")
    user.refused(422, "POST", "read-file", {"sandbox_id": box, "file_path": "/tmp"}, "directory")
    user.refused(422, "POST", "write-file", {"sandbox_id": box, "file_path": "/tmp", "content": ""},
                 "directory")
    for path in ("/proc/x", "/tmp/none/../../proc/x/y"):
        reply = user.call("POST", "write-file", {"sandbox_id": box, "file_path": path, "content": ""})
        assert reply.status in (403, 404, 422), reply
    user.run(box, "truncate -s 40M /tmp/large")
    user.refused(413, "POST", "read-file", {"sandbox_id": box, "file_path": "/tmp/large"}, "larger")


def test_directories(user, box):
    def make(path, **more):
        query = urllib.parse.urlencode({"sandbox_id": box, "directory_path": path} | more)
        return user.call("POST", f"create-directory?{query}")

    assert make("/tmp/one/two/three ä").status == 200
    assert user.run(box, "test -d '/tmp/one/two/three ä'")["success"] is True
    assert make("/tmp/one").status == 422 and "exists" in make("/tmp/one").json["msg"]
    assert make("/tmp/one", exist_ok="true").status == 200
    user.write(box, "/tmp/file", "")
    assert make("/tmp/file", exist_ok="true").status == 422


# ---- ports

def by_host(server, url, path="/"):
    """As a client with wildcard names would: the address is the server's, the name the sandbox's."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30 * SLOWER)
    try:
        connection.request("GET", path, headers={"Host": urllib.parse.urlsplit(url).netloc})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_an_exposed_port_is_reached_by_its_url(user, box, server):
    exposed = user.ok("POST", "expose-port", {"sandbox_id": box, "port": 8080})
    assert exposed["success"] is True and "8080" in exposed["message"]
    status, said = by_host(server, exposed["url"])
    assert status == 502                # as the router says of a port that nobody listens on
    user.write(box, "/tmp/www/index.html", "from inside")
    user.run(box, "cd /tmp/www && python3 -m http.server 8080", background=True)
    wait_until(lambda: by_host(server, exposed["url"]) == (200, b"from inside"),
               "the port stays closed", 30 * SLOWER, 0.1)
    urls = user.ok("GET", f"{box}/urls")
    for name in ("mcp_url", "vscode_url"):
        assert by_host(server, urls[name])[0] == 502


# ---- life

@pytest.mark.core
def test_a_paused_sandbox_is_resumed_by_any_operation(user):
    made = user.create()["sandbox_id"]
    try:
        user.run(made, "echo 1 > /tmp/kept; (while :; do sleep 0.1; done) &")
        for operate in (lambda: user.run(made, "cat /tmp/kept"),
                        lambda: user.write(made, "/tmp/a", "b"),
                        lambda: user.read(made, "/tmp/kept"),
                        lambda: user.ok("POST", "expose-port", {"sandbox_id": made, "port": 80}),
                        lambda: user.ok("POST", "connect", {"sandbox_id": made})):
            paused = user.ok("POST", f"{made}/pause?reason=a%20test")
            assert paused["success"] is True and "a test" in paused["message"]
            assert user.ok("POST", f"{made}/pause")["success"] is True      # once more is no error
            info = user.info(made)      # looking does not wake it
            assert info["status"] == "paused" == user.status(made)
            assert when(info["stopped_at"]) >= when(info["created_at"])
            user.ok("GET", f"{made}/urls")
            for method, more in (("GET", ""), ("DELETE", "/2")):
                assert user.server.call(method, f"/v1/sandboxes/{made}/processes{more}", key=None,
                                        headers=user.headers()).status == 409
            assert user.status(made) == "paused"
            operate()
            info = user.info(made)
            assert info["status"] == "running" and info["stopped_at"] is None
            assert when(info["started_at"]) > when(info["created_at"])
    finally:
        user.delete(made)


def test_a_command_that_a_pause_overtakes_is_told_so(user):
    made = user.create()["sandbox_id"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ran = pool.submit(user.call, "POST", "run-cmd",
                          {"sandbox_id": made, "command": "touch /tmp/begun; sleep 600"})
        wait_until(lambda: user.run(made, "ls /tmp")["output"].count("begun"), "it has begun")
        user.ok("POST", f"{made}/pause")
        reply = ran.result(10 * SLOWER)
    assert reply.status == 500 and "was paused while" in reply.json["msg"]
    assert user.status(made) == "paused"
    user.call("DELETE", made)


def test_idleness_pauses_it_and_looking_is_no_use_of_it(user):
    made = user.create()["sandbox_id"]
    try:
        answer = user.ok("POST", "schedule-timeout", {"sandbox_id": made, "timeout_seconds": 1})
        assert answer["success"] is True
        wait_until(lambda: user.status(made) == "paused", "it goes on", 30 * SLOWER, 0.05)
        # an operation that takes longer than that is not cut off
        assert user.run(made, "sleep 3; echo through")["output"] == "through\n"
        wait_until(lambda: user.status(made) == "paused", "it goes on", 30 * SLOWER, 0.05)
        # of a paused one the time is changed, and it stays paused
        user.ok("POST", "schedule-timeout", {"sandbox_id": made, "timeout_seconds": 600})
        assert user.status(made) == "paused"
        user.run(made, "true")
        assert user.server.ok("GET", f"/v1/sandboxes/{made}")["idle"] == 600
    finally:
        user.delete(made)


def test_a_request_to_a_port_wakes_it(user, server):
    made = user.create()
    try:
        user.run(made["sandbox_id"], "cd /tmp && python3 -m http.server 6060", background=True)
        wait_until(lambda: by_host(server, made["mcp_url"])[0] == 200, "no port", 30 * SLOWER, 0.1)
        user.ok("POST", f"{made['sandbox_id']}/pause")
        assert by_host(server, made["mcp_url"])[0] == 200
        assert user.status(made["sandbox_id"]) == "running"
    finally:
        user.delete(made["sandbox_id"])


def test_one_that_is_deleted_meanwhile_is_404(user):
    made = user.create()["sandbox_id"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(user.call, "POST", "run-cmd", {"sandbox_id": made, "command": "sleep 100"})
        wait_until(lambda: user.server.call("GET", f"/v1/sandboxes/{made}/processes", key=None,
                                            headers=user.headers()).json["processes"], "not begun",
                   20 * SLOWER, 0.05)
        user.delete(made)
        reply = running.result(60 * SLOWER)
    assert reply.status == 404 and reply.json["msg"] == f"Sandbox {made} not found"


# ---- with settings of its own

@pytest.fixture(scope="module")
def narrow(workspace):
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    started = Serve(pathlib.Path(workspace) / "contract-narrow", "--ephemeral", "--urls", "path",
                    "--mcp-port", "7070", "--preview-listen", "127.0.0.1:0",
                    "--set", "contract.command-s=10", "--set", "contract.idle-s=5",
                    "--set", "http.body-ms=3000",
                    env={"SANDBOX_CODE_SERVER_PORT": "9900"})
    yield started
    started.close()


def test_urls_by_path_lead_through_the_preview_listener(narrow):
    user = Contract(narrow, add_user(narrow, "narrow"))
    made = user.create()
    preview, = (line.removeprefix("cove: previews on ") for line in narrow.said if "previews on" in line)
    short = made["provider_sandbox_id"]
    assert made["mcp_url"] == f"{preview}/{short}/7070"
    assert made["vscode_url"] == f"{preview}/{short}/9900"
    user.run(made["sandbox_id"], "mkdir /tmp/w; cd /tmp/w; echo hi > mcp; python3 -m http.server 7070",
             background=True)
    address = urllib.parse.urlsplit(made["mcp_url"])

    def fetched():
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30 * SLOWER)
        try:
            connection.request("GET", address.path + "/mcp")
            return connection.getresponse().read()
        finally:
            connection.close()

    wait_until(lambda: fetched() == b"hi\n", "no preview", 30 * SLOWER, 0.1)
    user.delete(made["sandbox_id"])


def test_a_silent_command_is_waited_for(narrow):
    """The guest gives signs of life: http.body-ms is half of this command's silence."""
    user = Contract(narrow, add_user(narrow, "narrow"))
    made = user.create()["sandbox_id"]
    assert user.run(made, "sleep 6; echo done")["output"] == "done\n"
    user.delete(made)


def test_a_command_that_takes_too_long_is_408_and_ended(narrow):
    user = Contract(narrow, add_user(narrow, "narrow"))
    made = user.create()["sandbox_id"]
    user.refused(408, "POST", "run-cmd", {"sandbox_id": made, "command": "sleep 1000"},
                 "contract.command-s")
    assert narrow.ok("GET", f"/v1/sandboxes/{made}/processes")["processes"] == []
    assert user.run(made, "echo still here")["success"] is True
    wait_until(lambda: user.status(made) == "paused", "contract.idle-s", 60 * SLOWER, 0.2)
    user.delete(made)


# ---- the document

def test_the_document_has_the_names_and_tags_of_the_contract(server):
    document = server.ok("GET", "/openapi.json", key=None)
    assert document["openapi"].startswith("3.1")
    rows = {row["operationId"]: (method, path, row) for method, path, row in endpoints(document)}
    assert set(rows) == CONTRACT_IDS | {"login_swagger", "login", "refresh_token", "logout"}
    for name in CONTRACT_IDS:
        method, path, row = rows[name]
        assert path.startswith(BASE + "/")
        assert row["tags"] == ["Agent", "Agent Sandbox Management", "Sandbox"]
        data = row["responses"]["200"]["content"]["application/json"]["schema"]
        assert data["required"] == ["code", "msg", "data"]
    form = rows["upload_file"][2]["requestBody"]["content"]
    assert list(form) == ["multipart/form-data"]
    # what is Cove's own is in the other document, and only there
    native = {row["operationId"] for _, _, row in endpoints(server.document())}
    assert not native & set(rows)


def test_the_page_shows_the_contract_too(server):
    page = server.call("GET", "/docs", key=None).body.decode()
    for name in CONTRACT_IDS | {"login_swagger"}:
        assert f'id="{name}"' in page
    assert "https://" not in page       # nothing from anywhere else


def test_health_is_told_as_the_contract_has_it(server):
    told = server.ok("GET", "/health", key=None)
    assert told["status"] == "healthy" and told["version"] and told["service"]
    when(told["timestamp"])


def test_a_login_is_good_for_every_facade(server, user):
    for path in ("/v1/me", "/v1/sandboxes", "/sandboxes"):
        assert server.call("GET", path, key=None, headers=user.headers()).status == 200
    assert sign_in(server, "contractor").status == 200
