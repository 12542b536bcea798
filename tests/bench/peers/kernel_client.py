"""kernel_client.py - one client for both sides of the kernels' rows; run with the Python of .cache/venv-kernels.

usage: kernel_client.py first|pair|trips|stream|hold|raw URL [NUMBER]

Prints one figure in milliseconds per line; `stream` prints messages per second; `hold` stays
connected to an idle kernel for so many seconds."""
import http.client
import json
import struct
import sys
import time
import uuid

import websocket

PORTION = 500
V1 = "v1.kernel.websocket.jupyter.org"


def frame(code):
    request = uuid.uuid4().hex
    header = {"msg_id": request, "username": "b", "session": "b", "date": "2026-01-01T00:00:00Z",
              "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    parts = [b"shell"] + [json.dumps(p).encode() for p in (header, {}, {}, content)]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return request, struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def run(ws, code):
    """Until the reply and idle came; how many messages there were."""
    request, sent = frame(code)
    ws.send_binary(sent)
    replied = idle = False
    count, mark = 0, request.encode()
    while not (replied and idle):
        m = ws.recv()
        if mark not in m:
            continue
        count += 1
        replied |= b'"execute_reply"' in m
        idle |= b'"execution_state"' in m and b'"idle"' in m
    return count


def ask(url, method, path):
    host = url.split("//")[1]
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request(method, path, "{}" if method == "POST" else None, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return json.loads(text) if text else None


def connect(url, kernel):
    return websocket.create_connection(f"{url.replace('http', 'ws')}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}",
                                       subprotocols=[V1], timeout=60)


def first(url, _number):
    """From the request for a kernel to its first reply."""
    began = time.perf_counter()
    kernel = ask(url, "POST", "/api/kernels")["id"]
    ws = connect(url, kernel)
    run(ws, "1")
    print((time.perf_counter() - began) * 1000)
    ws.close()
    ask(url, "DELETE", f"/api/kernels/{kernel}")


def pair(url, _number):
    """The same for a second kernel, asked for right behind another: nothing waits for it."""
    other = ask(url, "POST", "/api/kernels")["id"]
    first(url, 1)
    ask(url, "DELETE", f"/api/kernels/{other}")


def trips(url, number):
    kernel = ask(url, "POST", "/api/kernels")["id"]
    ws = connect(url, kernel)
    for _ in range(20):
        run(ws, "1")
    for _ in range(number):
        began = time.perf_counter()
        run(ws, "1")
        print((time.perf_counter() - began) * 1000)
    ws.close()
    ask(url, "DELETE", f"/api/kernels/{kernel}")


def stream(url, number):
    """In portions: a kernel drops what is not taken in time, and the peer does not take more at once."""
    kernel = ask(url, "POST", "/api/kernels")["id"]
    ws = connect(url, kernel)
    run(ws, "k = get_ipython().kernel")
    began, count = time.perf_counter(), 0
    while count < number:
        count += run(ws, f"for i in range({PORTION}):\n    k.send_response(k.iopub_socket, 'stream', {{'name': 'stdout', 'text': 'line\\n'}})")
    print(count / (time.perf_counter() - began))
    ws.close()
    ask(url, "DELETE", f"/api/kernels/{kernel}")


def hold(url, number):
    kernel = ask(url, "POST", "/api/kernels")["id"]
    ws = connect(url, kernel)
    run(ws, "1")
    print("ready", flush=True)
    time.sleep(number)
    ws.close()
    ask(url, "DELETE", f"/api/kernels/{kernel}")


def raw(_url, number):
    """ZeroMQ from Python, without anybody between."""
    from jupyter_client import KernelManager
    manager = KernelManager(transport="ipc")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def one():
        request = client.execute("1", store_history=False)
        while client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != request:
            pass
        while True:
            m = client.get_iopub_msg(timeout=60)
            if m["parent_header"].get("msg_id") == request and m["content"].get("execution_state") == "idle":
                return

    for _ in range(20):
        one()
    for _ in range(number):
        began = time.perf_counter()
        one()
        print((time.perf_counter() - began) * 1000)
    manager.shutdown_kernel(now=True)


mode, address = sys.argv[1:3]
{"first": first, "pair": pair, "trips": trips, "stream": stream, "hold": hold, "raw": raw}[mode](address, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
