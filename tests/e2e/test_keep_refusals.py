"""What a keeper is not asked to do: every wrong record is refused by a sentence that names what is
wrong, nothing is made, and the keeper goes on."""

import os
import pathlib
import socket
import struct
import subprocess

import pytest

from helpers.cove import CLEAR, COVE
from helpers.keeper import (
    Client,
    CREATE,
    GROUP,
    HEAD,
    MAGIC,
    MOUNT,
    REPLY,
    REQUEST_SIZE,
    SOCKET,
    Keeper,
    create_body,
    limits_body,
    request,
)
from helpers.proc import wait_until

NOBODY = 65534


@pytest.fixture(scope="module")
def keeper(cove, workspace):
    allowed = pathlib.Path(workspace, "shown")
    (allowed / "inner").mkdir(parents=True)
    (allowed / "inner" / "file").write_text("text")
    (allowed / "out").symlink_to("/etc")
    (allowed / "up").symlink_to("../..")
    (allowed / "in").symlink_to("inner")
    started = Keeper(cove.data, os.path.join(workspace, "refusing"), "--allow-mount", allowed)
    started.allowed = str(allowed)
    started.at_rest = started.idle()
    yield started
    started.end_all()


@pytest.fixture
def refused(keeper):
    """Sends bytes; the sentence that comes back. Afterwards the keeper is as it was."""
    with keeper.client() as client:
        def send(data, fds=()):
            client.send(data, fds)
            answer = client.answer()
            assert answer.code and answer.message, answer
            return answer.message

        yield send
        assert client.list() == []
        wait_until(lambda: keeper.descriptors() <= keeper.at_rest + 1, "no descriptor too many")
        assert keeper.process.poll() is None


@pytest.mark.parametrize("size", [1, 15, 16, 24, 63, 64, REQUEST_SIZE - 1])
def test_a_record_of_another_size(refused, size):
    assert refused(request("list")[:size]) == f"a record of {size} bytes; they have {REQUEST_SIZE}"


@pytest.mark.parametrize("more", [1, 8])
def test_a_record_that_is_too_long(refused, more):
    assert refused(request("list") + bytes(more)) == f"a record of {REQUEST_SIZE + more} bytes; they have {REQUEST_SIZE}"


def test_a_record_that_is_longer_than_any(refused):
    assert refused(request("list") + bytes(100000)) == "a record of more than 12288 bytes, or with descriptors"


def test_descriptors_that_nobody_asked_for(refused):
    with open("/dev/null") as f:
        assert "with descriptors" in refused(request("list"), [f.fileno()] * 3)


@pytest.mark.parametrize("change, said", [
    ({"magic": 0}, "a record of another program or version (0, 2)"),
    ({"magic": MAGIC ^ 1}, "a record of another program or version"),
    ({"version": 0}, "version (0x65766f43, 0)"),
    ({"version": 1}, "version (0x65766f43, 1)"),
])
def test_another_program_or_version(refused, change, said):
    assert said in refused(request("list", **change))


@pytest.mark.parametrize("verb", [0, 13, 99, 0xFFFFFFFF])
def test_a_verb_that_is_none(refused, verb):
    assert refused(request(verb, "one")) == f"no verb {verb}"


BAD_IDS = [
    b"",
    b"a/b",
    b"../x",
    b"..",
    b".",
    b"A",
    b"a b",
    b"-a",
    b"a\n",
    b"\xc3\xa4",
    b"a" * 37,
    b"a" * 40,
    b"a_b",
]


@pytest.mark.parametrize("id", BAD_IDS)
@pytest.mark.parametrize(
    "verb", ["create", "stat", "kill", "socket", "snapshot", "restore", "adopt"]
)
def test_an_id_that_is_none(refused, verb, id):
    assert refused(request(verb, id, create_body())) == (
        "field 'id' must be 1 to 36 characters of a-z, 0-9 and -")


@pytest.mark.parametrize("id", [id for id in BAD_IDS if id])
def test_a_snapshot_id_that_is_none(refused, id):
    said = "field 'snapshot' must be 1 to 36 characters of a-z, 0-9 and -"
    assert refused(request("snapshot", "one", id)) == said
    assert refused(request("restore", "one", create_body(snapshot=id))) == said


def test_a_template_that_is_none(refused, keeper):
    assert (
        refused(request("create", "one", create_body(template="")))
        == "field 'template' must be 1 to 127 bytes"
    )
    assert refused(request("create", "one", create_body(template=b"x" * 128))) == (
        "field 'template' must be 1 to 127 bytes")
    assert "there is no template 'none'" in refused(
        request("create", "one", create_body(template="none"))
    )
    assert "template" in refused(request("create", "one", create_body(template="../../etc")))
    assert "--allow-mount" in refused(request("create", "one", create_body(template="/etc")))


@pytest.mark.parametrize("network", [2, 0xFFFFFFFF])
def test_a_network_that_is_none(refused, network):
    assert (
        refused(request("create", "one", create_body(network=network)))
        == f"field 'network': no mode {network}"
    )


def test_flags_that_are_none(refused):
    assert (
        refused(request("create", "one", create_body(flags=1 << 20)))
        == "field 'flags': unknown bits 0x100000"
    )


@pytest.mark.parametrize(
    "name, value",
    [
        ("memory", {"memory_bytes": 1}),
        ("memory", {"memory_bytes": 1 << 63}),
        ("cpus", {"cpu_milli": 1}),
        ("pids", {"pids": 1}),
        ("pids", {"pids": 1 << 40}),
        ("io-weight", {"io_weight": 10001}),
        ("files", {"open_files": 3}),
        ("disk", {"disk_bytes": 4096}),
        ("log", {"log_bytes": 1}),
        ("timeout", {"lifetime_ms": 1 << 62}),
    ],
)
def test_limits_out_of_bounds(refused, name, value):
    for body in request("create", "one", create_body(**value)), request(
        "limits", "one", limits_body(**value)
    ):
        said = refused(body)
        assert said.startswith(f"limit '{name}' is ") and "it must be between" in said


def test_mounts_that_are_too_many(refused):
    for count in 9, 1000, 0xFFFFFFFF:
        assert (
            refused(request("create", "one", create_body(nmounts=count)))
            == f"{count} mounts; at most 8"
        )


@pytest.mark.parametrize(
    "host, guest",
    [
        ("", "/x"),
        ("relative", "/x"),
        ("/a/../b", "/x"),
        ("/a/./b", "/x"),
        ("/a//b", "/x"),
        ("/a", ""),
        ("/a", "x"),
        ("/a", "/"),
        ("/a", "/x/.."),
        (b"/" * 256, "/x"),
        (b"/" + b"a" * 255, "/x"),
        ("/a", b"/" + b"b" * 255),
    ],
)
def test_a_mount_whose_path_is_none(refused, host, guest):
    said = refused(request("create", "one", create_body(mounts=[("/ok", "/ok"), (host, guest)])))
    assert said == "mount 1: paths must be absolute, plain and below 256 bytes"


def test_a_mount_with_unknown_flags(refused):
    assert (
        refused(request("create", "one", create_body(mounts=[("/a", "/b", 10)])))
        == "mount 0: unknown flags 0xa"
    )


@pytest.mark.parametrize("path", ["/etc", "/", "/root/.ssh", "{allowed}x", "{above}"])
def test_a_mount_that_nobody_allowed(refused, keeper, path):
    path = path.format(allowed=keeper.allowed, above=os.path.dirname(keeper.allowed))
    said = refused(request("create", "one", create_body(mounts=[(path, "/mnt")])))
    assert said == f"mount {path}: not below a directory that --allow-mount names"


def test_a_group_of_the_machine_that_nobody_allowed(refused, keeper):
    said = refused(request("create", "one", create_body(mounts=[(str(keeper.allowed), "/m", GROUP)])))
    assert said == (f"mount {keeper.allowed}: its group only where the keeper has "
                    f"--allow-mount {keeper.allowed}:group")


@pytest.mark.parametrize("name", ["out", "out/ssl", "up", "up/etc"])
def test_a_link_that_leads_out_of_what_is_allowed(refused, keeper, name):
    said = refused(
        request("create", "one", create_body(mounts=[(f"{keeper.allowed}/{name}", "/mnt")]))
    )
    assert "leads out of" in said or "No such file" in said, said


def test_a_link_that_stays_inside_is_fine(keeper):
    with keeper.client() as client:
        client.create("one", mounts=[(f"{keeper.allowed}/in", "/mnt")])
        assert client.wire("one").run("cat", "/mnt/file") == "text"
        client.kill("one")


@pytest.mark.parametrize("port, count, said", [
    (65536, 1, "field 'port' is 65536; at most 65535"), (80, 0, "field 'count' must be 1 to 8"),
    (80, 9, "field 'count' must be 1 to 8"), (0, 0xFFFFFFFF, "field 'count' must be 1 to 8"),
])
def test_sockets_that_are_none(refused, port, count, said):
    assert refused(request("socket", "one", SOCKET.pack(port, count, 0, 0))) == said


@pytest.mark.parametrize("verb", ["stat", "kill", "freeze", "thaw", "adopt", "limits"])
def test_a_sandbox_that_is_not_there(refused, verb):
    assert refused(request(verb, "nobody")) == "no sandbox nobody"


def test_garbage_of_the_right_size(keeper):
    """Whatever the bytes are, an answer comes and the keeper stays."""
    with keeper.client() as client:
        for seed in range(300):
            rng = __import__("random").Random(seed)
            data = bytearray(
                request(rng.randrange(13), rng.choice(["x1", "x2", ""]), create_body())
            )
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            client.send(bytes(data))
            # In the version that it may have become; what has ended meanwhile is told in between.
            while struct.unpack_from("=I", answer := client.sock.recv(1 << 16), 8) != (REPLY,):
                assert answer
    with keeper.client() as client:
        client.end_all()
    assert keeper.process.poll() is None


def test_layouts_agree():
    assert (HEAD.size, CREATE.size, MOUNT.size, REQUEST_SIZE) == (64, 248, 520, 4472)
    assert struct.calcsize("=8Q6Qqi3I") == 136


# --- who may ask -----------------------------------------------------------------------------

def ask_as(uid, run_dir):
    """The list, or the name of what went wrong. In a child of ours: Python and the tests may be in a
    closed home, and it has what it needs of them already."""
    theirs, ours = os.pipe()
    pid = os.fork()
    if not pid:
        said = "nothing"
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            said = repr(Client(run_dir).list())
        except Exception as error:      # whatever it is, its name goes to the parent
            said = type(error).__name__
        finally:
            os.write(ours, said.encode())
            os._exit(0)
    os.close(ours)
    os.waitpid(pid, 0)
    with os.fdopen(theirs) as file:
        return file.read()


def test_a_stranger_is_turned_away(keeper):
    assert ask_as(NOBODY, keeper.place) == "PermissionError"
    os.chmod(keeper.place / "keep.sock", 0o777)   # even where the file would let it
    assert ask_as(NOBODY, keeper.place) not in ("[]", "PermissionError", "nothing")
    assert "a stranger was turned away" in keeper.log.read_text()


def test_the_user_it_serves_is_not(start_keeper):
    keeper = start_keeper("--client", "nobody")
    assert ask_as(NOBODY, keeper.place) == "[]"
    assert ask_as(1, keeper.place) != "[]"


def test_a_second_keeper_in_the_same_directory_is_refused(keeper, cove):
    done = subprocess.run(
        [COVE, "keep", "--data-dir", cove.data, "--run-dir", keeper.run_dir],
        capture_output=True,
        text=True,
        env=CLEAR,
        timeout=20,
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"another keeper runs in {keeper.place}")
    with keeper.client() as client:
        assert client.list() == []


def test_wrong_options_are_one_line(cove, folder):
    for words, said in [
        (["--client", "nobody-here"], "--client: no user 'nobody-here'"),
        (["--log-level", "loud"], "--log-level"),
        (["--set", "keep.none=1"], "keep.none"),
    ]:
        done = subprocess.run([COVE, "keep", "--data-dir", cove.data, "--run-dir", folder, *words],
                              capture_output=True, text=True, env=CLEAR, timeout=20)
        assert (
            done.returncode in (1, 2) and said in done.stderr and done.stderr.count("\n") == 1
        ), done.stderr


def test_the_bound_on_sandboxes_holds(start_keeper):
    keeper = start_keeper("--set", "keep.boxes=2")
    with keeper.client() as client:
        client.create("one")
        client.create("two")
        answer = client.ask("create", "three", create_body())
        assert answer.message == "keep.boxes: 2 sandboxes are here already"
        client.kill("one")
        client.create("three")


def test_a_stream_socket_is_not_spoken_to(keeper):
    with socket.socket(socket.AF_UNIX) as s, pytest.raises(OSError):
        s.connect(str(keeper.place / "keep.sock"))
