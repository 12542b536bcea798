"""The control-plane contract as its document tells it: the quick start with its own file of settings, the
Python example and the ten tests, unchanged, against `cove serve` on its default port; and each row of the
table of common errors, provoked.

The default port may be somebody else's, so all of this happens in a network namespace of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

from helpers.contract import BASE, PASSWORD, Contract, add_user
from helpers.guest import SLOWER
from helpers.serve import READY, Serve

HERE = pathlib.Path(__file__).parent / "contract"
DEFAULT = "http://127.0.0.1:8000"

SETTINGS = """\
# E2B (Primary Provider)
E2B_API_KEY=e2b_xxxxxxxxxxxxxxxxxxxx
E2B_TEMPLATE_ID=vg6mdf4wgu5qoijamwb5

# Redis (Required for lifecycle queue)
REDIS_HOST=localhost
REDIS_PORT=6379
REDIS_DATABASE=0

# Database (Required for sandbox state)
DATABASE_URL=postgresql://user:pass@localhost/db

SANDBOX_MCP_SERVER_PORT=6060
SANDBOX_CODE_SERVER_PORT=9000
"""


class Quick(Serve):
    """The server of the quick start, alone with its clients in a network."""

    before = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]

    def __init__(self, folder):
        super().__init__(folder, "--ephemeral", listen=None)

    def beside(self, *words):
        done = subprocess.run(["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *words],
                              capture_output=True, text=True, timeout=100 * SLOWER, cwd=self.folder,
                              env={"PATH": os.environ["PATH"], "COVE_URL": DEFAULT,
                                   "COVE_API_KEY": self.key})
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture(scope="module")
def quick(workspace):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a network of its own")
    folder = pathlib.Path(workspace) / "contract-quick"
    folder.mkdir()
    (folder / ".env").write_text(SETTINGS)
    (folder / ".env").chmod(0o600)
    started = Quick(folder)
    assert started.said[-1] == READY + DEFAULT
    assert "TestPass123!" in started.beside(started.folder / "cove", "user", "add", "--test")
    yield started
    started.close()


@pytest.mark.core
def test_the_documents_example_runs_unchanged(quick):
    said = quick.beside(sys.executable, HERE / "example.py")
    created, output, *rest, deleted = said.splitlines()
    assert created.startswith("Created: ") and output.startswith("Output: Python 3.")
    assert deleted == "Deleted"


@pytest.mark.core
def test_the_ten_tests_pass(quick):
    said = quick.beside(sys.executable, HERE / "comprehensive.py")
    assert said.count("PASS") == 10 and said.endswith("10/10 passed\n"), said


def test_the_curl_of_the_document_gets_a_token(quick):
    said = quick.beside("curl", "-s", "-X", "POST", f"{DEFAULT}/api/v1/auth/login/swagger"
                        "?username=sandbox_test&password=TestPass123!")
    assert '"access_token":"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.' in said
    assert '"token_type":"Bearer"' in said


def test_the_documents_template_is_a_name_of_the_default_one(quick):
    script = """
import httpx, sys
c = httpx.Client(base_url="http://127.0.0.1:8000")
t = c.post("/api/v1/auth/login/swagger?username=sandbox_test&password=TestPass123!").json()
c.headers["Authorization"] = "bearer " + t["access_token"]
b = c.post("/agent/sandboxes/sandboxes/create",
           json={"user_id": "user-123", "sandbox_template_id": "vg6mdf4wgu5qoijamwb5"}).json()
print(b["data"]["status"], b["data"]["mcp_url"], b["data"]["vscode_url"])
i = c.get(f"/agent/sandboxes/sandboxes/{b['data']['sandbox_id']}/info").json()["data"]
print(i["provider"], i["user_id"])
c.delete(f"/agent/sandboxes/sandboxes/{b['data']['sandbox_id']}")
"""
    status, mcp, code, provider, user = quick.beside(sys.executable, "-c", script).split()
    assert status == "running" and user == "user-123"
    assert mcp.startswith("http://6060-i") and mcp.endswith(".localhost:8000")
    assert code.startswith("http://9000-i") and code.endswith(".localhost:8000")
    assert provider == "local"          # E2B_API_KEY is set, and chooses nothing


def test_what_is_set_and_not_used_is_said(quick):
    log = quick.told() + (quick.folder / "serve.log").read_text()
    assert "variable=DATABASE_URL" in log and "variable=REDIS_HOST" in log
    assert "user:pass" not in log and "e2b_xxxx" not in log


# ---- the table of common errors

def test_401_token_is_invalid_or_missing(server):
    add_user(server, "trouble")
    good = Contract(server, "trouble")
    for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer"},
                    {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic dTpw"},
                    {"Authorization": f"Bearer {good.token[:-4]}"}):
        reply = server.call("POST", f"{BASE}/create", {"user_id": "x"}, key=None, headers=headers)
        assert reply.status == 401
        assert reply.json == {"code": 401, "msg": "Token 无效", "data": None}
        assert reply.headers["www-authenticate"] == "Bearer"
    made = good.create()                # log in to get a valid token
    good.delete(made["sandbox_id"])


def test_404_on_a_wrong_base_path(server):
    add_user(server, "trouble")
    user = Contract(server, "trouble")
    for base in ("/api/v1/agent/sandboxes/sandboxes", "/agent/sandboxes", "/agent/sandbox"):
        user.refused(404, "POST", f"{base}/create", {"user_id": "x"}, "there is nothing at")
    user.delete(user.create()["sandbox_id"])


def test_500_on_create_until_the_key_is_there_and_the_server_restarted(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    folder = tmp_path_factory.mktemp("cloud")
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    settings = folder / ".env"
    settings.write_text("SANDBOX_PROVIDER=e2b\n")
    settings.chmod(0o600)
    started = Serve(folder, "--ephemeral")
    try:
        add_user(started, "cloudy", password=PASSWORD)
        user = Contract(started, "cloudy")
        user.refused(500, "POST", "create", {"user_id": "x"}, "E2B_API_KEY is not set")
        for path, body in (("/v1/sandboxes", {}), ("/v2/sandboxes", {"templateID": "base"})):
            reply = started.call("POST", path, body)    # nor by the other APIs, on this machine
            assert reply.status == 501 and "E2B_API_KEY" in reply.message
        settings.write_text("SANDBOX_PROVIDER=local\n")
        user.refused(500, "POST", "create", {"user_id": "x"}, "E2B_API_KEY")   # the old environment
        started.stop()
        started.start()
        made = user.create()            # the token still works: its login is in the store
        assert user.info(made["sandbox_id"])["provider"] == "local"
    finally:
        started.close()
