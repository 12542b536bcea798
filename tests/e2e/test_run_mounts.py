"""Host directories, forwarded ports and networks of `cove run`."""

import os
import pathlib
import re
import socket
import subprocess
import urllib.request

import pytest

from helpers.cove import FAILED
from helpers.proc import wait_until

SOMEBODY = 4321                         # an ordinary user of this machine
FIRST_ID = 0x30000000                   # ids from here on are sandboxes'


@pytest.fixture
def shared(folder):
    """A directory of somebody's on this machine, with a file that anyone may read."""
    path = pathlib.Path(folder)
    (path / "file").write_text("of the host\n")
    for one in path, path / "file":
        os.chown(one, SOMEBODY, SOMEBODY)
    return path


def owner(path):
    st = path.stat()
    return st.st_uid, st.st_gid


# --- mounts ----------------------------------------------------------------------------------

def test_what_the_user_writes_belongs_to_the_owner_of_the_directory(cove, shared):
    assert (
        cove.text(
            "-v",
            f"{shared}:/data",
            "sh",
            "-c",
            "stat -c '%U %G' /data/file /data; echo u > /data/new; "
            "mkdir /data/dir; echo more >> /data/file; cat /data/new",
        )
        == "user user\nuser user\nu\n"
    )
    for name in "new", "dir", "file":
        assert owner(shared / name) == (SOMEBODY, SOMEBODY)
    assert (shared / "file").read_text() == "of the host\nmore\n"


def test_root_inside_is_nobody_outside(cove, shared):
    cove.run(
        "-v",
        f"{shared}:/data",
        "-u",
        "root",
        "sh",
        "-c",
        "cp /bin/sh /data/sh; chmod 4755 /data/sh",
    )
    assert owner(shared / "sh")[0] >= FIRST_ID


def test_a_directory_of_roots_is_not_written(cove, shared):
    os.chown(shared, 0, 0)
    for user in "user", "root":
        done = cove.run("-v", f"{shared}:/data", "-u", user, "touch", "/data/x", status=1)
        assert b"Permission denied" in done.stderr
    assert cove.text("-v", f"{shared}:/data", "cat", "/data/file") == "of the host\n"


def test_owners_may_be_the_same_on_both_sides(cove, shared):
    os.chown(shared, 0, 0)
    os.chmod(shared, 0o777)
    for user in "root", "user":
        cove.run("-v", f"{shared}:/data:root", "-u", user, "touch", f"/data/{user}")
    assert owner(shared / "root") == (0, 0)
    assert owner(shared / "user") == (1000, 1000)
    assert (
        cove.text("-v", f"{shared}:/data:root", "stat", "-c", "%u", "/data", "/data/file")
        == f"0\n{SOMEBODY}\n"
    )


def test_read_only_is_read_only(cove, shared):
    mount = f"{shared}:/data:ro"
    assert cove.text("-v", mount, "cat", "/data/file") == "of the host\n"
    for user in "user", "root":
        done = cove.run("-v", mount, "-u", user, "sh", "-c", "echo x > /data/file", status=2)
        assert b"Read-only file system" in done.stderr
    done = cove.run("-v", mount, "-u", "root", "mount", "-o", "remount,rw", "/data", status=None)
    assert done.returncode != 0
    assert (shared / "file").read_text() == "of the host\n"
    assert (
        cove.text("-v", f"{shared}:/data:rw", "sh", "-c", "echo w > /data/w; cat /data/w") == "w\n"
    )


def test_a_file_can_be_mounted_alone(cove, shared):
    (shared / "other").write_text("hidden\n")
    assert cove.text("-v", f"{shared}/file:/etc/some/config:ro", "sh", "-c",
                     "cat /etc/some/config; ls /etc/some") == "of the host\nconfig\n"


def test_several_mounts_and_one_in_another(cove, shared):
    for name in "one", "two":
        (shared / name).mkdir()
        (shared / name / "name").write_text(name)
        os.chown(shared / name, SOMEBODY, SOMEBODY)
    words = [
        "-v",
        f"{shared}/one:/a",
        "-v",
        f"{shared}/two:/a/deep",
        "-v",
        f"{shared}/two:/home/user/two:ro",
    ]
    assert cove.text(*words, "sh", "-c", "cat /a/name /a/deep/name two/name") == "onetwotwo"


def test_a_mount_may_cover_what_the_template_has(cove, shared):
    assert cove.text("-v", f"{shared}:/usr/share", "ls", "/usr/share") == "file\n"


def test_links_on_the_way_to_a_mount_point_are_the_sandboxes_own(cove, shared):
    name = f"cove-{os.getpid()}"
    script = f"readlink /var/run; cat /run/{name}/file"
    assert cove.text("-v", f"{shared}:/var/run/{name}", "sh", "-c", script) == "/run\nof the host\n"
    assert not os.path.exists(f"/run/{name}")


def test_relative_paths_are_ours(cove, shared):
    done = cove.run("-v", "file:/f", "cat", "/f", cwd=shared)
    assert done.stdout == b"of the host\n"


def test_a_suid_program_of_the_host_does_not_work_inside(cove, shared):
    program = shared / "id"
    program.write_bytes(pathlib.Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    assert cove.text("-v", f"{shared}:/data", "/data/id", "-u") == "1000\n"


def test_a_device_of_the_host_does_not_work_inside(cove, shared):
    os.mknod(shared / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    os.chmod(shared / "zero", 0o666)
    done = cove.run(
        "-v", f"{shared}:/data", "-u", "root", "head", "-c", "1", "/data/zero", status=1
    )
    assert b"Permission denied" in done.stderr


def test_links_of_a_mount_lead_nowhere_out(cove, shared):
    (shared / "link").symlink_to("/etc/shadow")
    done = cove.run("-v", f"{shared}:/data", "-u", "root", "cat", "/data/link", status=None)
    assert pathlib.Path("/etc/shadow").read_bytes() not in done.stdout or not done.stdout
    (shared / "up").symlink_to("..")
    assert (
        cove.text("-v", f"{shared}:/data", "ls", "/data/up/")
        != "\n".join(os.listdir(shared.parent)) + "\n"
    )


def test_neither_device_nor_socket_can_be_mounted(cove, shared):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(shared / "sock"))
        assert cove.failed("-v", f"{shared}/sock:/s", "true").endswith(
            "neither a directory nor a file"
        )
    assert cove.failed("-v", "/dev/null:/x", "true").endswith("neither a directory nor a file")


def test_too_many_mounts_are_refused(cove, shared):
    words = [word for i in range(9) for word in ("-v", f"{shared}:/m{i}")]
    assert cove.failed(*words, "true") == "--mount: more than 8"


# --- ports -----------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fetch(port, path="/"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return reply.read()


def try_fetch(port, path):
    try:
        return fetch(port, path)
    except OSError:
        return None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0"])
def test_a_forwarded_port_leads_to_a_server_inside(cove, address):
    port = free_port()
    script = f"head -c 3000000 /dev/zero > big; exec python3 -m http.server --bind {address} 8000"
    with cove.started(
        "-p", f"{port}:8000", "sh", "-c", script, stderr=subprocess.DEVNULL
    ) as process:
        assert wait_until(lambda: try_fetch(port, "/big"), "an answer", 15) == bytes(3000000)
        assert process.poll() is None
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True
        ).stdout
        assert f"127.0.0.1:{port}" in listening and f"0.0.0.0:{port}" not in listening
    wait_until(lambda: not try_fetch(port, "/"), "the port is free again")


def test_many_connections_through_one_port(cove):
    port = free_port()
    with cove.started(
        "-p", f"{port}:80", "python3", "-m", "http.server", "80", stderr=subprocess.DEVNULL
    ):
        wait_until(lambda: try_fetch(port, "/"), "an answer", 15)
        for _ in range(100):
            assert b"Directory listing" in fetch(port)


def test_a_port_where_nobody_listens_closes_the_connection(cove):
    port = free_port()
    with cove.started("-p", f"{port}:8000", "sh", "-c", "echo up; sleep 60") as process:
        assert process.stdout.readline() == b"up\n"
        with socket.create_connection(("127.0.0.1", port), 10) as s:
            assert s.recv(1) == b""
        assert process.poll() is None


def test_a_port_that_is_taken_is_named(cove):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        said = cove.failed("-p", f"{port}:80", "true")
    assert f"--forward {port}:80" in said and "in use" in said


# --- networks --------------------------------------------------------------------------------

LINKS = "ls /sys/class/net 2> /dev/null || tail -n +3 /proc/net/dev | cut -d: -f1"
REACH = """
import socket, sys
for address in sys.argv[1:]:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
        print(address, "reached")
    except OSError as e:
        print(address, type(e).__name__)
"""


def own_addresses():
    said = subprocess.run(
        ["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=True
    ).stdout
    return [a for a in re.findall(r"inet ([\d.]+)", said) if not a.startswith("127.")]


def test_no_network_is_only_lo(cove):
    assert cove.said("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo"
    said = cove.text("python3", "-c", REACH, "192.0.2.1:80", *(f"{a}:22" for a in own_addresses()))
    assert "reached" not in said


def test_an_open_network_reaches_nothing_of_this_machine_or_private(cove):
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen()
        port = s.getsockname()[1]
        addresses = [f"{a}:{port}" for a in own_addresses()]
        addresses += [
            "10.0.0.1:80",
            "192.168.0.1:80",
            "172.16.0.1:80",
            "169.254.169.254:80",
            "100.64.0.1:80",
        ]
        done = cove.run("-n", "open", "python3", "-c", REACH, *addresses, status=None)
        if done.returncode == FAILED:
            pytest.skip(f"no open network here: {done.stderr.decode()}")
        lines = done.stdout.decode().splitlines()
    assert len(lines) == len(addresses)
    assert not [line for line in lines if "reached" in line]


def test_an_open_network_has_an_address_and_a_way_out(cove):
    done = cove.run(
        "-n",
        "open",
        "sh",
        "-c",
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route",
        status=None,
    )
    if done.returncode == FAILED:
        pytest.skip(f"no open network here: {done.stderr.decode()}")
    names = done.stdout.decode().split("\n")
    assert "lo" in names and len([n for n in names if n and "\t" not in n]) == 2
    assert re.search(r"\t00000000\t[0-9A-F]{8}\t", done.stdout.decode())


def test_two_sandboxes_on_open_networks_do_not_meet(cove):
    server = ("import socket\ns = socket.socket()\ns.bind(('0.0.0.0', 9000))\ns.listen()\n"
              "p = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\np.connect(('192.0.2.1', 9))\n"
              "print(p.getsockname()[0], flush=True)\ns.accept()\nprint('met', flush=True)")
    with cove.started("-n", "open", "python3", "-c", server) as process:
        address = process.stdout.readline().decode().strip()
        if not address:
            pytest.skip(f"no open network here: {process.stderr.read().decode()}")
        assert "reached" not in cove.text("-n", "open", "python3", "-c", REACH, f"{address}:9000")
