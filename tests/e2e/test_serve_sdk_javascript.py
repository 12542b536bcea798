"""`cove serve` driven by E2B's unmodified JavaScript SDK: the tests of js/serve (see helpers/node.py)."""

import pathlib

import pytest

from helpers import node

pytestmark = pytest.mark.sdk

FILES = sorted((pathlib.Path(__file__).parent / "js/serve").glob("*.test.js"))


@pytest.fixture(scope="module")
def runs(request, server, workspace):
    names, made = node.selected(request, "test_javascript"), {}
    # what a session's guest has set for its own tests is not for these
    env = server.variables() | {"E2B_DEBUG": "false", "COVE_OTHER_KEY": server.user("other")}

    def get(file):
        if file not in made:
            directory = pathlib.Path(workspace) / f"js-serve-{file.name}"
            directory.mkdir()
            made[file] = node.Run(file, names[file], directory, env | {"COVE_DIR": str(directory)})
        return made[file]

    yield get
    for run in made.values():
        run.finish()


@pytest.mark.timeout(node.LIMIT_S + 20)
@pytest.mark.parametrize("file, name", list(node.declared(FILES)))
def test_javascript(file, name, runs):
    node.check(runs(file), name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_test_of_the_file_is_seen_here(file):
    node.check_declarations(file)
