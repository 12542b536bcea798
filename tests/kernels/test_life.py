"""Whose life depends on whose: kernels are the service's, and not of the parent that forked them. Being slow is not being dead."""
import concurrent.futures
import json
import os
import pathlib
import signal
import time

import pytest
from service import Kernel, wait_for

KEPT = "kept = 5"


def status(pid, key):
    """A field of /proc/PID/status; "": there is no such process, or it is a zombie."""
    try:
        fields = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    except OSError:
        return ""
    return "" if fields["State"].startswith("Z") else fields[key].strip()


def children(pid):
    return [int(p.name) for p in pathlib.Path("/proc").glob("[0-9]*") if status(p.name, "PPid") == str(pid)]


def processes(service):
    """The service itself, and its warmed parent: the one child whose program is warm.py and that leads no kernel."""
    own = next(p for p in children(service.process.pid) if b"--doors" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes())
    kernels = kernel_pids(service)
    warm = [p for p in children(own) if b"warm.py" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes() and p not in kernels]
    return own, warm


def kernel_pids(service):
    return {int(line.split(" pid=")[1].split()[0]) for line in service.log().splitlines() if 'msg="kernel started"' in line}


def parent(service):
    return wait_for(lambda: (processes(service)[1] or [0])[0], "the warmed parent")


def create(service, n):
    """The answers to n requests at once."""
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(lambda _: service.call("POST", "/api/kernels", json={}), range(n)))


def wait_idle(service, ids):
    for one in ids:
        wait_for(lambda: service.state(one) in ("idle", "dead"), "a kernel's first answer", 100)
        assert service.state(one) == "idle", service.call("GET", f"/api/kernels/{one}").text + service.log()[-5000:]


@pytest.fixture
def lone(start_service):
    """A service that parks nothing: each kernel is asked for by a test."""
    def start(*settings, **variables):
        return start_service("--set", "kernel.park=0", *(w for s in settings for w in ("--set", s)), **variables)
    return start


@pytest.mark.core
@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_parent_takes_no_kernel_along(lone, how):
    service = lone()
    with Kernel(service) as k, Kernel(service) as other:
        k.run(KEPT), other.run("kept = 6")
        before = parent(service)
        os.kill(before, signal.SIGKILL if how == "killed" else signal.SIGTERM)
        wait_for(lambda: not status(before, "State"), "the parent's end")
        with Kernel(service) as new:
            assert new.run("6 * 7").value == "42"
        assert (k.run("kept").value, other.run("kept").value) == ("5", "6")
    assert "msg=\"kernel ended\"" in service.log() and service.log().count("by=fork") >= 2


def test_a_parent_that_stands_still_is_slow_and_not_dead(lone):
    """Twelve at once, while it does: the older kernels know nothing of it, the new ones are started without it, and it is there again
    when it goes on. What was asked of it meanwhile comes to nothing."""
    service = lone("kernel.fork-ms=300", "kernel.starts=4")
    with Kernel(service) as k:
        k.run(KEPT)
        stopped = parent(service)
        os.kill(stopped, signal.SIGSTOP)
        try:
            answers = create(service, 12)
            assert [a.status_code for a in answers] == [201] * 12
            ids = [a.json()["id"] for a in answers]
            wait_idle(service, ids)
            assert k.run("kept").value == "5"
            own = processes(service)[0]
            assert service.log().count("by=exec") >= 12 and status(stopped, "State").startswith("T")
        finally:
            os.kill(stopped, signal.SIGCONT)
        known = kernel_pids(service)
        wait_for(lambda: set(children(own)) <= known | {stopped}, "the end of what was forked too late")

        def forked():
            with Kernel(service) as new:
                assert new.run("6 * 7").value == "42"
            return service.log().count("by=fork") > 1
        wait_for(forked, "a fork of the parent that goes on")
        assert processes(service)[1] == [stopped] and k.run("kept").value == "5"


def test_many_at_once_all_begin(lone):
    """Cold, with an environment that fills the parent's socket: all of them wait for room in it."""
    service = lone("kernel.starts=64")
    big = {"env": {"BIG": "x" * 60000}}
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        ids = list(pool.map(lambda _: service.start_kernel(**big), range(20)))
    wait_idle(service, ids)
    assert service.log().count("msg=serving") == 1, "it has never been started again:\n" + service.log()[-5000:]


@pytest.mark.parametrize("spec", ["python3", "bash", "plain"])
def test_a_service_that_is_killed_leaves_nothing_to_the_next_one(lone, spec):
    service = lone()
    path = service.home / ".local/share/jupyter/kernels/plain"
    path.mkdir(parents=True)
    (path / "kernel.json").write_text(json.dumps({
        "argv": ["python3", "-m", "ipykernel_launcher", "--debug", "-f", "{connection_file}"], "display_name": "plain", "language": "python"}))
    kernel = service.start_kernel(name=spec)
    wait_idle(service, [kernel])
    own, pids = processes(service)[0], kernel_pids(service)
    first = next((service.dir / "run").glob("cove-kernels-*"))
    os.kill(own, signal.SIGKILL)
    wait_for(lambda: not any(status(p, "State") for p in pids), "the kernels' end")
    assert first.exists()
    other = service.dir / "run/cove-kernels-other"          # without a lock: who knows whose it is
    other.mkdir()
    service.call("GET", "/api/kernels", 200)
    left = [p.name for p in (service.dir / "run").glob("cove-kernels-*")]
    assert first.name not in left and "cove-kernels-other" in left and len(left) == 2
    other.rmdir()


FAILING = """
import os, pathlib
fork, left = os.fork, pathlib.Path(os.environ["HOME"], "left")
def failing():
    if "warm.py" in open("/proc/self/cmdline").read() and left.exists():
        n = int(left.read_text())
        if n:
            left.write_text(str(n - 1))
            raise OSError(11, "Resource temporarily unavailable")
    return fork()
os.fork = failing
"""


def test_a_fork_that_fails_is_no_end_of_the_parent(lone, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FAILING)
    service = lone(PYTHONPATH=str(tmp_path))
    with Kernel(service) as k:
        k.run(KEPT)
        before = parent(service)
        (service.home / "left").write_text("1")
        with Kernel(service) as other:
            assert other.run("6 * 7").value == "42"
        assert "Resource temporarily unavailable" in service.log()
        with Kernel(service) as other:
            assert other.run("6 * 7").value == "42"
        assert parent(service) == before and k.run("kept").value == "5"
    assert service.log().count("by=exec") == 1


FLAKY = """#!/bin/sh
n=$(cat "$HOME/tries" 2>/dev/null || echo 0)
echo $((n + 1)) >"$HOME/tries"
[ "$n" -ge "$GOOD_AFTER" ] || exit 3
exec python3 -m ipykernel_launcher "$@"
"""


@pytest.mark.parametrize("fails, state", [(2, "idle"), (9, "dead")])
def test_a_start_that_fails_is_made_again_and_then_told(lone, fails, state):
    service = lone(GOOD_AFTER=str(fails))
    path = service.home / ".local/share/jupyter/kernels/flaky"
    path.mkdir(parents=True)
    (path / "start").write_text(FLAKY)
    (path / "start").chmod(0o755)
    (path / "kernel.json").write_text(json.dumps({
        "argv": ["{resource_dir}/start", "-f", "{connection_file}"], "display_name": "flaky", "language": "python"}))
    kernel = service.start_kernel(name="flaky")
    wait_for(lambda: service.state(kernel) == state, f"the kernel to be {state}")
    assert (service.home / "tries").read_text().strip() == "3"
    if state == "dead":
        assert "status 3" in service.call("GET", f"/api/kernels/{kernel}", 200).json()["reason"]
    else:
        channels = service.connect(kernel)
        assert channels.run("6 * 7").value == "42"
        channels.close()


def test_what_a_kernel_leaves_behind_is_collected(lone):
    service = lone()
    with Kernel(service) as k:
        k.run("import subprocess; subprocess.run(['sh', '-c', 'sleep 0.05 & sleep 0.1 & :'])")
        own = processes(service)[0]

        def zombies():
            return [p.name for p in pathlib.Path("/proc").glob("[0-9]*")
                    if f"PPid:\t{own}\n" in (p / "status").read_text() and "State:\tZ" in (p / "status").read_text()]
        time.sleep(0.2)
        wait_for(lambda: not zombies(), "the end of all zombies", 10)


@pytest.mark.slow
@pytest.mark.long
def test_a_hundred_at_once(lone):
    """Two keep what they know, a hundred come; nobody is refused, and nothing is lost."""
    service = lone()
    with Kernel(service) as k, Kernel(service) as other:
        k.run(KEPT), other.run("kept = 6")
        answers = create(service, 100)
        assert {a.status_code for a in answers} == {201}, {a.text for a in answers if a.status_code != 201}
        wait_idle(service, [a.json()["id"] for a in answers])
        assert (k.run("kept").value, other.run("kept").value) == ("5", "6")
    assert service.log().count("msg=serving") == 1


def test_a_message_that_is_too_large_costs_nobody_his_variables(lone):
    service = lone("kernel.message-bytes=65536")
    with Kernel(service) as k:
        k.run(KEPT)
        k.run("from IPython.display import publish_display_data\npublish_display_data({'text/plain': 'x' * 300_000})")
        assert k.run("kept").value == "5"
    assert "larger than kernel.message-bytes" in service.log() and service.log().count('msg="kernel started"') == 1


CUT = """
import os, socket
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        one = socket.socket(fileno=os.dup(fd))
        one.getpeername() is None or one.getsockname() and one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
"""


def test_sockets_that_break_are_made_anew(lone):
    """All that the kernel has accepted: the service's own, and the client's."""
    service = lone()
    with Kernel(service) as k:
        k.run(KEPT)
        k.execute(CUT)
        wait_for(lambda: service.log().count("kernel socket made anew") >= 3, "the service's sockets", 20)
        again = service.connect(k.id, session=k.session)
        assert again.run("kept").value == "5"
        again.close()
    assert service.log().count('msg="kernel started"') == 1


DEAF = """
import os, socket
def unlink(one):
    path = one.getsockname()
    if isinstance(path, str) and os.path.exists(path):
        os.unlink(path)
""" + CUT.replace("one.getpeername()", "unlink(one) or one.getpeername()")


def test_a_kernel_that_closes_its_sockets_for_good_is_replaced(lone):
    """No error, but an end: nobody can hear it any more."""
    service = lone("kernel.start-ms=5000")
    with Kernel(service) as k:
        k.run(KEPT)
        k.execute(DEAF)
        wait_for(lambda: service.log().count('msg="kernel started"') == 2, "another kernel", 30)
        assert "kernel socket" in service.log()


def test_a_kernel_that_ends_by_itself_may_take_its_time(lone):
    """Its sockets are closed before it has ended: that is no reason to kill it."""
    service = lone()
    with Kernel(service) as k:
        k.execute(DEAF + "import time; time.sleep(1); os._exit(7)")
        wait_for(lambda: 'msg="kernel ended"' in service.log(), "its end", 20)
    assert 'by="status 7"' in service.log(), service.log()[-2000:]
