"""Requests that are wrong in one way each, said from outside: the answer says so with the documented
code, names what is wrong, and costs the guest nothing. Here is one row for each kind of parser and each
route; all the others are in tests/unit/test_bad_*.c, which ask a guest in their own process. Limits and
time-outs have guests of their own with small ones. What the fields of a message may hold is
test_bad_input_fields.py; clients that vanish are test_bad_input_vanish.py."""

import base64
import gzip
import json
import os
import struct
import time

import pytest

from helpers.guest import FRUGAL, Guest
from helpers.raw import (OCTET, PLAIN, STREAM, Checked, Raw, ask, call, end_of, head, refused, request,
                         stream)
from helpers.wire import envelope, files_path

GROWTH_KIB = 6 << 10                    # what a module of bad input may leave in the guest's memory
MIB = 1 << 20
START, CONNECT = "process.Process/Start", "process.Process/Connect"
WATCH, STREAM_INPUT = "filesystem.Filesystem/WatchDir", "process.Process/StreamInput"
TRUE = {"process": {"cmd": "/bin/true"}, "stdin": False}


@pytest.fixture(scope="module")
def shared(workspace):
    guest = Guest(os.path.join(workspace, "bad-input"), "--set", "process.keep-ms=0")
    for _ in range(20):
        assert ask(guest.port, stream(START, TRUE)).status == 200
        assert ask(guest.port, request("POST", "/init", b"x" * 200000)).status == 400
        assert ask(guest.port, call("filesystem.Filesystem/Stat", {"path": "/"})).status == 200
    time.sleep(1.2)                     # ended processes are forgotten once in a second
    checked = Checked(guest)
    memory = guest.rss_kib()
    yield checked
    grown = guest.rss_kib() - memory
    assert not FRUGAL or grown < GROWTH_KIB, f"the guest has grown by {grown} KiB"
    guest.stop()


@pytest.fixture
def port(shared):
    yield shared.guest.port
    shared.check()


def special(workspace, name, *settings):
    guest = Guest(os.path.join(workspace, name), *(x for s in settings for x in ("--set", s)))
    yield Checked(guest)
    guest.stop()


# ---- heads that are not HTTP: tests/unit/test_bad_head.c has the others ----

HEADS = {
    "both_framings": (b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                      b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both Content-Length"),
    "bare_LF_in_a_field": (b"GET /health HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", "bare LF"),
}


@pytest.mark.core
@pytest.mark.parametrize("data, word", HEADS.values(), ids=HEADS)
def test_a_head_that_is_not_HTTP_is_refused_and_the_connection_ends(port, data, word):
    with Raw(port) as raw:
        raw.send(data)
        answer = raw.answer()
        refused(answer, "rest", 400, word)
        assert answer.headers["connection"] == "close"
        raw.sock.shutdown(1)
        assert raw.closed()


def test_a_bad_head_behind_a_good_one_is_refused_and_nothing_behind_it_is_served(port):
    with Raw(port) as raw:
        raw.send(head("GET", "/health") + HEADS["both_framings"][0] + head("GET", "/health") * 3)
        assert raw.answer().status == 204
        refused(raw.answer(), "rest", 400)
        raw.sock.shutdown(1)
        assert raw.closed()


@pytest.mark.core
@pytest.mark.parametrize("data, limit", [
    (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70000, "http.header-bytes"),
    (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 150 + b"\r\n", "http.header-count"),
], ids=["long", "many"])
def test_a_head_over_its_limit_is_431_and_names_the_limit(port, data, limit):
    with Raw(port) as raw:
        raw.send(data)
        answer = raw.answer()
        refused(answer, "rest", 431, limit)
        assert answer.headers["connection"] == "close"


# ---- bodies whose framing breaks ----

CHUNKED = "Transfer-Encoding: chunked"
CHUNKED_ROUTES = {
    "rest": ("rest", 400, head("POST", "/init", PLAIN, CHUNKED)),
    "unary": ("unary", "invalid_argument",
              head("POST", "/filesystem.Filesystem/Stat", PLAIN, CHUNKED)),
    "stream": ("stream", "invalid_argument", head("POST", f"/{START}", STREAM, CHUNKED)),
    "upstream": ("stream", "invalid_argument", head("POST", f"/{STREAM_INPUT}", STREAM, CHUNKED)),
    "upload": ("rest", 400, head("POST", "/files?path=/tmp/cove-never-made", OCTET, CHUNKED)),
}


@pytest.mark.core
@pytest.mark.parametrize("kind, code, start", CHUNKED_ROUTES.values(), ids=CHUNKED_ROUTES)
def test_a_bad_chunk_is_refused_and_the_connection_ends(port, kind, code, start):
    with Raw(port) as raw:
        raw.send(start + b"xyz\r\n{}\r\n0\r\n\r\n")
        refused(raw.answer(), kind, code)
        raw.sock.shutdown(1)
        assert raw.closed()
    assert not os.path.exists("/tmp/cove-never-made")


# ---- targets and methods ----

def test_a_wrong_method_is_405_an_unknown_path_404_and_no_path_400(port):
    answer = ask(port, head("PUT", "/health"))
    refused(answer, "rest", 405, "PUT")
    assert "GET" in answer.headers["allow"]
    refused(ask(port, head("GET", "/health%zz")), "rest", 404)
    refused(ask(port, head("GET", "http://guest/health")), "rest", 400, "target")
    refused(ask(port, head("GET", "/files?path=%zz")), "rest", 400, "'path'", "escape")


# ---- JSON that is none, or not the right one ----

JSON_ROUTES = {
    "init": ("rest", 400, "/init"), "compose": ("rest", 400, "/files/compose"),
    **{name: ("unary", "invalid_argument", path) for name, path in
       [("Stat", "/filesystem.Filesystem/Stat"), ("ListDir", "/filesystem.Filesystem/ListDir"),
        ("CreateWatcher", "/filesystem.Filesystem/CreateWatcher"),
        ("SendSignal", "/process.Process/SendSignal"), ("SendInput", "/process.Process/SendInput")]},
    **{name: ("stream", "invalid_argument", f"/{path}") for name, path in
       [("Start", START), ("Connect", CONNECT), ("WatchDir", WATCH), ("StreamInput", STREAM_INPUT)]},
}


@pytest.mark.core
@pytest.mark.parametrize("kind, code, path", JSON_ROUTES.values(), ids=JSON_ROUTES)
def test_what_is_not_a_JSON_object_is_refused(port, kind, code, path):
    text = b'{"path":"/"'
    if kind == "stream":
        data = request("POST", path, envelope(text), STREAM)
    else:
        data = request("POST", path, text, PLAIN)
    message = refused(ask(port, data), kind, code)
    assert "JSON" in message or "is missing" in message, message


@pytest.mark.core
@pytest.mark.parametrize("body", [None, b"", b"{}"], ids=["none", "empty", "object"])
def test_an_empty_body_is_told_which_field_it_lacks(port, body):
    answer = ask(port, request("POST", "/process.Process/SendInput", body, PLAIN))
    refused(answer, "unary", "invalid_argument", "'process' is missing")


@pytest.mark.core
@pytest.mark.parametrize("coding, coded, word", [
    ("gzip", gzip.compress(b"{}")[:-8] + b"\0" * 8, "gzip"), ("br", b"{}", "Content-Encoding")])
def test_a_body_that_is_not_coded_as_it_claims_is_refused(port, coding, coded, word):
    data = request("POST", "/init", coded, PLAIN, f"Content-Encoding: {coding}")
    refused(ask(port, data), "rest", 400, word)


# ---- envelopes ----

def framed(flags, size, payload):
    return struct.pack(">BI", flags, size) + payload


@pytest.mark.core
@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("method", [START, CONNECT, WATCH, STREAM_INPUT])
def test_a_broken_envelope_ends_the_stream_with_an_error(port, method, framing):
    body = framed(4, 2, b"{}")
    if framing == "length":
        data = request("POST", f"/{method}", body, STREAM)
    else:
        pieces = b"".join(b"1\r\n" + body[i:i + 1] + b"\r\n" for i in range(len(body)))
        data = head("POST", f"/{method}", STREAM, CHUNKED) + pieces + b"0\r\n\r\n"
    refused(ask(port, data), "stream", "invalid_argument", "0x04")


def test_a_message_behind_the_one_that_fails_is_not_looked_at(port):
    body = envelope({"start": {"process": {"pid": 4194304}}}) + framed(255, 9, b"")
    refused(ask(port, request("POST", f"/{STREAM_INPUT}", body, STREAM)), "stream", "not_found",
            "4194304")


def test_a_bad_time_limit_is_refused_and_nothing_is_started(port):
    answer = ask(port, stream(START, TRUE, "Connect-Timeout-Ms: 1s"))
    refused(answer, "stream", "invalid_argument", "Connect-Timeout-Ms")


# ---- users ----

def basic(text):
    return "Authorization: Basic " + base64.b64encode(text).decode()


@pytest.mark.core
@pytest.mark.parametrize("header, word", [
    (basic(b"no-such-user:"), "no-such-user"), ("Authorization: Basic !!!!", "Basic")],
    ids=["unknown", "not_base64"])
def test_a_user_that_cannot_be_is_unauthenticated(port, header, word):
    refused(ask(port, call("filesystem.Filesystem/Stat", {"path": "/"}, header)), "unary",
            "unauthenticated", word)
    refused(ask(port, stream(START, TRUE, header)), "stream", "unauthenticated", word)
    refused(ask(port, head("GET", "/files?path=/etc/passwd", header)), "rest", 401, word)
    refused(ask(port, request("POST", "/files?path=/tmp/x", b"", OCTET, header)), "rest", 401, word)


# ---- uploads ----

MARK = "xxBOUNDARYxx"
MULTIPART = f"Content-Type: multipart/form-data; boundary={MARK}"


def part(disposition, data=b"data"):
    return f"--{MARK}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + data + b"\r\n"


LAST = f"--{MARK}--\r\n".encode()
FILE = 'form-data; name="file"; filename="{}"'
FORMS = {
    "no_close": (part(FILE.format("{}/f")), "closing boundary"),
    "one_path_twice": (part(FILE.format("{}/f")) * 2 + LAST, "two parts"),
    "folded_head": (f"--{MARK}\r\nContent-Disposition: form-data;\r\n name=\"file\"\r\n\r\n".encode()
                    + LAST, "folded"),
}


@pytest.mark.core
@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("body, word", FORMS.values(), ids=FORMS)
def test_a_bad_form_is_refused_and_leaves_no_trace(port, folder, body, word, framing):
    body = body.replace(b"{}", folder.encode())
    if framing == "length":
        data = request("POST", "/files", body, MULTIPART)
    else:
        pieces = [body[i:i + 11] for i in range(0, len(body), 11)]
        data = head("POST", "/files", MULTIPART, CHUNKED) + b"".join(
            b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    refused(ask(port, data), "rest", 400, word)
    # the first of two parts was whole when the second one failed
    assert os.listdir(folder) == (["f"] if "two parts" in word else [])


@pytest.mark.core
def test_an_upload_that_cannot_be_is_400_and_leaves_no_file(port, folder):
    target = files_path(folder + "/f")
    zipped = gzip.compress(b"x")[:-8] + b"\0" * 8
    for data, word in [
            (request("POST", target, LAST, "Content-Type: multipart/form-data; boundary="), "boundary"),
            (request("POST", target, b"data", "Content-Type: text/plain"), "Content-Type"),
            (request("POST", files_path(folder), b"data", OCTET), "directory"),
            (request("POST", "/files", b"data", OCTET), "'path'"),
            (request("POST", target, zipped, OCTET, "Content-Encoding: gzip"), "gzip"),
            (request("POST", target, b"data", OCTET, "X-Metadata-: x"), "X-Metadata")]:
        refused(ask(port, data), "rest", 400, word)
        assert os.listdir(folder) == []


# ---- downloads ----

@pytest.mark.core
def test_a_download_that_cannot_be_says_so(port):
    passwd = "/files?path=/etc/passwd"
    refused(ask(port, head("GET", files_path("/no/such/file"))), "rest", 404, "/no/such/file")
    refused(ask(port, head("GET", files_path("/"))), "rest", 400, "directory")
    refused(ask(port, head("GET", passwd, "Accept-Encoding: identity;q=0")), "rest", 406,
            "Accept-Encoding")
    answer = ask(port, head("GET", passwd, "Range: bytes=999999999-"))
    assert answer.status == 416
    assert answer.headers["content-range"] == f"bytes */{os.path.getsize('/etc/passwd')}"


# ---- limits on bodies ----

@pytest.fixture(scope="module")
def narrow(workspace):
    """A guest that holds bodies of 64 KiB in memory, no more."""
    yield from special(workspace, "narrow", "http.body-bytes=65536")


@pytest.fixture
def narrow_port(narrow):
    yield narrow.guest.port
    narrow.check()


BIG = b'{"path":"' + b"x" * 100000 + b'"}'
STAT = "/filesystem.Filesystem/Stat"


@pytest.mark.core
@pytest.mark.parametrize("path, kind, code", [
    ("/init", "rest", 413), (STAT, "unary", "resource_exhausted")])
def test_a_body_over_its_limit_is_413_and_names_the_limit(narrow_port, path, kind, code):
    limit = "http.body-bytes=65536"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(BIG[i:i + 999]), BIG[i:i + 999])
                      for i in range(0, len(BIG), 999)) + b"0\r\n\r\n"
    refused(ask(narrow_port, request("POST", path, BIG, PLAIN)), kind, code, limit)
    refused(ask(narrow_port, head("POST", path, PLAIN, CHUNKED) + chunks), kind, code, limit)
    huge = head("POST", path, PLAIN, "Content-Length: 9223372036854775807")
    refused(ask(narrow_port, huge + b"{"), kind, code, limit)


@pytest.mark.core
def test_an_envelope_over_its_limit_is_refused_and_names_the_limit(narrow_port):
    answer = ask(narrow_port, request("POST", f"/{START}", framed(0, 0xffffffff, b"{}"), STREAM))
    refused(answer, "stream", "resource_exhausted", "http.body-bytes=65536")


@pytest.mark.core
@pytest.mark.parametrize("path, kind, code", [
    ("/init", "rest", 413), (STAT, "unary", "resource_exhausted")])
def test_a_bomb_of_gzip_ends_at_the_limit(narrow, narrow_port, path, kind, code):
    bomb = gzip.compress(b" " * (256 * MIB), 9)
    narrow.guest.forget_peak()
    before = narrow.guest.rss_kib()
    answer = ask(narrow_port, request("POST", path, bomb, PLAIN, "Content-Encoding: gzip"))
    refused(answer, kind, code, "http.body-bytes=65536")
    assert not FRUGAL or narrow.guest.peak_rss_kib() - before < 4096


def test_an_upload_is_not_bound_by_the_limit_on_memory(narrow_port, folder):
    body = os.urandom(MIB)
    assert ask(narrow_port, request("POST", files_path(folder + "/f"), body, OCTET)).status == 200
    assert open(folder + "/f", "rb").read() == body


# ---- limits on time ----

SHORT = ["http.header-ms=300", "http.body-ms=300", "http.idle-ms=500", "http.write-ms=400"]


@pytest.fixture(scope="module")
def hasty(workspace):
    """A guest that waits for nobody."""
    yield from special(workspace, "hasty", *SHORT)


@pytest.fixture
def hasty_port(hasty):
    yield hasty.guest.port
    hasty.check()


@pytest.mark.core
def test_a_head_that_stops_is_408_and_names_the_limit(hasty_port):
    with Raw(hasty_port) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        answer = raw.answer()
        refused(answer, "rest", 408, "http.header-ms=300")
        assert answer.headers["connection"] == "close"


SLOW_BODIES = {
    "rest": ("rest", 408, head("POST", "/init", PLAIN, "Content-Length: 100") + b"{"),
    "unary": ("unary", "deadline_exceeded", head("POST", STAT, PLAIN, "Content-Length: 9") + b"{"),
    "stream": ("stream", "deadline_exceeded",
               head("POST", f"/{START}", STREAM, "Content-Length: 9") + b"\0\0"),
    "upload": ("rest", 408, head("POST", "/files?path=/tmp/cove-never-made", OCTET, CHUNKED)
               + b"5\r\nx"),
}


@pytest.mark.core
@pytest.mark.parametrize("kind, code, data", SLOW_BODIES.values(), ids=SLOW_BODIES)
def test_a_body_that_stops_is_timed_out_and_names_the_limit(hasty_port, kind, code, data):
    with Raw(hasty_port) as raw:
        raw.send(data)
        refused(raw.answer(), kind, code, "http.body-ms=300")
        raw.sock.shutdown(1)
        assert raw.closed()
    assert not os.path.exists("/tmp/cove-never-made")


@pytest.mark.core
def test_a_connection_that_says_nothing_is_closed_without_a_word(hasty_port):
    with Raw(hasty_port) as raw:
        assert raw.closed()
    with Raw(hasty_port) as raw:
        raw.send(head("GET", "/health"))
        assert raw.answer().status == 204
        assert raw.closed()


@pytest.mark.core
def test_a_download_that_nobody_reads_is_given_up(hasty, hasty_port, folder):
    with open(folder + "/big", "wb") as file:
        file.truncate(64 * MIB)
    with Raw(hasty_port) as raw:
        raw.send(head("GET", files_path(folder + "/big")))
        assert raw.head()[0] == 200
        hasty.check()                   # the guest lets go while we still hold the connection


@pytest.mark.core
def test_input_that_a_process_does_not_take_is_given_up(hasty_port):
    with Raw(hasty_port) as raw:
        raw.send(stream(START, {"process": {"cmd": "/bin/sleep", "args": ["60"]}, "tag": "deaf"}))
        assert raw.head()[0] == 200
        much = base64.b64encode(b"x" * MIB).decode()
        answer = ask(hasty_port, call("process.Process/SendInput", {
            "process": {"tag": "deaf"}, "input": {"stdin": much}}))
        refused(answer, "unary", "deadline_exceeded")
        assert ask(hasty_port, call("process.Process/SendSignal", {
            "process": {"tag": "deaf"}, "signal": "SIGNAL_SIGKILL"})).status == 200


# ---- what stays as it was ----

@pytest.mark.core
def test_a_bad_request_does_not_spoil_the_connection_for_the_next(port):
    with Raw(port) as raw:
        for _ in range(50):
            raw.send(call("filesystem.Filesystem/Stat", b"not JSON"))
            refused(raw.answer(), "unary", "invalid_argument", "JSON")
            raw.send(stream(START, {"process": {"cmd": ""}}))
            refused(raw.answer(), "stream", "invalid_argument", "'cmd'")
            raw.send(head("GET", "/nothing"))
            refused(raw.answer(), "rest", 404)
            raw.send(request("PUT", "/init", b"x" * 1000))
            refused(raw.answer(), "rest", 405)
        raw.send(head("GET", "/health"))
        assert raw.answer().status == 204


@pytest.mark.core
def test_a_refused_init_changes_nothing(port):
    assert ask(port, request("POST", "/init", b'{"envVars":{"A":"1"}}', PLAIN)).status == 204
    for body in (b'{"envVars":{"B":1}}', b'{"envVars":{"":"x"}}', b'{"envVars":{"a=b":"x"}}',
                 b'{"envVars":{"B":"2"},"accessToken":5}', b'{"envVars":{"B":"2"},"defaultUser":[]}'):
        refused(ask(port, request("POST", "/init", body, PLAIN)), "rest", 400)
        assert ask(port, head("GET", "/envs")).json == {"A": "1"}
    assert ask(port, request("POST", "/init", b'{"envVars":{}}', PLAIN)).status == 204


def test_a_thousand_bad_requests_leave_the_memory_as_it_was(shared, port):
    def wave(count):
        for i in range(count):
            with Raw(port) as raw:
                raw.send(list(HEADS.values())[i % len(HEADS)][0])
                assert raw.answer().status == 400
            text = [b"null", b'{"path":"\xff\xfe"}', b"[" * 100000][i % 3]
            assert ask(port, call("filesystem.Filesystem/ListDir", text)).status == 400
            assert end_of(ask(port, stream(START, text)).body)["code"] == "invalid_argument"
            body = list(FORMS.values())[i % len(FORMS)][0].replace(b"{}", b"/no\0such")
            assert ask(port, request("POST", "/files", body, MULTIPART)).status == 400

    wave(150)
    before = shared.guest.rss_kib()
    wave(250)
    assert not FRUGAL or shared.guest.rss_kib() - before < 1024
