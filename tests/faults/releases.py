#!/usr/bin/env python3
"""`cove` of other commits, built once each into .cache/previous/<hash>/cove.

tests/faults/released names the commit of the last release that landed: the last commit of each issue moves it. The
first release whose state is read for good is RAW: its files are C structs, written whole. UNDIVIDED is the last one
whose run directory belongs to one data directory: the records are not in a place of their own there.
A clone that lacks such a commit fetches it; a clone that cannot fails with the reason. Nothing is skipped.

    python3 tests/faults/releases.py prepare        builds what the slice of `make check` needs
    python3 tests/faults/releases.py COMMIT...      builds those, and prints where they are
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache/previous"
RAW = "46eceede37609db1cd80e5a3642d5f147add8052"
UNDIVIDED = "6757c4cf53d7ce901b4108f00119149b2fef9eb8"


class Unavailable(Exception):
    """A program that the tests need cannot be made."""


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)


def released():
    return (HERE / "released").read_text().split()[0]


def has(commit):
    return git("cat-file", "-e", commit + "^{commit}").returncode == 0


def ensure(commit):
    """The commit is in this clone, which may be a shallow one."""
    said = ""
    for words in ((commit,), ("--unshallow",)):
        if has(commit):
            return
        said = said or git("fetch", "--quiet", "origin", *words).stderr.strip()
    if not has(commit):
        raise Unavailable(f"commit {commit}, a release that the upgrade tests begin with, is not in this clone and "
                          f"cannot be fetched from origin ({said.partition(chr(10))[0]}). Fetch it from a full clone.")


@contextlib.contextmanager
def alone():
    """One builds, the others wait and find it built."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(tree, made):
    """Builds nothing but `cove`, which has its guest inside. Equal sources in another directory are in ccache."""
    env = {"CCACHE_DIR": str(ROOT / ".cache/ccache")} | os.environ | {
        "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1", "CC": "ccache gcc" if shutil.which("ccache") else "gcc"}
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    # hardly optimised: it is built to be taken over, once
    for words in ([meson, "setup", "build", "-Dbuildtype=plain", "-Doptimization=1", "-Dwerror=false"], ["ninja", "-C", "build", "cove"]):
        done = subprocess.run(words, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Unavailable(f"{made.parent.name}: {' '.join(words)} failed in {tree}:\n{done.stdout[-3000:]}")
    shutil.copy(tree / "build/cove", made.with_name("cove.new"))
    made.with_name("cove.new").rename(made)
    shutil.rmtree(tree)


def program(commit):
    """The `cove` of that commit."""
    made = CACHE / commit / "cove"
    if made.exists():
        return made
    with alone():
        if made.exists():
            return made
        ensure(commit)
        tree = made.parent / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        with subprocess.Popen(["git", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
        make(tree, made)
    return made


def previous():
    """That of the last release; COVE_PREVIOUS names one that was built elsewhere."""
    given = os.environ.get("COVE_PREVIOUS")
    return pathlib.Path(given) if given else program(released())


def main(words):
    if not words or words[0].startswith("-"):
        sys.exit(__doc__)
    try:
        for commit in [RAW] if words == ["prepare"] else words:
            print(program(commit))
    except Unavailable as error:
        sys.exit(f"releases: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
