"""What a neighbour account of this machine finds of the server that our Python package starts for a program."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
from world import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEIGHBOUR = 1234
PROGRAM = """
import os, sys
os.umask({umask})
from cove import Sandbox, _server
sandbox = Sandbox.create()
print(_server.running().dir, flush=True)
sys.stdin.read()
"""
# Tries each path, and looks whether another process says the secret where everybody can read.
LOOK = """
import json, os, sys
asked, secret = json.load(sys.stdin)
found = []
for path in asked + [f"/proc/{pid}/{what}" for pid in os.listdir("/proc") if pid.isdigit()
                     for what in ("cmdline", "environ")]:
    try:
        with open(path, "rb") as file:
            text = file.read(1 << 20)
    except OSError:
        continue
    if not path.startswith("/proc/") or secret.encode() in text:
        found.append(path)
json.dump(found, sys.stdout)
"""


@contextlib.contextmanager
def private_server(umask):
    env = os.environ | {"PYTHONPATH": str(ROOT / "sdk/python/src"), "COVE_BINARY": f"{BUILD}/cove"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM.format(umask=umask)], env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        try:
            yield pathlib.Path(program.stdout.readline().strip())
        finally:
            program.stdin.close()
            program.wait(60)


def files_below(folder):
    """All that is there, as root sees it; the volume's content is the sandboxes' own."""
    found = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not os.path.ismount(os.path.join(where, name))]
        found += [os.path.join(where, name) for name in files]
    return found


def seen_by_a_neighbour(paths, secret):
    done = subprocess.run(["setpriv", f"--reuid={NEIGHBOUR}", f"--regid={NEIGHBOUR}", "--clear-groups",
                           "/usr/bin/python3", "-c", LOOK],
                          input=json.dumps([paths, secret]), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_neighbour_reads_nothing_of_it(world, umask):
    with private_server(umask) as folder:
        key = (folder / "data/admin.key").read_text().strip()
        paths = files_below(folder)
        names = {os.path.relpath(path, folder) for path in paths}
        assert {"log", "config", "data/admin.key", "data/admin.password", "data/serve/cove.db"} <= names
        assert seen_by_a_neighbour(paths, key) == []
        assert key not in (folder / "log").read_text()
        for name in "log", "config":
            assert (folder / name).stat().st_mode & 0o777 == 0o600
        # The control: where the directory lets others through, the same look finds what is readable.
        planted = folder / "planted"
        planted.write_text("x")
        planted.chmod(0o644)
        folder.chmod(0o711)
        seen = seen_by_a_neighbour([*paths, str(planted)], key)
        assert str(planted) in seen
        assert not any(key in pathlib.Path(path).read_text(errors="replace") for path in seen)
    assert not folder.exists()
