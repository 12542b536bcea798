"""The code interpreter: E2B's unmodified SDKs, and the lines on the wire."""
import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests
from e2b_code_interpreter import Sandbox
from service import wait_for

pytestmark = pytest.mark.core

DEBUG = {"E2B_DEBUG": "true", "E2B_API_KEY": "e2b_" + "0" * 40}


@pytest.fixture
def sandbox(service, monkeypatch):
    for name, value in {**DEBUG, "E2B_SANDBOX_URL": service.interpreter_url}.items():
        monkeypatch.setenv(name, value)
    return Sandbox.create()


def execute(service, code, **body):
    """The raw lines of one execution."""
    answer = requests.post(service.interpreter_url + "/execute", json={"code": code, **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def without_keepalives(lines):
    """On a slow machine there may be some anywhere."""
    return [line for line in lines if line["type"] != "keepalive"]


def written(lines):
    """A kernel sends what was printed in as many pieces as it likes."""
    return "".join(line["text"] for line in lines if line["type"] == "stdout")


def test_lines_are_as_the_sdks_want_them(service):
    lines = without_keepalives(execute(service, "import sys; n = sys.stdout.write('a\\n')\n'text'",
                                       context_id=None, language=None, env_vars=None))
    assert [line["type"] for line in lines] == ["number_of_executions", "stdout", "result", "end_of_execution"]
    assert set(lines[1]) == {"type", "text", "timestamp"} and isinstance(lines[1]["timestamp"], str)
    assert lines[2] == {"type": "result", "text": "text", "is_main_result": True}
    assert requests.get(service.interpreter_url + "/health", timeout=60).json() == "OK"


def test_variables_stay_and_results_have_their_formats(sandbox):
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("x += 1; x")
    assert execution.text == "2" and execution.execution_count >= 2 and not execution.error
    result = sandbox.run_code("import pandas as pd; pd.DataFrame({'a': [1, None], 'b': ['x', 'y']})").results[0]
    assert result.data == {"a": [1.0, None], "b": ["x", "y"]} and "<table" in result.html
    shown = sandbox.run_code("""
from IPython.display import HTML, Markdown, SVG, Latex, JSON, Javascript, display
display(HTML('<b>x</b>'), Markdown('# x'), Latex('$x$'), JSON({'a': [1]}), Javascript('1'), SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'))
display({'application/x-own': 'mine'}, raw=True)
""")
    html, markdown, latex, as_json, script, svg, own = shown.results
    assert html.html == "<b>x</b>" and markdown.markdown == "# x" and latex.latex == "$x$"
    assert as_json.json == {"a": [1]} and script.javascript == "1" and "<svg" in svg.svg
    assert own.extra == {"application/x-own": "mine"} and not own.is_main_result


CHARTS = {
    "line": ("plt.plot([1, 2], [3, 4], label='l'); plt.xlabel('Time (s)'); plt.title('T')", "line"),
    "scatter": ("plt.scatter([1, 2], [3, 4])", "scatter"),
    "bar": ("plt.bar(['a', 'b'], [3, 4])", "bar"),
    "barh": ("plt.barh(['a', 'b'], [3, 4])", "bar"),
    "pie": ("plt.pie([1, 3], labels=['a', 'b'])", "pie"),
    "box": ("plt.boxplot([[1, 2, 3, 4, 20], [2, 3, 4]])", "box_and_whisker"),
    "super": ("f, a = plt.subplots(1, 2); a[0].plot([1, 2]); a[1].bar(['x'], [1])", "superchart"),
    "log": ("plt.plot([1, 2], [3, 4]); plt.yscale('log')", "line"),
    "dates": ("import datetime; plt.plot([datetime.date(2024, 1, i) for i in (1, 2)], [3, 4])", "line"),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_figures_come_as_pictures_and_as_charts(sandbox, kind):
    code, wanted = CHARTS[kind]
    result = sandbox.run_code(f"import matplotlib.pyplot as plt\n{code}\nplt.show()").results[0]
    assert result.png and result.chart.type.value == wanted
    chart = result.chart
    if kind == "line":
        assert chart.title == "T" and chart.x_label == "Time (s)" and chart.x_unit == "s"
        assert chart.elements[0].label == "l" and [tuple(p) for p in chart.elements[0].points] == [(1, 3), (2, 4)]
    elif kind in ("bar", "barh"):
        assert [(e.label, e.value) for e in chart.elements] == [("a", 3), ("b", 4)]
    elif kind == "pie":
        assert [(e.label, round(e.angle)) for e in chart.elements] == [("a", 90), ("b", 270)]
    elif kind == "box":
        assert chart.elements[0].outliers == [20] and chart.elements[0].median == 3
    elif kind == "super":
        assert [c.type.value for c in chart.elements] == ["line", "bar"]
    elif kind == "log":
        assert chart.y_scale.value == "log"
    elif kind == "dates":
        assert chart.x_scale.value == "datetime" and chart.elements[0].points[0][0].startswith("2024-01-01")


def test_errors_and_output_arrive_while_it_runs(sandbox):
    seen = []
    execution = sandbox.run_code("import sys\nprint('o', flush=True)\nprint('e', file=sys.stderr)\n1 / 0",
                                 on_stdout=lambda m: seen.append(m.line), on_stderr=lambda m: seen.append(m.line),
                                 on_error=lambda e: seen.append(e.name))
    assert seen[-1] == "ZeroDivisionError" and sorted("".join(seen[:-1]).split()) == ["e", "o"]
    assert execution.error.value == "division by zero" and "ZeroDivisionError" in execution.error.traceback


def test_contexts_are_apart(sandbox, service):
    one, two = sandbox.create_code_context(cwd="/tmp"), sandbox.create_code_context(language="bash")
    assert sandbox.run_code("import os; os.getcwd()", context=one).text == "/tmp"
    assert sandbox.run_code("echo $BASH_VERSION", context=two).logs.stdout[0].strip()
    listed = {c.id: c for c in sandbox.list_code_contexts()}
    assert listed[one.id].language == "python" and listed[two.id].language == "bash"
    sandbox.run_code("v = 1", context=one)
    sandbox.restart_code_context(one)
    assert sandbox.run_code("v", context=one).error.name == "NameError"
    for context in one, two:
        sandbox.remove_code_context(context)
    with pytest.raises(Exception, match="not found"):
        sandbox.run_code("1", context=one)
    for body in {"language": "cobol"}, {"cwd": "/nonexistent"}:
        answer = requests.post(service.interpreter_url + "/contexts", json=body, timeout=60)
        assert answer.status_code == 400 and list(body.values())[0] in answer.text
    both = {"code": "1", "context_id": one.id, "language": "python"}
    assert requests.post(service.interpreter_url + "/execute", json=both, timeout=60).status_code == 400


def test_languages_without_a_kernel_are_named(sandbox):
    with pytest.raises(Exception, match="cobol"):
        sandbox.run_code("1", language="cobol")
    assert "".join(sandbox.run_code("echo $((6 * 7))", language="bash").logs.stdout) == "42\n"


@pytest.mark.parametrize("language", ["python", "bash"])
def test_without_ipykernel_it_says_which_command_is_missing(start_service, tmp_path, language):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    service = start_service(VIRTUAL_ENV=str(tmp_path / "bare"), PATH=f"{tmp_path}/bare/bin:/usr/bin:/bin")
    answer = requests.post(service.interpreter_url + "/execute", json={"code": "1", "language": language}, timeout=60)
    assert answer.status_code == 503 and "ipykernel" in answer.text and "cove layer add python" in answer.text


def test_the_last_word_of_a_parent_that_has_ended_is_heard(start_service, tmp_path):
    """It ends with a request unread, and the service has no processor meanwhile."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/python3"
    program.write_text(f"""#!{sys.executable} -S
import os, select, signal, socket, time
service = os.getppid()
if not os.fork():
    os.closerange(0, 3)
    time.sleep(0.5)
    os.kill(service, signal.SIGCONT)
    os._exit(0)
select.select([0], [], [], 20)
os.kill(service, signal.SIGSTOP)
socket.socket(fileno=0).send(b'{{"error": "no ipykernel, says the test"}}')
os._exit(0)
""")
    program.chmod(0o755)
    service = start_service(VIRTUAL_ENV=str(tmp_path), PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    answer = requests.post(service.interpreter_url + "/execute", json={"code": "1"}, timeout=20)
    assert answer.status_code == 503 and "no ipykernel, says the test" in answer.text


def test_variables_of_one_execution_end_with_it(sandbox):
    sandbox.run_code("import os; os.environ['KEPT'] = 'old'")
    assert sandbox.run_code("os.environ['KEPT'] + os.environ['NEW']", envs={"KEPT": "a", "NEW": "b"}).text == "ab"
    assert sandbox.run_code("os.environ['KEPT'] + os.environ.get('NEW', '-')").text == "old-"
    assert "".join(sandbox.run_code("echo $NEW", language="bash", envs={"NEW": "it's"}).logs.stdout) == "it's\n"
    assert "".join(sandbox.run_code("echo ${NEW-unset}", language="bash").logs.stdout) == "unset\n"
    sandbox.run_code("own=1; export EXPORTED='a:b'", language="bash")
    show = "printenv own || echo $own; printenv EXPORTED; ls / >/dev/null && echo found"
    with_path = sandbox.run_code(show, language="bash", envs={"own": "x", "EXPORTED": "y", "PATH": "/usr/bin:/bin"})
    assert "".join(with_path.logs.stdout) == "x\ny\nfound\n"
    assert "".join(sandbox.run_code(show, language="bash").logs.stdout) == "1\na:b\nfound\n"


def test_a_time_out_interrupts_the_code(sandbox):
    with pytest.raises(Exception, match="timed out"):
        sandbox.run_code("while True: pass", timeout=1)
    assert sandbox.run_code("'still here'").text == "still here"


def test_a_client_that_leaves_stops_its_code(service, sandbox):
    marker = service.dir / "ticks"
    code = f"import time\nfor i in range(10000):\n    open({str(marker)!r}, 'a').write('x'); time.sleep(0.01)"
    body = json.dumps({"code": code}).encode()
    with socket.create_connection(("127.0.0.1", service.interpreter)) as s:
        s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: marker.exists() and marker.stat().st_size > 3, "ticks")
    assert sandbox.run_code("'next'").text == "next"        # it waited for the interrupt
    size = marker.stat().st_size
    time.sleep(0.2)
    assert marker.stat().st_size == size


def test_a_lost_kernel_is_told_and_replaced(sandbox):
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("import os; os.kill(os.getpid(), 9)")
    assert execution.error.name == "UnexpectedEndOfExecution"
    assert sandbox.run_code("x").error.name == "NameError"


@pytest.mark.parametrize("killed", ["before", "after"])
def test_code_that_comes_as_its_kernel_dies_runs_in_the_next(start_service, killed):
    """Both are there when the service looks: it is stopped until they are."""
    service = start_service()
    pid = int(written(execute(service, "import os; print(os.getpid())")))
    served = int(pathlib.Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text())
    body = b'{"code": "print(6 * 7)"}'
    with socket.create_connection(("127.0.0.1", service.interpreter), timeout=60) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"OK" in s.recv(4096)
        os.kill(served, signal.SIGSTOP)
        wait_for(lambda: pathlib.Path(f"/proc/{served}/stat").read_text().split()[2] == "T", "the stop")
        kernel = os.pidfd_open(pid)
        if killed == "before":
            os.kill(pid, signal.SIGKILL)
            assert select.select([kernel], [], [], 60)[0]
        s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if killed == "after":
            os.kill(pid, signal.SIGKILL)
            assert select.select([kernel], [], [], 60)[0]
        os.close(kernel)
        os.kill(served, signal.SIGCONT)
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert b"200 OK" in answer and b'"text":"42\\n"' in answer, answer


def test_a_kernel_that_dies_under_many_clients_stops_none_of_them(start_service):
    """Those who come between its death and its successor wait for that, and for nothing else."""
    service = start_service("--set", "kernel.stable-ms=0", "--set", "kernel.restarts=1000")
    done, answered = threading.Event(), []

    def ask():
        while not done.is_set():
            answered.append(requests.post(service.interpreter_url + "/execute", json={"code": "1"}, timeout=60).status_code)

    clients = [threading.Thread(target=ask) for _ in range(8)]
    execute(service, "1")
    for client in clients:
        client.start()
    try:
        for _ in range(15):
            pid = written(execute(service, "import os; print(os.getpid())"))
            if pid:                                         # or the kernel of this one has just ended
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            assert requests.get(service.url + "/", timeout=60).status_code == 200
    finally:
        done.set()
        for client in clients:
            client.join()
    assert set(answered) == {200}


def test_a_kernel_that_is_ended_on_the_other_port_takes_its_context_along(service, sandbox):
    context = sandbox.create_code_context()
    service.end_kernel(context.id)
    assert context.id not in [c.id for c in sandbox.list_code_contexts()]
    with pytest.raises(Exception, match="not found"):
        sandbox.run_code("1", context=context)
    sandbox.run_code("x = 1")
    for kernel in service.call("GET", "/api/kernels", 200).json():      # the default ones too
        service.end_kernel(kernel["id"])
    assert sandbox.run_code("x").error.name == "NameError"


def test_a_restarted_context_has_its_display_hooks_again(sandbox):
    context = sandbox.create_code_context()
    for _ in range(3):
        frame = sandbox.run_code("import pandas as pd; pd.DataFrame({'a': [1]})", context=context).results[0]
        assert frame.data == {"a": [1]}
        sandbox.restart_code_context(context)
    sandbox.remove_code_context(context)


def test_who_leaves_while_it_waits_for_its_turn_is_not_served(service, sandbox):
    begun, go, ran = (service.dir / name for name in ("turn-begun", "turn-go", "turn-ran"))
    wait = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    first = threading.Thread(target=execute, args=(service, wait))
    first.start()
    wait_for(begun.exists, "the first one's begin")
    body = json.dumps({"code": f"open({str(ran)!r}, 'w')"}).encode()
    with socket.create_connection(("127.0.0.1", service.interpreter)) as s:
        s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    go.touch()
    first.join()
    assert sandbox.run_code("'next'").text == "next" and not ran.exists()


def test_executions_of_one_context_wait_for_each_other(service):
    results = []
    code = "import time; n = globals().get('n', 0); time.sleep(0.05); n += 1; print(n)"
    execute(service, "n = 0")
    threads = [threading.Thread(target=lambda: results.append(written(execute(service, code)))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == [f"{i}\n" for i in range(1, 9)]


def test_silence_is_kept_alive(service):
    lines = execute(service, "import time; time.sleep(6)")
    assert [line["type"] for line in without_keepalives(lines)] == ["number_of_executions", "end_of_execution"]
    assert len(lines) > 2 and lines[-1]["type"] == "end_of_execution"


@pytest.mark.parametrize("body, status", [("{", 400), ("{}", 400), ('{"code":1}', 400), ('{"code":"1","env_vars":{"a":1}}', 400)])
def test_bad_requests_are_refused(service, body, status):
    assert requests.post(service.interpreter_url + "/execute", data=body, timeout=60).status_code == status


JAVASCRIPT = """
const { Sandbox } = require('@e2b/code-interpreter');
(async () => {
  const sandbox = await Sandbox.create();
  let out = '';
  await sandbox.runCode('x = 20');
  const run = await sandbox.runCode('print("hi"); x + 1', { onStdout: m => { out += m.line; } });
  const failed = await sandbox.runCode('1 / 0');
  const context = await sandbox.createCodeContext({ cwd: '/tmp' });
  const there = await sandbox.runCode('import os; os.getcwd()', { context });
  const shown = await sandbox.runCode('import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()');
  const bash = await sandbox.runCode('echo $((1 + 1))', { language: 'bash' });
  let slow = '';
  try { await sandbox.runCode('while True: pass', { timeoutMs: 1000 }); } catch (e) { slow = e.name; }
  const after = await sandbox.runCode('x');
  console.log(JSON.stringify([run.text, out, failed.error.name, there.text, shown.results[0].chart.type, bash.logs.stdout.join(''), slow, after.text]));
})();
"""


def test_the_javascript_sdk_does_the_same(service, node):
    env = {**os.environ, **DEBUG, "E2B_SANDBOX_URL": service.interpreter_url}
    run = subprocess.run([node, "-e", JAVASCRIPT], env=env, capture_output=True, text=True, timeout=170)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == ["21", "hi\n", "ZeroDivisionError", "/tmp", "line", "2\n", "TimeoutError", "20"]
