#!/usr/bin/env python3
"""`cove` as another release would have it: the working tree with one textual patch each, built once for each state of
the tree into .cache/previous/<variant>-<hash>/cove. A patch that finds no place any more is an error.

    python3 tests/faults/variants.py NAME...        builds those, and prints where they are
"""

import hashlib
import re
import shutil
import subprocess
import sys

from releases import CACHE, RAW, ROOT, Unavailable, alone, ensure, make

KEPT = 8                                # builds of former states of the tree


class Source(dict):
    """Texts of a tree by path, changed in place. Each anchor must be there, once."""

    def replace(self, path, old, new):
        if self.get(path, "").count(old) != 1:
            raise Unavailable(f"a patch no longer fits: {old!r} is {self.get(path, '').count(old)} times in {path}")
        self[path] = self[path].replace(old, new)

    def add_member(self, path, struct, line):
        """At the end of a struct's definition."""
        found = re.findall(rf"^struct {struct} {{.*?^}};$", self.get(path, ""), re.M | re.S)
        if len(found) != 1:
            raise Unavailable(f"a patch no longer fits: struct {struct} is defined {len(found)} times in {path}")
        self[path] = self[path].replace(found[0], found[0].removesuffix("};") + f"    {line}\n}};")


def raw_gpus(source):
    """D1: one more field in what the keepers of RAW wrote whole."""
    source.add_member("src/keep/record.h", "keep_create", "uint64_t gpus;")


VARIANTS = {"raw-gpus": raw_gpus}
OF_RAW = ("raw-gpus",)


def git(*words, at=ROOT):
    return subprocess.run(["git", "-C", at, *words], capture_output=True, check=True).stdout


def files(name):
    """Path and content of every file of the tree that is varied."""
    if name in OF_RAW:
        ensure(RAW)
        names = git("ls-tree", "-r", "-z", "--name-only", RAW).split(b"\0")
        with_text = ((path.decode(), git("show", f"{RAW}:{path.decode()}")) for path in names if path)
    else:
        names = git("ls-files", "-c", "-o", "-z", "--exclude-standard").split(b"\0")
        with_text = ((path.decode(), (ROOT / path.decode()).read_bytes()) for path in sorted(set(names))
                     if path and (ROOT / path.decode()).is_file())
    return {path: text for path, text in with_text if path.startswith(("src/", "tests/", "tools/", "meson"))}


def write(tree, contents):
    for path, text in contents.items():
        place = tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        if text.startswith(b"#!"):
            place.chmod(0o755)


def digest(contents):
    found = hashlib.sha256()
    for path, text in sorted(contents.items()):
        if path.startswith(("src/", "meson", "tools/embed")) or path.endswith("meson.build"):
            found.update(path.encode() + b"\0" + hashlib.sha256(text).digest())
    return found.hexdigest()[:16]


def forget_old():
    found = sorted(CACHE.glob("*-*/cove"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[KEPT:]:
        shutil.rmtree(path.parent)


def program(name):
    """The `cove` of that variant."""
    contents = files(name)
    source = Source({path: text.decode() for path, text in contents.items()
                     if path.startswith("src/") and path.endswith((".c", ".h"))})
    VARIANTS[name](source)
    contents |= {path: text.encode() for path, text in source.items()}
    made = CACHE / f"{name}-{digest(contents)}" / "cove"
    with alone():
        if not made.exists():
            tree = made.parent / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            write(tree, contents)
            make(tree, made)
            forget_old()
    made.touch()
    return made


def main(words):
    if not words or any(word not in VARIANTS for word in words):
        sys.exit(f"{__doc__}\nvariants: {', '.join(VARIANTS)}")
    try:
        for name in words:
            print(program(name))
    except Unavailable as error:
        sys.exit(f"variants: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
