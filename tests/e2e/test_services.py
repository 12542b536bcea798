"""The services of the guest: started at the first connection, stopped when idle, started again when they
die; and the REST service among them. Run by hand here; in sandboxes at the end."""

import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import zipfile

import pytest

from helpers import proc
from helpers.guest import BINARY, SANITIZED, SLOWER, THREADED
from helpers.proc import wait_until
from helpers.services import Services

pytestmark = pytest.mark.timeout(180 * SLOWER)


@pytest.fixture(scope="module")
def services(workspace):
    started = Services(os.path.join(workspace, "services"), "--set", "rest.output-bytes=100000")
    yield started
    started.stop()


@pytest.fixture
def start_services(folder):
    made = []

    def start(*options, **more):
        made.append(Services(os.path.join(folder, str(len(made))), *options, **more))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.stop()


# --- the life of a service -------------------------------------------------------------------

@pytest.mark.core
def test_nothing_runs_before_the_first_connection_and_after_an_idle_while(start_services):
    made = start_services("--set", "services.idle-ms=700")
    assert made.child() is None
    for starts in 1, 2:
        assert made.call("GET", "/health").status == 200
        assert made.said().count("msg=serving") == starts
        wait_until(lambda: not made.child(), "the service did not end", 20 * SLOWER)
        assert made.said().count("why=idle") == starts


def test_one_that_is_asked_does_not_end(start_services):
    made = start_services("--set", "services.idle-ms=400")
    assert made.execute("import time; time.sleep(1.5); print('slept')")["stdout"] == "slept\n"
    assert made.said().count("msg=serving") == 1


@pytest.mark.core
def test_one_that_is_killed_is_started_again(start_services):
    made = start_services()
    pids = set()
    for _ in range(4):
        assert made.call("GET", "/health").status == 200
        pids.add(made.child())
        os.kill(made.child(), signal.SIGKILL)
        wait_until(lambda: not made.child(), "it was killed", 20 * SLOWER)
    assert len(pids) == 4


@pytest.mark.skipif(SANITIZED, reason="a sanitizer needs more room than any limit of memory gives")
@pytest.mark.skipif(THREADED, reason="without memory there is no stack to answer on")
def test_who_waits_for_one_that_cannot_start_is_told_why(start_services):
    made = start_services()
    resource.prlimit(made.process.pid, resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    reply = made.call("GET", "/health")
    assert reply.status == 503, reply
    assert reply.json["detail"].startswith("service rest is not available: "), reply.json
    resource.prlimit(made.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    wait_until(lambda: made.call("GET", "/health").status == 200, "it came back", 30)


@pytest.mark.core
def test_a_port_can_be_had_by_asking_the_service(start_services):
    made = start_services()
    made.call("GET", "/health")
    os.kill(made.child(), signal.SIGUSR1)

    def ours():
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", made.port))
                s.listen()
                return True
            except OSError:
                return False
    wait_until(ours, f"port {made.port}", 20 * SLOWER)
    assert made.process.poll() is None


def test_a_port_that_is_taken_is_said(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run([BINARY, "services", "rest"], capture_output=True, timeout=30 * SLOWER,
                              env={"PORT": str(taken.getsockname()[1]), "HOST": "127.0.0.1", "HOME": folder,
                                   "SHARED_DIR": folder})
    assert done.returncode == 1
    assert b"no port could be had" in done.stderr and b"Address already in use" in done.stderr


def test_what_is_no_service_is_an_error():
    done = subprocess.run([BINARY, "services", "nothing"], capture_output=True)
    assert done.returncode == 2 and b"'nothing' is neither a service nor an option" in done.stderr
    helped = subprocess.run([BINARY, "services", "--help"], capture_output=True, check=True).stdout.decode()
    assert "8765" in helped and "services.idle-ms" in helped


def test_the_log_is_in_the_shared_directory_and_bounded(start_services):
    made = start_services("--set", "services.log-bytes=4096", "--set", "services.idle-ms=100",
                          env={"SERVICES_LOG": "mine.log"})
    log = made.shared / "mine.log"
    made.call("GET", "/health")
    assert "msg=serving service=rest" in log.read_text()
    wait_until(lambda: "why=idle" in log.read_text(), "it ended", 20 * SLOWER)
    log.write_bytes(b"x" * 5000)
    made.call("GET", "/health")
    wait_until(lambda: (made.shared / "mine.log.1").exists(), "the log was put aside", 20 * SLOWER)
    assert log.stat().st_size < 4096


# --- the REST service ------------------------------------------------------------------------

@pytest.mark.core
@pytest.mark.parametrize("method, status", [("GET", 200), ("OPTIONS", 204)])
def test_pages_of_any_origin_may_ask(services, method, status):
    asked = {"Origin": "https://elsewhere", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-any"}
    reply = services.call(method, "/health", headers=asked)
    assert reply.status == status
    assert reply.headers["access-control-allow-origin"] == "*" and reply.headers["access-control-allow-credentials"] == "true"
    assert method == "GET" or reply.headers["access-control-allow-headers"] == "x-any"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_health_tells_whether_the_kernels_can_be_reached(start_services, host):
    env = {"JUPYTER_KERNEL_GATEWAY_APP_PORT": "0", "JUPYTER_KERNEL_GATEWAY_APP_HOST": host, "COVE_INTERPRETER_PORT": "0"}
    assert start_services("kernels", env=env).call("GET", "/health").json == {"status": "ok", "kernel_status": "reachable"}
    with socket.create_server(("127.0.0.1", 0)) as one:
        env["JUPYTER_KERNEL_GATEWAY_APP_PORT"] = str(one.getsockname()[1])
    alone = start_services(env=env).call("GET", "/health").json
    assert alone["status"] == "error" and alone["kernel_status"] == "unreachable" and alone["error"]


@pytest.mark.core
def test_code_runs_and_its_traceback_is_whole(services):
    assert services.execute("print('a')\nimport sys; print('b', file=sys.stderr)") == {
        "stdout": "a\n", "stderr": "b\n"}
    said = services.execute("x = 1\ndef f():\n    return x / 0\nprint(x)\nf()")
    assert said["stdout"] == "1\n"
    lines = said["stderr"].splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ZeroDivisionError: division by zero"
    assert any("line 3, in f" in line for line in lines) and any("return x / 0" in line for line in lines)
    assert not any("driver" in line or "<string>" in line for line in lines)


def test_code_is_dedented_as_the_documents_program_did(services):
    assert services.execute("\n    print(1)\n    if True:\n        print(2)\n")["stdout"] == "1\n2\n"


def test_a_syntax_error_is_shown(services):
    assert services.execute("print(")["stderr"].rstrip().endswith("SyntaxError: '(' was never closed")


def test_no_state_is_kept_between_calls(services):
    services.execute("kept = 1; import builtins; builtins.kept = 1; import os; os.environ['KEPT'] = '1'")
    assert "NameError" in services.execute("kept")["stderr"]
    assert services.execute("import os; print('KEPT' in os.environ)")["stdout"] == "False\n"


def test_there_is_no_input_and_exit_is_quiet(services):
    assert "EOFError" in services.execute("input()")["stderr"]
    assert services.execute("print('x'); raise SystemExit")["stdout"] == "x\n"
    assert "ended by signal KILL" in services.execute("import os; os.kill(os.getpid(), 9)")["stderr"]


@pytest.mark.core
def test_fifty_at_once_do_not_mix(services):
    def one(i):
        return services.execute(f"import time\nfor _ in range(20): print('{i}'); time.sleep(0.005)")
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        for i, said in enumerate(pool.map(one, range(50))):
            assert said == {"stdout": f"{i}\n" * 20, "stderr": ""}


def test_output_is_bounded(services):
    said = services.execute("print('x' * 300000)")
    assert len(said["stdout"]) == 100000
    assert said["stderr"] == "OutputLimit: output beyond 100000 bytes was dropped (rest.output-bytes)\n"


def test_code_beyond_its_time_is_ended(start_services):
    for limit in 800, 5000, 25000:          # on a slow machine it may not even have begun by then
        made = start_services("--set", f"rest.execute-ms={limit}")
        said = made.execute("import subprocess, time\nprint('begun')\n"
                            "print(subprocess.Popen(['sleep', '600']).pid)\ntime.sleep(600)")
        assert f"TimeoutError: the code ran longer than {limit} ms" in said["stderr"]
        if len(said["stdout"].split()) == 2:
            break
    begun, pid = said["stdout"].split()
    assert begun == "begun"
    wait_until(lambda: not proc.alive(int(pid)), "its children were ended too", 10 * SLOWER)


def test_who_leaves_takes_the_code_along(services, folder):
    mark = os.path.join(folder, "pid")
    with socket.create_connection(("127.0.0.1", services.port)) as s:
        body = json.dumps({"code": f"import os, time\nopen({mark!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"})
        s.sendall(f"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(lambda: os.path.exists(mark) and os.path.getsize(mark), "it began", 20 * SLOWER)
    pid = int(open(mark).read())
    wait_until(lambda: not proc.alive(pid), "it was ended", 20 * SLOWER)


@pytest.mark.parametrize("body, place", [
    ({}, ["body", "code"]), ({"code": 1}, ["body", "code"]), (b"{", ["body", 0]), (b"[]", ["body"]),
    ({"code": "", "packages": "numpy"}, ["body", "packages"]),
    ({"code": "", "packages": ["a", 3]}, ["body", "packages", 1]),
])
def test_what_is_wrong_with_a_request_is_named(services, body, place):
    reply = services.call("POST", "/execute", body)
    assert reply.status == 422 and reply.json["detail"][0]["loc"] == place
    assert {"type", "loc", "msg"} <= reply.json["detail"][0].keys()


def test_paths_and_methods_that_are_not_there(services):
    for method, path, status, detail in [("GET", "/none", 404, "Not Found"), ("PUT", "/health", 405, "Method Not Allowed")]:
        reply = services.call(method, path)
        assert (reply.status, reply.json) == (status, {"detail": detail})
    assert services.call("OPTIONS", "/execute", headers={"Origin": "x"}).status == 204


def test_packages_are_those_of_the_interpreter(services):
    site = services.execute("import sysconfig; print(sysconfig.get_path('purelib'))")["stdout"].strip()
    made = os.path.join(site, "cove_probe-1.2.3.dist-info")
    os.makedirs(made)
    with open(os.path.join(made, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: cove-probe\nVersion: 1.2.3\n")
    with open(os.path.join(made, "direct_url.json"), "w") as file:
        file.write('{"url": "file:///src/probe", "dir_info": {"editable": true}}')
    listed = services.call("GET", "/packages").json
    assert {"name": "cove-probe", "version": "1.2.3", "editable_project_location": "/src/probe"} in listed
    assert all(item["name"] and item["version"] for item in listed)


def test_packages_that_cannot_be_installed_are_told_in_the_tools_words(start_services):
    made = start_services(env={"UV_OFFLINE": "1"})
    uv = made.home / ".local/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("#!/bin/sh\necho \"uv says no: $*\" >&2\nexit 2\n")
    uv.chmod(0o755)
    said = made.execute("print('never')", packages=["a", "--b"])
    assert said["stdout"] == "" and said["stderr"].startswith("Failed to install packages: a, --b\n")
    assert "uv says no: pip install" in said["stderr"] and " -- a --b" in said["stderr"]


def write_wheel(path, name, files):
    info = f"{name}-1.0.dist-info"
    files = files | {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                     f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for member, text in files.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100755 if "/scripts/" in member else 0o100644) << 16
            wheel.writestr(entry, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*files, f"{info}/RECORD"]))


PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.skipif(subprocess.run(["/usr/bin/python3", "-c", "import pip"], capture_output=True).returncode or shutil.which("uv", path=PATH),
                    reason="needs a machine whose Python has pip, and no uv")
def test_uv_is_brought_by_pip_where_it_is_missing(start_services, folder):
    uv = "#!/bin/sh\nfor last; do :; done\ncd $(dirname $0)/../lib/python3*/site-packages && echo \"x = '$last'\" > $last.py\n"
    write_wheel(pathlib.Path(folder), "uv", {"uv-1.0.data/scripts/uv": uv})
    made = start_services(env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder})
    for package in "probe", "other":
        assert made.execute(f"import {package}; print({package}.x)", packages=[package]) == {"stdout": f"{package}\n", "stderr": ""}
    assert {"name": "uv", "version": "1.0"} in made.call("GET", "/packages").json


def test_without_python_it_says_which_command_is_missing(start_services, folder):
    made = start_services(env={"PATH": folder})
    reply = made.call("POST", "/execute", {"code": "1"})
    assert reply.status == 503 and "cove layer add python" in reply.json["detail"]
    assert made.call("GET", "/packages").json == []


def test_without_a_display_pictures_are_an_error_response(services):
    for path in ("/screenshot", "/screenshot?method=pillow", "/record?mode=start", "/record?mode=stop"):
        reply = services.call("GET", path)
        assert reply.status == 500 and reply.json["status"] == "error" and "DISPLAY" in reply.json["message"]
    assert services.call("GET", "/record").status == services.call("GET", "/record?mode=x").status == 422


def test_documents(services):
    document = services.call("GET", "/openapi.json").json
    assert document["openapi"] == "3.1.0" and document["info"] == {"title": "Sandbox REST Server", "version": "0.1.0"}
    assert {(path, verb): operation["operationId"]
            for path, verbs in document["paths"].items() for verb, operation in verbs.items()} == {
        ("/health", "get"): "health_check_health_get",
        ("/packages", "get"): "get_installed_packages_packages_get",
        ("/screenshot", "get"): "screenshot_endpoint_screenshot_get",
        ("/execute", "post"): "run_code_execute_post",
        ("/record", "get"): "record_record_get",
    }
    page = services.call("GET", "/docs")
    assert page.headers["content-type"].startswith("text/html") and b"http://" not in page.body


# --- in a sandbox ----------------------------------------------------------------------------

ASK = "curl -s --max-time 60 http://localhost:8765"


@pytest.mark.parametrize("options", [[], ["--strict"]])
def test_in_a_sandbox_it_runs_as_the_user(cove, options):
    said = cove.said(f"{ASK}/health; echo; {ASK}/execute -d '{{\"code\": \"import os; print(os.getuid())\"}}'; echo\n"
                     "ps -eo user,args | grep '[s]ervices rest'; ls -l /shared/sandbox-services.log", *options)
    lines = said.splitlines()
    assert json.loads(lines[0])["status"] in ("ok", "error")
    assert json.loads(lines[1]) == {"stdout": "1000\n", "stderr": ""}
    assert lines[2].startswith("user ") and lines[3].split()[2] == "user"


def test_a_service_cannot_be_looked_into_by_its_own_user(cove):
    """It has pid 1's program, which nobody inside may read."""
    said = cove.said(f"{ASK}/health >/dev/null; pid=$(pgrep -f '[s]ervices rest' | head -1)\n"
                     "cat /proc/$pid/maps >/dev/null 2>&1 && echo read || echo refused\n"
                     "head -c 4 /proc/$pid/exe >/dev/null 2>&1 && echo read || echo refused")
    assert said.split() == ["refused", "refused"]


def test_a_command_that_names_a_port_gets_it(cove):
    serve = "python3 -m http.server 8765 & sleep 0.5; until curl -s -o /dev/null localhost:8765; do sleep 0.1; done"
    assert "Directory listing" in cove.said(f"cd /; {serve}; curl -s localhost:8765; kill %1")


def test_a_command_can_have_the_ports_for_itself(cove):
    """What names no port cannot be known to want it; it says so itself."""
    bind = "python3 -c 'import socket; socket.create_server((str(), 8000 + 765)); print(\"mine\")'"
    assert "Address already in use" in cove.shell(bind, status=None).stderr.decode()
    assert cove.said(bind, "-e", "COVE_SERVICES=none") == "mine"
    assert "Address already in use" in cove.shell(bind, "-e", "COVE_SERVICES=rest", status=None).stderr.decode()


def test_a_port_that_was_lent_comes_back(server):
    from e2b import Sandbox
    box = Sandbox.create(timeout=600, **server.sdk())

    def rest():
        return server.call("GET", "/health", headers={"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8765"})
    first = rest()
    assert first.status == 200 and first.json["status"] in ("ok", "error"), first.body
    assert "not available" not in rest().body.decode()
    box.kill()
    box = Sandbox.create(timeout=600, **server.sdk())
    mine = box.commands.run("mkdir /tmp/s && cd /tmp/s && echo mine > health && exec python3 -m http.server 8765", background=True)
    wait_until(lambda: rest().body == b"mine\n", "the command has the port", 20 * SLOWER)
    mine.kill()
    wait_until(lambda: b"status" in rest().body, "the service has it again", 30 * SLOWER)
    box.kill()


def test_the_guest_tells_the_state_of_each_and_gives_ports_back(server):
    box = server.create(timeout=600)

    def guest(method, path, status):
        reply = server.call(method, path, key=None, headers={
            "E2b-Sandbox-Id": box["id"], "E2b-Sandbox-Port": "49983", "X-Access-Token": box["token"]})
        assert reply.status == status, reply
        return reply.json if reply.body else None

    def rest(path):
        return server.call("GET", path, key=None, headers={
            "E2b-Sandbox-Id": box["id"], "E2b-Sandbox-Port": "8765", "X-Access-Token": box["token"]})

    def state():
        return next(one for one in guest("GET", "/services", 200) if one["name"] == "rest")
    assert state()["state"] == "waiting" and state()["ports"] == {"rest": 8765} and state()["starts"] == 0
    assert rest("/health").status == 200
    wait_until(lambda: state()["state"] == "running", "it told that it is ready", 20 * SLOWER)
    assert state()["starts"] == 1
    guest("DELETE", "/services/rest", 204)
    assert state()["state"] == "off"
    assert rest("/health").status == 502
    guest("POST", "/services/rest", 204)
    assert rest("/health").status == 200
    assert guest("DELETE", "/services/none", 404)["message"] == "there is no service 'none'"
    server.call("DELETE", f"/v1/sandboxes/{box['id']}")


def test_a_sandbox_may_be_made_without_services(server):
    box = server.create(timeout=600, env={"COVE_SERVICES": "none"})
    reply = server.call("GET", "/health", key=None, headers={"E2b-Sandbox-Id": box["id"], "E2b-Sandbox-Port": "8765"})
    assert reply.status == 502
    server.call("DELETE", f"/v1/sandboxes/{box['id']}")


def test_without_layer_and_network_packages_name_the_missing_command(cove):
    said = json.loads(cove.said(f"{ASK}/execute -d '{{\"code\": \"1\", \"packages\": [\"numpy\"]}}'"))
    assert said["stdout"] == "" and said["stderr"].startswith("Failed to install packages: numpy\n")
    # a machine whose own /usr has uv lacks nothing but the network
    assert ("no network" if shutil.which("uv", path="/usr/local/bin:/usr/bin") else "`cove layer add python`") in said["stderr"]
