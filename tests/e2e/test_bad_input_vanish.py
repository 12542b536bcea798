"""Clients that vanish: at every byte of a request, while they wait, while they are sent or send
something, with a close and with a reset. Nothing of them stays: not a descriptor, not memory, not a
file; only a process they started goes on, as it must."""

import base64
import json
import os
import threading
import time

import pytest

from helpers import proc
from helpers.guest import FRUGAL, SLOWER, Guest
from helpers.raw import (OCTET, PLAIN, STREAM, Checked, Raw, ask, call, head, refused, request, stream)
from helpers.wire import END, envelope, files_path

MIB = 1 << 20
GROWTH_KIB = 6 << 10
START, WATCH = "process.Process/Start", "filesystem.Filesystem/WatchDir"
CHUNKED = "Transfer-Encoding: chunked"
MULTIPART = "Content-Type: multipart/form-data; boundary=XX"
LAST = b"--XX--"
EACH_WAY = pytest.mark.parametrize("how", ["close", "reset"])
CORE_WAY = pytest.mark.parametrize("how", ["close", pytest.param("reset", marks=pytest.mark.core)])


@pytest.fixture(scope="module")
def shared(workspace):
    guest = Guest(os.path.join(workspace, "vanish"), "--set", "process.keep-ms=0",
                  "--set", "http.write-ms=1000")
    for _ in range(100):                # as many at once as any test below has
        assert ask(guest.port, stream(START, {"process": {"cmd": "/bin/true"}})).status == 200
    crowd = [Raw(guest.port) for _ in range(100)]
    for raw in crowd:
        raw.send(head("GET", "/metrics"))
    for raw in crowd:
        assert raw.answer().status == 200
        raw.close()
    time.sleep(1.2)                     # ended processes are forgotten once in a second
    checked = Checked(guest)
    memory = guest.rss_kib()
    yield checked
    checked.check()
    grown = guest.rss_kib() - memory
    assert not FRUGAL or grown < GROWTH_KIB, f"the guest has grown by {grown} KiB"
    guest.stop()


@pytest.fixture
def port(shared):
    yield shared.guest.port
    shared.check()


def chunked(start, body, size=7):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return start + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def form(folder):
    return (b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + folder.encode()
            + b"/f\"\r\n\r\nthe data\r\n" + LAST + b"\r\n")


TRUE = {"process": {"cmd": "/bin/true"}, "stdin": False}
INPUT = (envelope({"start": {"process": {"pid": 4194305}}})
         + envelope({"data": {"input": {"stdin": "eA=="}}}) + envelope({}, END))
WHOLE = {                               # requests, as bytes; {} is the test's folder
    "health": lambda f: head("GET", "/health"),
    "metrics": lambda f: head("GET", "/metrics"),
    "download": lambda f: head("GET", files_path(f + "/old")),
    "init": lambda f: request("POST", "/init", b'{"envVars":{"A":"1"}}', PLAIN),
    "init_chunked": lambda f: chunked(head("POST", "/init", PLAIN, CHUNKED), b'{"envVars":{"A":"1"}}'),
    "stat": lambda f: call("filesystem.Filesystem/Stat", {"path": f}),
    "list": lambda f: call("filesystem.Filesystem/ListDir", {"path": f, "depth": 3}),
    "start": lambda f: stream(START, TRUE),
    "start_chunked": lambda f: chunked(head("POST", "/" + START, STREAM, CHUNKED), envelope(TRUE)),
    "watch": lambda f: stream(WATCH, {"path": f, "recursive": True}),
    "input": lambda f: chunked(head("POST", "/process.Process/StreamInput", STREAM, CHUNKED), INPUT),
    "upload": lambda f: request("POST", files_path(f + "/f"), b"the data", OCTET),
    "upload_chunked": lambda f: chunked(head("POST", files_path(f + "/f"), OCTET, CHUNKED), b"the data"),
    "form": lambda f: request("POST", "/files", form(f), MULTIPART),
    "form_chunked": lambda f: chunked(head("POST", "/files", MULTIPART, CHUNKED), form(f), 500),
    "expecting": lambda f: request("POST", files_path(f + "/f"), b"the data", OCTET,
                                   "Expect: 100-continue"),
}


@CORE_WAY
@pytest.mark.parametrize("name", WHOLE)
def test_a_client_may_vanish_at_every_byte_of_its_request(shared, port, folder, name, how):
    with open(folder + "/old", "wb") as file:
        file.write(b"x" * 100000)
    data = WHOLE[name](folder)
    last = data.find(LAST)              # behind it a form is whole, whatever its framing lacks
    for cut in range(len(data) if last < 0 else last + len(LAST)):  # 0: before the head
        raw = Raw(port)
        raw.send(data[:cut])
        if cut % 16 == 0:
            time.sleep(0.002)           # now and then it waits for more already
        raw.leave(how)
    shared.check()
    assert os.listdir(folder) == ["old"], "half an upload became a file"


@CORE_WAY
@pytest.mark.parametrize("name", WHOLE)
def test_a_client_may_vanish_instead_of_reading_the_answer(shared, port, folder, name, how):
    with open(folder + "/old", "wb") as file:
        file.truncate(32 * MIB)
    data = WHOLE[name](folder)
    for pause in [0] * 20 + [0.001] * 10 + [0.02] * 2:
        raw = Raw(port)
        raw.send(data)
        time.sleep(pause)
        raw.leave(how)
    shared.check()
    assert sorted(set(os.listdir(folder)) - {"f"}) == ["old"]


@EACH_WAY
def test_a_hundred_clients_vanish_together(shared, port, folder, how):
    data = WHOLE["stat"](folder)
    for cut in 0, 1, len(data) // 2, len(data) - 1, len(data):
        crowd = [Raw(port) for _ in range(100)]
        for raw in crowd:
            raw.send(data[:cut])
        for raw in crowd:
            raw.leave(how)
        shared.check()


# ---- streams ----

def begin(port, message, *headers):
    """A stream that has told its start."""
    raw = Raw(port)
    raw.send(stream(START, message, *headers))
    assert raw.head()[0] == 200
    event = json.loads(raw.take(int(raw.line(), 16))[5:])["event"]
    assert raw.line() == b""
    return raw, event["start"]["pid"]


def kill(port, pid):
    answer = ask(port, call("process.Process/SendSignal",
                            {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}))
    assert answer.status == 200, "the process was not running any more"


@CORE_WAY
@pytest.mark.parametrize("command", ["yes", "while :; do echo x; sleep 0.01; done", "sleep 60"],
                         ids=["flood", "drip", "silence"])
def test_a_process_outlives_a_client_that_vanishes(shared, port, command, how):
    for amount in 0, 10, 1000, 300000:
        raw, pid = begin(port, {"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": False})
        if command == "yes":
            raw.take(amount)
        raw.leave(how)
        time.sleep(0.05)
        assert proc.alive(pid)
        kill(port, pid)


@CORE_WAY
def test_a_terminal_outlives_a_client_that_vanishes(port, how):
    raw, pid = begin(port, {"process": {"cmd": "/bin/sh"}, "pty": {"size": {"cols": 80, "rows": 24}}})
    raw.leave(how)
    time.sleep(0.05)
    assert proc.alive(pid)
    kill(port, pid)


@CORE_WAY
def test_a_follower_that_vanishes_does_not_disturb_the_other(port, how):
    first, pid = begin(port, {"process": {"cmd": "/bin/sh", "args": ["-c", "read x; echo $x"]}})
    for _ in range(20):
        raw = Raw(port)
        raw.send(stream("process.Process/Connect", {"process": {"pid": pid}}))
        assert raw.head()[0] == 200
        raw.leave(how)
    text = base64.b64encode(b"still here\n").decode()
    message = {"process": {"pid": pid}, "input": {"stdin": text}}
    assert ask(port, call("process.Process/SendInput", message)).status == 200
    with first:
        seen = b""
        while b'"end":' not in seen:
            seen += first.take(int(first.line(), 16) + 2)
    assert text.encode() in seen and b'"exitCode":0' in seen


@CORE_WAY
@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
def test_a_watch_ends_with_its_client(shared, port, folder, busy, how):
    stop = threading.Event()

    def make_noise():
        while not stop.is_set():
            with open(folder + "/noise", "w") as file:
                file.write("x")
            os.unlink(folder + "/noise")

    noise = threading.Thread(target=make_noise)
    if busy:
        noise.start()
    try:
        for _ in range(20):
            raw = Raw(port)
            raw.send(stream(WATCH, {"path": folder, "includeEntry": True}))
            assert raw.head()[0] == 200
            assert b'"start"' in raw.take(int(raw.line(), 16))
            raw.leave(how)
        shared.check()
    finally:
        stop.set()
        if busy:
            noise.join()


@CORE_WAY
def test_a_client_that_sent_more_than_its_request_is_missed_at_the_next_keepalive(shared, port, folder,
                                                                                  how):
    """What it sent hides its end from a look at the socket."""
    for message, name in (({"path": folder}, WATCH),
                          ({"process": {"cmd": "/bin/sleep", "args": ["60"]}, "tag": how}, START)):
        raw = Raw(port)
        raw.send(stream(name, message, "Keepalive-Ping-Interval: 1"))
        assert raw.head()[0] == 200
        raw.take(int(raw.line(), 16))
        raw.send(head("GET", "/health"))
        time.sleep(0.05)
        raw.leave(how)
    time.sleep(2.5)                     # two pings: one meets the closed socket, one its reset
    message = {"process": {"tag": how}, "signal": "SIGNAL_SIGKILL"}
    assert ask(port, call("process.Process/SendSignal", message)).status == 200


# ---- transfers ----

@CORE_WAY
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_download_ends_with_its_client(port, folder, coding, how):
    with open(folder + "/big", "wb") as file:
        file.truncate(256 * MIB)
    for amount in 0, 1, 100000, 5 * MIB:
        raw = Raw(port)
        raw.send(head("GET", files_path(folder + "/big"), f"Accept-Encoding: {coding}"))
        assert raw.head()[0] == 200
        raw.take(min(amount, 100000) if coding == "gzip" else amount)
        raw.leave(how)


@CORE_WAY
@pytest.mark.parametrize("kind", ["raw", "chunked", "form"])
def test_an_upload_that_breaks_off_changes_nothing(shared, port, folder, kind, how):
    target = folder + "/f"
    with open(target, "w") as file:
        file.write("old")
    if kind == "form":
        begun = head("POST", files_path(target), MULTIPART, "Content-Length: 100000000")
        begun += b'--XX\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    elif kind == "raw":
        begun = head("POST", files_path(target), OCTET, "Content-Length: 100000000")
    else:
        begun = head("POST", files_path(target), OCTET, CHUNKED) + b"5f5e100\r\n"
    for amount in 0, 1, 1000, 70000, 3 * MIB, 20 * MIB:
        raw = Raw(port)
        raw.send(begun + b"x" * amount)
        raw.leave(how)
    shared.check()
    assert os.listdir(folder) == ["f"]
    assert open(target).read() == "old"


@CORE_WAY
def test_input_to_a_process_that_does_not_read_ends_with_its_time(shared, port, how):
    watcher, pid = begin(port, {"process": {"cmd": "/bin/sleep", "args": ["60"]}})
    much = base64.b64encode(b"x" * MIB).decode()
    message = {"process": {"pid": pid}, "input": {"stdin": much}}
    raw = Raw(port)
    raw.send(call("process.Process/SendInput", message))
    time.sleep(0.1)
    raw.leave(how)
    time.sleep(1.2 * SLOWER)            # http.write-ms=1000
    refused(ask(port, call("process.Process/SendInput", message)), "unary", "deadline_exceeded")
    kill(port, pid)
    watcher.close()


@EACH_WAY
def test_a_metrics_storm_of_vanishing_clients_leaves_the_memory_as_it_was(shared, port, folder, how):
    def wave(count):
        for i in range(count):
            raw = Raw(port)
            data = WHOLE[("metrics", "list", "stat", "init", "input", "upload")[i % 6]](folder)
            raw.send(data[:len(data) * (i % 11) // 10])
            raw.leave(how)
        shared.check()

    def crowd(count):
        clients = [Raw(port) for _ in range(count)]
        for raw in clients:
            data = WHOLE["upload"](folder)
            raw.send(data[:len(data) // 2])
        assert ask(port, WHOLE["metrics"](folder)).status == 200     # all are accepted
        for raw in clients:
            raw.leave(how)

    wave(500)
    time.sleep(3 * SLOWER)              # two idle seconds, and the guest gives its pools back
    before = shared.guest.rss_kib()
    crowd(600)                          # more at once than ever before
    wave(1500)
    # on a busy machine it has work left when the last client is gone, and is idle later
    if FRUGAL:
        proc.wait_until(lambda: shared.guest.rss_kib() - before < 1024, "memory as it was", 20)
