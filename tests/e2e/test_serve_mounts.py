"""Host directories of sandboxes of `cove serve`: what somebody without rights can leave there."""

import os
import pathlib
import shutil
import tempfile

import pytest
from e2b import Sandbox

from helpers.serve import Serve

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="without root a mount belongs to who mounts it")]

OWNER, DISK, FIRST_ID = 1234, 6, 0x30000000
LEAVE = f"""
cp /usr/bin/id /m/group; chgrp {DISK} /m/group; chmod 2755 /m/group
cp /usr/bin/id /m/both; chown 33:42 /m/both; chmod 6755 /m/both
cat /m/secret || echo kept
"""


@pytest.fixture(scope="module")
def shown():
    path = pathlib.Path(tempfile.mkdtemp(prefix="cove-shown-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def served(workspace, shown):
    path = tempfile.mkdtemp(dir=workspace, prefix="mounts-")
    started = Serve(path, "--ephemeral", "--allow-mount", f"{shown}/own", "--allow-mount", f"{shown}/team:group",
                    "--allow-mount", f"{shown}/team/closed")
    yield started
    started.close()
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def stranger(served):
    return served.user("stranger")


def run_as_root(served, key, path, script, **mount):
    made = served.create(mounts=[{"host": str(path), "guest": "/m", **mount}], key=key)
    return Sandbox.connect(made["id"], **served.sdk(key)).commands.run(script, user="root").stdout


@pytest.mark.parametrize("ro", [False, True])
def test_a_user_gets_nothing_of_others_by_a_mount(served, stranger, shown, ro):
    path = shown / "own" / f"ro-{ro}"
    path.mkdir(parents=True)
    (path / "secret").write_text("of root\n")
    (path / "secret").chmod(0o600)
    os.chown(path, OWNER, OWNER)
    said = run_as_root(served, stranger, path, f"({LEAVE}) 2>/dev/null; true", ro=ro)
    assert said == "kept\n"
    left = {p.name: p.stat() for p in path.iterdir() if p.name != "secret"}
    assert sorted(left) == ([] if ro else ["both", "group"])
    for st in left.values():
        assert st.st_uid >= FIRST_ID and st.st_gid >= FIRST_ID


def test_a_group_is_a_users_where_the_operator_says_so(served, stranger, shown):
    path = shown / "team" / "a"
    path.mkdir(parents=True)
    os.chown(path, OWNER, DISK)
    path.chmod(0o770)
    run_as_root(served, stranger, path, "su user -c 'touch /m/new'")
    assert ((path / "new").stat().st_uid, (path / "new").stat().st_gid) == (OWNER, DISK)


def test_a_link_does_not_choose_who_decides(served, stranger, shown):
    """What a sandbox can leave in a directory that has its group, to where it has none."""
    path = shown / "team" / "closed"
    path.mkdir(parents=True)
    os.chown(path, OWNER, DISK)
    path.chmod(0o775)
    (shown / "team" / "link").symlink_to("closed")
    for name in ("closed", "link"):
        run_as_root(served, stranger, shown / "team" / name, "su user -c 'touch /m/new' 2>/dev/null; true")
    assert not list(path.iterdir())
