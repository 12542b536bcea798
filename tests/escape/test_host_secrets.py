"""What becomes root's alone in the machine's /usr after a sandbox could be made of it: closed to new sandboxes and to
those that run, to their root as well; and when the machine reads a file of /usr, nobody inside sees it.

The control is a generation of template `host` as it was before there was an image of /usr: the live directories,
idmapped so that root's files are sandbox root's."""

import contextlib
import os
import secrets
import shutil

import pytest

WHERE = "/usr/share/doc"                # no directory that the fingerprint looks at: the generation stays
WEAKEN = "usr-owner"
FOLDERS, PAGES, PAGE = 8, 256, 4096

WATCH = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDONLY)
pages = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
seen = (ctypes.c_ubyte * (len(pages) // 4096))()
at = ctypes.addressof(ctypes.c_char.from_buffer(pages))
for line in sys.stdin:
    if libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(len(pages)), seen):
        print("errno", ctypes.get_errno(), flush=True)
    print(sum(byte & 1 for byte in seen), flush=True)
"""


def write(path, text, mode=0o644):
    with open(path, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)


def fill(path):
    os.makedirs(os.path.join(path, "entered"))
    for name in ("public", "later", "replaced", "cut", "entered/inner"):
        write(os.path.join(path, name), "open to everybody")
    with open(os.path.join(path, "pages"), "wb") as file:
        file.write(os.urandom(PAGES * PAGE))
        os.fsync(file.fileno())


@pytest.fixture(scope="module")
def folder(world):
    """A directory of the machine's, with one in it for each test and what everybody may read so far. Older generations
    do not know of it: away with them."""
    path = os.path.join(WHERE, "cove-test-" + secrets.token_hex(6))
    try:
        os.mkdir(path)
    except OSError as error:
        pytest.skip(f"{WHERE} cannot be written to: {error}")
    try:
        for number in range(FOLDERS):
            fill(os.path.join(path, str(number)))
        shutil.rmtree(os.path.join(world.data, "host"), ignore_errors=True)
        yield iter(range(FOLDERS)), path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def place(folder):
    numbers, path = folder
    return os.path.join(path, str(next(numbers)))


def close(place, token):
    """What the machine's root does meanwhile."""
    write(os.path.join(place, "new"), token, 0o600)
    for name in ("later", "cut"):       # closed, and changed afterwards, in place
        os.chmod(os.path.join(place, name), 0o600)
        write(os.path.join(place, name), token, 0o600)
    write(os.path.join(place, "next"), token, 0o600)
    os.rename(os.path.join(place, "next"), os.path.join(place, "replaced"))
    os.chmod(os.path.join(place, "entered"), 0o700)
    write(os.path.join(place, "entered/inner"), token)


class Shell:
    """One that goes on in a sandbox."""

    def __init__(self, process):
        self.process = process

    def __call__(self, script):
        self.process.stdin.write(f"{{ {script}\n}} 2>&1; echo; echo end-of-answer\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline()) not in ("end-of-answer\n", ""):
            lines.append(line)
        return "".join(lines)


# Reading, and all that would make a copy that can be read.
TRIES = """cd %s
for f in new later replaced cut entered/inner; do
    cat $f; ln $f /usr/link && cat /usr/link; rm -f /usr/link
    cp $f /usr/copy && cat /usr/copy; mv $f /usr/moved && cat /usr/moved && mv /usr/moved $f
    chown user $f && cat $f; chmod 777 $f && cat $f
    echo more >> $f && cat $f
    dd if=$f bs=100 count=1 status=none
done
truncate -s 1 cut && cat cut
chmod 777 entered && cat entered/inner
setpriv --reuid=1000 --clear-groups cat later
echo tried
"""


@pytest.mark.parametrize("user", ["root", "user"])
def test_what_the_machine_closes_is_closed_to_sandboxes(world, place, user):
    token = "secret-" + secrets.token_hex(8)
    with world.running("sh", user=user) as process:
        shell = Shell(process)
        assert "open to everybody" in shell(f"cat {place}/public")
        close(place, token)
        said = shell(TRIES % place)
        assert "tried" in said and token not in said, said
        assert "open to everybody" in shell(f"cat {place}/public")
    fresh = world.run("sh", "-c", TRIES % place, user=user)
    assert "tried" in fresh.stdout and token not in fresh.stdout, fresh.stdout
    everything = world.run("grep", "-rsl", token, place, "/usr/link", "/usr/copy", "/usr/moved", user=user)
    assert everything.stdout == ""


def test_as_an_owner_of_the_live_files_root_would_read_them(world, place):
    token = "secret-" + secrets.token_hex(8)
    with world.running("sh", user="root", weaken=WEAKEN) as process:
        shell = Shell(process)
        assert "open to everybody" in shell(f"cat {place}/public")
        close(place, token)
        for name in ("new", "later", "replaced", "entered/inner"):
            assert token in shell(f"cat {place}/{name}"), name
    for name in ("new", "later", "replaced", "entered/inner"):
        assert world.run("cat", f"{place}/{name}", user="root", weaken=WEAKEN).stdout == token, name


@contextlib.contextmanager
def watcher(world, place, **more):
    """Asked again and again how much of a file of /usr is in memory."""
    write(os.path.join(world.shown, "watch.py"), WATCH)
    with world.running("/usr/bin/python3", "/attack/watch.py", f"{place}/pages", user="root", **more) as process:
        def count():
            process.stdin.write("?\n")
            process.stdin.flush()
            return process.stdout.readline().strip()
        yield count


def seen_pages(world, place, **more):
    """Before and after the machine reads the file."""
    path = os.path.join(place, "pages")
    with watcher(world, place, **more) as count, open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = count()
        file.read()
        return before, count()


def test_nobody_inside_sees_what_the_machine_reads(world, place):
    before, after = seen_pages(world, place)
    assert before == after


def test_as_an_owner_of_the_live_files_root_would_see_it(world, place):
    assert seen_pages(world, place, weaken=WEAKEN) == ("0", str(PAGES))
