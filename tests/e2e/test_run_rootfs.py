"""A Debian of its own as a template: a root file system made by mmdebstrap, with sudo and apt."""

import os
import pathlib
import shutil
import subprocess

import pytest

from helpers.cove import COVE
from helpers.guest import ROOT

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGES = "sudo,python3"
HOOKS = ['chroot "$1" useradd -m -s /bin/bash user',
         'echo "user ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/user"']
CONTROL = (
    "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
)


def suite():
    text = pathlib.Path("/etc/os-release").read_text()
    names = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if names.get("ID") != "debian" or not shutil.which("mmdebstrap"):
        pytest.skip("needs mmdebstrap on Debian")
    return names["VERSION_CODENAME"]


@pytest.fixture(scope="session")
def debian():
    """The archive; made once per suite and kept among the downloads."""
    archive = ROOT / f".cache/rootfs/debian-{suite()}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        made = archive.with_suffix(f".{os.getpid()}.tar")
        hooks = [f"--customize-hook={hook}" for hook in HOOKS]
        done = subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={PACKAGES}",
                *hooks,
                suite(),
                made,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            made.unlink(missing_ok=True)
            pytest.skip(f"mmdebstrap cannot make one here: {done.stderr[-300:]}")
        made.rename(archive)
    return archive


@pytest.fixture(scope="session")
def template(cove, debian):
    subprocess.run(
        [COVE, "template", "add", "--data-dir", cove.data, "debian-here", debian],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    yield "debian-here"
    subprocess.run([COVE, "template", "remove", "--data-dir", cove.data, "debian-here"], check=True)


@pytest.fixture
def said(cove, template):
    return lambda script, *options, **more: cove.said(script, "-t", template, *options, **more)


def test_it_is_that_debian(said):
    lines = said(
        ". /etc/os-release; echo $VERSION_CODENAME; id -un; pwd; python3 -c 'print(6*7)'"
    ).split("\n")
    assert lines == [suite(), "user", "/home/user", "42"]


def test_sudo_makes_the_user_root(said):
    assert said(
        "sudo -n id -u; sudo -n sh -c 'echo x > /etc/new; cat /etc/new'; sudo -n -u user id -un"
    ).split() == ["0", "x", "user"]


def test_sudo_in_strict_says_why_it_fails(cove, template):
    done = cove.run("-t", template, "--strict", "sudo", "-n", "id", status=1)
    assert b"no new privileges" in done.stderr, done.stderr


def test_apt_installs_a_local_package(said):
    assert said(f"""
        mkdir -p p/DEBIAN p/usr/share/tiny && echo hello > p/usr/share/tiny/file
        printf %s "{CONTROL}" > p/DEBIAN/control
        dpkg-deb --root-owner-group -b p /tmp/tiny.deb > /dev/null
        sudo -n apt-get install -qq -y /tmp/tiny.deb > log 2>&1 || cat log
        cat /usr/share/tiny/file; dpkg -s tiny | grep Status; dpkg --audit
        stat -c %U:%G /usr/share/tiny/file
    """).split("\n") == ["hello", "Status: install ok installed", "root:root"]


def test_what_one_sandbox_installs_the_next_has_not(said):
    assert (
        said("sudo -n rm -rf /usr/share/doc /etc/apt; ls /usr/share/doc 2> /dev/null | wc -l")
        == "0"
    )
    assert said(
        "test -d /etc/apt && echo there; ls /usr/share/tiny 2> /dev/null | wc -l"
    ).split() == ["there", "0"]


def test_limits_and_exit_codes_hold_here_too(cove, template):
    cove.run(
        "-t", template, "--memory", "64M", "python3", "-c", "b = bytearray(1 << 28)", status=137
    )
    cove.run("-t", template, "sh", "-c", "exit 9", status=9)
