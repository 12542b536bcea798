"""The same requests to jupyter_kernel_gateway and to us: status, headers and the shape of the JSON must be the same. Where
ours is another on purpose, the request is in DESIGN, with both answers."""
import os
import re
import subprocess
import sys
import uuid

import pytest
import requests
from service import free_port, wait_for

HEADERS = "Content-Type", "Location", "X-Content-Type-Options"
NOWHERE = str(uuid.UUID(int=0x4a << 120 | 4 << 76 | 8 << 60))


class Gateway:
    def __init__(self, directory, *options):
        port = free_port()
        self.url, self.log = f"http://127.0.0.1:{port}", directory / "log"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "KG_"))} | {"HOME": str(directory)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernel_gateway", "--ip=127.0.0.1", f"--port={port}", "--JupyterWebsocketPersonality.list_kernels=True",
             *options], env=env, cwd=directory, stdin=subprocess.DEVNULL, stdout=open(self.log, "w"), stderr=subprocess.STDOUT)
        wait_for(self.answers, "jupyter_kernel_gateway")

    def answers(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return requests.get(self.url + "/api", timeout=30).status_code in (200, 401)
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    one = Gateway(tmp_path_factory.mktemp("gateway"))
    yield one
    one.stop()


def shape(value):
    """Keys and types; what is the same for everybody stays as it is."""
    if isinstance(value, dict):
        return {key: shape(v) for key, v in value.items()}
    if isinstance(value, list):
        return [shape(v) for v in value[:1]]
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", value)
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value):
            return "<time>"
        return value if value in ("<id>", "python3", "python", "signal") or "exist" in value else "<text>"
    return type(value).__name__ if value is not None and not isinstance(value, bool) else value


def seen(answer):
    headers = {name: re.sub(r"[0-9a-f-]{36}", "<id>", answer.headers.get(name, "")).lower() for name in HEADERS}
    if answer.status_code == 204:
        headers.pop("Content-Type")     # of nothing
    try:
        body = shape(answer.json())
    except ValueError:
        body = answer.content and "<bytes>"
    return answer.status_code, headers, body


def ask(url, method, path, **more):
    return requests.request(method, url + path, timeout=120, **more)


def both(service, gateway, method, path, **more):
    return [seen(ask(url, method, path, **more)) for url in (service.url, gateway.url)]


@pytest.mark.parametrize("method, path", [
    ("GET", "/api"), ("GET", "/api/kernelspecs/python3"), ("GET", "/api/kernels"), ("GET", "/kernelspecs/python3/logo-64x64.png"),
    ("GET", f"/api/kernels/{NOWHERE}"), ("DELETE", f"/api/kernels/{NOWHERE}"),
    ("POST", f"/api/kernels/{NOWHERE}/interrupt"),
    ("GET", "/api/sessions"),
])
def test_answers_are_the_gateways(service, gateway, method, path):
    ours, theirs = both(service, gateway, method, path)
    for answer in ours, theirs:
        if isinstance(answer[2], dict) and "spec" in answer[2]:
            answer[2]["spec"].pop("kernel_protocol_version", None)      # newer specs say it
            answer[2]["spec"] |= {"metadata": "any", "argv": "any"}
            answer[2]["resources"] = sorted(answer[2]["resources"])[:1]
    if isinstance(theirs[2], dict) and "message" in theirs[2]:
        assert {"message", "reason"} <= set(ours[2])
        theirs[2].pop("traceback", None)
        theirs[2]["reason"] = ours[2]["reason"]         # null in some of the gateway's
    assert ours == theirs


def test_the_list_of_specs_has_the_gateways_form(service, gateway):
    ours, theirs = (ask(url, "GET", "/api/kernelspecs").json() for url in (service.url, gateway.url))
    assert set(ours) == set(theirs) and ours["default"] == theirs["default"]
    assert set(ours["kernelspecs"]) >= set(theirs["kernelspecs"])
    for name in theirs["kernelspecs"]:
        assert set(ours["kernelspecs"][name]) == set(theirs["kernelspecs"][name]) == {"name", "spec", "resources"}
        assert set(ours["kernelspecs"][name]["spec"]) >= set(theirs["kernelspecs"][name]["spec"]) - {"kernel_protocol_version"}


def life(url):
    """What each answer of a kernel's life looks like."""
    steps = [ask(url, "POST", "/api/kernels", json={"name": "python3"})]
    path = f"/api/kernels/{steps[0].json()['id']}"
    wait_for(lambda: ask(url, "GET", path).json()["execution_state"] in ("idle", "starting"), "the kernel")
    steps += [ask(url, "GET", path), ask(url, "GET", "/api/kernels"), ask(url, "POST", path + "/interrupt"),
              ask(url, "POST", path + "/restart"), ask(url, "DELETE", path), ask(url, "GET", path), ask(url, "DELETE", path)]
    found = []
    for step in steps:
        status, headers, body = seen(step)
        for model in body if isinstance(body, list) else [body]:
            if isinstance(model, dict):
                model.pop("execution_state", None)      # how far it has come is a matter of time
                model.pop("traceback", None)
        found.append((status, headers, body))
    return found


def test_a_kernels_life_looks_the_same(service, gateway):
    assert life(service.url) == life(gateway.url)


def test_a_session_has_at_least_what_the_gateways_has(service, gateway):
    body = {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}}
    models = []
    for url in service.url, gateway.url:
        made = ask(url, "POST", "/api/sessions", json=body)
        assert made.status_code == 201
        models.append(shape(made.json()))
        assert ask(url, "DELETE", f"/api/sessions/{made.json()['id']}").status_code == 204
    ours, theirs = models
    assert set(ours) >= set(theirs) and set(ours["kernel"]) == set(theirs["kernel"])
    assert set(ours["notebook"]) >= set(theirs["notebook"])


DESIGN = [       # method, path, body, the gateway's status, ours
    ("POST", f"/api/kernels/{NOWHERE}/restart", None, 500, 404),
    ("POST", "/api/kernels", '{"name": "nonesuch"}', 500, 404),
    ("GET", "/api/status", None, 404, 200),
    ("GET", "/api/kernelspecs/nonesuch", None, 404, 404),
    ("POST", "/api/kernels", "{", 400, 400),
    ("POST", "/api/kernels", '{"env": []}', 400, 400),
]


@pytest.mark.parametrize("method, path, body, theirs, ours", DESIGN)
def test_what_is_another_is_so_on_purpose(service, gateway, method, path, body, theirs, ours):
    assert ask(gateway.url, method, path, data=body).status_code == theirs
    answer = ask(service.url, method, path, data=body)
    assert answer.status_code == ours
    if ours >= 400:
        assert {"message", "reason"} <= set(answer.json())


def test_without_a_token_both_answer_401_and_ours_takes_bearer_too(start_service, tmp_path):
    service, gateway = start_service(KG_AUTH_TOKEN="s3cret"), Gateway(tmp_path, "--KernelGatewayApp.auth_token=s3cret")
    try:
        ours, theirs = (ask(url, "GET", "/api/kernels") for url in (service.url, gateway.url))
        assert ours.status_code == theirs.status_code == 401
        assert set(ours.json()) == set(theirs.json()) and ours.json()["reason"] == theirs.json()["reason"]
        for scheme, expect in ("token", (200, 200)), ("Bearer", (200, 401)):
            answers = (ask(url, "GET", "/api/kernels", headers={"Authorization": f"{scheme} s3cret"}) for url in (service.url, gateway.url))
            assert tuple(a.status_code for a in answers) == expect
    finally:
        gateway.stop()
