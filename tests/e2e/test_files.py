"""Files through the SDK: written, read, listed, moved, removed, and what is told about them."""

import datetime
import gzip
import hashlib
import io
import stat
import time

import pytest
from e2b import (AuthenticationException, FileNotFoundException, FileType, InvalidArgumentException,
                 NotEnoughSpaceException, SandboxException)

from helpers.sdk import PREVIOUS, as_async_stream, as_stream
from helpers.there import get, os, proc, put, pwd, shutil

pytestmark = pytest.mark.sdk

core = pytest.mark.core
MIB = 1 << 20

STRANGE = ["with space", " leading and trailing ", "žluťoučký 🐎", "new\nline", "tab\there",
           "quote\"s and 'more'", "back\\slash", "100%25", "a+b&c=d?e#f;g", "-rf", "*", "..hidden",
           "\u202eright to left", "e\u0301 is not \u00e9", "a" * 255]


def owner():
    return pwd.getpwuid(os.geteuid()).pw_name


# --- content ---------------------------------------------------------------------------------

@core
def test_text_is_read_as_it_was_written(sandbox, folder):
    path = f"{folder}/text.txt"
    info = sandbox.files.write(path, "žluťoučký\r\n🐎\n")
    assert (info.path, info.name, info.type) == (path, "text.txt", FileType.FILE)
    assert sandbox.files.read(path) == "žluťoučký\r\n🐎\n"
    assert get(path) == "žluťoučký\r\n🐎\n".encode()


@core
@pytest.mark.parametrize("size", [0, 1, 4095, 65536, 3 * MIB + 1])
@pytest.mark.parametrize("octets", [False, True], ids=["multipart", "octet-stream"])
def test_bytes_are_read_as_they_were_written(sandbox, folder, size, octets):
    data = os.urandom(size)
    sandbox.files.write(f"{folder}/bytes", data, use_octet_stream=octets)
    assert get(f"{folder}/bytes") == data
    assert bytes(sandbox.files.read(f"{folder}/bytes", format="bytes")) == data


@core
@pytest.mark.parametrize("size", [0, 10, 2 * MIB])
def test_gzip_on_the_way_changes_nothing(sandbox, folder, size):
    data = (b"cove " * (size // 5 + 1))[:size]
    sandbox.files.write(f"{folder}/plain", data, gzip=True)
    assert get(f"{folder}/plain") == data
    assert bytes(sandbox.files.read(f"{folder}/plain", format="bytes", gzip=True)) == data


def test_a_gzip_file_is_stored_and_read_as_the_file_it_is(sandbox, folder):
    data = gzip.compress(b"inner")
    sandbox.files.write(f"{folder}/a.gz", data)
    assert get(f"{folder}/a.gz") == data
    assert bytes(sandbox.files.read(f"{folder}/a.gz", format="bytes")) == data


@core
def test_a_stream_can_be_written_and_read(sandbox, folder):
    blocks = [os.urandom(100_000) for _ in range(50)]
    sandbox.files.write(f"{folder}/stream", as_stream(blocks))
    read = hashlib.sha256()
    for chunk in sandbox.files.read(f"{folder}/stream", format="stream"):
        read.update(chunk)
    assert read.digest() == hashlib.sha256(b"".join(blocks)).digest()


def test_a_file_object_can_be_written(sandbox, folder):
    data = os.urandom(MIB)
    sandbox.files.write(f"{folder}/object", io.BytesIO(data))
    assert get(f"{folder}/object") == data


def test_a_reader_may_stop_in_the_middle_of_a_stream(sandbox, folder, guest):
    put(f"{folder}/long", bytes(64 * MIB))
    with sandbox.files.read(f"{folder}/long", format="stream") as reader:
        assert len(next(reader)) > 0
    proc.wait_until(lambda: f"{folder}/long" not in guest.descriptors().values(),
                    "the guest to close the file")


@core
def test_several_files_are_written_in_one_call(sandbox, folder):
    files = [{"path": f"{folder}/d{i}/f{i}", "data": f"content {i}"} for i in range(20)]
    infos = sandbox.files.write_files(files)
    assert [info.path for info in infos] == [file["path"] for file in files]
    assert [get(file["path"]).decode() for file in files] == [file["data"] for file in files]


@core
@pytest.mark.parametrize("name", STRANGE, ids=range(len(STRANGE)))
def test_a_strange_name_works_in_every_call(sandbox, folder, name):
    path = f"{folder}/{name}"
    for octets in (False, True):
        info = sandbox.files.write(path, f"data {octets}", use_octet_stream=octets)
        assert (info.name, info.path) == (name, path)
        assert sandbox.files.read(path) == f"data {octets}"
    assert os.listdir(folder) == [name]
    assert sandbox.files.exists(path)
    assert sandbox.files.get_info(path).name == name
    assert [entry.name for entry in sandbox.files.list(folder)] == [name]
    assert sandbox.files.rename(path, f"{folder}/plain").name == "plain"
    assert sandbox.files.rename(f"{folder}/plain", path).path == path
    sandbox.files.remove(path)
    assert os.listdir(folder) == []
    assert sandbox.files.make_dir(path) is True
    sandbox.files.write(f"{path}/inner", "x")
    assert sandbox.files.list(path)[0].path == f"{path}/inner"


@core
def test_relative_names_and_tilde_are_below_the_home(sandbox):
    home, name = pwd.getpwuid(os.geteuid()).pw_dir, f"cove-e2e-{os.getpid()}"
    if not os.access(home, os.W_OK):
        pytest.skip(f"{home} cannot be written")
    try:
        assert sandbox.files.write(f"{name}/a", "1").path == f"{home}/{name}/a"
        assert sandbox.files.read(f"~/{name}/a") == "1"
        assert sandbox.files.get_info(f"{name}/a").path == f"{home}/{name}/a"
        assert get(f"{home}/{name}/a") == b"1"
    finally:
        shutil.rmtree(f"{home}/{name}", ignore_errors=True)


# --- overwriting -----------------------------------------------------------------------------

@core
@pytest.mark.parametrize("octets", [False, True], ids=["multipart", "octet-stream"])
def test_overwriting_keeps_inode_mode_and_hard_links(sandbox, folder, octets):
    path, link = f"{folder}/file", f"{folder}/link"
    put(path, b"old and longer than the new")
    os.chmod(path, 0o751)
    os.link(path, link)
    before = os.stat(path)
    sandbox.files.write(path, "new", use_octet_stream=octets)
    after = os.stat(path)
    assert get(path) == get(link) == b"new"
    assert (after.st_ino, after.st_mode, after.st_nlink) == (before.st_ino, before.st_mode, 2)


def test_a_new_file_is_not_executable_and_not_writable_by_others(sandbox, folder):
    sandbox.files.write(f"{folder}/deep/er/file", "x")
    assert stat.S_IMODE(os.stat(f"{folder}/deep/er/file").st_mode) == 0o644
    assert stat.S_IMODE(os.stat(f"{folder}/deep/er").st_mode) == 0o755


def test_writing_through_a_link_changes_its_target(sandbox, folder):
    put(f"{folder}/target", b"old")
    os.symlink("target", f"{folder}/link")
    sandbox.files.write(f"{folder}/link", "new")
    assert os.path.islink(f"{folder}/link")
    assert get(f"{folder}/target") == b"new"


def test_writing_through_a_link_to_nothing_makes_its_target(sandbox, folder):
    os.symlink("target", f"{folder}/link")
    sandbox.files.write(f"{folder}/link", "new")
    assert os.path.islink(f"{folder}/link")
    assert get(f"{folder}/target") == b"new"


def test_a_reader_of_the_old_content_never_sees_a_part_of_a_new_file(sandbox, folder):
    """A new name appears whole: an observer sees nothing or everything."""
    path, data, seen = f"{folder}/new", os.urandom(8 * MIB), set()

    def blocks():
        for i in range(8):
            seen.add(os.path.exists(path))
            yield data[i * MIB:(i + 1) * MIB]

    sandbox.files.write(path, as_stream(blocks()))
    assert seen == {False}
    assert get(path) == data
    assert os.listdir(folder) == ["new"]


@core
def test_an_upload_that_breaks_off_leaves_the_old_file(guest, folder):
    put(f"{folder}/file", b"old")
    connection = guest.wire.connect()
    connection.putrequest("POST", f"/files?path={folder}/file")
    connection.putheader("Content-Type", "application/octet-stream")
    connection.putheader("Content-Length", str(10 * MIB))
    connection.endheaders()
    connection.send(bytes(3 * MIB))
    time.sleep(0.2)
    connection.close()
    proc.wait_until(lambda: not any(folder in target for target in guest.descriptors().values()),
                    "the guest to let the upload go")
    assert get(f"{folder}/file") == b"old"
    assert os.listdir(folder) == ["file"]


def test_writing_to_a_directory_is_refused(sandbox, folder):
    with pytest.raises(InvalidArgumentException, match="directory"):
        sandbox.files.write(folder, "x")
    with pytest.raises(InvalidArgumentException, match="directory"):
        sandbox.files.read(folder)


def test_writing_below_a_file_is_refused(sandbox, folder):
    put(f"{folder}/file")
    with pytest.raises(SandboxException):
        sandbox.files.write(f"{folder}/file/below", "x")
    assert os.listdir(folder) == ["file"]


def test_a_full_disk_is_told_as_such(start_guest, open_sandbox, folder, as_root):
    mount = f"{folder}/small"
    os.mkdir(mount)
    if os.system(f"mount -t tmpfs -o size=1m none '{mount}' 2>/dev/null"):
        pytest.skip("cannot mount here")
    try:
        sandbox = open_sandbox(start_guest())
        sandbox.files.write(f"{mount}/file", "old")
        with pytest.raises(NotEnoughSpaceException):
            sandbox.files.write(f"{mount}/file", bytes(3 * MIB))
        assert get(f"{mount}/file") == b"old"
        with pytest.raises(NotEnoughSpaceException):
            sandbox.files.write(f"{mount}/other", as_stream([bytes(MIB)] * 3))
        assert os.listdir(mount) == ["file"]
    finally:
        os.system(f"umount '{mount}'")


# --- what is told ----------------------------------------------------------------------------

@core
def test_info_describes_a_file(sandbox, folder):
    put(f"{folder}/file", b"12345")
    os.chmod(f"{folder}/file", 0o640)
    os.utime(f"{folder}/file", ns=(0, 1_600_000_000_123_456_000))
    info = sandbox.files.get_info(f"{folder}/file")
    assert (info.name, info.path, info.type) == ("file", f"{folder}/file", FileType.FILE)
    assert (info.size, info.mode, info.permissions) == (5, 0o640, "-rw-r-----")
    assert info.owner == owner()
    assert info.modified_time.astimezone(datetime.timezone.utc) == datetime.datetime(
        2020, 9, 13, 12, 26, 40, 123456, datetime.timezone.utc)
    assert info.symlink_target is None


def test_info_describes_a_directory(sandbox, folder):
    os.mkdir(f"{folder}/dir", 0o755)
    info = sandbox.files.get_info(f"{folder}/dir/")
    assert (info.name, info.path, info.type) == ("dir", f"{folder}/dir", FileType.DIR)
    assert (info.mode, info.permissions) == (0o755, "drwxr-xr-x")
    assert sandbox.files.get_info("/").type == FileType.DIR


@core
def test_info_of_a_link_names_its_target(sandbox, folder):
    put(f"{folder}/target", b"123")
    os.symlink("target", f"{folder}/link")
    info = sandbox.files.get_info(f"{folder}/link")
    # the previous line of the SDK does not know isSymlink, and shows what the link leads to
    assert (info.name, info.type) == ("link", FileType.FILE if PREVIOUS else FileType.SYMLINK)
    assert info.symlink_target == f"{folder}/target"
    assert info.permissions == "Lrwxrwxrwx"


def test_the_wire_tells_a_links_target_type(wire, folder):
    os.mkdir(f"{folder}/dir", 0o755)
    os.symlink("dir", f"{folder}/link")
    entry = wire.filesystem("Stat", {"path": f"{folder}/link"}).json["entry"]
    assert (entry["type"], entry["isSymlink"]) == ("FILE_TYPE_DIRECTORY", True)
    assert entry["mode"] == 0o755


@core
def test_a_broken_link_is_a_link(sandbox, folder):
    os.symlink("/no/such", f"{folder}/broken")
    info = sandbox.files.get_info(f"{folder}/broken")
    assert (info.type, info.symlink_target) == (FileType.SYMLINK, "/no/such")
    assert [e.name for e in sandbox.files.list(folder)] == ["broken"]
    with pytest.raises(FileNotFoundException):
        sandbox.files.read(f"{folder}/broken")
    sandbox.files.remove(f"{folder}/broken")
    assert os.listdir(folder) == []


@core
def test_a_link_to_itself_is_a_link_and_leads_nowhere(sandbox, wire, folder):
    os.symlink("b", f"{folder}/a")
    os.symlink("a", f"{folder}/b")
    assert {e.type for e in sandbox.files.list(folder)} == {FileType.SYMLINK}
    with pytest.raises(SandboxException):
        sandbox.files.read(f"{folder}/a")
    with pytest.raises(SandboxException):
        sandbox.files.write(f"{folder}/a", "x")
    reply = wire.filesystem("ListDir", {"path": f"{folder}/a"})
    assert (reply.status, reply.json["code"]) == (400, "failed_precondition")
    assert sorted(os.listdir(folder)) == ["a", "b"]


@core
def test_exists_tells_files_directories_and_links_from_nothing(sandbox, folder):
    put(f"{folder}/file")
    os.symlink("/no/such", f"{folder}/broken")
    assert sandbox.files.exists(f"{folder}/file") is True
    assert sandbox.files.exists(folder) is True
    assert sandbox.files.exists(f"{folder}/broken") is True
    assert sandbox.files.exists(f"{folder}/nothing") is False
    assert sandbox.files.exists(f"{folder}/nothing/below") is False


@core
def test_missing_files_are_not_found(sandbox, folder):
    for call in (sandbox.files.read, sandbox.files.get_info, sandbox.files.list):
        with pytest.raises(FileNotFoundException):
            call(f"{folder}/nothing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.rename(f"{folder}/nothing", f"{folder}/other")


def test_an_unknown_user_is_refused(sandbox, folder):
    with pytest.raises(AuthenticationException):
        sandbox.files.read(f"{folder}/x", user="no-such-user")
    with pytest.raises(AuthenticationException):
        sandbox.files.write(f"{folder}/x", "x", user="no-such-user")
    with pytest.raises(AuthenticationException):
        sandbox.files.list(folder, user="no-such-user")


def test_what_a_user_writes_belongs_to_it(sandbox, folder, as_root):
    sandbox.files.write(f"{folder}/dir/file", "x", user="daemon")
    sandbox.files.make_dir(f"{folder}/made/below", user="daemon")
    for path in ("dir", "dir/file", "made", "made/below"):
        assert sandbox.files.get_info(f"{folder}/{path}").owner == "daemon"
    assert os.stat(f"{folder}/dir/file").st_uid == pwd.getpwnam("daemon").pw_uid


# --- lists -----------------------------------------------------------------------------------

@core
def test_a_list_goes_as_deep_as_it_is_told(sandbox, folder):
    os.makedirs(f"{folder}/a/b/c")
    for path in ("f0", "a/f1", "a/b/f2", "a/b/c/f3"):
        put(f"{folder}/{path}")

    def listed(depth):
        return sorted(e.path.removeprefix(folder + "/") for e in
                      sandbox.files.list(folder, depth=depth))

    assert listed(1) == ["a", "f0"]
    assert listed(2) == ["a", "a/b", "a/f1", "f0"]
    assert listed(3) == ["a", "a/b", "a/b/c", "a/b/f2", "a/f1", "f0"]
    assert listed(100) == ["a", "a/b", "a/b/c", "a/b/c/f3", "a/b/f2", "a/f1", "f0"]


def test_a_list_does_not_follow_links_but_keeps_the_name_it_was_asked_for(sandbox, folder):
    os.makedirs(f"{folder}/real/sub")
    put(f"{folder}/real/file")
    os.symlink("real", f"{folder}/link")
    os.symlink("..", f"{folder}/real/sub/up")
    assert sorted(e.path for e in sandbox.files.list(f"{folder}/link", depth=5)) == [
        f"{folder}/link/{name}" for name in ("file", "sub", "sub/up")]


def test_an_empty_directory_lists_nothing_and_a_file_is_none(sandbox, folder):
    assert sandbox.files.list(folder) == []
    put(f"{folder}/file")
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        sandbox.files.list(f"{folder}/file")


def test_5000_entries_are_listed_at_once(sandbox, folder):
    for i in range(5000):
        put(f"{folder}/{i}")
    assert {e.name for e in sandbox.files.list(folder)} == {str(i) for i in range(5000)}


def test_a_list_beyond_the_limit_is_refused_with_its_name(start_guest, folder):
    guest = start_guest("--set", "files.list-entries=10")
    os.mkdir(f"{folder}/many")
    for i in range(11):
        put(f"{folder}/many/{i}")
    reply = guest.wire.filesystem("ListDir", {"path": f"{folder}/many"})
    assert (reply.status, reply.json["code"]) == (429, "resource_exhausted")
    assert "files.list-entries" in reply.json["message"]


# --- changing --------------------------------------------------------------------------------

@core
def test_directories_are_made_with_their_parents_once(sandbox, folder):
    assert sandbox.files.make_dir(f"{folder}/a/b/c") is True
    assert os.path.isdir(f"{folder}/a/b/c")
    assert sandbox.files.make_dir(f"{folder}/a/b/c") is False
    put(f"{folder}/file")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.make_dir(f"{folder}/file")


@core
def test_renaming_moves_files_and_directories_and_makes_parents(sandbox, folder):
    os.makedirs(f"{folder}/dir/sub")
    put(f"{folder}/file", b"1")
    put(f"{folder}/old", b"2")
    moved = sandbox.files.rename(f"{folder}/file", f"{folder}/x/y/moved")
    assert moved.path == f"{folder}/x/y/moved"
    assert get(f"{folder}/x/y/moved") == b"1"
    sandbox.files.rename(f"{folder}/dir", f"{folder}/x/dir")
    assert os.path.isdir(f"{folder}/x/dir/sub")
    sandbox.files.rename(f"{folder}/x/y/moved", f"{folder}/old")
    assert get(f"{folder}/old") == b"1"
    assert sorted(os.listdir(folder)) == ["old", "x"]


def test_renaming_a_link_moves_the_link(sandbox, folder):
    put(f"{folder}/target", b"1")
    os.symlink("target", f"{folder}/link")
    sandbox.files.rename(f"{folder}/link", f"{folder}/moved")
    assert os.readlink(f"{folder}/moved") == "target"
    assert get(f"{folder}/target") == b"1"


@core
def test_removing_takes_whole_trees_but_not_what_links_point_to(sandbox, folder):
    os.makedirs(f"{folder}/tree/a/b")
    os.mkdir(f"{folder}/kept")
    put(f"{folder}/kept/file", b"1")
    put(f"{folder}/tree/a/file")
    os.symlink(f"{folder}/kept", f"{folder}/tree/a/b/link")
    os.symlink(f"{folder}/kept", f"{folder}/link")
    sandbox.files.remove(f"{folder}/tree")
    sandbox.files.remove(f"{folder}/link")
    assert os.listdir(folder) == ["kept"]
    assert get(f"{folder}/kept/file") == b"1"


def test_removing_nothing_is_no_error(sandbox, folder):
    sandbox.files.remove(f"{folder}/nothing")
    sandbox.files.remove(f"{folder}/nothing/below")
    assert os.listdir(folder) == []


def test_a_tree_deeper_than_any_path_is_removed(sandbox, guest, folder):
    os.mkdir(f"{folder}/deep")
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(f"{folder}/deep")
        for _ in range(3000):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
    finally:
        os.fchdir(back)
        os.close(back)
    sandbox.files.remove(f"{folder}/deep")
    assert os.listdir(folder) == []
    assert not any(folder in target for target in guest.descriptors().values())


# --- metadata --------------------------------------------------------------------------------

@core
@pytest.mark.parametrize("octets", [False, True], ids=["multipart", "octet-stream"])
def test_metadata_is_kept_with_the_file_and_replaced_with_it(sandbox, folder, octets):
    path = f"{folder}/file"
    info = sandbox.files.write(path, "x", metadata={"Origin": "e2e", "n": "1 2"},
                               use_octet_stream=octets)
    assert info.metadata == {"origin": "e2e", "n": "1 2"}
    assert sandbox.files.get_info(path).metadata == {"origin": "e2e", "n": "1 2"}
    assert os.getxattr(path, "user.e2b.origin") == b"e2e"
    os.setxattr(path, "user.other", b"kept")
    sandbox.files.rename(path, f"{folder}/moved")
    assert sandbox.files.list(folder)[0].metadata == {"origin": "e2e", "n": "1 2"}
    sandbox.files.write(f"{folder}/moved", "y", metadata={"n": "2"})
    assert sandbox.files.get_info(f"{folder}/moved").metadata == {"n": "2"}
    assert os.getxattr(f"{folder}/moved", "user.other") == b"kept"
    sandbox.files.write(f"{folder}/moved", "z")
    assert sandbox.files.get_info(f"{folder}/moved").metadata is None


# --- the async client ------------------------------------------------------------------------

@core
async def test_the_async_client_does_all_of_it(async_sandbox, folder):
    files = async_sandbox.files
    data = os.urandom(200_000)
    blocks = [data[i:i + 10_000] for i in range(0, len(data), 10_000)]

    await files.write(f"{folder}/text", "žluť")
    assert await files.read(f"{folder}/text") == "žluť"
    await files.write(f"{folder}/stream", as_async_stream(blocks))
    read = b""
    async for chunk in await files.read(f"{folder}/stream", format="stream"):
        read += chunk
    assert read == data
    await files.write_files([{"path": f"{folder}/w{i}", "data": str(i)} for i in range(3)])
    assert await files.make_dir(f"{folder}/dir")
    assert (await files.rename(f"{folder}/w0", f"{folder}/dir/w0")).path == f"{folder}/dir/w0"
    assert await files.exists(f"{folder}/dir/w0")
    await files.remove(f"{folder}/dir")
    assert not await files.exists(f"{folder}/dir")
    assert sorted(e.name for e in await files.list(folder)) == ["stream", "text", "w1", "w2"]
    assert (await files.get_info(f"{folder}/text")).size == len("žluť".encode())
    with pytest.raises(FileNotFoundException):
        await files.read(f"{folder}/nothing")
