"""Kernels through their WebSocket, in both dialects."""
import concurrent.futures
import contextlib
import json
import os
import signal
import struct
import threading
import time
import uuid

import pytest
import websocket
from service import Kernel, result_pickle, wait_for

pytestmark = pytest.mark.core


def kinds(run):
    return [m["header"]["msg_type"] for m in run.messages]


def test_output_results_and_errors_come_in_their_order(kernel):
    run = kernel.run("import sys\nprint('hello')\nsys.stdout.flush()\nprint('oops', file=sys.stderr)\n6 * 7")
    assert run.out == "hello\n" and run.err == "oops\n" and run.value == "42"
    assert run.reply["content"]["status"] == "ok" and run.reply["channel"] == "shell"
    assert [k for k in kinds(run) if k not in ("stream", "execute_reply")] == \
        ["status", "execute_input", "execute_result", "status"]
    run = kernel.run("1 / 0")
    assert run.errors[0]["ename"] == "ZeroDivisionError" and run.reply["content"]["status"] == "error"


def test_text_of_all_languages_passes_unchanged(kernel):
    text = "žluťoučký 🐎 </script> \u2028 \\ \" \x07"
    assert kernel.run(f"print({text!r})").out == text + "\n"


def test_a_request_without_channel_date_or_buffers_is_for_shell(service):
    with Kernel(service, v1=False) as k:
        header = {"msg_id": "m1", "username": "anonymous", "session": "s", "msg_type": "execute_request", "version": "5.0"}
        k.ws.send(json.dumps({"header": header, "parent_header": {}, "metadata": {},
                              "content": {"code": "print(5)", "silent": False}}))
        assert k.follow("m1").out == "5\n"
        header |= {"msg_id": "m2", "date": 1700000000.25}           # a number, as one client writes it
        k.ws.send(json.dumps({"channel": "shell", "header": header, "content": {"code": "print(6)"}}))
        assert k.follow("m2").out == "6\n"


def test_questions_are_answered(kernel):
    assert kernel.run("name = input('who? ')\nprint('hi', name)", answer="Ann").out == "hi Ann\n"
    assert kernel.run("import getpass\nprint(getpass.getpass())", answer="pw").out == "pw\n"


def test_completion_inspection_history_and_control_are_requests_like_others(kernel):
    def complete():                     # IPython gives up after a moment, which on a busy machine is too short
        run = kernel.follow(kernel.send("complete_request", {"code": "impor", "cursor_pos": 5}))
        return run.reply["content"]["matches"]
    assert "import" in wait_for(complete, "completions", 30)
    run = kernel.follow(kernel.send("kernel_info_request", {}, channel="control"))
    assert run.reply["content"]["language_info"]["name"] == "python" and run.reply["channel"] == "control"


def test_comms_carry_binary_buffers_both_ways(kernel):
    kernel.run("""
from ipykernel.comm import Comm
got = []
def opened(comm, message):
    @comm.on_msg
    def back(message):
        got.append([bytes(b) for b in message['buffers']])
        comm.send({'n': len(message['buffers'])}, buffers=[b[::-1] for b in got[-1]] + [b''])
get_ipython().kernel.comm_manager.register_target('echo', opened)
""")
    comm = uuid.uuid4().hex
    kernel.send("comm_open", {"comm_id": comm, "target_name": "echo", "data": {}})
    big = bytes(range(256)) * 4096
    kernel.send("comm_msg", {"comm_id": comm, "data": {}}, buffers=[b"abc", big])
    while True:
        m = kernel.receive()
        if m["header"]["msg_type"] == "comm_msg":
            break
    assert m["content"]["data"] == {"n": 2} and [bytes(b) for b in m["buffers"]] == [b"cba", big[::-1], b""]


def test_many_buffers_pass(kernel):
    kernel.run("""
from ipykernel.comm import Comm
c = Comm(target_name='x')
c.send({}, buffers=[bytes([i]) * i for i in range(100)])
""")
    # the message came within that run: ask once more and look
    request = kernel.execute("c.send({}, buffers=[bytes([i]) * i for i in range(100)])")
    run = kernel.follow(request)
    sent = [m for m in run.messages if m["header"]["msg_type"] == "comm_msg"]
    assert [bytes(b) for b in sent[0]["buffers"]] == [bytes([i]) * i for i in range(100)]


def model(service, kernel):
    return service.call("GET", f"/api/kernels/{kernel}", 200).json()


def test_a_client_that_returns_gets_what_it_missed(service):
    kernel, session = service.start_kernel(), uuid.uuid4().hex
    first = service.connect(kernel, True, session)
    go = service.dir / "replay-go"
    go.unlink(missing_ok=True)
    request = first.execute("import os, time\nprint('begun', flush=True)\n"
                            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
                            "for i in range(20):\n    print(i, flush=True)")
    while first.receive()["header"]["msg_type"] != "stream":
        pass
    first.close()
    wait_for(lambda: service.call("GET", f"/api/kernels/{kernel}").json()["connections"] == 0, "its leaving")
    go.touch()
    wait_for(lambda: service.state(kernel) == "idle", "the end of the run")
    again = service.connect(kernel, False, session)             # in the other dialect even
    run = again.follow(request)
    assert list(map(int, run.out.split())) == list(range(20)) and run.reply["content"]["status"] == "ok"
    again.close()
    service.end_kernel(kernel)


def test_another_session_does_not_get_it(service):
    kernel = service.start_kernel()
    first = service.connect(kernel, True, "one")
    first.run("1")
    before = model(service, kernel)["last_activity"]
    first.execute("print('secret')")
    first.close()
    wait_for(lambda: model(service, kernel)["connections"] == 0, "its leaving")
    wait_for(lambda: model(service, kernel)["last_activity"] != before and service.state(kernel) == "idle", "the end of the run")
    other, heard = service.connect(kernel, True, "two"), []
    request = other.execute("print('mine')")
    while not heard or heard[-1]["content"].get("execution_state") != "idle" or heard[-1]["parent_header"].get("msg_id") != request:
        heard.append(other.receive())
    assert "mine" in str(heard) and "secret" not in str(heard)
    other.close()
    service.end_kernel(kernel)


def test_a_second_connection_of_a_session_takes_over(service):
    kernel = service.start_kernel()
    first = service.connect(kernel, True, "same")
    first.run("x = 1")
    second = service.connect(kernel, True, "same")
    assert second.run("x").value == "1"
    with pytest.raises((websocket.WebSocketException, OSError, AssertionError)):
        while True:
            first.receive()
    wait_for(lambda: service.call("GET", f"/api/kernels/{kernel}").json()["connections"] == 1, "one connection")
    second.close()
    service.end_kernel(kernel)


def test_two_clients_hear_the_same_and_get_their_own_replies(service, kernel):
    other = service.connect(kernel.id, not kernel.v1)
    mine, theirs = kernel.execute("print('a')"), other.execute("print('b')")
    assert kernel.follow(mine).out == "a\n" and other.follow(theirs).out == "b\n"
    heard = []
    request = kernel.execute("print('c')")
    kernel.follow(request)
    while not heard or heard[-1]["content"].get("execution_state") != "idle":
        m = other.receive()
        if m["parent_header"].get("msg_id") == request:
            heard.append(m)
    assert {m["channel"] for m in heard} == {"iopub"}
    other.close()


def test_a_busy_loop_is_interrupted_and_the_kernel_goes_on(service, kernel):
    kernel.run("x = 5")
    request = kernel.execute("print('in', flush=True)\nwhile True:\n    pass")
    while kernel.receive()["header"]["msg_type"] != "stream":
        pass
    assert service.state(kernel.id) == "busy"
    service.call("POST", f"/api/kernels/{kernel.id}/interrupt", 204)
    assert kernel.follow(request).errors[0]["ename"] == "KeyboardInterrupt"
    assert kernel.run("x").value == "5"


def test_a_restart_keeps_the_connection_and_forgets_the_variables(service, kernel):
    kernel.run("x = 5")
    assert service.call("POST", f"/api/kernels/{kernel.id}/restart", 200).json()["execution_state"] == "idle"
    run = kernel.run("x")
    assert run.errors[0]["ename"] == "NameError"
    assert not any(m["content"].get("execution_state") == "restarting" for m in run.messages)


def test_a_killed_kernel_is_started_again(service, kernel):
    pid = int(kernel.run("import os; print(os.getpid())").out)
    os.kill(pid, signal.SIGKILL)
    m = kernel.wait_status("restarting")
    assert m["parent_header"] == {} and m["channel"] == "iopub"
    wait_for(lambda: service.state(kernel.id) == "idle", "the new one")
    assert int(kernel.run("import os; print(os.getpid())").out) != pid


def test_one_that_always_dies_is_given_up(start_service):
    service = start_service("--set", "kernel.restarts=2", "--set", "kernel.stable-ms=600000")
    with Kernel(service) as k:
        for _ in range(2):
            k.execute("import os; os._exit(1)")
            k.wait_status("restarting")
            wait_for(lambda: service.state(k.id) == "idle", "a new one")
        k.execute("import os; os._exit(1)")
        k.wait_status("dead")
        given_up = model(service, k.id)
        assert given_up["execution_state"] == "dead" and "too often" in given_up["reason"]
        assert service.call("POST", f"/api/kernels/{k.id}/restart", 200).json()["execution_state"] == "idle"


def test_the_end_of_a_kernel_closes_its_connections(service):
    kernel = service.start_kernel()
    channels = service.connect(kernel)
    channels.run("1")
    service.end_kernel(kernel)
    channels.wait_status("dead")
    with pytest.raises((websocket.WebSocketException, OSError, AssertionError)):
        while True:
            channels.receive()


def test_nonsense_from_a_client_is_passed_over(service, kernel):
    for frame in "", "{", "[]", '{"header":1}', '{"channel":"nonesuch","header":{}}', '{"header":{},"content":[]}':
        kernel.ws.send(frame)
    for frame in b"", b"\0" * 7, struct.pack("<Q", 2 ** 63), struct.pack(">I", 2 ** 31), b"\xff" * 100, \
            struct.pack("<7Q", 6, 56, 10, 99, 99, 99, 99):
        kernel.ws.send_binary(frame)
    assert kernel.run("1").value == "1"


FAKE = r'''
import json, os, sys, threading, time, socket
info = json.load(open(sys.argv[1])); mode = sys.argv[2]
import zmq
c = zmq.Context()
at = lambda name: f"ipc://{info['ip']}-{info[name]}"
shell, control, stdin = (c.socket(zmq.ROUTER) for _ in range(3))
iopub = c.socket(zmq.PUB)
for s, name in (shell, "shell_port"), (control, "control_port"), (stdin, "stdin_port"), (iopub, "iopub_port"):
    s.bind(at(name))
import hmac, hashlib
def sign(parts):
    return hmac.new(info["key"].encode(), b"".join(parts), hashlib.sha256).hexdigest().encode()
def send(socket_, ids, kind, parent, content, key=True):
    parts = [json.dumps({"msg_id": os.urandom(8).hex(), "msg_type": kind, "session": "x", "username": "k",
                         "date": "2026-01-01T00:00:00Z", "version": "5.3"}).encode(), parent, b"{}", content]
    socket_.send_multipart([*ids, b"<IDS|MSG>", sign(parts) if key else b"0" * 64, *parts])
def junk():
    iopub.send(b"junk")
    iopub.send_multipart([b"", b"<IDS|MSG>", b"0" * 64, b"{", b"{", b"{", b"{"])
    send(iopub, [b"t"], "stream", b"{}", b'{"name":"stdout","text":"forged"}', key=False)
    send(iopub, [b"t"], "stream", b"{}", b'not json at all')
    send(iopub, [b"t"], "stream", b"[1,2", b'\xff\xfe')
    iopub.send_multipart([b"x"] * 600)
while True:
    *ids, _, _, header, parent, meta, content = shell.recv_multipart()
    h = json.loads(header)
    send(iopub, [b"t"], "status", header, b'{"execution_state":"busy"}')
    if h["msg_type"] == "execute_request":
        junk()
    send(shell, ids, h["msg_type"].replace("request", "reply"), header, b'{"status":"ok","execution_count":1}')
    send(iopub, [b"t"], "status", header, b'{"execution_state":"idle"}')
'''


def add_spec(service, name, argv, **more):
    path = service.home / ".local/share/jupyter/kernels" / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": name, **more}))


@pytest.mark.parametrize("v1", [False, True])
def test_a_kernel_that_sends_garbage_harms_nobody(service, quick, v1):
    (service.home / "fake.py").write_text(FAKE)
    add_spec(service, "garbage", ["python3", str(service.home / "fake.py"), "{connection_file}", "x"])
    with Kernel(service, v1, name="garbage") as k:
        request, idle, texts = k.execute("x"), False, []
        while not idle:
            try:
                m = k.receive()
            except (ValueError, UnicodeDecodeError):    # v1 passes bytes as they are: the client's to judge
                assert v1
                continue
            texts.append(str(m["content"]))
            idle = m["parent_header"].get("msg_id") == request and m["content"].get("execution_state") == "idle"
        assert not any("forged" in t for t in texts)
    assert quick.run("1").value == "1"


@pytest.mark.parametrize("start_ms, code, word", [
    (60000, "import sys; sys.exit(3)", "ended"), (1000, "import time; time.sleep(1000)", "does not listen"),
    (60000, "import socket,json,sys,time; i=json.load(open(sys.argv[1])); s=socket.socket(socket.AF_UNIX);"
     "s.bind(f\"{i['ip']}-{i['iopub_port']}\"); s.listen(); c,_=s.accept(); c.sendall(b'HTTP/1.1 200 OK'*99); time.sleep(99)", "ZMTP"),
])
def test_a_kernel_that_does_not_start_is_dead_with_a_reason(start_service, start_ms, code, word):
    service = start_service("--set", f"kernel.start-ms={start_ms}", "--set", "kernel.park=0")
    add_spec(service, "broken", ["python3", "-c", code, "{connection_file}"])
    kernel = service.start_kernel(name="broken")
    dead = wait_for(lambda: (m := model(service, kernel))["execution_state"] == "dead" and m, "death", 120)
    assert word in dead["reason"]
    service.end_kernel(kernel)


def test_a_socket_opens_when_the_kernel_answers(service):
    """nbclient waits a second for the first answer, however long the kernel takes to start."""
    add_spec(service, "late", ["sh", "-c", "sleep 3; exec python3 -m ipykernel_launcher -f \"$0\"", "{connection_file}"])
    begun = time.monotonic()
    kernel = service.start_kernel(name="late")
    assert time.monotonic() - begun < 2.5, "the kernel is made known before it answers"
    with contextlib.closing(service.connect(kernel)):
        assert time.monotonic() - begun > 3
        assert model(service, kernel)["execution_state"] == "idle"
    service.end_kernel(kernel)


def test_a_kernel_that_is_removed_before_it_answers_has_no_socket(service):
    add_spec(service, "never", ["sh", "-c", "exec sleep 1000", "{connection_file}"])
    kernel = service.start_kernel(name="never")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.connect, kernel)
        time.sleep(0.3)
        assert not waiting.done()
        service.end_kernel(kernel)
        with pytest.raises(websocket.WebSocketBadStatusException, match="404"):
            waiting.result(30)


def test_a_kernel_that_never_answers_has_a_socket_to_be_told(start_service):
    service = start_service("--set", "kernel.start-ms=1000", "--set", "kernel.park=0")
    add_spec(service, "silent", ["sh", "-c", "exec sleep 1000", "{connection_file}"])
    kernel = service.start_kernel(name="silent")
    with contextlib.closing(service.connect(kernel)):
        wait_for(lambda: model(service, kernel)["execution_state"] == "dead", "death", 120)
    service.end_kernel(kernel)


def test_a_spec_without_its_program_is_told(service):
    add_spec(service, "missing", ["/nonexistent/kernel", "{connection_file}"])
    assert "/nonexistent/kernel" in service.call("POST", "/api/kernels", json={"name": "missing"}).json()["message"]


def test_other_kernels_than_python_work_over_tcp(service):
    add_spec(service, "tcp", ["sh", "-c", "exec python3 -m ipykernel_launcher -f \"$0\"", "{connection_file}"])
    with Kernel(service, name="tcp") as k:
        assert k.run("6 * 7").value == "42"


def test_bash_is_a_kernel_too(service):
    with Kernel(service, name="bash") as k:
        run = k.run("x=5; echo out; echo err >&2; cd /; false")
        assert run.out == "out\n" and run.err == "err\n" and run.errors[0]["evalue"] == "1"
        assert k.run("echo $x; pwd").out == "5\n/\n"
        request = k.execute("echo begins; sleep 1000")
        while k.receive()["header"]["msg_type"] != "stream":
            pass
        service.call("POST", f"/api/kernels/{k.id}/interrupt", 204)
        k.follow(request)
        assert k.run("echo $x").out == "5\n"


def test_bash_ends_when_it_is_told_to(start_service):
    """And not when it is made to: its shell must not be a child that is waited for."""
    service = start_service("--set", "kernel.stop-ms=60000")
    kernel = service.start_kernel(name="bash")
    with contextlib.closing(service.connect(kernel)) as channels:
        assert channels.run("echo 1").out == "1\n"
    begun = time.monotonic()
    service.end_kernel(kernel)
    assert time.monotonic() - begun < 8


SLOW_TO_END = """
from ipykernel.iostream import OutStream
from tornado.platform.asyncio import BaseAsyncIOLoop
def delay(cls, name, thread, seconds):
    import threading, time  # IPython forgets what is global before this is called
    method = getattr(cls, name)
    def slow(self, *args, **kwargs):
        if threading.current_thread().name == thread:
            time.sleep(seconds)
        return method(self, *args, **kwargs)
    setattr(cls, name, slow)
delay(OutStream, "flush", "Control", 0.3)
delay(BaseAsyncIOLoop, "close", "IOPub", 1)
"""


@pytest.mark.parametrize("name", ["python3", "bash"])
def test_a_kernel_that_still_flushes_ends(start_service, tmp_path, name):
    """ipykernel alone waits 10 s or for ever when its control thread flushes to a thread that has stopped."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_END)
    service = start_service("--set", "kernel.stop-ms=60000")
    kernel = service.start_kernel(name=name, env={"PYTHONPATH": str(tmp_path)})
    with contextlib.closing(service.connect(kernel)) as channels:
        run = channels.run("echo 1" if name == "bash" else SLOW_TO_END)  # a forked one has imported all before
        assert not run.errors
    begun = time.monotonic()
    service.end_kernel(kernel)
    assert 1.3 < time.monotonic() - begun < 8


def test_a_slow_reader_holds_back_its_kernel_and_nothing_is_lost(service, quick):
    request = quick.execute("import sys\nfor i in range(3000):\n    sys.stdout.write(('%08d' % i) * 1000 + '\\n')\n    sys.stdout.flush()")
    time.sleep(1.5)                     # 24 MB are more than the queue and the sockets hold
    with Kernel(service) as other:      # and meanwhile others are served
        assert other.run("1").value == "1"
    lines = quick.follow(request).out.split()
    assert [line[:8] for line in lines] == ["%08d" % i for i in range(3000)]


@pytest.mark.slow
def test_a_hundred_megabytes_of_output_arrive(quick):
    run = quick.run("line = 'x' * 99 + '\\n'\nfor i in range(1000):\n    print(line * 1000, end='')")
    assert len(run.out) == 100_000_000


def test_large_buffers_pass(quick):
    run = quick.run("from IPython.display import publish_display_data\n"
                    "get_ipython().kernel.session.send(get_ipython().kernel.iopub_socket, 'display_data',"
                    "{'data': {}, 'metadata': {}}, parent=get_ipython().kernel.get_parent(), ident=b'x', buffers=[b'z' * 50_000_000])")
    sent = [m for m in run.messages if m["header"]["msg_type"] == "display_data"]
    assert len(sent[0]["buffers"][0]) == 50_000_000


def test_twenty_kernels_at_once(service):
    results = {}

    def one(i):
        with Kernel(service) as k:
            results[i] = k.run(f"import os, random; x = {i}; print(x, os.getpid(), random.random())").out.split()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(int(r[0]) for r in results.values()) == list(range(20))
    assert len({r[1] for r in results.values()}) == len({r[2] for r in results.values()}) == 20


def test_the_result_marker_of_the_documents_is_found(quick):
    import pickle
    run = quick.run("import pickle, base64\nprint('log line')\n_result = {'a': [1, 2]}\n"
                    "print('RESULT_PICKLE:' + base64.b64encode(pickle.dumps(_result)).decode())\nprint('more')")
    assert pickle.loads(result_pickle(run.out)) == {"a": [1, 2]}
