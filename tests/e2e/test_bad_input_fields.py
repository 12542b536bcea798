"""One field of every message, given every wrong type, length and number: generated from the
OpenAPI document that the guest makes of its own route tables, so that a new message is tested on the
day it is added (all its fields are, in tests/unit/test_bad_fields.c). Behind them, values that only
their meaning makes wrong."""

import base64
import json
import os
import subprocess

import pytest

from helpers.guest import BINARY, Guest
from helpers.raw import Checked, Raw, ask, call, refused, stream

DOCUMENT = subprocess.run([BINARY, "--openapi"], capture_output=True, check=True).stdout
PATHS = json.loads(DOCUMENT)["paths"]
BODIES = {path: item["post"]["requestBody"]["content"] for path, item in PATHS.items()
          if "requestBody" in item.get("post", {})}
WRONG = {                               # values that are not of a type
    "string": [1, -1.5, True, [], ["x"], {}, {"a": "b"}],
    "integer": ["abc", "", "1.5", "0x1", "1 ", 1.5, 1e300, True, [], [1], {}],
    "boolean": ["true", "", 0, 1, 1.5, [], {}],
    "array": ["x", 1, 1.5, True, {}, {"0": "x"}],
    "object": ["x", 1, 1.5, True, [], [{}]],
}


def kind_of(path, media):
    if "connect" in media:
        return "stream"
    return "unary" if "." in path else "rest"


def good(schema):
    """A value that passes a field's own check."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: good(schema["properties"][name]) for name in schema.get("required", [])}
    if schema["type"] == "string":
        return base64.b64encode(b"x").decode() if schema.get("format") == "byte" else "x"
    return {"integer": 1, "boolean": False, "array": []}[schema["type"]]


def wrong(schema):
    """Values that a field must not take."""
    values = list(WRONG[schema["type"]])
    if "enum" in schema:
        values = ["", "NO_SUCH_NAME", schema["enum"][0].lower(), 77, -1, 1.5, True, [], {}]
    if schema.get("format") == "byte":
        values += ["!", "eA", "eA=", "eA==eA==", "e A==", "eA==\n", "eB==", "ä", "====", "-_-_"]
    if schema["type"] == "integer":
        values += [schema["minimum"] - 1, schema["maximum"] + 1, 2 ** 63, -2 ** 63, 10 ** 30]
        values += [str(schema["maximum"] + 1), "-1"]
    if "maxLength" in schema:
        values += ["x" * (schema["maxLength"] + 1), "ä" * schema["maxLength"]]
    if schema.get("minLength"):
        values += [""]
    if schema["type"] == "array":
        values += [[item] for item in WRONG["string"]] + [["x", None]]
        values += [["x"] * (schema["maxItems"] + 1)] if "maxItems" in schema else []
    if "additionalProperties" in schema:
        values += [{"k": item} for item in WRONG["string"] + [None]]
    return values


def fields(schema, *above):
    """Each field below a schema, as its path of names and its own schema."""
    for name, below in schema.get("properties", {}).items():
        yield (*above, name), below
        yield from fields(below, *above, name)


def with_value(schema, names, value):
    """A message that is good but for one field."""
    message = good(schema)
    at, below = message, schema
    for name in names[:-1]:
        below = below["properties"][name]
        at = at.setdefault(name, good(below))
    at[names[-1]] = value
    return message


def cases():
    for path, content in BODIES.items():
        (media, item), = content.items()
        names, below = list(fields(item["schema"]))[-1]     # the innermost of the last
        yield pytest.param(path, kind_of(path, media), item["schema"], names, below,
                           id=f"{path[1:]}-{'.'.join(names)}")


@pytest.fixture(scope="module")
def shared(workspace):
    guest = Guest(os.path.join(workspace, "bad-fields"), "--set", "process.keep-ms=0")
    yield Checked(guest)
    guest.stop()


@pytest.fixture
def port(shared):
    yield shared.guest.port
    shared.check()


def send(raw, path, kind, message):
    raw.send(stream(path[1:], message) if kind == "stream" else call(path[1:], message))
    return raw.answer()


@pytest.mark.core
@pytest.mark.parametrize("path, kind, schema, names, below", list(cases()))
def test_a_field_refuses_every_value_that_is_not_its_own_and_is_named(port, path, kind, schema, names,
                                                                     below):
    code = 400 if kind == "rest" else "invalid_argument"
    with Raw(port) as raw:              # all over one connection: a refusal does not end it
        for value in wrong(below):
            answer = send(raw, path, kind, with_value(schema, names, value))
            message = refused(answer, kind, code)
            if isinstance(value, int) and not -2 ** 63 <= value < 2 ** 63:
                assert "integer" in message         # the parser has no room for it
                continue
            assert f"field '{names[-1]}" in message, (value, message)
            for name in names[:-1]:
                assert f"field '{name}'" in message, (value, message)


def test_the_document_has_every_call_that_takes_a_message():
    names = {path.rsplit("/", 1)[1] for path in BODIES}
    assert names >= {"Start", "Connect", "Update", "SendInput", "StreamInput", "SendSignal",
                     "CloseStdin", "Stat", "MakeDir", "Move", "ListDir", "Remove", "WatchDir", "CreateWatcher",
                     "GetWatcherEvents", "RemoveWatcher", "init", "compose"}


# ---- values that only their meaning makes wrong ----

START = "process.Process/Start"


def refused_start(port, process, code, *words, **more):
    answer = ask(port, stream(START, {"process": process, "stdin": False, **more}))
    return refused(answer, "stream", code, *words)


@pytest.mark.parametrize("process, word", {
    "nothing_there": ({"cmd": "/no/such/program"}, "/no/such/program"),
    "not_on_the_path": ({"cmd": "no-such-program"}, "no-such-program"),
    "a_directory": ({"cmd": "/tmp"}, "/tmp"),
    "not_executable": ({"cmd": "/etc/passwd"}, "/etc/passwd"),
    "below_a_file": ({"cmd": "/etc/passwd/x"}, "/etc/passwd/x"),
    "a_long_name": ({"cmd": "/" + "n" * 300}, "nnn"),
    "cwd_missing": ({"cmd": "/bin/true", "cwd": "/no/such/place"}, "cwd '/no/such/place'"),
    "cwd_a_file": ({"cmd": "/bin/true", "cwd": "/etc/passwd"}, "cwd '/etc/passwd'"),
    "cwd_long": ({"cmd": "/bin/true", "cwd": "/" + "n" * 300}, "cwd"),
    "env_without_name": ({"cmd": "/bin/true", "envs": {"": "x"}}, "environment variable ''"),
    "env_with_equals": ({"cmd": "/bin/true", "envs": {"a=b": "x"}}, "environment variable 'a=b'"),
}.values(), ids=lambda value: "")
def test_a_process_that_cannot_be_started_is_the_callers_mistake(port, process, word):
    refused_start(port, process, "invalid_argument", word)
    refused_start(port, process, "invalid_argument", word, pty={})


@pytest.mark.core
def test_a_file_that_is_no_program_is_the_callers_mistake(port, folder):
    for name, content in ("noise", b"\x7fELF and then nothing"), ("script", b"#!/no/such/interpreter\n"):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o755)
        refused_start(port, {"cmd": path}, "invalid_argument", path)


@pytest.mark.parametrize("process", [
    pytest.param({"cmd": "/bin/true", "args": ["x" * 200000]}, marks=pytest.mark.core),
    {"cmd": "/bin/true", "args": ["x" * 1000] * 8000},
    {"cmd": "/bin/true", "envs": {"A": "x" * 200000}}], ids=["one", "many", "environment"])
def test_arguments_larger_than_the_kernel_takes_are_refused(port, process):
    refused_start(port, process, "resource_exhausted", "/bin/true")


UNKNOWN = {"pid": 4194305}


def once_each(rows):
    """Under the sanitizers, one row for each call."""
    firsts = {row[0]: i for i, row in reversed(list(enumerate(rows)))}
    return [pytest.param(*row, marks=[pytest.mark.core] if firsts[row[0]] == i else [])
            for i, row in enumerate(rows)]


@pytest.mark.parametrize("method, message, code, word", once_each([
    ("process.Process/SendInput", {"process": UNKNOWN, "input": {"stdin": "eA=="}}, "not_found",
     "4194305"),
    ("process.Process/SendSignal", {"process": UNKNOWN, "signal": "SIGNAL_SIGKILL"}, "not_found",
     "4194305"),
    ("process.Process/Update", {"process": UNKNOWN}, "not_found", "4194305"),
    ("process.Process/CloseStdin", {"process": UNKNOWN}, "not_found", "4194305"),
    ("process.Process/CloseStdin", {"process": {"tag": "no-such-tag"}}, "not_found", "no-such-tag"),
    ("process.Process/CloseStdin", {"process": {}}, "invalid_argument", "pid or a tag"),
    ("process.Process/CloseStdin", {"process": {"pid": 0}}, "invalid_argument", "pid or a tag"),
    ("process.Process/CloseStdin", {"process": {"pid": 1}}, "not_found", "pid 1 "),
    ("process.Process/SendSignal", {"process": {"pid": 1}, "signal": 9}, "not_found", "pid 1 "),
    ("filesystem.Filesystem/Stat", {"path": "/no/such/place"}, "not_found", "/no/such/place"),
    ("filesystem.Filesystem/Stat", {"path": "/" + "n" * 300}, "invalid_argument", "name"),
    ("filesystem.Filesystem/Stat", {"path": "n/" * 2047}, "invalid_argument", "path"),
    ("filesystem.Filesystem/ListDir", {"path": "/etc/passwd"}, "invalid_argument", "/etc/passwd"),
    ("filesystem.Filesystem/ListDir", {"path": "/no/such/place"}, "not_found", "/no/such/place"),
    ("filesystem.Filesystem/MakeDir", {"path": "/etc/passwd"}, "invalid_argument", "/etc/passwd"),
    ("filesystem.Filesystem/MakeDir", {"path": "/etc/passwd/x"}, "invalid_argument", "/etc/passwd"),
    ("filesystem.Filesystem/MakeDir", {"path": "/tmp"}, "already_exists", "/tmp"),
    ("filesystem.Filesystem/MakeDir", {"path": "/"}, "already_exists", "/"),
    ("filesystem.Filesystem/Move", {"source": "/no/such/place", "destination": "/tmp/x"}, "not_found",
     "/no/such"),
    ("filesystem.Filesystem/Move", {"source": "/", "destination": "/tmp/x"}, "invalid_argument", "'/'"),
    ("filesystem.Filesystem/Move", {"source": "/var/tmp", "destination": "/var/tmp/below/itself"},
     "invalid_argument", "/var/tmp"),
    ("filesystem.Filesystem/Remove", {"path": "/"}, "invalid_argument", "'/'"),
    ("filesystem.Filesystem/Remove", {"path": "/tmp/.."}, "invalid_argument", "/tmp/.."),
    ("filesystem.Filesystem/CreateWatcher", {"path": "/no/such/place"}, "not_found", "/no/such/place"),
    ("filesystem.Filesystem/CreateWatcher", {"path": "/etc/passwd"}, "invalid_argument", "/etc/passwd"),
    ("filesystem.Filesystem/GetWatcherEvents", {"watcherId": "no-such"}, "not_found", "no-such"),
    ("filesystem.Filesystem/GetWatcherEvents", {"watcherId": ""}, "not_found", "watcher"),
    ("filesystem.Filesystem/RemoveWatcher", {"watcherId": "no-such"}, "not_found", "no-such"),
]), ids=lambda value: value if isinstance(value, str) and "/" in value else "")
def test_what_is_not_there_or_cannot_be_is_told_by_name(port, method, message, code, word):
    refused(ask(port, call(method, message)), "unary", code, word)


@pytest.mark.parametrize("method, message, code", once_each([
    ("process.Process/Connect", {"process": UNKNOWN}, "not_found"),
    ("process.Process/Connect", {"process": {}}, "invalid_argument"),
    ("filesystem.Filesystem/WatchDir", {"path": "/no/such/place"}, "not_found"),
    ("filesystem.Filesystem/WatchDir", {"path": "/etc/passwd"}, "invalid_argument"),
    ("process.Process/StreamInput", {"start": {"process": UNKNOWN}}, "not_found")]))
def test_a_stream_about_what_is_not_there_ends_at_once(port, method, message, code):
    refused(ask(port, stream(method, message)), "stream", code)


def test_a_loop_of_links_is_a_failed_precondition(port, folder):
    os.symlink("loop", os.path.join(folder, "loop"))
    path = os.path.join(folder, "loop")
    for message in {"path": path}, {"path": path + "/below"}:
        answer = ask(port, call("filesystem.Filesystem/ListDir", message))
        refused(answer, "unary", "failed_precondition", path)


@pytest.mark.parametrize("signal", [None, pytest.param("SIGNAL_UNSPECIFIED", marks=pytest.mark.core), 0])
def test_no_signal_at_all_is_unimplemented(port, signal):
    with Raw(port) as raw:
        raw.send(stream(START, {"process": {"cmd": "/bin/sleep", "args": ["60"]}, "tag": "s"}))
        assert raw.head()[0] == 200
        message = {"process": {"tag": "s"}} | ({"signal": signal} if signal is not None else {})
        answer = ask(port, call("process.Process/SendSignal", message))
        refused(answer, "unary", "unimplemented", "signal")
        message["signal"] = "SIGNAL_SIGKILL"
        assert ask(port, call("process.Process/SendSignal", message)).status == 200


@pytest.mark.parametrize("message, status, word", [
    ({"source_paths": [], "destination": "/tmp/x"}, 400, "'source_paths'"),
    ({"source_paths": ["/no/such/file"], "destination": "{}/x"}, 404, "/no/such/file"),
    ({"source_paths": ["/tmp"], "destination": "{}/x"}, 400, "directory"),
    ({"source_paths": ["/dev/zero"], "destination": "{}/x"}, 400, "regular"),
    ({"source_paths": ["/etc/passwd"], "destination": "{}"}, 400, "directory"),
    ({"source_paths": ["/etc/passwd"], "destination": "{}/x/"}, 400, "directory"),
    ({"source_paths": ["/etc/passwd"], "destination": "/etc/passwd/x"}, 400, "passwd"),
    ({"source_paths": ["/etc/passwd"], "destination": "{}/x", "username": "no-such-user"}, 401,
     "no-such-user"),
], ids=["no_source", "missing", "directory", "device", "to_a_directory", "slash", "below_a_file",
        "user"])
def test_a_composition_that_cannot_be_leaves_everything_as_it_was(port, folder, message, status, word):
    message = json.loads(json.dumps(message).replace("{}", folder))
    refused(ask(port, call("files/compose", message)), "rest", status, word)
    assert os.listdir(folder) == []
    assert os.path.exists("/etc/passwd")
