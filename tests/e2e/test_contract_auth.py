"""Logging in: tokens that are signed, expire and can be ended; what is counted and refused; passwords that
are written nowhere; `cove user`."""

import http.client
import json
import os
import pathlib
import subprocess
import time
import uuid

import jwt
import pytest

from helpers.contract import BASE, PASSWORD, Contract, add_user, sign_in
from helpers.cove import CLEAR
from helpers.guest import SLOWER
from helpers.proc import wait_until
from helpers.serve import Serve

SECRET = "a secret of the operator's own, as long as HS512 would like it to be: 64"
STATUS = f"{BASE}/{uuid.UUID(int=0)}/status"


@pytest.fixture(scope="module")
def gate(workspace):
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    started = Serve(pathlib.Path(workspace) / "contract-gate", "--ephemeral", "--log-level", "debug",
                    "--set", "auth.swagger-rate=0", "--set", "auth.login-rate=3",
                    "--set", "auth.lockout-s=3", env={"TOKEN_SECRET_KEY": SECRET})
    yield started
    started.close()


def ask(server, token, path=STATUS, method="GET", body=None):
    return server.call(method, path, body, key=None, headers={"Authorization": f"Bearer {token}"})


def refused(reply, words):
    """Errors of authentication have no trace_id."""
    assert reply.status == 401 and reply.json == {"code": 401, "msg": words, "data": None}, reply


def known(reply):
    """The token was taken: the sandbox that was asked for is just not there."""
    assert reply.status == 404 and "not found" in reply.json["msg"], reply


# ---- tokens

@pytest.mark.core
def test_the_answer_of_a_login(gate):
    add_user(gate, "anna")
    reply = sign_in(gate, "anna")
    said = reply.json
    assert reply.status == 200 and reply.headers["cache-control"] == "no-store"
    assert set(said) == {"access_token", "token_type", "user"} and said["token_type"] == "Bearer"
    assert said["user"]["username"] == "anna" and said["user"]["is_superuser"] is False
    claims = jwt.decode(said["access_token"], SECRET, algorithms=["HS256"])
    assert set(claims) == {"session_uuid", "exp", "sub"}
    assert claims["sub"] == str(said["user"]["id"]) and uuid.UUID(claims["session_uuid"])
    assert abs(claims["exp"] - time.time() - 86400) < 60 * SLOWER
    known(ask(gate, said["access_token"]))
    # the scheme's case does not matter
    known(gate.call("GET", STATUS, key=None,
                    headers={"Authorization": f"bearer {said['access_token']}"}))


def test_tokens_of_another_hand(gate):
    add_user(gate, "bert")
    claims = jwt.decode(sign_in(gate, "bert").json["access_token"], SECRET, algorithms=["HS256"])
    known(ask(gate, jwt.encode(claims, SECRET, "HS256")))       # PyJWT's are as good as ours
    for bad in (jwt.encode(claims, SECRET + "x", "HS256"), jwt.encode(claims, SECRET, "HS384"),
                jwt.encode(claims, SECRET, "HS512"), jwt.encode(claims, None, "none"),
                jwt.encode(claims, None, "none") + "x",
                jwt.encode(claims | {"sub": "1 "}, SECRET, "HS256"),
                jwt.encode({"sub": claims["sub"]}, SECRET, "HS256"),
                jwt.encode(claims, SECRET, "HS256")[:-1], jwt.encode(claims, SECRET, "HS256") + "A",
                "a" * 60, "a." * 50 + "b", ".." + "a" * 80, "x" * 4000, "e2b_" + "0" * 40, "ä" * 100):
        refused(ask(gate, bad.encode().decode("latin-1")), "Token 无效")
    refused(ask(gate, jwt.encode(claims | {"exp": int(time.time()) - 1}, SECRET, "HS256")),
            "Token 已过期")
    for stranger in (claims | {"session_uuid": str(uuid.uuid4())}, claims | {"sub": "1"}):
        refused(ask(gate, jwt.encode(stranger, SECRET, "HS256")), "Token 已失效")


def test_a_token_of_a_megabyte_is_401(gate):
    refused(ask(gate, "a" * (1 << 20)), "Token 无效")
    assert ask(gate, "a" * (1 << 20), "/v1/me").status == 401
    assert gate.call("GET", "/health", key=None).status == 200


def test_a_newer_login_ends_the_older_one(gate):
    add_user(gate, "carl")
    first, second = Contract(gate, "carl"), Contract(gate, "carl")
    refused(ask(gate, first.token), "Token 已失效")
    known(ask(gate, second.token))
    add_user(gate, "dora", multi_login=True)
    first, second = Contract(gate, "dora"), Contract(gate, "dora")
    known(ask(gate, first.token))
    known(ask(gate, second.token))


def test_refresh_and_logout(gate):
    add_user(gate, "emil")
    old = Contract(gate, "emil").token
    reply = ask(gate, old, "/api/v1/auth/refresh", "POST")
    said = reply.json["data"]
    assert reply.status == 200 and said["access_token"] != old and uuid.UUID(said["session_uuid"])
    refused(ask(gate, old), "Token 已失效")
    known(ask(gate, said["access_token"]))
    reply = ask(gate, said["access_token"], "/api/v1/auth/logout", "POST")
    assert reply.status == 200 and reply.json == {"code": 200, "msg": "Request success", "data": None}
    for path in (STATUS, "/v1/me"):
        assert ask(gate, said["access_token"], path).status == 401
    refused(ask(gate, said["access_token"], "/api/v1/auth/logout", "POST"), "Token 已失效")
    refused(ask(gate, old, "/api/v1/auth/refresh", "POST"), "Token 已失效")


def test_a_login_by_json(gate):
    add_user(gate, "fred")
    reply = gate.call("POST", "/api/v1/auth/login", {"username": "fred", "password": PASSWORD}, key=None)
    said = reply.json["data"]
    assert reply.status == 200 and said["user"]["username"] == "fred"
    assert said["access_token_expire_time"].endswith("Z")
    known(ask(gate, said["access_token"]))
    for _ in range(4):                  # three a minute, from one address
        reply = gate.call("POST", "/api/v1/auth/login", {"username": "fred", "password": PASSWORD},
                          key=None)
    assert reply.status == 429 and reply.headers["retry-after"] == "60"
    assert "auth.login-rate" in reply.json["msg"]


# ---- who may not

def test_an_unknown_user_is_404_and_a_wrong_password_403(gate):
    add_user(gate, "gina")
    for name, password, status in (("nobody", PASSWORD, 404), ("gina", "wrong", 403), ("", "x", 404),
                                   ("Gina", PASSWORD, 404), ("gi na", "x", 404), ("gina", "", 403),
                                   ("gina", "ä" * 100, 403)):
        reply = sign_in(gate, name, password)
        assert reply.status == status and reply.json["msg"] == "用户名或密码有误", reply
        assert reply.json["trace_id"]
    assert gate.call("POST", "/api/v1/auth/login/swagger?username=gina", key=None).status == 422
    assert gate.call("POST", "/api/v1/auth/login/swagger", key=None).status == 422
    gate.ok("POST", "/v1/users", {"name": "hugo"}, status=201)
    assert sign_in(gate, "hugo", "").status == 403      # one without a password


def test_asking_at_once_does_not_pass_the_lockout(gate):
    """All are there before the fifth is answered, and the last of them has the password."""
    add_user(gate, "crowd")
    add_user(gate, "alone")
    path = "/api/v1/auth/login/swagger?username={}&password={}"
    passwords = [*(f"wrong-{i}" for i in range(44)), PASSWORD]
    clients = [http.client.HTTPConnection("127.0.0.1", gate.port, timeout=60) for _ in passwords]
    for client in clients:
        client.connect()
    for client, password in zip(clients, passwords):
        if password == PASSWORD:
            time.sleep(0.02)                            # those before have found their user
        client.request("POST", path.format("crowd", password))
    answers = [client.getresponse().status for client in clients]
    for client in clients:
        client.close()
    assert answers == [403] * 45, answers
    assert sign_in(gate, "alone").status == 200         # another name is not locked with it
    wait_until(lambda: sign_in(gate, "crowd").status == 200, "the lock ends", 10 * SLOWER, 0.5)
    for _ in range(2):                                  # and a success begins a new count
        assert [sign_in(gate, "crowd", "wrong").status for _ in range(4)] == [403] * 4
        assert sign_in(gate, "crowd").status == 200


def test_a_locked_user_is_out_at_once(gate):
    add_user(gate, "ines")
    user = Contract(gate, "ines")
    gate.ok("PATCH", "/v1/users/ines", {"locked": True})
    assert sign_in(gate, "ines").status == 403
    assert ask(gate, user.token).status == 401
    gate.ok("PATCH", "/v1/users/ines", {"locked": False})
    refused(ask(gate, user.token), "Token 已失效")        # the old login stays ended
    known(ask(gate, Contract(gate, "ines").token))


def test_a_new_password_ends_all_logins(gate):
    add_user(gate, "jana", multi_login=True)
    user = Contract(gate, "jana")
    gate.ok("PATCH", "/v1/users/jana", {"password": "another-horse-9"})
    refused(ask(gate, user.token), "Token 已失效")
    assert sign_in(gate, "jana").status == 403
    assert sign_in(gate, "jana", "another-horse-9").status == 200


def test_wrong_passwords_lock_out_for_a_while(gate):
    add_user(gate, "kurt")
    for _ in range(5):
        assert sign_in(gate, "kurt", "wrong").status == 403
    reply = sign_in(gate, "kurt")       # the right one now
    assert reply.status == 403 and "锁定" in reply.json["msg"]
    wait_until(lambda: sign_in(gate, "kurt").status == 200, "still locked out", 30 * SLOWER, 0.5)


def test_bad_passwords_are_refused_with_the_reason(gate):
    for password in ("short-1", "lettersonly", "1234567890", "mallory99"):
        reply = gate.call("POST", "/v1/users", {"name": "mallory", "password": password})
        assert reply.status == 400 and "password" in reply.message, (password, reply)


# ---- what is kept

def test_a_login_survives_a_restart_and_no_password_is_written_anywhere(gate):
    password = "a-password-to-look-for-7"
    add_user(gate, "lena", password=password)
    user = Contract(gate, "lena", password)
    sign_in(gate, "lena", password + "-wrong")
    gate.stop()
    gate.start()
    known(ask(gate, user.token))
    log = gate.log.read_bytes()
    assert b"/api/v1/auth/login/swagger" in log         # at this level each request has a line
    for secret in (password, SECRET, user.token, user.token.rsplit(".")[-1]):
        assert secret.encode() not in log
    store = b"".join(path.read_bytes() for path in (gate.data / "serve").glob("cove.db*"))
    assert b"$y$" in store and password.encode() not in store and user.token.encode() not in store
    for pid in [gate.process.pid, gate.worker()]:
        assert SECRET.encode() not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()


def test_without_a_variable_the_secret_is_the_stores_own(server):
    user = Contract(server, add_user(server, "mona"))
    for secret in (SECRET, "another secret of thirty-two bytes"):
        with pytest.raises(jwt.InvalidSignatureError):
            jwt.decode(user.token, secret, algorithms=["HS256"], options={"verify_exp": False})


# ---- the command line

def cove(server, *words, typed="", status=0):
    done = subprocess.run([server.folder / "cove", *words], input=typed, capture_output=True, text=True,
                          timeout=60 * SLOWER, env=CLEAR | server.variables())
    assert done.returncode == status, done
    return done


def test_users_are_kept_by_the_command_line(gate):
    cove(gate, "user", "add", "nora", "--password", "--multi-login", typed=PASSWORD + "\n")
    assert sign_in(gate, "nora").status == 200
    cove(gate, "user", "passwd", "nora", typed="another-horse-9\n")
    assert sign_in(gate, "nora").status == 403
    assert sign_in(gate, "nora", "another-horse-9").status == 200
    cove(gate, "user", "lock", "nora")
    assert sign_in(gate, "nora", "another-horse-9").status == 403
    cove(gate, "user", "unlock", "nora")
    rows = json.loads(cove(gate, "user", "list", "--json").stdout)["users"]
    assert {row["name"]: row["multi_login"] for row in rows}["nora"] is True
    done = cove(gate, "user", "add", "olaf", "--password", typed="short\n", status=1)
    assert "8 to 256" in done.stderr or "8 bytes" in done.stderr


def test_the_test_user_is_made_only_when_asked_for(gate):
    assert sign_in(gate, "sandbox_test", "TestPass123!").status == 404
    said = cove(gate, "user", "add", "--test")
    assert "knows this user's password" in said.stderr
    assert sign_in(gate, "sandbox_test", "TestPass123!").json["user"]["is_superuser"] is False
    assert cove(gate, "user", "add", "--test", status=1).stderr
    assert cove(gate, "user", "add", "--test", "name", status=1).stderr
    assert cove(gate, "user", "add", status=1).stderr


def test_config_shows_where_each_setting_comes_from_and_no_secret(gate, tmp_path):
    (tmp_path / ".env").write_text("E2B_API_KEY=e2b_secret\nSANDBOX_MCP_SERVER_PORT=6161\n"
                                   "DATABASE_URL=postgresql://u:secret@h/d\nREDIS_PASSWORD=secret\n")
    (tmp_path / ".env").chmod(0o600)
    done = subprocess.run([gate.folder / "cove", "config", "--json"], capture_output=True, text=True,
                          timeout=60 * SLOWER, cwd=tmp_path,
                          env=CLEAR | {"SANDBOX_CODE_SERVER_PORT": "9191",
                                       "TOKEN_SECRET_KEY": "secret-secret-secret"})
    assert done.returncode == 0 and "secret-" not in done.stdout and ":secret" not in done.stdout
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert (rows["mcp-port"]["value"], rows["mcp-port"]["from"]) == ("6161", ".env:2")
    assert rows["code-port"]["value"] == "9191"
    assert rows["code-port"]["from"] == "environment SANDBOX_CODE_SERVER_PORT"
    assert rows["provider"]["value"] == "local" and rows["provider"]["from"] == "default"
    for name in ("E2B_API_KEY", "DATABASE_URL", "REDIS_PASSWORD", "TOKEN_SECRET_KEY"):
        assert rows[name]["value"] == "********", rows[name]
    assert rows["E2B_API_KEY"]["from"] == ".env:1"
