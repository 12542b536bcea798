"""Files inside."""

from __future__ import annotations

import gzip
import io
import os

import pytest

import cove


def test_text_and_bytes_come_back(sandbox):
    assert sandbox.files.write("a/b.txt", "grüße").endswith("/a/b.txt")
    assert sandbox.files.read("a/b.txt") == "grüße"
    sandbox.files.write("raw", bytes(range(256)))
    assert sandbox.files.read_bytes("raw") == bytes(range(256))
    sandbox.files.write("empty", b"")
    assert sandbox.files.read_bytes("empty") == b""


def test_streams_tell_their_progress(sandbox, tmp_path):
    data, told = os.urandom(3_000_000), []
    (tmp_path / "big").write_bytes(data)
    with open(tmp_path / "big", "rb") as source:
        sandbox.files.write("big", source, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(data), len(data)) and len(told) > 3
    told.clear()
    assert sandbox.files.read_bytes("big", progress=lambda *x: told.append(x)) == data
    assert told[-1] == (len(data), len(data))
    with sandbox.files.open_read("big") as pieces:
        assert b"".join(pieces) == data


def test_an_iterable_of_unknown_length(sandbox):
    sandbox.files.write("lines", (f"{i}\n".encode() for i in range(1000)))
    assert sandbox.files.read("lines").count("\n") == 1000
    sandbox.files.write("io", io.BytesIO(b"abc"))
    assert sandbox.files.read("io") == "abc"


def test_names(sandbox):
    files = sandbox.files
    assert files.make_dir("d/e") is True and files.make_dir("d/e") is False
    files.write("d/x", "1", mode=0o750)
    assert files.stat("d/x").mode == 0o750
    assert sorted(e.name for e in files.list("d")) == ["e", "x"]
    assert [e.is_dir for e in sorted(files.list("d"), key=lambda e: e.name)] == [True, False]
    assert files.move("d/x", "d/y").path.endswith("/d/y")
    assert (files.exists("d/x"), files.exists("d/y")) == (False, True)
    files.set_mode("d/y", 0o600)
    assert files.stat("d/y").mode == 0o600
    files.remove("d")
    files.remove("d")
    assert not files.exists("d")


def test_what_is_not_there_is_named(sandbox):
    with pytest.raises(cove.NotFoundError, match="nothing-here"):
        sandbox.files.read("nothing-here")
    with pytest.raises(cove.InvalidRequestError):
        sandbox.files.read("/tmp")


def test_other_users(sandbox):
    sandbox.files.write("/root/secret", "x", user="root")
    assert sandbox.files.stat("/root/secret", user="root").owner == "root"


def test_directories_there_and_back(sandbox, tmp_path):
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "data").write_bytes(b"\0" * 1000)
    (source / "skip.pyc").write_text("no")
    (source / "link").symlink_to("run.sh")
    told = []
    count = sandbox.files.upload(
        source, "project", exclude=lambda p: p.endswith(".pyc"), progress=lambda *x: told.append(x)
    )
    assert count == 2 and told[-1][0] == told[-1][1] == 1019
    assert sandbox.commands.run("cd project && ./link").stdout == "ran\n"
    assert not sandbox.files.exists("project/skip.pyc")

    back = tmp_path / "back"
    assert sandbox.files.download("project", back) == 2
    assert (back / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (back / "sub" / "data").read_bytes() == b"\0" * 1000
    assert (back / "sub" / "empty").is_dir()
    assert not (back / "link").exists(), "a link from inside is not made here"

    sandbox.files.upload(source / "run.sh", "one.sh")
    assert sandbox.files.download("one.sh", tmp_path / "one.sh") == 1


def test_a_download_does_not_follow_a_link_that_waits_here(sandbox, tmp_path):
    sandbox.files.write("d/f", "evil")
    victim = tmp_path / "victim"
    victim.write_text("good")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "f").symlink_to(victim)
    sandbox.files.download("d", tmp_path / "out")
    assert victim.read_text() == "good"


def test_modes_of_directories_go_along(sandbox, tmp_path):
    (tmp_path / "d" / "closed").mkdir(parents=True)
    (tmp_path / "d" / "closed" / "f").write_text("1")
    (tmp_path / "d" / "closed").chmod(0o500)
    (tmp_path / "d").chmod(0o700)
    before = sandbox.files.stat(".").mode
    sandbox.files.upload(tmp_path, ".")
    assert sandbox.files.stat("d").mode & 0o777 == 0o700
    assert sandbox.files.stat("d/closed").mode & 0o777 == 0o500
    assert sandbox.files.read("d/closed/f") == "1"
    assert sandbox.files.stat(".").mode == before, "one that was there keeps its own"


def test_a_download_makes_the_directories_it_goes_to(sandbox, tmp_path):
    sandbox.files.write("f", "1")
    sandbox.files.download("f", tmp_path / "new" / "deep" / "f")
    assert (tmp_path / "new" / "deep" / "f").read_text() == "1"


def test_an_upload_of_nothing_is_named(sandbox, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        sandbox.files.upload(tmp_path / "absent", "x")


def test_changes_are_told(sandbox):
    sandbox.files.make_dir("w/deep")
    with sandbox.files.watch("w", recursive=True, timeout=20) as events:
        sandbox.files.write("w/deep/new", "1")
        found = next(e for e in events if e.name == "deep/new")
    assert found.kind == "create"


def test_a_watch_with_a_timeout_ends(sandbox):
    with sandbox.files.watch("~", timeout=1) as events:
        assert list(events) == []


def test_a_watch_of_nothing_is_an_error(sandbox):
    with pytest.raises(cove.NotFoundError):
        with sandbox.files.watch("/nowhere"):
            pass


def test_a_file_is_sent_from_where_it_was_read_to(sandbox, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 100_000)
    with path.open("rb") as source:
        source.readline()
        sandbox.files.write("lines", source)
    assert sandbox.files.stat("lines").size == 499_995


def test_what_has_a_descriptor_of_something_else_is_sent_as_it_reads(sandbox, tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as packed:
        packed.write(b"x" * 1_000_000)
    with gzip.open(tmp_path / "a.gz", "rb") as source:
        sandbox.files.write("unpacked", source)
    assert sandbox.files.stat("unpacked").size == 1_000_000


def test_a_file_that_changes_while_it_is_sent(sandbox, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1_000_000)
    with path.open("rb") as source, path.open("ab") as more:
        sandbox.files.write("log", source, progress=lambda *_: more.write(b"y" * 100_000))
    assert sandbox.files.read_bytes("log") == b"x" * 1_000_000
    with path.open("rb") as source, pytest.raises(cove.ConflictError, match="shorter"):
        sandbox.files.write("cut", source, progress=lambda *_: os.truncate(path, 300_000))
    assert not sandbox.files.exists("cut")
