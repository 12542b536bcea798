"""What people do in kernels works in forked ones as in others."""
import pytest
from service import Kernel, wait_for

PIECES = {
    "numpy": ("import numpy as np; print(int((np.eye(300) @ np.ones(300)).sum()))", "300"),
    "pandas": ("import pandas as pd; print(int(pd.DataFrame({'a': range(10)}).a.sum()))", "45"),
    "processes": ("import multiprocessing as m\ndef f(x): return x * x\n"
                  "with m.get_context('fork').Pool(2) as p: print(sum(p.map(f, range(10))))", "285"),
    "threads": ("import threading\nl = []\nt = threading.Thread(target=l.append, args=(1,)); t.start(); t.join(); print(l)", "[1]"),
    "await": ("import asyncio\nawait asyncio.sleep(0.01)\nprint('slept')", "slept"),
    "shell": ("!echo from the shell", "from the shell"),
    "subprocess": ("import subprocess; print(subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout.strip())", "x"),
    "pickle": ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)", "A"),
    "timeit": ("%timeit -n1 -r1 pass", None),
    "main": ("print(__name__)", "__main__"),
    "help": ("help(len)", None),
}


@pytest.mark.parametrize("what", PIECES)
def test_it_works(quick, what):
    code, expected = PIECES[what]
    run = quick.run(code)
    assert not run.errors, run.errors
    if expected is not None:
        assert run.out.strip() == expected


def test_messages_of_threads_that_come_and_go_all_arrive_in_order(quick):
    """One call wakes the sending thread for all that waits; none may be left behind, whoever called and ended."""
    run = quick.run("import threading\nk = get_ipython().kernel\np = k.get_parent()\n"
                    "def some(i):\n"
                    "    for j in range(50):\n"
                    "        k.session.send(k.iopub_socket, 'display_data', {'data': {'text/plain': f'{i} {j}'}, 'metadata': {}}, parent=p)\n"
                    "for _ in range(10):\n"
                    "    threads = [threading.Thread(target=some, args=(8 * _ + i,)) for i in range(8)]\n"
                    "    [t.start() for t in threads]; [t.join() for t in threads]")
    assert not run.errors, run.errors
    seen = [tuple(map(int, r["text/plain"].split())) for r in run.results]
    assert sorted(seen) == [(i, j) for i in range(80) for j in range(50)]
    assert all([j for k, j in seen if k == i] == list(range(50)) for i in range(80))


def test_figures_are_shown_inline(quick):
    run = quick.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);")
    assert any("image/png" in r for r in run.results), run.errors


def test_random_numbers_differ_between_kernels(service):
    seen = set()
    for _ in range(3):
        with Kernel(service) as k:
            seen.add(k.run("import random, uuid, numpy, os\n"
                           "print(random.random(), uuid.uuid4(), numpy.random.rand(), os.urandom(4))").out)
    assert len(seen) == 3 and len({p for s in seen for p in s.split()[:3]}) == 9


def test_a_kernel_is_waiting_for_whoever_comes(start_service):
    """It is parked: started before it was asked for."""
    service = start_service()
    for n in 1, 2:
        service.call("GET", "/api/kernels", 200)
        wait_for(lambda: service.log().count("kernel parked") == n, "a parked kernel")
        assert service.call("POST", "/api/kernels", 201).json()["execution_state"] == "idle"
    assert service.log().count("by=fork") >= 2 and "by=exec" not in service.log()


def test_it_works_without_the_warmed_parent_too(start_service):
    service = start_service("--set", "kernel.park=0")
    path = service.home / ".local/share/jupyter/kernels/plain"
    path.mkdir(parents=True)
    (path / "kernel.json").write_text('{"argv": ["python3", "-m", "ipykernel_launcher", "--debug", "-f", "{connection_file}"],'
                                      '"display_name": "plain", "language": "python"}')
    with Kernel(service, name="plain") as k:
        assert k.run("6 * 7").value == "42"
    assert "by=exec" in service.log()


DIES_AT_ONCE = """
import os, pathlib, time
open_pidfd, set_session = os.pidfd_open, os.setsid
doomed = pathlib.Path(os.environ["HOME"], "doomed")
def late(pid):
    time.sleep(0.5 if doomed.exists() else 0)
    return open_pidfd(pid)
def early():
    return os._exit(1) if doomed.exists() else set_session()
os.pidfd_open, os.setsid = late, early
"""


def test_a_fork_that_ends_at_once_takes_no_other_kernel_along(start_service, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(DIES_AT_ONCE)
    service = start_service("--set", "kernel.park=0", PYTHONPATH=str(tmp_path))
    with Kernel(service) as k:
        assert k.run("x = 5; print(x)").out == "5\n"
        (service.home / "doomed").touch()
        with Kernel(service) as other:
            assert other.run("6 * 7").value == "42"
        assert k.run("print(x)").out == "5\n"
    assert service.log().count("by=exec") == 1
