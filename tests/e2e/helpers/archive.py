"""Archives that no honest tool writes, and proof that nothing changed around where they were
unpacked."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile

from .cove import for_anybody

COVE = os.path.join(os.environ["COVE_BUILD"], "cove")
ORDINARY = 61234                        # nobody's id


class Tar:
    """Collects entries; write() makes the file."""

    def __init__(self, format=tarfile.PAX_FORMAT):
        self.format = format
        self.entries = []

    def add(self, name, type=tarfile.REGTYPE, data=b"", link="", pax=None, **fields):
        info = tarfile.TarInfo(name)
        info.type, info.size, info.linkname = type, len(data), link
        info.mode = 0o755 if type == tarfile.DIRTYPE else 0o644
        info.mtime = 1_000_000_000
        info.pax_headers = pax or {}
        for key, value in fields.items():
            setattr(info, key, value)
        self.entries.append((info, data))
        return self

    def dir(self, name, **fields):
        return self.add(name, tarfile.DIRTYPE, **fields)

    def symlink(self, name, link, **fields):
        return self.add(name, tarfile.SYMTYPE, link=link, **fields)

    def hardlink(self, name, link, **fields):
        return self.add(name, tarfile.LNKTYPE, link=link, **fields)

    def write(self, path, compression=""):
        with tarfile.open(path, f"w:{compression}", format=self.format) as tar:
            for info, data in self.entries:
                tar.addfile(info, io.BytesIO(data))
        os.chmod(path, 0o644)
        return path


def raw_header(name, type=b"0", size=0, link=b""):
    """One header exactly as given, for what tarfile would refuse or mend."""
    head = bytearray(512)
    head[0:len(name)] = name
    head[100:108] = b"0000644\0"
    head[108:116] = head[116:124] = b"0000000\0"
    head[124:136] = b"%011o\0" % size
    head[136:148] = b"07346545000\0"
    head[148:156] = b" " * 8
    head[156:157] = type
    head[157:157 + len(link)] = link
    head[257:265] = b"ustar\x0000"
    head[148:155] = b"%06o\0" % sum(head)
    return bytes(head)


def bomb(path, first, repeated, times, last=bytes(1024)):
    """A gzip file of three members, the middle one many times: gigabytes in no time."""
    middle = gzip.compress(repeated, compresslevel=9)
    with open(path, "wb") as file:
        file.write(gzip.compress(first))
        for _ in range(times):
            file.write(middle)
        file.write(gzip.compress(last))
    os.chmod(path, 0o644)
    return path


def fingerprint(path):
    """Everything below path that a stray write could change, but for what is below data/."""
    seen = {}
    for where, folders, files in os.walk(path):
        for name in [".", *folders, *files]:
            full = os.path.join(where, name)
            st = os.lstat(full)
            content = None
            if os.path.islink(full):
                content = os.readlink(full)
            elif os.path.isfile(full):
                with open(full, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
            seen[full] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size,
                          st.st_mtime_ns, st.st_ctime_ns, content)
        if os.path.basename(where) == "data":
            folders.clear()             # where it may write
    return seen


class Registry:
    """A data directory with canaries around it, and the program run on it as some user."""

    def __init__(self, folder, ordinary):
        self.ordinary = ordinary and os.geteuid() == 0
        self.squashed = ordinary
        self.program = for_anybody(folder) if self.ordinary else COVE
        self.top = os.path.join(folder, "top")
        self.data = os.path.join(self.top, "data")
        os.makedirs(os.path.join(self.top, "etc"))
        os.makedirs(self.data)
        for name in ("passwd", "etc/passwd", "x", "etc/x"):
            with open(os.path.join(self.top, name), "w") as file:
                file.write("canary\n")
        if self.ordinary:
            for path in (self.top, os.path.join(self.top, "etc"), self.data):
                os.chown(path, ORDINARY, ORDINARY)
        os.chmod(self.top, 0o755)
        self.before = fingerprint(self.top)

    def command(self, *words, **more):
        if self.ordinary:
            more |= {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}
        return {"args": [self.program, "template", *words, "--data-dir", self.data], **more}

    def run(self, *words):
        return subprocess.run(**self.command(*words), capture_output=True, text=True, timeout=50)

    def add(self, archive, *options, name="t"):
        done = self.run("add", name, archive, "--json", *options)
        assert done.returncode == 0, done.stderr
        self.check()
        return json.loads(done.stdout)

    def refuse(self, archive, *options, name="t"):
        """The sentence it was refused with; nothing may be left."""
        done = self.run("add", name, archive, *options)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        assert os.listdir(os.path.join(self.data, "templates")) == []
        self.check()
        return done.stderr

    def check(self):
        """Not one byte outside."""
        now = fingerprint(self.top)
        changed = {path for path in now.keys() | self.before.keys()
                   if now.get(path) != self.before.get(path)}
        # the data directory itself got an entry, "templates", and nothing else
        assert changed <= {os.path.join(self.top, "data"), self.data + "/.",
                           os.path.join(self.data, "templates")}, changed

    def path(self, name="", template="t"):
        return os.path.join(self.data, "templates", template, "rootfs", name)

    def names(self, template="t"):
        root = self.path(template=template)
        return sorted(os.path.relpath(os.path.join(where, name), root)
                      for where, folders, files in os.walk(root) for name in folders + files)
