"""Requests that are wrong in one way each: the answer says so with the documented code, names what
is wrong, and costs the guest nothing. Limits and time-outs have guests of their own with small ones.
What the fields of a message may hold is test_bad_input_fields.py; clients that vanish are
test_bad_input_vanish.py."""

import base64
import gzip
import json
import os
import struct
import time

import pytest

from helpers.guest import SANITIZED, Guest
from helpers.raw import (OCTET, PLAIN, STREAM, Checked, Raw, ask, call, end_of, head, refused, request,
                         stream)
from helpers.wire import END, envelope, files_path

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
    assert SANITIZED or grown < GROWTH_KIB, f"the guest has grown by {grown} KiB"
    guest.stop()


@pytest.fixture
def port(shared):
    yield shared.guest.port
    shared.check()


def special(workspace, name, *settings):
    guest = Guest(os.path.join(workspace, name), *(x for s in settings for x in ("--set", s)))
    yield Checked(guest)
    guest.stop()


# ---- heads that are not HTTP ----

HEADS = {
    "both_framings": (b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                      b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both Content-Length"),
    "coding_gzip": (b"POST /init HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
                    "Transfer-Encoding"),
    "coding_twice_in_one": (b"POST /init HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked"
                            b"\r\n\r\n", "Transfer-Encoding"),
    "coding_given_twice": (b"POST /init HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding"),
    "coding_in_HTTP_1.0": (b"POST /init HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                           "Transfer-Encoding in HTTP/1.0"),
    "length_twice_equal": (b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                           b"Content-Length: 2\r\n\r\n{}", "Content-Length given twice"),
    "length_twice_different": (b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                               b"Content-Length: 40\r\n\r\n{}", "Content-Length given twice"),
    "bare_LF_everywhere": (b"GET /health HTTP/1.1\nHost: x\n\n", "bare LF"),
    "bare_LF_in_a_field": (b"GET /health HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", "bare LF"),
    "CR_without_LF": (b"GET /health HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", "CR without LF"),
    "fold_by_space": (b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "folded"),
    "fold_by_tab": (b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n", "folded"),
    "NUL_in_a_value": (b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", "control character"),
    "NUL_in_a_name": (b"GET /health HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n", "bad header line"),
    "NUL_in_the_target": (b"GET /hea\0lth HTTP/1.1\r\nHost: x\r\n\r\n", "target"),
    "DEL_in_a_value": (b"GET /health HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n", "control character"),
    "space_before_the_colon": (b"GET /health HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "header line"),
    "no_colon": (b"GET /health HTTP/1.1\r\nHost: x\r\nAbc\r\n\r\n", "header line"),
    "no_name": (b"GET /health HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", "header line"),
    "name_not_ASCII": ("GET /health HTTP/1.1\r\nHost: x\r\nÄ: b\r\n\r\n".encode(), "header line"),
    "host_twice": (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "Host given twice"),
    "no_host": (b"GET /health HTTP/1.1\r\n\r\n", "no Host"),
    "no_version": (b"GET /health\r\nHost: x\r\n\r\n", "request line"),
    "HTTP_0.9": (b"GET /health HTTP/0.9\r\nHost: x\r\n\r\n", "version"),
    "HTTP_1.2": (b"GET /health HTTP/1.2\r\nHost: x\r\n\r\n", "version"),
    "HTTP_2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version"),
    "version_in_small_letters": (b"GET /health http/1.1\r\nHost: x\r\n\r\n", "version"),
    "two_spaces": (b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n", "request line"),
    "space_in_the_target": (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "version"),
    "target_not_ASCII": ("GET /ä HTTP/1.1\r\nHost: x\r\n\r\n".encode(), "escaped"),
    "no_method": (b" /health HTTP/1.1\r\nHost: x\r\n\r\n", "method"),
    "empty_line_first": (b"\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n", "method"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "method"),
    "noise": (bytes(range(256)), "method"),
}
for text in ["abc", "-1", "+5", "1e3", "0x5", "5 5", "5, 5", "", "9" * 20, "5.0", "٥"]:
    HEADS[f"length_{text or 'empty'}"] = (
        f"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: {text}\r\n\r\n{{}}".encode(),
        "Content-Length is not a number")


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


@pytest.mark.parametrize("name", ["both_framings", "length_twice_different", "bare_LF_in_a_field"])
def test_a_bad_head_behind_a_good_one_is_refused_and_nothing_behind_it_is_served(port, name):
    with Raw(port) as raw:
        raw.send(head("GET", "/health") + HEADS[name][0] + head("GET", "/health") * 3)
        assert raw.answer().status == 204
        refused(raw.answer(), "rest", 400)
        raw.sock.shutdown(1)
        assert raw.closed()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
def test_a_bad_head_is_refused_however_it_is_cut(port, size):
    data = HEADS["both_framings"][0]
    with Raw(port) as raw:
        for at in range(0, len(data), size):
            raw.send(data[at:at + size])
            time.sleep(0.001)
        refused(raw.answer(), "rest", 400, "both Content-Length")


@pytest.mark.core
@pytest.mark.parametrize("data, limit", {
    "one_long_field": (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70000, "http.header-bytes"),
    "long_fields": (b"GET /health HTTP/1.1\r\nHost: x\r\n"
                    + (b"A: " + b"a" * 1000 + b"\r\n") * 90 + b"\r\n", "http.header-bytes"),
    "long_target": (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", "http.header-bytes"),
    "long_method": (b"A" * 70000, "http.header-bytes"),
    "many_fields": (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 150 + b"\r\n",
                    "http.header-count"),
    "very_many_fields": (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A:\r\n" * 5000 + b"\r\n",
                         "http.header-count"),
}.values(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_head_over_its_limit_is_431_and_names_the_limit(port, data, limit):
    with Raw(port) as raw:
        raw.send(data)
        answer = raw.answer()
        refused(answer, "rest", 431, limit)
        assert answer.headers["connection"] == "close"


def test_a_head_just_within_its_limits_is_served(port):
    fields = [f"A{i}: b" for i in range(99)]
    assert ask(port, head("GET", "/health", *fields)).status == 204
    assert ask(port, head("GET", "/health", "A: " + "a" * 30000)).status == 204


# ---- bodies whose framing breaks ----

CHUNKS = {
    "no_number": b"xyz\r\n{}\r\n0\r\n\r\n",
    "nothing": b"\r\n{}\r\n0\r\n\r\n",
    "negative": b"-2\r\n{}\r\n0\r\n\r\n",
    "prefix": b"0x2\r\n{}\r\n0\r\n\r\n",
    "plus": b"+2\r\n{}\r\n0\r\n\r\n",
    "space_first": b" 2\r\n{}\r\n0\r\n\r\n",
    "too_many_digits": b"F" * 17 + b"\r\n{}\r\n0\r\n\r\n",
    "over_63_bits": b"8000000000000000\r\n{}\r\n",
    "longer_than_its_size": b"2\r\n{}}}\r\n0\r\n\r\n",
    "no_line_end_behind_it": b"2\r\n{}0\r\n\r\n",
    "bare_LF": b"2\n{}\r\n0\r\n\r\n",
    "NUL": b"2\0\r\n{}\r\n0\r\n\r\n",
    "endless_extension": b"2;" + b"a" * 5000 + b"\r\n{}\r\n0\r\n\r\n",
}
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
@pytest.mark.parametrize("data", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("kind, code, start", CHUNKED_ROUTES.values(), ids=CHUNKED_ROUTES)
def test_a_bad_chunk_is_refused_and_the_connection_ends(port, kind, code, start, data):
    with Raw(port) as raw:
        raw.send(start + data)
        refused(raw.answer(), kind, code)
        raw.sock.shutdown(1)
        assert raw.closed()
    assert not os.path.exists("/tmp/cove-never-made")


def test_trailers_over_their_limit_are_431(port):
    start = head("POST", "/init", PLAIN, CHUNKED)
    with Raw(port) as raw:
        raw.send(start + b"2\r\n{}\r\n0\r\n" + (b"T: " + b"t" * 1000 + b"\r\n") * 20 + b"\r\n")
        refused(raw.answer(), "rest", 431, "trailers")


def test_chunks_with_extensions_and_trailers_are_fine(port):
    start = head("POST", "/init", PLAIN, CHUNKED)
    assert ask(port, start + b"1;a=b\r\n{\r\n01\r\n}\r\n0\r\nT: t\r\n\r\n").status == 204


# ---- targets and methods ----

ROUTES = {
    "/health": "GET", "/metrics": "GET", "/envs": "GET", "/init": "POST", "/files/compose": "POST",
    **{f"/process.Process/{name}": "POST" for name in
       ["List", "Start", "Connect", "Update", "SendInput", "StreamInput", "SendSignal", "CloseStdin"]},
    **{f"/filesystem.Filesystem/{name}": "POST" for name in
       ["Stat", "MakeDir", "Move", "ListDir", "Remove", "WatchDir", "CreateWatcher",
        "GetWatcherEvents", "RemoveWatcher"]},
}


@pytest.mark.parametrize("path, right", ROUTES.items(), ids=ROUTES)
def test_a_wrong_method_is_405(port, path, right):
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "get", "X"} - {right}:
        answer = ask(port, head(method, path))
        refused(answer, "rest", 405, method)
        assert right in answer.headers["allow"]


@pytest.mark.parametrize("path", [
    "/", "/nothing", "/health/", "//health", "/Health", "/health%2f", "/files/", "/file", "/init/x",
    "/process.Process", "/process.Process/", "/process.Process/Nothing", "/process.process/List",
    "/filesystem.Filesystem/Stat/x", "/..", "/%2e%2e/health", "/" + "a" * 3000])
def test_an_unknown_path_is_404(port, path):
    for method in "GET", "POST":
        refused(ask(port, head(method, path)), "rest", 404)


@pytest.mark.parametrize("target", ["health", "*", "http://guest/health", "guest:80"])
def test_a_target_that_is_no_path_is_400(port, target):
    refused(ask(port, head("GET", target)), "rest", 400, "target")


@pytest.mark.core
@pytest.mark.parametrize("target", [
    "/health%", "/health%2", "/health%zz", "/%00", "/health%0", "/%u0041"])
def test_a_bad_escape_in_the_path_is_no_path_of_ours(port, target):
    refused(ask(port, head("GET", target)), "rest", 404)


@pytest.mark.core
@pytest.mark.parametrize("value", ["%", "%2", "%zz", "%00", "/etc/passwd%00.txt", "%u0041"])
@pytest.mark.parametrize("name", ["path", "username"])
def test_a_bad_escape_in_the_query_is_400_and_names_the_parameter(port, name, value):
    for data in head("GET", f"/files?{name}={value}"), request("POST", f"/files?{name}={value}", b"",
                                                               OCTET):
        refused(ask(port, data), "rest", 400, f"'{name}'", "escape")


# ---- JSON that is none, or not the right one ----

TEXTS = {
    "null": b"null", "true": b"true", "number": b"1", "string": b'"x"', "array": b"[]",
    "array_of_objects": b"[{}]", "cut": b'{"path":"/"', "brace": b"{", "comma": b'{"path":"/",}',
    "single_quotes": b"{'path':'/'}", "no_quotes": b"{path:1}", "two_values": b"{}{}",
    "trailing": b"{} x", "only_spaces": b"   ", "NUL": b'{"path":"/"}\0', "NUL_alone": b"\0",
    "comment": b'{"path":"/"} // x', "byte_order_mark": b"\xef\xbb\xbf{}",
    "UTF_16": '{"path":"/"}'.encode("utf-16"), "invalid_UTF_8": b'{"path":"\xff\xfe"}',
    "overlong_UTF_8": b'{"path":"\xc0\xaf"}', "lone_surrogate": b'{"path":"\\ud800"}',
    "escaped_NUL": b'{"path":"a\\u0000b"}', "duplicate": b'{"path":"/","path":"/tmp"}',
    "control_character": b'{"path":"a\nb"}', "NaN": b'{"depth":NaN}', "huge_number": b'{"depth":1e999}',
    "long_number": b'{"depth":' + b"9" * 400 + b"}", "bad_escape": b'{"path":"\\x41"}',
    "deep_arrays": b"[" * 100000, "deep_objects": b'{"a":' * 50000,
    "deep_and_closed": b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "form": b"path=/", "HTML": b"<html></html>", "protobuf": b"\x0a\x04/tmp",
}
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
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("kind, code, path", JSON_ROUTES.values(), ids=JSON_ROUTES)
def test_what_is_not_a_JSON_object_is_refused(port, kind, code, path, text):
    if kind == "stream":
        data = request("POST", path, envelope(text), STREAM)
    else:
        data = request("POST", path, text, PLAIN)
    message = refused(ask(port, data), kind, code)
    assert "JSON" in message or "is missing" in message, message


@pytest.mark.parametrize("kind, code, path", JSON_ROUTES.values(), ids=JSON_ROUTES)
def test_an_unknown_field_is_passed_over(port, kind, code, path):
    """As protobuf's JSON demands. What is missing is told, not what is too much."""
    body = json.dumps({"noSuchField": {"a": [1]}, "path": "/no/such/place"}).encode()
    if path == "/init":
        assert ask(port, request("POST", path, b'{"noSuchField":[1]}', PLAIN)).status == 204
        return
    data = request("POST", path, envelope(body), STREAM) if kind == "stream" else \
        request("POST", path, body, PLAIN)
    answer = ask(port, data)
    assert "noSuchField" not in answer.body.decode()
    if path.endswith(("Stat", "ListDir", "CreateWatcher", "WatchDir")):
        refused(answer, kind, "not_found", "/no/such/place")
    elif path != f"/{STREAM_INPUT}":    # which takes a message that says nothing
        refused(answer, kind, code, "is missing")


REQUIRED = {
    "/files/compose": "source_paths", "/process.Process/Update": "process",
    "/process.Process/SendInput": "process", "/process.Process/SendSignal": "process",
    "/process.Process/CloseStdin": "process", "/filesystem.Filesystem/GetWatcherEvents": "watcherId",
    "/filesystem.Filesystem/RemoveWatcher": "watcherId",
}


@pytest.mark.core
@pytest.mark.parametrize("body", [None, b"", b"{}"], ids=["none", "empty", "object"])
@pytest.mark.parametrize("path, field", REQUIRED.items(), ids=REQUIRED)
def test_an_empty_body_is_told_which_field_it_lacks(port, path, field, body):
    kind, code = ("rest", 400) if path == "/files/compose" else ("unary", "invalid_argument")
    refused(ask(port, request("POST", path, body, PLAIN)), kind, code, f"'{field}' is missing")


@pytest.mark.core
@pytest.mark.parametrize("coded, word", {
    "not_gzip": (b"{}", "gzip"),
    "cut": (gzip.compress(b'{"path":"/"}' * 100)[:-12], "gzip"),
    "header_only": (gzip.compress(b"")[:10], "gzip"),
    "bad_sum": (gzip.compress(b"{}")[:-8] + b"\0" * 8, "gzip"),
    "more_behind": (gzip.compress(b"{}") + b"x", "gzip"),
    "empty": (b"", "gzip"),
}.values(), ids=lambda value: "")
def test_a_body_that_is_not_the_gzip_it_claims_is_refused(port, coded, word):
    zipped = "Content-Encoding: gzip"
    stat = "/filesystem.Filesystem/Stat"
    refused(ask(port, request("POST", "/init", coded, PLAIN, zipped)), "rest", 400, word)
    refused(ask(port, request("POST", stat, coded, PLAIN, zipped)), "unary", "invalid_argument", word)


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd", "x-gzip", "nothing"])
def test_a_coding_that_is_not_known_is_refused(port, coding):
    data = request("POST", "/init", b"{}", PLAIN, f"Content-Encoding: {coding}")
    refused(ask(port, data), "rest", 400, "Content-Encoding", coding)


# ---- envelopes ----

def framed(flags, size, payload):
    return struct.pack(">BI", flags, size) + payload


TEXT = json.dumps(TRUE).encode()
ENVELOPES = {
    "none": (b"", "envelope"),
    "one_byte": (b"\0", "envelope"),
    "four_bytes": (b"\0\0\0\0", "envelope"),
    "header_without_payload": (framed(0, 10, b""), "envelope"),
    "longer_than_the_body": (framed(0, len(TEXT) + 1, TEXT), "envelope"),
    "shorter_than_the_text": (framed(0, len(TEXT) - 1, TEXT), "envelope"),
    "compressed": (framed(1, len(TEXT), TEXT), "compressed"),
    "compressed_indeed": (envelope(gzip.compress(TEXT), 1), "compressed"),
    "unknown_flag_4": (framed(4, len(TEXT), TEXT), "0x04"),
    "unknown_flag_128": (framed(128, len(TEXT), TEXT), "0x80"),
    "all_flags": (framed(254, len(TEXT), TEXT), "0xfe"),
    "two": (envelope(TEXT) * 2, "more than one"),
    "byte_behind": (envelope(TEXT) + b"\0", "envelope"),
    "only_the_end": (envelope(b"{}", END), "no envelope"),
    "no_envelope_around_it": (TEXT, "compressed"), # the brace has that bit
    "bare_text": (b"hello", "0x68"),
    "empty_message": (envelope(b""), "'process' is missing"),
}


@pytest.mark.core
@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("body, word", ENVELOPES.values(), ids=ENVELOPES)
@pytest.mark.parametrize("method", [START, CONNECT])
def test_a_broken_envelope_ends_the_stream_with_an_error(port, method, body, word, framing):
    if method == CONNECT and body in (envelope(TEXT), ENVELOPES["empty_message"][0]):
        word = "'process'"
    if framing == "length":
        data = request("POST", f"/{method}", body, STREAM)
    else:
        pieces = b"".join(b"1\r\n" + body[i:i + 1] + b"\r\n" for i in range(len(body)))
        data = head("POST", f"/{method}", STREAM, CHUNKED) + pieces + b"0\r\n\r\n"
    refused(ask(port, data), "stream", "invalid_argument", word)


@pytest.mark.core
@pytest.mark.parametrize("name", [
    "one_byte", "header_without_payload", "longer_than_the_body", "compressed", "unknown_flag_4",
    "no_envelope_around_it"])
@pytest.mark.parametrize("method", [WATCH, STREAM_INPUT])
def test_a_broken_envelope_ends_other_streams_too(port, method, name):
    body, word = ENVELOPES[name]
    refused(ask(port, request("POST", f"/{method}", body, STREAM)), "stream", "invalid_argument", word)


@pytest.mark.parametrize("data, word", [
    ({"data": {"input": {"stdin": "eA=="}}}, "'start'"),
    ({"start": {}}, "'process' is missing"),
    ({"start": {"process": {}}}, "pid or a tag"),
], ids=["data_first", "start_without_process", "selector_without_anything"])
def test_an_input_stream_must_begin_with_its_process(port, data, word):
    refused(ask(port, stream(STREAM_INPUT, data)), "stream", "invalid_argument", word)


def test_a_message_behind_the_one_that_fails_is_not_looked_at(port):
    body = envelope({"start": {"process": {"pid": 4194304}}}) + framed(255, 9, b"")
    refused(ask(port, request("POST", f"/{STREAM_INPUT}", body, STREAM)), "stream", "not_found",
            "4194304")


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "", "12345678901", "1s", "0x10"])
def test_a_bad_time_limit_is_refused_and_nothing_is_started(port, value):
    answer = ask(port, stream(START, TRUE, f"Connect-Timeout-Ms: {value}"))
    refused(answer, "stream", "invalid_argument", "Connect-Timeout-Ms")


# ---- users ----

def basic(text):
    return "Authorization: Basic " + base64.b64encode(text).decode()


@pytest.mark.core
@pytest.mark.parametrize("header, word", [
    (basic(b"no-such-user:"), "no-such-user"),
    (basic(b"no-such-user"), "no-such-user"),
    (basic(b"no-such-user:password"), "no-such-user"),
    (basic(b"root\n:"), "user"),
    (basic(b"../root:"), "../root"),
    (basic("ünï:".encode()), "user"),
    (basic(b"x" * 5000 + b":"), "user"),
    (basic(b"ro\0ot:"), "Basic"),
    ("Authorization: Basic !!!!", "Basic"),
    ("Authorization: Basic cm9vdDo", "Basic"),
    ("Authorization: Basic cm9vdDo==", "Basic"),
    ("Authorization: Basic cm9v dDo=", "Basic"),
], ids=["unknown", "no_colon", "password", "line_feed", "path", "unicode", "long", "NUL",
        "not_base64", "no_padding", "much_padding", "space"])
def test_a_user_that_cannot_be_is_unauthenticated(port, header, word):
    refused(ask(port, call("filesystem.Filesystem/Stat", {"path": "/"}, header)), "unary",
            "unauthenticated", word)
    refused(ask(port, stream(START, TRUE, header)), "stream", "unauthenticated", word)
    refused(ask(port, stream(WATCH, {"path": "/tmp"}, header)), "stream", "unauthenticated", word)
    refused(ask(port, head("GET", "/files?path=/etc/passwd", header)), "rest", 401, word)
    refused(ask(port, request("POST", "/files?path=/tmp/x", b"", OCTET, header)), "rest", 401, word)


@pytest.mark.parametrize("name", ["no-such-user", "0x0", "-1", "99999999999", "root%0a", "%20root"])
def test_an_unknown_username_in_the_URL_is_401(port, name):
    refused(ask(port, head("GET", f"/files?path=/etc/passwd&username={name}")), "rest", 401, "user")


# ---- uploads ----

MARK = "xxBOUNDARYxx"
MULTIPART = f"Content-Type: multipart/form-data; boundary={MARK}"


def part(disposition, data=b"data"):
    return f"--{MARK}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + data + b"\r\n"


LAST = f"--{MARK}--\r\n".encode()
FILE = 'form-data; name="file"; filename="{}"'
FORMS = {
    "empty": (b"", "closing boundary"),
    "no_part": (LAST, "no part named 'file'"),
    "other_name": (part('form-data; name="other"; filename="f"') + LAST, "no part named 'file'"),
    "no_close": (part(FILE.format("{}/f")), "closing boundary"),
    "cut_in_the_mark": (part(FILE.format("{}/f")) + LAST[:8], "closing boundary"),
    "cut_in_the_head": (f"--{MARK}\r\nContent-Dispo".encode(), "closing boundary"),
    "cut_behind_the_head": (f"--{MARK}\r\nContent-Disposition: form-data; name=\"file\"; "
                            f"filename=\"f\"\r\n\r\n".encode(), "closing boundary"),
    "other_boundary": (part(FILE.format("{}/f")).replace(MARK.encode(), b"other") + LAST[:-4],
                       "closing boundary"),
    "junk_behind_the_mark": (f"--{MARK}junk\r\n".encode() + LAST, "no part named 'file'"),
    "no_disposition": (f"--{MARK}\r\nA: b\r\n\r\nx\r\n".encode() + LAST, "name"),
    "no_head": (f"--{MARK}\r\n\r\nx\r\n".encode() + LAST, "name"),
    "disposition_of_another_kind": (part('attachment; name="file"; filename="f"') + LAST, "name"),
    "no_name": (part('form-data; filename="f"') + LAST, "name"),
    "no_filename": (part('form-data; name="file"') + LAST, "filename"),
    "empty_filename": (part(FILE.format("")) + LAST, "filename"),
    "filename_is_a_directory": (part(FILE.format("{}/")) + LAST, "directory"),
    "filename_is_dots": (part(FILE.format("{}/..")) + LAST, "directory"),
    "filename_too_long": (part(FILE.format("{}/" + "n" * 256)) + LAST, "255"),
    "path_too_long": (part(FILE.format("{}/" + "d/" * 2400 + "f")) + LAST, "name"),
    "one_path_twice": (part(FILE.format("{}/f")) * 2 + LAST, "two parts"),
    "folded_head": (f"--{MARK}\r\nContent-Disposition: form-data;\r\n name=\"file\"\r\n\r\n".encode()
                    + LAST, "folded"),
    "bare_LF_in_the_head": (f"--{MARK}\r\nContent-Disposition: form-data; name=\"file\"\nA: b\r\n\r\n"
                            .encode() + LAST, "bare LF"),
    "NUL_in_the_filename": (part(FILE.format("{}/a\0b")) + LAST, "control character"),
    "endless_head": (f"--{MARK}\r\nContent-Disposition: ".encode() + b"a" * 100000, "part head"),
}
MANY_FIELDS = f"--{MARK}\r\n".encode() + b"A: b\r\n" * 200 + b"\r\nx\r\n" + LAST


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


def test_a_part_with_too_many_fields_is_431_and_names_the_limit(port):
    answer = ask(port, request("POST", "/files", MANY_FIELDS, MULTIPART))
    refused(answer, "rest", 431, "http.header-count", "part head")


@pytest.mark.parametrize("header", [
    "Content-Type: multipart/form-data", "Content-Type: multipart/form-data; boundary=",
    'Content-Type: multipart/form-data; boundary=""', "Content-Type: multipart/form-data; bound=x",
    "Content-Type: multipart/form-data; boundary=" + "x" * 71,
    "Content-Type: multipart/form-data; boundary=a@b", "Content-Type: multipart/form-data boundary=x"])
def test_a_boundary_that_cannot_be_is_refused(port, header):
    answer = ask(port, request("POST", "/files?path=/tmp/cove-never-made", LAST, header))
    refused(answer, "rest", 400)
    assert b"boundary" in answer.body or b"Content-Type" in answer.body
    assert not os.path.exists("/tmp/cove-never-made")


@pytest.mark.core
@pytest.mark.parametrize("header", [
    "X: no content type", "Content-Type:", "Content-Type: text/plain", PLAIN, STREAM,
    "Content-Type: multipart/mixed; boundary=x", "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: application/octet-streams"])
def test_an_upload_of_another_content_type_is_400(port, header):
    answer = ask(port, request("POST", "/files?path=/tmp/cove-never-made", b"data", header))
    refused(answer, "rest", 400, "Content-Type")
    assert not os.path.exists("/tmp/cove-never-made")


def test_an_upload_of_several_files_to_one_path_is_400(port, folder):
    body = part(FILE.format("a")) + part(FILE.format("b")) + LAST
    answer = ask(port, request("POST", files_path(folder + "/f"), body, MULTIPART))
    refused(answer, "rest", 400, "path")


@pytest.mark.core
@pytest.mark.parametrize("path, word", {
    "a_directory": ("{}", "directory"), "with_a_slash": ("{}/f/", "directory"),
    "below_a_file": ("{}/file/f", "file"), "dots": ("{}/sub/..", "directory"),
    "long_name": ("{}/" + "n" * 256, "255"), "long_path": ("{}/" + "d/" * 2100 + "f", "name"),
    "a_device": ("/dev/null", "regular"), "a_pipe": ("{}/pipe", "regular"),
    "root": ("/", "directory"),
}.values(), ids=lambda value: "")
def test_a_path_that_cannot_be_a_file_is_400(port, folder, path, word):
    open(os.path.join(folder, "file"), "w").close()
    os.mkfifo(os.path.join(folder, "pipe"))
    os.mkdir(os.path.join(folder, "sub"))
    target = files_path(path.replace("{}", folder))
    refused(ask(port, request("POST", target, b"data", OCTET)), "rest", 400, word)
    assert sorted(os.listdir(folder)) == ["file", "pipe", "sub"]


def test_a_raw_upload_without_a_path_is_400(port):
    refused(ask(port, request("POST", "/files", b"data", OCTET)), "rest", 400, "'path'")
    refused(ask(port, request("POST", "/files?path=", b"data", OCTET)), "rest", 400, "'path'")


@pytest.mark.core
@pytest.mark.parametrize("coded", [
    b"data", gzip.compress(b"data" * 1000)[:-9], gzip.compress(b"x")[:-8] + b"\0" * 8,
    gzip.compress(b"x") + b"y", b""], ids=["none", "cut", "bad_sum", "more", "empty"])
def test_a_raw_upload_that_is_not_the_gzip_it_claims_leaves_no_file(port, folder, coded):
    target = files_path(folder + "/f")
    answer = ask(port, request("POST", target, coded, OCTET, "Content-Encoding: gzip"))
    refused(answer, "rest", 400, "gzip")
    assert os.listdir(folder) == []


@pytest.mark.core
@pytest.mark.parametrize("headers", [
    ["X-Metadata-: x"], ["X-Metadata-" + "k" * 247 + ": x"], ["X-Metadata-a: " + "v" * 4096],
    ["X-Metadata-a: " + "v" * 4000, "X-Metadata-b: " + "v" * 200], ["X-Metadata-a: \xe4"],
    ["X-Metadata-a: b\tc"]],
    ids=["no_key", "long_key", "long_value", "much_together", "not_ASCII", "tab"])
def test_metadata_that_cannot_be_is_400_and_leaves_no_file(port, folder, headers):
    for body in b"data", b"":
        answer = ask(port, request("POST", files_path(folder + "/f"), body, OCTET, *headers))
        message = refused(answer, "rest", 400, "X-Metadata")
        assert "vvvv" not in message, "the message shows more than the key"
    assert os.listdir(folder) == []


# ---- downloads ----

@pytest.mark.core
@pytest.mark.parametrize("path, status, word", [
    ("/no/such/file", 404, "/no/such/file"), ("/", 400, "directory"), ("/dev/null", 400, "regular"),
    ("/etc/passwd/x", 400, "/etc/passwd/x"), ("/" + "n" * 300, 400, "name"),
    ("/" + "d/" * 2500, 400, "name"), ("", 400, "directory")],
    ids=["missing", "directory", "device", "below_a_file", "long_name", "long_path", "empty"])
def test_a_download_of_what_is_no_file_says_so(port, path, status, word):
    refused(ask(port, head("GET", files_path(path))), "rest", status, word)


@pytest.mark.parametrize("accept", [
    "identity;q=0", "*;q=0", "br, identity;q=0", "gzip;q=0, identity;q=0", "identity;q=0.000"])
def test_a_download_that_accepts_nothing_is_406(port, accept):
    data = head("GET", "/files?path=/etc/passwd", f"Accept-Encoding: {accept}")
    refused(ask(port, data), "rest", 406, "Accept-Encoding")


@pytest.mark.parametrize("value, status", [
    ("bytes=999999999-", 416), ("bytes=-0", 416), ("bytes=5-2", 200), ("bytes=a-b", 200),
    ("bytes=", 200), ("bytes=-", 200), ("lines=1-2", 200), ("bytes=0-1,3-4", 200),
    ("bytes=18446744073709551616-", 200), ("bytes=0-18446744073709551616", 200)])
def test_a_range_that_makes_no_sense_is_passed_over_or_416(port, value, status):
    answer = ask(port, head("GET", "/files?path=/etc/passwd", f"Range: {value}"))
    assert answer.status == status
    if status == 200:
        assert answer.body == open("/etc/passwd", "rb").read()
    else:
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
    ("/init", "rest", 413), ("/files/compose", "rest", 413), (STAT, "unary", "resource_exhausted"),
    ("/process.Process/SendInput", "unary", "resource_exhausted")])
def test_a_body_over_its_limit_is_413_and_names_the_limit(narrow_port, path, kind, code):
    limit = "http.body-bytes=65536"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(BIG[i:i + 999]), BIG[i:i + 999])
                      for i in range(0, len(BIG), 999)) + b"0\r\n\r\n"
    refused(ask(narrow_port, request("POST", path, BIG, PLAIN)), kind, code, limit)
    refused(ask(narrow_port, head("POST", path, PLAIN, CHUNKED) + chunks), kind, code, limit)
    huge = head("POST", path, PLAIN, "Content-Length: 9223372036854775807")
    refused(ask(narrow_port, huge + b"{"), kind, code, limit)


@pytest.mark.core
@pytest.mark.parametrize("method", [START, CONNECT, WATCH, STREAM_INPUT])
def test_an_envelope_over_its_limit_is_refused_and_names_the_limit(narrow_port, method):
    for size in 65537, 0x7fffffff, 0xffffffff:
        body = framed(0, size, b"{}")
        answer = ask(narrow_port, request("POST", f"/{method}", body, STREAM))
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
    assert SANITIZED or narrow.guest.peak_rss_kib() - before < 4096


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
@pytest.mark.parametrize("begun", [
    b"G", b"GET /health HTTP/1.1", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: x",
    b"GET /health HTTP/1.1\r\nHost: x\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r"],
    ids=["letter", "line", "line_end", "field", "field_end", "half_the_end"])
def test_a_head_that_stops_is_408_and_names_the_limit(hasty_port, begun):
    with Raw(hasty_port) as raw:
        raw.send(begun)
        answer = raw.answer()
        refused(answer, "rest", 408, "http.header-ms=300")
        assert answer.headers["connection"] == "close"


@pytest.mark.core
def test_a_head_that_drips_is_408_all_the_same(hasty_port):
    with Raw(hasty_port) as raw:
        began = time.monotonic()
        try:
            for byte in head("GET", "/health", *["A: b"] * 50):
                raw.send(bytes([byte]))
                time.sleep(0.02)
                if time.monotonic() - began > 0.6:
                    break
        except OSError:
            pass                        # it may close before we stop
        refused(raw.answer(), "rest", 408, "http.header-ms=300")
        assert time.monotonic() - began < 5


SLOW_BODIES = {
    "rest": ("rest", 408, head("POST", "/init", PLAIN, "Content-Length: 100") + b"{"),
    "rest_chunked": ("rest", 408, head("POST", "/init", PLAIN, CHUNKED) + b"5\r\n{"),
    "rest_no_chunk": ("rest", 408, head("POST", "/init", PLAIN, CHUNKED)),
    "rest_no_trailer": ("rest", 408, head("POST", "/init", PLAIN, CHUNKED) + b"2\r\n{}\r\n0\r\n"),
    "compose": ("rest", 408, head("POST", "/files/compose", PLAIN, "Content-Length: 9")),
    "unary": ("unary", "deadline_exceeded", head("POST", STAT, PLAIN, "Content-Length: 9") + b"{"),
    "stream": ("stream", "deadline_exceeded",
               head("POST", f"/{START}", STREAM, "Content-Length: 9") + b"\0\0"),
    "upstream": ("stream", "deadline_exceeded",
                 head("POST", f"/{STREAM_INPUT}", STREAM, CHUNKED) + b"5\r\n\0\0\0\0\x02\r\n"),
    "upload": ("rest", 408, head("POST", "/files?path=/tmp/cove-never-made", OCTET,
                                 "Content-Length: 9") + b"x"),
    "upload_chunked": ("rest", 408, head("POST", "/files?path=/tmp/cove-never-made", OCTET, CHUNKED)
                       + b"5\r\nx"),
    "form": ("rest", 408, head("POST", "/files?path=/tmp/cove-never-made", MULTIPART,
                               "Content-Length: 900") + part(FILE.format("f"))),
    "gzip": ("rest", 408, head("POST", "/files?path=/tmp/cove-never-made", OCTET,
                               "Content-Length: 900", "Content-Encoding: gzip")
             + gzip.compress(b"x" * 100)[:15]),
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
            text = list(TEXTS.values())[i % len(TEXTS)]
            assert ask(port, call("filesystem.Filesystem/ListDir", text)).status == 400
            assert end_of(ask(port, stream(START, text)).body)["code"] == "invalid_argument"
            body = list(FORMS.values())[i % len(FORMS)][0].replace(b"{}", b"/no\0such")
            assert ask(port, request("POST", "/files", body, MULTIPART)).status == 400

    wave(150)
    before = shared.guest.rss_kib()
    wave(250)
    assert SANITIZED or shared.guest.rss_kib() - before < 1024
