"""Files over plain HTTP: ranges, conditions, encodings, forms, and the sizes that matter."""

import concurrent.futures
import email.utils
import gzip
import hashlib
import http.client
import json
import shutil
import time
import urllib.parse
import zlib

import pytest

from helpers.guest import SANITIZED
from helpers.sdk import as_stream
from helpers.there import get, open, os, proc, put  # pylint: disable=redefined-builtin
from helpers.wire import files_path

pytestmark = pytest.mark.sdk

core = pytest.mark.core
MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture
def file(folder):
    """A file of 100,000 bytes, each part of which can be told from the others."""
    path, data = f"{folder}/data.bin", b"".join(b"%09d\n" % i for i in range(10_000))
    put(path, data)
    return path, data


# --- reading ---------------------------------------------------------------------------------

@core
def test_a_download_is_described_by_its_headers(wire, folder):
    for name, kind in (("a.txt", "text/plain; charset=utf-8"), ("a.json", "application/json"),
                       ("a.png", "image/png"), ("a", "application/octet-stream")):
        put(f"{folder}/{name}", "hello")
        reply = wire.get(files_path(f"{folder}/{name}"))
        assert (reply.status, reply.body) == (200, b"hello")
        assert reply.headers["Content-Type"] == kind
        assert reply.headers["Content-Length"] == "5"
        assert reply.headers["Content-Disposition"] == f'inline; filename="{name}"'
        assert reply.headers["Accept-Ranges"] == "bytes"
        assert "Accept-Encoding" in reply.headers["Vary"]


@core
def test_an_empty_file_is_sent_with_its_length(wire, folder):
    put(f"{folder}/empty")
    reply = wire.get(files_path(f"{folder}/empty"))
    assert (reply.status, reply.body, reply.headers["Content-Length"]) == (200, b"", "0")


@core
@pytest.mark.parametrize("given, first, last", [
    ("0-0", 0, 0), ("0-99", 0, 99), ("99990-", 99990, 99999), ("-10", 99990, 99999),
    ("50000-50009", 50000, 50009), ("99999-", 99999, 99999), ("90000-200000", 90000, 99999),
    ("-200000", 0, 99999)])
def test_a_range_is_served_exactly(wire, file, given, first, last):
    path, data = file
    reply = wire.get(files_path(path), Range=f"bytes={given}")
    assert reply.status == 206
    assert reply.headers["Content-Range"] == f"bytes {first}-{last}/100000"
    assert reply.body == data[first:last + 1]


@core
@pytest.mark.parametrize("given", ["100000-", "100000-100001", "-0"])
def test_a_range_outside_the_file_cannot_be_satisfied(wire, file, given):
    reply = wire.get(files_path(file[0]), Range=f"bytes={given}")
    assert (reply.status, reply.headers["Content-Range"]) == (416, "bytes */100000")


@pytest.mark.parametrize("given", ["lines=1-2", "bytes=5-4", "bytes=a-b", "bytes", "bytes=0-1,4-5"])
def test_a_range_that_means_nothing_to_us_gets_the_whole_file(wire, file, given):
    reply = wire.get(files_path(file[0]), Range=given)
    assert (reply.status, reply.body) == (200, file[1])


@core
def test_an_unchanged_file_is_not_sent_again(wire, file):
    target = files_path(file[0])
    first = wire.get(target)
    tag, date = first.headers["ETag"], first.headers["Last-Modified"]
    for headers in ({"If-None-Match": tag}, {"If-None-Match": f'"other", {tag}'},
                    {"If-None-Match": "*"}, {"If-Modified-Since": date}):
        reply = wire.get(target, **headers)
        assert (reply.status, reply.body) == (304, b""), headers
    earlier = email.utils.formatdate(email.utils.parsedate_to_datetime(date).timestamp() - 1,
                                     usegmt=True)
    for headers in ({"If-None-Match": '"other"'}, {"If-Modified-Since": earlier}):
        assert wire.get(target, **headers).status == 200, headers
    with open(file[0], "ab") as out:
        out.write(b"more")
    assert wire.get(target, **{"If-None-Match": tag}).status == 200


def test_a_range_of_another_version_gets_the_whole_file(wire, file):
    target = files_path(file[0])
    tag = wire.get(target).headers["ETag"]
    part = {"Range": "bytes=0-9"}
    assert wire.get(target, **part, **{"If-Range": tag}).status == 206
    assert wire.get(target, **part, **{"If-Range": '"other"'}).status == 200


@core
def test_head_tells_what_get_would_send(wire, file):
    got, told = wire.get(files_path(file[0])), wire.request("HEAD", files_path(file[0]))
    assert (told.status, told.body) == (200, b"")
    for name in ("Content-Length", "Content-Type", "ETag", "Last-Modified"):
        assert told.headers[name] == got.headers[name]
    assert wire.request("HEAD", files_path(file[0] + "-not")).status == 404


@core
def test_gzip_is_used_for_who_asks_for_it_alone(wire, file):
    path, data = file
    for accepted in ("gzip", "gzip;q=1.0, identity;q=0", "gzip, *;q=0"):
        reply = wire.get(files_path(path), **{"Accept-Encoding": accepted})
        assert reply.headers["Content-Encoding"] == "gzip", accepted
        assert gzip.decompress(reply.body) == data
    for accepted in ("gzip, deflate", "identity", "gzip;q=0", "deflate", ""):
        reply = wire.get(files_path(path), **{"Accept-Encoding": accepted})
        assert (reply.headers["Content-Encoding"], reply.body) == (None, data), accepted


def test_who_accepts_nothing_we_have_is_told(wire, file):
    for accepted in ("identity;q=0", "br, *;q=0"):
        assert wire.get(files_path(file[0]), **{"Accept-Encoding": accepted}).status == 406


@core
def test_errors_are_json_with_a_code_and_a_message(wire, folder):
    for target, status in ((files_path(f"{folder}/nothing"), 404), (files_path(folder), 400),
                           (files_path(f"{folder}/x", username="no-such-user"), 401)):
        reply = wire.get(target)
        assert (reply.status, reply.json["code"]) == (status, status)
        assert reply.json["message"]
        assert reply.headers["Content-Type"].startswith("application/json")


def test_a_file_that_is_cut_short_while_it_is_sent_breaks_the_download(wire, folder):
    path = f"{folder}/shrinking"
    with open(path, "wb") as out:
        out.truncate(64 * MIB)
    connection = wire.connect()
    connection.request("GET", files_path(path))
    reply = connection.getresponse()
    reply.read(MIB)
    os.truncate(path, 2 * MIB)
    with pytest.raises(http.client.IncompleteRead):
        reply.read()
    connection.close()


# --- writing ---------------------------------------------------------------------------------

def form(*parts, boundary="cove-boundary"):
    body = b""
    for headers, data in parts:
        body += f"--{boundary}\r\n{headers}\r\n\r\n".encode() + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {
        "Content-Type": f"multipart/form-data; boundary={boundary}"}


@core
def test_a_form_writes_each_file_where_its_name_says(wire, folder):
    body, headers = form((f'Content-Disposition: form-data; name="file"; filename="{folder}/a/1"',
                          b"one"),
                         ('Content-Disposition: form-data; name="note"', b"passed over"),
                         (f'Content-Disposition: form-data; name="file"; filename="{folder}/b/2"',
                          b"\r\n--cove\r\n"))
    reply = wire.request("POST", "/files", body, headers)
    assert reply.status == 200
    assert reply.json == [{"path": f"{folder}/a/1", "name": "1", "type": "file"},
                          {"path": f"{folder}/b/2", "name": "2", "type": "file"}]
    assert get(f"{folder}/a/1") == b"one"
    assert get(f"{folder}/b/2") == b"\r\n--cove\r\n"


@core
def test_forms_that_contradict_themselves_are_refused(wire, folder):
    part = f'Content-Disposition: form-data; name="file"; filename="{folder}/same"'
    body, headers = form((part, b"1"), (part, b"2"))
    assert wire.request("POST", "/files", body, headers).status == 400
    body, headers = form((part, b"1"), (part.replace("same", "other"), b"2"))
    assert wire.request("POST", files_path(f"{folder}/x"), body, headers).status == 400
    body, headers = form(('Content-Disposition: form-data; name="note"', b"no file at all"))
    assert wire.request("POST", files_path(f"{folder}/x"), body, headers).status == 400
    body, headers = form((part, b"cut off"))
    assert wire.request("POST", "/files", body[:-30], headers).status == 400


@core
def test_an_upload_in_chunks_of_any_size_arrives(wire, folder):
    data = os.urandom(100_000)

    def chunks():
        at, step = 0, 1
        while at < len(data):
            yield data[at:at + step]
            at, step = at + step, step * 3 % 9973 + 1

    connection = wire.connect()
    connection.request("POST", files_path(f"{folder}/chunked"), chunks(),
                       {"Content-Type": "application/octet-stream"}, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert get(f"{folder}/chunked") == data


@core
def test_a_body_that_comes_a_moment_after_its_head_is_noticed(wire, folder):
    """Whenever it comes: also while a worker has just found the socket empty."""
    connection = wire.connect()
    for i in range(300):
        connection.putrequest("POST", files_path(f"{folder}/late"))
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Content-Length", "6")
        connection.endheaders()
        time.sleep(i % 30 / 30_000)
        connection.send(b"abc")
        time.sleep(i % 7 / 30_000)
        connection.send(b"def")
        reply = connection.getresponse()
        assert (reply.status, len(reply.read()) > 0) == (200, True)
    connection.close()
    assert get(f"{folder}/late") == b"abcdef"


@core
def test_a_gzip_upload_is_unpacked(wire, folder):
    data = os.urandom(1000) * 500
    assert wire.upload(f"{folder}/x", gzip.compress(data),
                       {"Content-Encoding": "gzip"}).status == 200
    assert get(f"{folder}/x") == data


def test_a_gzip_upload_that_is_damaged_or_short_writes_nothing(wire, folder):
    packed = gzip.compress(os.urandom(100_000))
    spoiled = packed[:-8] + bytes(4) + packed[-4:]      # the checksum
    for body in (packed[:50_000], spoiled, b"not gzip at all", b""):
        reply = wire.upload(f"{folder}/x", body, {"Content-Encoding": "gzip"})
        assert reply.status == 400, body[:10]
    assert os.listdir(folder) == []


def test_other_types_and_encodings_of_an_upload_are_refused(wire, folder):
    target = files_path(f"{folder}/x")
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": ""}, {}):
        assert wire.request("POST", target, b"x", headers).status == 400
    reply = wire.upload(f"{folder}/x", zlib.compress(b"x"), {"Content-Encoding": "deflate"})
    assert 400 <= reply.status < 500
    assert os.listdir(folder) == []


def test_metadata_has_limits(wire, folder):
    assert wire.upload(f"{folder}/x", b"x", {"X-Metadata-" + "k" * 247: "v"}).status == 400
    assert wire.upload(f"{folder}/x", b"x", {"X-Metadata-k": "v" * 4096}).status == 400
    assert wire.upload(f"{folder}/x", b"x", {"X-Metadata-k": "caf\u00e9"}).status == 400
    assert os.listdir(folder) == []
    reply = wire.upload(f"{folder}/x", b"x", {"X-Metadata-KEY": "v", "X-Metadata-b": "w"})
    assert reply.json[0]["metadata"] == {"key": "v", "b": "w"}


def test_compose_joins_files_and_removes_them(wire, folder):
    for i in range(5):
        put(f"{folder}/part{i}", f"{i}" * 1000)
    body = {"source_paths": [f"{folder}/part{i}" for i in range(5)],
            "destination": f"{folder}/whole"}
    reply = wire.request("POST", "/files/compose", json.dumps(body),
                         {"Content-Type": "application/json"})
    assert reply.status == 200
    assert reply.json == {"path": f"{folder}/whole", "name": "whole", "type": "file"}
    assert os.listdir(folder) == ["whole"]
    assert get(f"{folder}/whole").decode() == "".join(f"{i}" * 1000 for i in range(5))


def test_compose_with_a_missing_source_changes_nothing(wire, folder):
    put(f"{folder}/part", b"1")
    body = {"source_paths": [f"{folder}/part", f"{folder}/nothing"],
            "destination": f"{folder}/whole"}
    reply = wire.request("POST", "/files/compose", json.dumps(body),
                         {"Content-Type": "application/json"})
    assert reply.status == 404
    assert os.listdir(folder) == ["part"]


def test_40_uploads_and_downloads_at_once_do_not_mix(wire, folder):
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        def work(i):
            data = bytes([i]) * (i * 10_007)
            assert wire.upload(f"{folder}/{i}", data).status == 200
            return wire.get(files_path(f"{folder}/{i}")).body == data
        assert all(pool.map(work, range(40)))


# --- size ------------------------------------------------------------------------------------

def pattern(size):
    block = hashlib.shake_256(b"cove").digest(MIB)
    for _ in range(size // MIB):
        yield block


@pytest.fixture
def roomy(folder, workspace):
    if shutil.disk_usage(workspace).free < 4 * GIB:     # the volume of sandboxes grows on it
        pytest.skip("needs 4 GiB of free disk")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_1_gib_goes_up_and_down_as_a_stream_in_flat_memory(sandbox, guest, roomy):
    path, wanted = f"{roomy}/big", hashlib.sha256()
    for block in pattern(GIB):
        wanted.update(block)

    before = guest.rss_kib()
    guest.forget_peak()
    sandbox.files.write(path, as_stream(pattern(GIB)), request_timeout=280)
    assert os.path.getsize(path) == GIB
    uploaded = guest.peak_rss_kib()

    guest.forget_peak()
    read = hashlib.sha256()
    for chunk in sandbox.files.read(path, format="stream", request_timeout=280):
        read.update(chunk)
    downloaded = guest.peak_rss_kib()
    assert read.digest() == wanted.digest()
    if not SANITIZED:                   # their allocators keep what is freed
        assert uploaded - before < 32 << 10
        assert downloaded - before < 32 << 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_overwriting_256_mib_needs_no_memory_either(wire, guest, roomy):
    path = f"{roomy}/big"
    put(path, b"old")
    inode, before = os.stat(path).st_ino, guest.rss_kib()
    guest.forget_peak()
    connection = wire.connect()
    connection.timeout = 200
    connection.request("POST", files_path(path), pattern(256 * MIB),
                       {"Content-Type": "application/octet-stream",
                        "Content-Length": str(256 * MIB)})
    assert connection.getresponse().status == 200
    connection.close()
    assert (os.stat(path).st_ino, os.path.getsize(path)) == (inode, 256 * MIB)
    if not SANITIZED:
        assert guest.peak_rss_kib() - before < 32 << 10


def test_a_download_to_a_client_that_stops_reading_holds_nothing_up(wire, guest, folder):
    with open(f"{folder}/big", "wb") as out:
        out.truncate(256 * MIB)
    stalled = []
    for _ in range(20):
        connection = wire.connect()
        connection.request("GET", files_path(f"{folder}/big"))
        stalled.append((connection, connection.getresponse()))
    begun = time.monotonic()
    assert wire.get("/health").status == 204
    assert wire.filesystem("Stat", {"path": folder}).status == 200
    assert wire.start("/bin/echo", "hi").collect().stdout == b"hi\n"
    assert time.monotonic() - begun < 10
    for connection, reply in stalled:
        reply.close()
        connection.close()
    proc.wait_until(lambda: f"{folder}/big" not in guest.descriptors().values(),
                    "the guest to close the file")


def test_a_query_is_decoded_once(wire, folder):
    name = "a%2Fb+c d"
    target = "/files?path=" + urllib.parse.quote(f"{folder}/{name}", safe="")
    assert wire.request("POST", target, b"x",
                        {"Content-Type": "application/octet-stream"}).status == 200
    assert os.listdir(folder) == [name]
