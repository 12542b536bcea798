"""`cove cp`: both ways, all kinds of files, and sandboxes that lie about theirs."""

import hashlib
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading

import pytest

from helpers import proc
from helpers.cli import box, cli  # noqa: F401: fixtures
from helpers.cove import CLEAR, COVE
from helpers.proc import wait_until
from helpers.terminal import Terminal

pytestmark = pytest.mark.core


def tree(path):
    """Everything below a directory: kind, mode, and content or target."""
    found = {}
    for root, dirs, files in os.walk(path):
        for name in dirs + files:
            full = pathlib.Path(root, name)
            mode = full.lstat().st_mode & 0o777
            found[str(full.relative_to(path))] = (
                ("link", os.readlink(full)) if full.is_symlink()
                else ("dir", mode) if full.is_dir()
                else ("file", mode, hashlib.sha256(full.read_bytes()).hexdigest()))
    return found


@pytest.fixture
def source(folder):
    """A directory with about everything that can be in one."""
    top = pathlib.Path(folder, "source")
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "empty file").write_bytes(b"")
    (top / "tool").write_text("#!/bin/sh\necho tool\n")
    (top / "tool").chmod(0o755)
    (top / "secret").write_text("x")
    (top / "secret").chmod(0o600)
    (top / "sub" / "ümläut & % ? #").write_text("name")
    (top / "sub" / "deep" / "big").write_bytes(random.Random(7).randbytes(3 << 20))
    (top / "sub" / "up").symlink_to("../tool")
    (top / "sub" / "nowhere").symlink_to("/no/such/place")
    (top / "sub" / "deep").chmod(0o555)
    os.mkfifo(top / "pipe")
    return top


@pytest.fixture
def there(cli, box):
    path = "/tmp/cp-" + os.urandom(4).hex()
    cli.said(box, f"mkdir {path}")
    yield path
    cli("exec", "-u", "root", box, "rm", "-rf", path)


def test_a_directory_goes_in_and_comes_out_the_same(cli, box, source, there, folder):
    done = cli("cp", source, f"{box}:{there}/new")
    assert done.stderr == b"cove cp: 1 left out that are neither file, directory nor link\n"
    assert cli.said(box, f"{there}/new/tool; readlink {there}/new/sub/up") == "tool\n../tool"
    assert cli.said(box, f"stat -c '%a %U' {there}/new/secret {there}/new/sub/deep") \
        == "600 user\n555 user"
    back = os.path.join(folder, "back")
    said = cli.json("cp", f"{box}:{there}/new", back)
    assert said == {"files": 5, "directories": 4, "links": 2, "skipped": 0,
                    "bytes": said["bytes"]}
    (source / "pipe").unlink()
    assert tree(back) == tree(source)


def test_into_a_directory_that_exists(cli, box, source, there, folder):
    (source / "pipe").unlink()
    cli.text("cp", source, f"{box}:{there}")
    cli.text("cp", f"{source}/.", f"{box}:{there}/flat")
    assert cli.said(box, f"diff -r --no-dereference {there}/source {there}/flat && echo same") \
        == "same"
    cli.text("cp", f"{box}:{there}/source", folder)     # onto itself
    cli.text("cp", f"{box}:{there}/flat/tool", f"{folder}/")
    assert pathlib.Path(folder, "tool").stat().st_mode & 0o777 == 0o755
    cli.text("cp", f"{source}/tool", f"{box}:{there}/")
    assert cli.said(box, f"{there}/tool") == "tool"


def test_files_by_standard_input_and_output(cli, box, there):
    data = random.Random(3).randbytes(2 << 20)
    cli.text("cp", "-", f"{box}:{there}/in", input=data)
    assert cli("cp", f"{box}:{there}/in", "-").stdout == data
    assert "directory" in cli.failed("cp", f"{box}:{there}", "-")
    assert "directory" in cli.failed("cp", "-", f"{box}:{there}", input=b"x")
    before = os.readlink("/dev/stdout")
    assert cli("cp", f"{box}:{there}/in", "/dev/stdout").stdout == data
    assert os.readlink("/dev/stdout") == before


def test_a_file_that_exists_is_replaced_with_its_mode(cli, box, there, folder):
    target = pathlib.Path(folder, "target")
    target.write_text("old")
    target.chmod(0o640)
    cli.said(box, f"echo new > {there}/f; chmod 600 {there}/f")
    cli.text("cp", f"{box}:{there}/f", target)
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new\n", 0o600)
    assert os.listdir(folder) == ["target"]


@pytest.mark.parametrize("words, said", [
    (["{box}:/no/such", "x"], "/no/such"),
    (["/no/such", "{box}:x"], "/no/such: No such file or directory"),
    (["a", "b"], "neither FROM nor TO is in a sandbox (write ID:PATH)"),
    (["{box}:a", "{box}:b"], "FROM and TO are both in sandboxes"),
    (["Not:a", "b"], "'Not' is no sandbox id (a file of that name here: ./Not:a)"),
    (["{box}:/etc/hostname", "/no/such/place"], "/no/such/place"),
    (["{box}:/etc/hostname", "x/"], "x/ is no directory"),
    (["/dev/zero", "{box}:x"], "/dev/zero is neither a file nor a directory"),
])
def test_what_cp_refuses(cli, box, folder, words, said):
    words = [word.format(box=box) for word in words]
    assert said in cli.failed("cp", *words, cwd=folder)
    assert os.listdir(folder) == []


def test_links_of_a_sandbox_are_never_written_through(cli, box, there, folder):
    """First a link leaves, then a file and a directory of the same names come."""
    victim = pathlib.Path(folder, "victim")
    (victim / "dir").mkdir(parents=True)
    (victim / "file").write_text("mine")
    out = pathlib.Path(folder, "out")
    cli.said(box, f"cd {there}; mkdir t; ln -s {victim}/file t/f; ln -s {victim}/dir t/d")
    cli.text("cp", f"{box}:{there}/t", out)
    assert os.readlink(out / "f") == f"{victim}/file"
    cli.said(box, f"cd {there}/t; rm f d; echo evil > f; mkdir d; echo evil > d/x")
    assert "d is in the way: it is no directory" in cli.failed("cp", f"{box}:{there}/t/.", out)
    cli.text("cp", f"{box}:{there}/t/f", out)
    assert (out / "f").read_text() == "evil\n" and not (out / "f").is_symlink()
    assert (victim / "file").read_text() == "mine"
    assert os.listdir(victim / "dir") == []
    assert cli("cp", f"{box}:{there}/t/d", out, status=1).stderr
    assert os.listdir(victim / "dir") == []


class Hostile(http.server.BaseHTTPRequestHandler):
    """A server whose sandbox says what it likes about its files."""

    entries = []
    content = b"evil"

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/v1/sandboxes/"):
            self.answer(b'{"id":"ihostile","state":"running","token":"t"}')
        elif self.content is None:      # promises more than it sends
            self.answer(b"x" * 1000, length=100_000)
            self.close_connection = True
        else:
            self.answer(self.content)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        directory = {"name": "d", "type": "FILE_TYPE_DIRECTORY", "mode": 0o755}
        if self.path.endswith("/Stat"):
            self.answer(json.dumps({"entry": directory}).encode())
        else:
            self.answer(json.dumps({"entries": self.entries}).encode())


@pytest.fixture
def hostile(folder):
    """cp of the hostile sandbox's directory to `out`; what there is in the folder afterwards."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def copy(*entries, content=b"evil"):
            Hostile.entries, Hostile.content = list(entries), content
            done = subprocess.run(
                [COVE, "cp", "ihostile:/d", os.path.join(folder, "out")], cwd=folder, text=True,
                capture_output=True, timeout=30,
                env=CLEAR | {"COVE_URL": f"http://127.0.0.1:{server.server_port}",
                             "COVE_API_KEY": "e2b_0"})
            return done, sorted(os.path.relpath(os.path.join(root, name), folder)
                                for root, _, names in os.walk(folder) for name in names)

        yield copy
        server.shutdown()


def entry(name, kind="FILE", **more):
    return {"name": name, "type": f"FILE_TYPE_{kind}", "mode": 0o4777, "size": "4"} | more


@pytest.mark.parametrize("name", ["..", ".", "", "/etc/x", "../x", "a/b", "x" * 300])
@pytest.mark.parametrize("kind", ["FILE", "DIRECTORY", "SYMLINK"])
def test_a_name_that_leads_elsewhere_is_refused(hostile, name, kind):
    done, files = hostile(entry(name, kind, link="/etc"))
    assert done.returncode == 1 and "the sandbox names a file" in done.stderr
    assert files == []


def test_a_link_and_a_directory_of_one_name_lead_nowhere(hostile, folder):
    os.mkdir(os.path.join(folder, "victim"))
    link = entry("x", "SYMLINK", isSymlink=True, link="../victim")
    done, files = hostile(link, entry("x", "DIRECTORY"))
    assert done.returncode == 1 and "x is in the way: it is no directory" in done.stderr
    shutil.rmtree(os.path.join(folder, "out"))
    done, files = hostile(link, entry("x"))     # a file takes the link's place
    assert (done.returncode, files) == (0, ["out/x"])
    assert not os.path.islink(os.path.join(folder, "out/x"))
    assert os.stat(os.path.join(folder, "out/x")).st_mode & 0o7777 == 0o777    # no set-user-id


def test_directories_without_end_are_ended(hostile):
    done, files = hostile(entry("n" * 200, "DIRECTORY"))
    assert done.returncode == 1 and "a path of more than 4095 bytes" in done.stderr
    assert files == []


def test_a_file_that_breaks_off_is_not_left(hostile):
    done, files = hostile(entry("f"), content=None)
    assert done.returncode == 1 and files == []


def test_what_a_sandbox_says_does_not_reach_the_terminal(hostile):
    done, _ = hostile(entry("\033[31m/\n"))
    assert done.returncode == 1 and "\033" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["NONSENSE", "UNSPECIFIED"])
def test_unknown_things_are_left_out(hostile, kind):
    done, files = hostile(entry("odd", kind), entry("f"), entry("p", permissions="prw-r--r--"))
    assert (done.returncode, files) == (0, ["out/f"])
    assert done.stderr.startswith("cove cp: 2 left out")


def test_an_interrupted_copy_leaves_no_half_file(cli, box, there, folder):
    cli.said(box, f"truncate -s 3G {there}/huge")
    target = os.path.join(folder, "huge")
    with cli.started("cp", f"{box}:{there}/huge", target) as p:
        wait_until(lambda: any(folder in one for one in proc.descriptors(p.pid).values()), "it writes")
        p.send_signal(signal.SIGINT)
        assert p.wait(20) == 128 + signal.SIGINT
    assert os.listdir(folder) == []


def test_a_full_disk_leaves_no_half_file_inside(cli, folder):
    box = cli.text("create", "--disk", "64M").strip()
    big = pathlib.Path(folder, "big")
    big.write_bytes(os.urandom(1 << 20) * 100)
    done = cli.failed("cp", big, f"{box}:big")
    assert "space" in done.lower() or "quota" in done.lower(), done
    assert cli.said(box, "ls -A ~ | grep -c big || true") == "0"
    cli("kill", box)


def test_memory_does_not_grow_with_the_file(cli, box, there, folder):
    big = os.path.join(folder, "big")
    with open(big, "wb") as file:
        file.truncate(256 << 20)
    for words in ([big, f"{box}:{there}/big"], [f"{box}:{there}/big", os.path.join(folder, "b2")]):
        code = subprocess.run(
            ["python3", "-c",
             "import resource, subprocess, sys\n"
             "subprocess.run(sys.argv[1:], check=True)\n"
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
             COVE, "cp", *words], env=cli.env, capture_output=True, text=True)
        assert code.returncode == 0, code.stderr
        if not any(name.endswith("SAN_OPTIONS") for name in cli.env):
            assert int(code.stdout) < 40 << 10, f"{code.stdout} KiB"


def test_progress_is_for_terminals_that_wait(cli, box, there, folder):
    big = os.path.join(folder, "big")
    with open(big, "wb") as file:
        file.truncate(2 << 30)
    with Terminal([COVE, "cp", big, f"{box}:{there}/big"], env=cli.env) as terminal:
        terminal.expect(r"\d+\.\d MB of 2147\.5 MB, \d+\.\d MB/s", timeout=30)
        terminal.type("\x03")
        assert terminal.wait(20) == 130
    assert cli.said(box, f"ls {there}") == ""
