"""Jupyter's REST interface."""
import json
import os
import pathlib
import re
import signal
import threading
import time
import uuid

import pytest
import requests
from service import Kernel, wait_for

pytestmark = pytest.mark.core

TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"


def test_the_version_is_open_and_specs_list_what_there_is(service):
    assert re.match(r"^\d+\.\d+\.\d+$", service.call("GET", "/api", 200).json()["version"])
    specs = service.call("GET", "/api/kernelspecs", 200).json()
    assert specs["default"] == "python3"
    assert {"python3", "sandbox-kernel", "bash"} <= set(specs["kernelspecs"])
    one = service.call("GET", "/api/kernelspecs/python3", 200).json()
    assert one == specs["kernelspecs"]["python3"]
    assert one["spec"]["language"] == "python" and one["spec"]["interrupt_mode"] == "signal"
    assert "{connection_file}" in one["spec"]["argv"]
    logo = service.call("GET", one["resources"]["logo-64x64"], 200)
    assert logo.content.startswith(b"\x89PNG")
    service.call("GET", "/api/kernelspecs/nonesuch", 404)
    service.call("GET", "/kernelspecs/python3/../../../../etc/passwd", 404)
    service.call("GET", "/kernelspecs/python3/..%2Fkernel.json", 404)


def test_a_kernel_lives_and_ends_by_its_address(service):
    answer = service.call("POST", "/api/kernels", 201)          # no body at all
    model = answer.json()
    assert answer.headers["Location"] == f"/api/kernels/{model['id']}"
    assert set(model) == {"id", "name", "last_activity", "execution_state", "connections"}
    assert model["name"] == "python3" and model["connections"] == 0
    assert uuid.UUID(model["id"]).version == 4 and re.match(TIME, model["last_activity"])
    path = f"/api/kernels/{model['id']}"
    assert model["id"] in [k["id"] for k in service.call("GET", "/api/kernels", 200).json()]
    wait_for(lambda: service.state(model["id"]) == "idle", "idle")
    service.call("POST", path + "/interrupt", 204)
    assert service.call("POST", path + "/restart", 200).json()["id"] == model["id"]
    assert service.call("DELETE", path, 204).content == b""
    gone = service.call("GET", path, 404).json()
    assert gone == {"message": f"Kernel does not exist: {model['id']}", "reason": "Not Found"}
    for method, rest in ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart"), ("GET", "/channels"):
        service.call(method, path + rest, 404)


def test_a_kernel_begins_where_and_with_what_it_was_told(service):
    (service.home / "work").mkdir(exist_ok=True)
    chosen = str(uuid.uuid4())
    body = {"name": "sandbox-kernel", "path": "work", "env": {"FOO": "it's \"x\"\n", "KERNEL_X": "1"}, "kernel_id": chosen}
    with Kernel(service, **body) as k:
        assert k.id == chosen
        run = k.run("import os; print(os.getcwd()); print(repr(os.environ['FOO'])); print(os.environ['KERNEL_X'])")
        assert run.out.splitlines() == [str(service.home / "work"), repr("it's \"x\"\n"), "1"]
        service.call("POST", f"/api/kernels/{k.id}/restart", 200)
        run = k.run("import os; print(os.getcwd(), os.environ['KERNEL_X'])")
        assert run.out == f"{service.home}/work 1\n"
        service.call("POST", "/api/kernels", 409, json={"kernel_id": chosen})
    with Kernel(service, path="work/notebook.ipynb") as k:
        assert k.run("import os; print(os.getcwd())").out.strip() == str(service.home / "work")
        certificates = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists() and "SSL_CERT_FILE" not in os.environ:     # uv, typed in a kernel, trusts whom the machine does
            assert k.run("import os; print(os.environ['SSL_CERT_FILE'])").out.strip() == str(certificates)


@pytest.mark.parametrize("body, status, word", [
    ("{", 400, "JSON"), ('{"env":[]}', 400, "env"), ('{"env":{"a":1}}', 400, "env"), ('{"name":"nonesuch"}', 404, "nonesuch"),
    ('{"kernel_id":"../x"}', 400, "kernel_id"), ('{"env":{"a=b":"c"}}', 400, "a=b"),
])
def test_a_bad_request_is_told_what_is_wrong(service, body, status, word):
    answer = service.call("POST", "/api/kernels", status, data=body)
    assert word in answer.json()["message"] and answer.json()["reason"]


def test_a_kernel_that_is_removed_while_it_is_restarted_leaves_nothing(start_service):
    service = start_service("--set", "kernel.park=0")
    with Kernel(service) as k:
        kernel = int(k.run("import os; print(os.getpid())").out)
        parent, = set(python_processes(service)) - {kernel}
        os.kill(parent, signal.SIGSTOP)             # so the new one is a while in coming
        restart = threading.Thread(target=service.call, args=("POST", f"/api/kernels/{k.id}/restart"))
        restart.start()
        wait_for(lambda: kernel not in python_processes(service), "the old one's end")
        time.sleep(0.2)
        service.call("DELETE", f"/api/kernels/{k.id}", 204)
        os.kill(parent, signal.SIGCONT)
        restart.join()
    assert service.call("GET", "/api/kernels", 200).json() == []
    wait_for(lambda: python_processes(service) == [parent], "only the warmed parent")


def test_one_id_is_one_kernels(start_service):
    service, chosen, said = start_service("--set", "kernel.park=0"), str(uuid.uuid4()), []
    threads = [threading.Thread(target=lambda: said.append(service.call("POST", "/api/kernels", json={"kernel_id": chosen}).status_code))
               for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(said) == [201, 409, 409, 409]
    assert [k["id"] for k in service.call("GET", "/api/kernels", 200).json()] == [chosen]
    wait_for(lambda: len(python_processes(service)) == 2, "the warmed parent and one kernel")


def test_too_many_kernels_are_refused(start_service):
    service = start_service("--set", "kernel.count=1", "--set", "kernel.park=0")
    service.start_kernel()
    assert "Resource Limit" in service.call("POST", "/api/kernels", 403).json()["message"]


def test_it_describes_itself(service):
    for path in "/api/swagger.json", "/api/swagger.yaml":
        described = service.call("GET", path, 200).json()
        assert "post" in described["paths"]["/api/kernels"] and "/api/sessions/{id}" in described["paths"]


def test_sessions_are_names_with_kernels(service):
    service.call("POST", "/api/sessions", 400, json={"type": "notebook"})
    service.call("POST", "/api/sessions", 400, json={"path": "a.ipynb"})
    missing = service.call("POST", "/api/sessions", 501,
                           json={"path": "x", "type": "notebook", "kernel": {"name": "nonesuch"}}).json()
    assert "nonesuch" in missing["message"] and missing["short_message"]
    body = {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}}
    one = service.call("POST", "/api/sessions", 201, json=body)
    model = one.json()
    assert one.headers["Location"] == f"/api/sessions/{model['id']}"
    assert model["notebook"] == {"path": "a.ipynb", "name": "a"} and model["kernel"]["name"] == "python3"
    assert service.call("POST", "/api/sessions", 201, json=body).json()["id"] == model["id"]
    path = f"/api/sessions/{model['id']}"
    changed = service.call("PATCH", path, 200, json={"path": "b.ipynb", "kernel": {"name": "python3"}}).json()
    assert changed["path"] == "b.ipynb" and changed["kernel"]["id"] != model["kernel"]["id"]
    service.call("GET", f"/api/kernels/{model['kernel']['id']}", 404)       # the one before has ended
    service.call("PATCH", path, 400, json={"kernel": {"id": "nonesuch"}})
    assert [s["id"] for s in service.call("GET", "/api/sessions", 200).json()] == [model["id"]]
    service.call("DELETE", path, 204)
    service.call("GET", path, 404)
    service.call("GET", f"/api/kernels/{changed['kernel']['id']}", 404)
    last = service.call("POST", "/api/sessions", 201, json=body).json()
    service.end_kernel(last["kernel"]["id"])
    service.call("GET", f"/api/sessions/{last['id']}", 404)                 # it goes with its kernel


def test_status_counts(service, quick):
    status = service.call("GET", "/api/status", 200).json()
    assert status["kernels"] >= 1 and status["connections"] >= 1
    assert re.match(TIME, status["started"]) and re.match(TIME, status["last_activity"])
    assert service.call("GET", f"/api/kernels/{quick.id}", 200).json()["connections"] == 1


def test_a_token_guards_jupyters_half_in_all_its_forms(start_service):
    service = start_service(KG_AUTH_TOKEN="s3cret")
    url = service.url + "/api/kernels"
    for headers in {}, {"Authorization": "token wrong"}, {"Authorization": "Basic s3cret"}:
        assert requests.get(url, headers=headers, timeout=60).status_code == 401
    assert requests.get(url + "?token=wrong", timeout=60).status_code == 401
    for scheme in "token", "Token", "Bearer", "bearer":
        assert requests.get(url, headers={"Authorization": f"{scheme} s3cret"}, timeout=60).status_code == 200
    assert requests.get(url + "?token=s3cret", timeout=60).status_code == 200
    assert requests.options(url, timeout=60).status_code == 200
    assert requests.get(service.url + "/api", timeout=60).status_code == 200
    assert requests.get(service.url + "/", timeout=60).status_code == 200       # the runtime's half
    with Kernel(service) as k:
        assert k.run("1 + 1").value == "2"
    assert "s3cret" not in service.log() + (service.dir / "stderr").read_text()


def test_browsers_may_ask_from_anywhere_unless_told_otherwise(service, start_service):
    preflight = service.call("OPTIONS", "/api/kernels", 200)
    assert preflight.headers["Access-Control-Allow-Origin"] == "*" and not preflight.content
    assert "DELETE" in preflight.headers["Access-Control-Allow-Methods"]
    strict = start_service(KG_ALLOW_ORIGIN="http://good.example")
    kernel = strict.start_kernel()
    with pytest.raises(Exception, match="403"):
        strict.connect(kernel, origin="http://bad.example")
    strict.connect(kernel, origin="http://good.example").close()
    strict.connect(kernel, origin=strict.url).close()


def test_idle_kernels_are_culled_when_asked_for(start_service):
    service = start_service("--set", "kernel.cull-idle-s=1", "--set", "kernel.cull-interval-s=1")
    kernel = service.start_kernel()
    wait_for(lambda: service.call("GET", f"/api/kernels/{kernel}").status_code == 404, "the kernel's end")


def test_a_document_whose_kernel_was_culled_gets_a_new_one(start_service):
    service = start_service("--set", "kernel.cull-idle-s=1", "--set", "kernel.cull-interval-s=1")
    body = {"path": "a.ipynb", "type": "notebook"}
    first = service.call("POST", "/api/sessions", 201, json=body).json()
    wait_for(lambda: service.call("GET", f"/api/kernels/{first['kernel']['id']}").status_code == 404, "the kernel's end")
    wait_for(lambda: first["id"] not in [s["id"] for s in service.call("GET", "/api/sessions", 200).json()], "the session's end")
    second = service.call("POST", "/api/sessions", 201, json=body).json()
    assert second["id"] != first["id"] and second["kernel"]["id"] != first["kernel"]["id"]


def test_asking_about_a_kernel_is_no_use_of_it(service, quick):
    quick.run("1")
    before = service.call("GET", f"/api/kernels/{quick.id}", 200).json()["last_activity"]
    quick.follow(quick.send("kernel_info_request", {}))
    assert service.call("GET", f"/api/kernels/{quick.id}", 200).json()["last_activity"] == before
    quick.run("2")
    assert service.call("GET", f"/api/kernels/{quick.id}", 200).json()["last_activity"] > before


def test_a_kernel_spec_may_have_a_time_of_its_own(start_service):
    service = start_service("--set", "kernel.cull-interval-s=1")
    for name, seconds in ("short", 1), ("long", 0):
        spec = service.home / ".local/share/jupyter/kernels" / name
        spec.mkdir(parents=True)
        (spec / "kernel.json").write_text(json.dumps({
            "argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": name,
            "language": "python", "metadata": {"cull_idle_timeout": seconds, "other": [1]}}))
    short, long, plain = (service.start_kernel(name=name) for name in ("short", "long", "python3"))
    wait_for(lambda: service.call("GET", f"/api/kernels/{short}").status_code == 404, "the kernel's end")
    for kernel in long, plain:
        service.call("GET", f"/api/kernels/{kernel}", 200)


def python_processes(service):
    """Those of the service, by their environment: the warmed parent, and what it forked."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"warm.py" in (path / "cmdline").read_bytes() and str(service.home).encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            pass
    return found


def test_what_waits_in_advance_ends_when_nobody_wants_it_and_comes_again(start_service):
    service = start_service("--set", "kernel.rest-ms=400")
    service.call("GET", "/api", 200, headers={"Connection": "close"})
    wait_for(lambda: "kernel parked" in service.log(), "a parked kernel")
    wait_for(lambda: not python_processes(service), "the parent's end")
    assert service.log().count("msg=serving") == 1 and "at rest" in service.log()
    service.call("GET", "/api", 200, headers={"Connection": "close"})
    wait_for(lambda: service.log().count("kernel parked") == 2, "another parked kernel")
    wait_for(lambda: not python_processes(service), "the parent's end")
    for pause in 0.35, 0.45, 0.6:            # before its end, in the middle of it, and at once after it
        with Kernel(service) as k:
            assert k.run("1 + 1").value == "2"
            time.sleep(0.6)
            assert k.run("2 + 2").value == "4"      # a kernel is a use
        time.sleep(pause)
    assert service.log().count("msg=serving") == 1
