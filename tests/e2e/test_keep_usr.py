"""What changes in the machine's /usr, seen by sandboxes of template `host`: by new ones soon, wherever in it that is;
by those that run not at all, but for what is in the files that they know."""

import itertools
import os
import secrets
import shutil

import pytest

from helpers.proc import wait_until

WHERE = "/usr/share/doc"                # deep enough that no directory the keeper looks at tells of it


@pytest.fixture
def place():
    path = os.path.join(WHERE, "cove-test-" + secrets.token_hex(6))
    if os.geteuid():
        pytest.skip("an ordinary user's sandboxes have the live /usr")
    os.mkdir(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)


def test_what_is_put_deep_into_usr_shows_in_new_sandboxes(start_keeper, place):
    write(f"{place}/edited", "short\n")
    write(f"{place}/closed", "public\n")
    keeper, numbers = start_keeper("--set", "keep.look-ms=100"), itertools.count()
    with keeper.client() as client:
        def seen(name):
            return client.wire(name).run("sh", "-c", f"cd {place} 2>&1 && ls | tr '\\n' ' ' && wc -c < edited || true")

        def fresh():
            name = f"new-{next(numbers)}"
            client.create(name)
            try:
                return seen(name)
            finally:
                client.kill(name)

        wait_until(lambda: fresh().split() == ["closed", "edited", "6"], "a generation with the directory", step=0.1)
        client.create("old")
        write(f"{place}/edited", "longer than it was\n")
        write(f"{place}/added", "new\n")
        os.chmod(f"{place}/closed", 0o600)
        wait_until(lambda: fresh().split() == ["added", "edited", "19"], "the next generation", step=0.1)
        assert seen("old").split()[:2] == ["closed", "edited"]
        assert client.wire("old").run("cat", f"{place}/edited") == "longer than it was\n"
        assert client.wire("old").run("sh", "-c", f"cat {place}/closed 2>&1 || true").endswith("Permission denied\n")
