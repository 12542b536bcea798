"""`cove layer`: a read-only layer that all sandboxes see, and the Python one built for real."""

import contextlib
import json
import os
import pathlib
import platform
import shlex
import subprocess
import zipfile

import pytest

from helpers.cove import CLEAR, COVE, Cove

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]
FILE = "opt/cove/python/lib/probe"


@pytest.fixture
def data(workspace, folder):
    """A data directory of the test's own: a layer is for all sandboxes of one."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    with contextlib.closing(Cove(pathlib.Path(folder, "data"))) as made:
        yield made


def layer(cove, *words, status=0, env=None):
    done = subprocess.run([COVE, "layer", *words, "--data-dir", cove.data], capture_output=True, text=True,
                          env=CLEAR | (env or {}), timeout=800)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def put(cove, name, text):
    """As the command leaves one behind."""
    file = cove.data / "layers" / name / "rootfs" / FILE
    file.parent.mkdir(parents=True)
    file.write_text(text + "\n")
    link = cove.data / "layers" / "new"
    link.symlink_to(name)
    link.rename(cove.data / "layers" / "python")


def test_sandboxes_see_the_layer_in_force_and_never_write_it(data):
    assert data.said(f"ls /{FILE} 2>&1 || true").endswith("No such file or directory")
    put(data, "python-1", "one")
    assert data.said(f"cat /{FILE}") == "one"
    assert data.said(f"id -un; cat /{FILE}; touch /{FILE} 2>&1 || true").splitlines()[:2] == ["user", "one"]
    data.shell(f"echo mine > /{FILE}; cat /{FILE}", "-u", "root")
    assert (data.data / "layers/python-1/rootfs" / FILE).read_text() == "one\n"
    put(data, "python-2", "two")
    assert data.said(f"cat /{FILE}") == "two"
    layer(data, "remove", "python")
    assert not list((data.data / "layers").iterdir())
    assert data.said(f"ls /{FILE} 2>&1 || true").endswith("No such file or directory")


def test_a_running_sandbox_keeps_its_layer(data):
    put(data, "python-1", "one")
    with data.started("sh", "-c", f"cat /{FILE}; read x; cat /{FILE}") as process:
        assert process.stdout.read(4) == b"one\n"
        layer(data, "remove", "python")
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"one\n"
        process.wait(20)


@pytest.mark.parametrize("words, said", [
    (["add", "ruby"], "there is no layer 'ruby' to be had: only python"),
    (["add", "python", "--with", "numpy,-x"], "--with: '-x' is not a package's name"),
    (["remove", "python"], "there is no layer 'python'"),
])
def test_what_cannot_be_done_is_said(data, words, said):
    done = subprocess.run([COVE, "layer", *words, "--data-dir", data.data], capture_output=True, text=True, env=CLEAR)
    assert done.returncode and said in done.stderr


def test_an_index_that_is_not_there_is_said_and_leaves_nothing(data):
    done = layer(data, "add", "python", "--index", "http://nowhere.invalid/simple", status=1)
    assert "the package index cannot be read" in done.stderr
    assert not [p for p in (data.data / "layers").iterdir() if not p.name.startswith(".")]


UV = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
target=$2
while [ "$1" != -- ]; do shift; done
for name; do [ "$name" = -- ] || { mkdir "$target/$name"; echo "name = '$name'" > "$target/$name/__init__.py"; }; done
cp "$0" "$target/from-$(stat -c %F /wheels)"
"""


def test_wheels_of_the_operators_own_need_no_index_and_the_same_are_the_same_layer(data, folder):
    """uv too is taken from there; here it is a script, so that nothing comes from outside."""
    wheels = pathlib.Path(folder, "wheels")
    wheels.mkdir()
    for version in "9.8.0", "9.10.0":
        with zipfile.ZipFile(wheels / f"uv-{version}-py3-none-manylinux_2_17_{platform.machine()}.whl", "w") as wheel:
            wheel.writestr(f"uv-{version}.data/scripts/uv", UV if version == "9.10.0" else "the older one")
    env = {"PIP_FIND_LINKS": str(wheels), "PIP_INDEX_URL": "http://nowhere.invalid/simple"}
    said = layer(data, "add", "python", "--with", "probe,other", env=env)
    assert "installing ipykernel, pyautogui, pillow, probe, other" in said.stderr and "as before" not in said.stdout
    one = json.loads(layer(data, "list", "--json").stdout)[0]
    assert one["requirements"][-2:] == ["probe", "other"]
    assert ", as before" in layer(data, "add", "python", "--with", "probe,other", env=env).stdout
    assert json.loads(layer(data, "list", "--json").stdout)[0]["id"] == one["id"]
    other = json.loads(layer(data, "add", "python", "--with", "probe", "--json", env=env).stdout)
    assert other["id"] != one["id"]
    code = json.dumps({"code": "import probe; print(probe.name, probe.__file__)"})
    said = json.loads(data.said(f"curl -s localhost:8765/execute -d {shlex.quote(code)}", timeout=120))
    assert said["stdout"].startswith("probe /opt/cove/python/lib/python"), said


MAKE_WHEEL = """python3 - <<'.'
import json, zipfile
with zipfile.ZipFile("/tmp/probe-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("probe.py", "")
    wheel.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: probe\\nVersion: 1.0\\n")
    wheel.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("probe-1.0.dist-info/RECORD", "")
json.dump({"code": "import probe; print(probe.__file__.split('/python3.')[0])", "packages": ["/tmp/probe-1.0-py3-none-any.whl"]},
          open("/tmp/request", "w"))
.
"""


@pytest.mark.slow
def test_the_python_layer_is_built_once_and_works_offline(data):
    env = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_CERT"))}
    made = json.loads(layer(data, "add", "python", "--json", env=env).stdout)
    assert made["id"].startswith("python-") and "ipykernel" in made["requirements"]
    assert json.loads(layer(data, "list", "--json").stdout)[0]["sha256"] == made["sha256"]
    code = "import ipykernel, zmq; print(ipykernel.__file__)"
    said = json.loads(data.said(f"curl -s localhost:8765/execute -d '{json.dumps({'code': code})}'", timeout=120))
    assert said["stdout"].startswith("/opt/cove/python/lib/python"), said
    # what is installed goes into the sandbox's own environment: with the layer's uv, here without a network, from a file
    said = json.loads(data.said(MAKE_WHEEL + "curl -s localhost:8765/execute -d @/tmp/request", timeout=120))
    assert said == {"stdout": "/home/user/.local/share/cove/python/lib\n", "stderr": ""}
    said = json.loads(data.said("curl -s localhost:8765/execute -d '{\"code\": \"1\", \"packages\": [\"numpy\"]}'"))
    assert said["stderr"].startswith("Failed to install packages: numpy\nthis sandbox has no network"), said
