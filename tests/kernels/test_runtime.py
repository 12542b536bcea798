"""The runtime's half of port 8888: what clients of Kubernetes' agent-sandbox expect."""
import os
import shutil
import urllib.parse

import pytest
import requests
from k8s_agent_sandbox.commands.command_executor import CommandExecutor
from k8s_agent_sandbox.connector import SandboxConnector
from k8s_agent_sandbox.files.filesystem import Filesystem
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

pytestmark = pytest.mark.core


@pytest.fixture
def base(service):
    return service.dir / "app"


def test_it_says_that_it_is_there(service):
    assert service.call("GET", "/", 200).json() == {"status": "ok", "message": "Sandbox Runtime is active."}


def test_commands_go_through_a_shell_in_the_base_directory(service, base):
    run = service.call("POST", "/execute", 200, json={"command": "echo $((6 * 7)) | cat; pwd; echo e >&2; exit 3"}).json()
    assert run == {"stdout": f"42\n{base}\n", "stderr": "e\n", "exit_code": 3, "timed_out": False}
    run = service.call("POST", "/execute", 200, json={"command": "sleep 100", "timeout_seconds": 0.5}).json()
    assert run["timed_out"] and run["exit_code"] != 0
    service.call("POST", "/execute", 400, json={})
    binary = service.call("POST", "/execute", 200, json={"command": r"printf 'a\377b'"}).json()
    assert binary["stdout"] == "a\ufffdb"


def test_files_go_up_and_down_whole(service, base):
    content = os.urandom(3_000_000)
    assert "message" in service.call("POST", "/upload", 200, files={"file": ("sub/dir/data.bin", content)}).json()
    assert (base / "sub/dir/data.bin").read_bytes() == content
    for path in "sub/dir/data.bin", "sub%2Fdir%2Fdata.bin", "sub%252Fdir%252Fdata.bin":
        answer = service.call("GET", f"/download/{path}", 200)
        assert answer.content == content and answer.headers["Content-Type"] == "application/octet-stream"
    assert 'filename="data.bin"' in answer.headers["Content-Disposition"]
    listed = service.call("GET", "/list/sub", 200).json()
    assert [(e["name"], e["type"]) for e in listed] == [("dir", "directory")] and isinstance(listed[0]["mod_time"], float)
    assert service.call("GET", "/list/sub%2Fdir", 200).json()[0]["size"] == len(content)
    assert service.call("GET", "/exists/sub", 200).json() == {"path": "sub", "exists": True}
    assert service.call("GET", "/exists/nonesuch", 200).json()["exists"] is False
    assert service.call("GET", "/download/nonesuch", 404).json() == {"message": "File not found"}
    assert service.call("GET", "/list/nonesuch", 404).json() == {"message": "Path is not a directory"}
    service.call("GET", "/download/sub", 404)
    service.call("POST", "/upload", 422, files={"other": ("x", b"")})
    service.call("POST", "/upload", 400, data=b"x")


def test_nothing_leads_out_of_the_base_directory(service, base):
    secret = service.dir / "secret"
    secret.write_text("hidden")
    for name, target in ("link", secret), ("up", ".."), ("root", "/"):
        if not (base / name).is_symlink():
            (base / name).symlink_to(target)
    for path in "..%2Fnonesuch", "root%2Fnonesuch", "up%2Fnot%2Fthere":
        assert service.call("GET", f"/exists/{path}", 403).json() == {"message": "Access denied"}
    for path in "../secret", "..%2Fsecret", "%2e%2e%2fsecret", "link", "up%2Fsecret", "root%2Fetc%2Fpasswd", "sub%2F..%2F..%2Fsecret":
        answer = requests.Request("GET", service.url + "/download/X").prepare()
        answer.url = service.url + "/download/" + path           # as it is: requests would tidy it up
        answer = requests.Session().send(answer, timeout=60)
        assert answer.status_code in (403, 404) and "hidden" not in answer.text, path
    assert service.call("GET", "/download/link", 403).json() == {"message": "Access denied"}
    assert service.call("GET", "/list/up", 403).json() == {"message": "Access denied"}
    assert service.call("GET", "/exists/root%2Fetc", 403).json() == {"message": "Access denied"}
    service.call("POST", "/upload", 403, files={"file": ("up/planted", b"x")})
    assert not (service.dir / "planted").exists()
    service.call("POST", "/upload", 200, files={"file": ("link", b"replaced")})
    assert secret.read_text() == "hidden" and (base / "link").read_bytes() == b"replaced"
    (base / "link").unlink()


def test_paths_that_end_inside_are_inside_whatever_way_they_take(service, base):
    inside = base / "inside"
    for name in "real", "way":
        (inside / name).mkdir(parents=True)
    (inside / "real/file").write_text("content")
    for link, target in (("absolute", inside / "real"), ("way/over", "../real"), ("way/round", f"../../../{base.name}/inside/real")):
        (inside / link).symlink_to(target)
    for way in "absolute", "way/over", "way/round", "way/../real":
        path = f"inside/{way}".replace("/", "%2F").replace(".", "%2E")
        assert service.call("GET", f"/download/{path}%2Ffile", 200).text == "content", way
        assert service.call("GET", f"/exists/{path}", 200).json()["exists"], way
        assert not service.call("GET", f"/exists/{path}%2Fnot%2Fthere", 200).json()["exists"], way
        assert [e["name"] for e in service.call("GET", f"/list/{path}", 200).json()] == ["file"], way
        service.call("POST", "/upload", 200, files={"file": (f"inside/{way}/new/up", way.encode())})
        assert (inside / "real/new/up").read_text() == way
        shutil.rmtree(inside / "real/new")
    shutil.rmtree(inside)


def test_a_name_with_a_percent_sign_is_that_name(service, base):
    for name in "a%20b", "100%", "%2E%2E%2Fx", 'quo"te':
        service.call("POST", "/upload", 200, files={"file": (f"percent/{name}", name.encode())})
    assert {"a%20b", "100%", "%2E%2E%2Fx"} < {p.name for p in (base / "percent").iterdir()}
    assert service.call("GET", "/download/" + urllib.parse.quote("percent/a%20b", safe=""), 200).text == "a%20b"
    assert service.call("GET", "/download/" + urllib.parse.quote("percent/100%", safe=""), 200).text == "100%"


def test_the_client_of_agent_sandbox_works(service):
    connector = SandboxConnector("s", "default", SandboxDirectConnectionConfig(api_url=service.url), None)
    files, commands = Filesystem(connector, None, "test"), CommandExecutor(connector, None, "test")
    files.write("hello.txt", b"from the client")
    assert files.read("hello.txt") == b"from the client"
    assert files.exists("hello.txt") and not files.exists("nonesuch")
    assert "hello.txt" in [e.name for e in files.list(".")]
    result = commands.run("cat hello.txt")
    assert result.stdout == "from the client" and result.exit_code == 0
