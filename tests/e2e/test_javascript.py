"""The tests of js/, which drive the guest through E2B's unmodified JavaScript SDK (see helpers/node.py).
Each file has a guest of its own."""

import pathlib

import pytest

from helpers import node
from helpers.guest import Guest
from helpers.served import Served
from helpers.there import SERVED

pytestmark = pytest.mark.sdk

FILES = sorted((pathlib.Path(__file__).parent / "js").glob("*.test.js"))
TOKEN = "a token of 32 characters or more"


def pointed_at(guest, directory):
    """The variables by which js/helper.js finds a guest, and the descriptors they name."""
    if not SERVED:
        return {"E2B_DEBUG": "true", "E2B_SANDBOX_URL": guest.url, "COVE_TOKEN": TOKEN,
                "COVE_DIR": str(directory)}, ()
    fds = tuple(pipe.fileno() for pipe in (guest.agent.process.stdin, guest.agent.process.stdout))
    return guest.server.variables() | {
        "COVE_SANDBOX": guest.id, "COVE_TOKEN": guest.token, "COVE_AGENT": "%d,%d" % fds,
        "COVE_DIR": guest.agent.call("tempfile.mkdtemp")}, fds


@pytest.fixture(scope="module")
def runs(request, workspace):
    """Runs by file, made on first use."""
    names = node.selected(request, "test_javascript")
    made, guests = {}, []

    def start(file, directory):
        if SERVED:
            return Served(request.getfixturevalue("server"))
        token = directory.parent / "token"
        token.write_text(TOKEN)
        options = ["--token-file", token] if "secure" in file.name else []
        guest = Guest(directory.with_suffix(".guest"), *options, token=TOKEN)
        guest.init(envVars={"HOME": request.getfixturevalue("quiet_home")})
        return guest

    def get(file):
        if file not in made:
            for run in made.values():   # one file at a time
                run.finish()
            directory = pathlib.Path(workspace) / f"js-{file.name}"
            directory.mkdir(mode=0o755)
            guests.append(start(file, directory))
            made[file] = node.Run(file, names[file], directory, *pointed_at(guests[-1], directory))
        return made[file]

    yield get
    for run in made.values():
        run.finish()
    for guest in guests:
        guest.stop()


@pytest.mark.timeout(node.LIMIT_S + 20)
@pytest.mark.parametrize("file, name", list(node.declared(FILES)))
def test_javascript(file, name, runs):
    node.check(runs(file), name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_test_of_the_file_is_seen_here(file):
    node.check_declarations(file)
