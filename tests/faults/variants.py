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

from releases import CACHE, ROOT, Unavailable, alone, make

KEPT = 8                                # builds of former states of the tree


class Source(dict):
    """Texts of a tree by path, changed in place. What a patch looks for must be there, once."""

    def find(self, pattern, what):
        """Path and match of the one place."""
        found = [(path, match) for path, text in self.items() for match in re.finditer(pattern, text, re.M | re.S)]
        if len(found) != 1:
            raise Unavailable(f"a patch no longer fits: {what} is there {len(found)} times"
                              f"{''.join(' ' + path for path, _ in found)}")
        return found[0]

    def replace(self, pattern, what, new):
        """new: a text, or what makes one of the match."""
        path, match = self.find(pattern, what)
        new = new(match) if callable(new) else new
        self[path] = self[path][:match.start()] + new + self[path][match.end():]

    def tables(self):
        """Every table of tagged fields, with the name of the struct that it describes."""
        found = {}
        for text in self.values():
            for name, rest in re.findall(r"^(?:static )?const struct tag_field (\w+)\[\] = {\n(.*?)^};", text, re.M | re.S):
                struct = re.findall(r"TAG_\w+\([^,]+,[^,]+, struct (\w+),", rest)
                if not struct or len(set(struct)) != 1:
                    raise Unavailable(f"a patch no longer fits: table {name} describes {set(struct)}")
                found[name] = struct[0]
        missing = KNOWN - set(found)
        if missing:
            raise Unavailable(f"a patch no longer fits: there is no table {', '.join(sorted(missing))}")
        return found


PLUS, PLUS_VALUE = 0x7E57, 4711         # tag and value of a field that only `plus` knows
# What a release may lack in each table; None: all the rest would mean something else without it.
OPTIONAL = {
    "limits_fields": "io_weight",
    "order_mount_fields": None,
    "order_mark_fields": "owner",
    "order_fields": "snapshot",
    "boxfile_fields": "pids_refused",
    "hello_fields": "release",
    "request_fields": "u.socket.v6",
    "state_fields": "flush_us",
    "limit_met_fields": "use",
    "template_fields": "workdir",
    "reply_fields": "status",
    "birth_fields": "usr",
    "birth_reply_fields": "said.msg",
}
KNOWN = set(OPTIONAL)


def plus(source):
    """Each struct has one more member, each table one more row, and its value is never the default."""
    tables = source.tables()
    for struct in set(tables.values()):
        source.replace(rf"^struct {struct} {{[^;].*?^}};", f"struct {struct}",
                       lambda match: match[0].removesuffix("};") + "    uint64_t plus;\n};")
    for table, struct in tables.items():
        source.replace(rf"^(?:static )?const struct tag_field {table}\[\] = {{\n", table,
                       lambda match, struct=struct: f"{match[0]}    TAG_ROW({PLUS}, TAG_UINT, struct {struct}, plus),\n")
    source.replace(r"^static_assert\(sizeof\(struct limits\) == LIMIT_COUNT", "the size of struct limits",
                   "static_assert(sizeof(struct limits) > LIMIT_COUNT")
    source.replace(r"^static int64_t load_number\([^)]*\)\n{\n", "load_number",
                   lambda match: f'{match[0]}    if (!strcmp(f->name, "plus"))\n        return {PLUS_VALUE};\n')


def minus(source):
    """Each table has one row less: it is neither read nor written, and the member has its default."""
    source.replace(r"^struct tag_field {.*?^};", "struct tag_field",
                   lambda match: match[0].removesuffix("};") + "    bool gone;\n};")
    source.replace(r"\bif \(t->tag == tag\)", "the search for a row", "if (t->tag == tag && !t->gone)")
    source.replace(r"\bsize_t n = (f->max \? MIN\(\(size_t\)get_count\(f, s\), f->max\) : 1;)", "the writing of a row",
                   lambda match: f"size_t n = f->gone ? 0 : {match[1]}")
    for table in source.tables():
        if table not in OPTIONAL:
            raise Unavailable(f"table {table} is new: say in variants.py which of its fields a release may lack")
        if OPTIONAL[table]:
            member = re.escape(OPTIONAL[table])
            source.replace(rf"(const struct tag_field {table}\[\] = {{\n(?:(?!^}};).)*?"
                           rf"^    TAG_ROW\([^,]+,[^,]+,[^,]+, {member}\b[^\n]*?)\),(?: +/\*[^\n]*)?\n", f"{member} of {table}",
                           lambda match: f"{match[1]}, .gone = true),\n")


def schema(source):
    """The keeper's files are of a schema that this tree does not know."""
    source.replace(r"\bKEEP_SCHEMA = (\d+),", "KEEP_SCHEMA", lambda match: f"KEEP_SCHEMA = {int(match[1]) + 1},")


VARIANTS = {"plus": plus, "minus": minus, "schema": schema}


def files():
    """Path and content of every file of the tree that a build may want."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-c", "-o", "-z", "--exclude-standard"],
                           capture_output=True, check=True, text=True).stdout.split("\0")
    return {name: (ROOT / name).read_bytes() for name in sorted(set(names))
            if name.startswith(("src/", "tests/", "tools/", "meson")) and (ROOT / name).is_file()}


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
    contents = files()
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
