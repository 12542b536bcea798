"""Wheel and sdist, and the first result on a machine that has nothing but the wheel."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from paths import python_path

TOP = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if importlib.util.find_spec("build") is None:
        pytest.skip("build is not installed")
    out = tmp_path_factory.mktemp("dist")
    source = out / "source"  # a build leaves files beside its source
    ignored = [f"--exclude={name}" for name in ("build", "dist", "*.egg-info", "__pycache__")]
    copy = subprocess.run(
        ["tar", "-C", TOP, *ignored, "-cf", "-", "."], capture_output=True, check=True
    )
    source.mkdir()
    subprocess.run(["tar", "-C", source, "-xf", "-"], input=copy.stdout, check=True)

    def build(binary, *what):
        env = {**os.environ, **({"COVE_WHEEL_BINARY": binary} if binary else {})}
        command = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            *what,
            "-o",
            str(out),
            str(source),
        ]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    build(None, "--sdist", "--wheel")
    build(os.environ["COVE_BINARY"], "--wheel")
    return out


def test_what_is_in_them(built):
    plain = next(built.glob("*-any.whl"))
    names = set(zipfile.ZipFile(plain).namelist())
    for package in ("cove", "sandbox", "agentic_sandbox"):
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= names
    assert "cove/_bin/cove" not in names and "cove/_sync/sandbox.py" in names
    assert not [n for n in names if n.startswith(("tests", "k8s_agent_sandbox"))]
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = set(sdist.getnames())
    assert [n for n in names if n.endswith("src/cove/_async/sandbox.py")]
    assert [n for n in names if n.endswith("/LICENSE")]


def test_the_licence_goes_with_every_copy(built):
    for wheel in built.glob("*.whl"):
        with zipfile.ZipFile(wheel) as parts:
            found = [parts.read(n) for n in parts.namelist() if n.endswith("licenses/LICENSE")]
        assert found == [(TOP.parents[1] / "LICENSE").read_bytes()]


def test_the_wheel_with_the_server_is_a_complete_install(server, built, tmp_path, record_property):
    wheel = next(w for w in built.glob("*.whl") if not w.name.endswith("-any.whl"))
    assert "-py3-none-" in wheel.name
    begun = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        str(wheel),
    ]
    subprocess.run(command, check=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVE_")}
    env.update(PYTHONPATH=python_path(tmp_path), PATH="/usr/bin:/bin:/usr/sbin:/sbin")
    program = "from cove import Sandbox\nwith Sandbox.create() as s: print(s.commands.run('echo hello').stdout)"
    found = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    record_property("install_to_first_result_s", round(time.monotonic() - begun, 2))
    assert found.stdout == "hello\n\n", found.stderr
