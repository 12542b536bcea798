"""Archives of strangers: each attempt of an escape ends inside the template, or with the entry's name
and nothing unpacked. As root and as an ordinary user."""

import os
import random
import stat
import subprocess
import tarfile
import uuid

import pytest

from helpers.archive import Registry, Tar, bomb, raw_header

pytestmark = pytest.mark.core


@pytest.fixture(params=["root", "ordinary"])
def registry(request, folder):
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root, to give files their owners")
    made = Registry(folder, request.param == "ordinary")
    yield made
    made.check()


@pytest.fixture
def archive(folder):
    return os.path.join(folder, "archive.tar")


def shell():
    return Tar().dir("bin").add("bin/sh", data=b"#!")


# --- names -------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["../x", "..", "a/../../x", "./../x", "bin/..", "/../../x",
                                  "bin/../../../../../../../../tmp/x", "a/b/../c"])
def test_two_dots_are_refused(registry, archive, name):
    for type in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE):
        tar = shell().add(name, type, link="x" if type == tarfile.SYMTYPE else "")
        said = registry.refuse(tar.write(archive))
        assert f"entry '{name}" in said and "'..'" in said


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_two_dots_in_a_long_name_are_refused(registry, archive, format):
    tar = Tar(format).add("../" + "x" * 120)
    assert "has '..' in its path" in registry.refuse(tar.write(archive))


def test_two_dots_in_a_pax_record_are_refused(registry, archive):
    tar = Tar().add("honest", pax={"path": "../x"})
    assert "entry '../x'" in registry.refuse(tar.write(archive))
    tar = Tar().add("bin/sh").hardlink("h", "bin/sh", pax={"linkpath": "../x"})
    assert "entry 'h'" in registry.refuse(tar.write(archive))


def test_absolute_names_land_inside(registry, archive):
    token = "/tmp/" + uuid.uuid4().hex
    result = registry.add(shell().add(token, data=b"x").dir("//etc//").write(archive))
    assert not os.path.exists(token)
    assert result["left_out"]["stripped"] == 2
    assert registry.names() == sorted(["bin", "bin/sh", "etc", "tmp", token[1:]])


def test_names_may_be_any_bytes(registry, archive):
    names = [b"new\nline", b"esc\x1b[31m", b"\xff\xfe", b"caf\xc3\xa9", b"back\\slash", b"sp ace",
             b"-rf", b"..."]
    with open(archive, "wb") as file:
        file.write(b"".join(raw_header(name) for name in names) + bytes(1024))
    registry.add(archive)
    assert sorted(os.listdir(os.fsencode(registry.path()))) == sorted(names)


def test_pax_names_may_be_any_bytes(registry, archive):
    names = ["\udcff\udcfe" + "x" * 120, "日本" * 40, "\x1b]0;title\x07" * 12]
    tar = Tar()
    for name in names:
        tar.add(name)
    registry.add(tar.write(archive))
    assert sorted(os.listdir(registry.path())) == sorted(names)


def test_an_error_does_not_speak_to_the_terminal(registry, archive):
    with open(archive, "wb") as file:
        file.write(raw_header(b"\x1b]0;owned\x07/\xff/../x") + bytes(1024))
    said = registry.refuse(archive)
    assert "\\x1b]0;owned\\x07/\\xff/../x" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("name", ["", "/", ".", "./"])
def test_the_root_cannot_be_replaced(registry, archive, name):
    with open(archive, "wb") as file:
        file.write(raw_header(name.encode(), b"2", link=b"/etc") + bytes(1024))
    registry.refuse(archive)


def test_names_too_long_or_too_deep_are_refused(registry, archive):
    assert "255 bytes" in registry.refuse(Tar().add("x" * 256).write(archive))
    assert "4095 bytes" in registry.refuse(Tar().add("x" * 200 + ("/" + "x" * 200) * 20)
                                           .write(archive))
    assert "256 directories" in registry.refuse(Tar().add("d/" * 256 + "x").write(archive))
    registry.add(Tar().add("d/" * 255 + "x").write(archive))
    assert registry.run("remove", "t").returncode == 0


# --- links -------------------------------------------------------------------------------------

@pytest.mark.parametrize("link", ["/tmp", "..", "../..", ".", "bin", "/", "../../../..",
                                  "/proc/self/root", "/proc/self/cwd"])
def test_nothing_is_written_through_a_symlink(registry, archive, link):
    token = uuid.uuid4().hex
    for tar in (shell().symlink("l", link).add(f"l/{token}", data=b"x"),
                shell().symlink("l", link).dir(f"l/{token}"),
                shell().symlink("l", link).symlink(f"l/{token}", "x"),
                shell().symlink("l", link).hardlink(f"l/{token}", "bin/sh"),
                shell().symlink("l", link).symlink("m", "l").add(f"m/{token}", data=b"x"),
                shell().dir("d").symlink("d/l", link).add(f"d/l/deep/{token}", data=b"x")):
        assert token in registry.refuse(tar.write(archive))
    assert not os.path.exists(f"/tmp/{token}")


def test_symlinks_may_point_anywhere_as_text(registry, archive):
    tar = shell()
    targets = {"a": "/etc/passwd", "b": "../../../../../etc/passwd", "c": "/", "d": "a\n\x1b"}
    for name, target in targets.items():
        tar.symlink(name, target)
    registry.add(tar.write(archive))
    assert {name: os.readlink(registry.path(name)) for name in targets} == targets


def test_a_file_replaces_the_symlink_of_its_name(registry, archive):
    for target in (os.path.join(registry.top, "passwd"), "../../../../passwd", "bin/sh"):
        registry.add(shell().symlink("l", target).add("l", data=b"mine").write(archive))
        assert not os.path.islink(registry.path("l"))
        assert open(registry.path("bin/sh")).read() == "#!"
        assert registry.run("remove", "t").returncode == 0


def test_a_directory_replaces_the_symlink_of_its_name(registry, archive):
    tar = shell().symlink("l", registry.top).dir("l").add("l/passwd", data=b"mine")
    registry.add(tar.write(archive))
    assert open(registry.path("l/passwd")).read() == "mine"


def test_a_symlink_replaces_the_directory_of_its_name(registry, archive):
    tar = shell().dir("d").add("d/f", data=b"x").symlink("d", registry.top)
    registry.add(tar.write(archive))
    assert os.readlink(registry.path("d")) == registry.top
    assert registry.run("remove", "t").returncode == 0
    tar.add("d/passwd", data=b"mine")
    assert "entry 'd/passwd'" in registry.refuse(tar.write(archive))


@pytest.mark.parametrize("link", ["/etc/passwd", "/../etc/passwd", "../passwd", "l/passwd",
                                  "nowhere", "bin/../../../passwd", "/", "bin"])
def test_hard_links_lead_nowhere_outside(registry, archive, link):
    said = registry.refuse(shell().symlink("l", registry.top).hardlink("h", link).write(archive))
    assert "entry 'h'" in said


def test_a_hard_link_to_a_symlink_is_not_followed(registry, archive):
    target = os.path.join(registry.top, "passwd")
    registry.add(shell().symlink("l", target).hardlink("h", "l").write(archive))
    assert os.readlink(registry.path("h")) == target
    assert os.stat(target).st_nlink == 1


def test_a_file_replaces_the_hard_link_of_its_name(registry, archive):
    registry.add(shell().hardlink("h", "bin/sh").add("h", data=b"other").write(archive))
    assert open(registry.path("bin/sh")).read() == "#!"
    assert open(registry.path("h")).read() == "other"


def test_bytes_of_a_hard_link_are_not_written_to_its_target(registry, archive):
    with open(archive, "wb") as file:
        file.write(raw_header(b"a", size=4) + b"good".ljust(512, b"\0")
                   + raw_header(b"h", b"1", size=4, link=b"a") + b"evil".ljust(512, b"\0")
                   + raw_header(b"z", size=4) + b"last".ljust(512, b"\0") + bytes(1024))
    done = registry.run("add", "t", archive)
    registry.check()
    if done.returncode == 0:            # libarchive decides whether there are such bytes
        assert open(registry.path("a")).read() == "good"


# --- kinds and attributes ----------------------------------------------------------------------

def test_devices_are_left_out_and_counted(registry, archive):
    tar = (shell().add("dev/sda", tarfile.BLKTYPE, devmajor=8, devminor=0)
           .add("dev/mem", tarfile.CHRTYPE, devmajor=1, devminor=1)
           .add("gone", tarfile.CHRTYPE, devmajor=0, devminor=0).add("f", tarfile.FIFOTYPE))
    assert registry.add(tar.write(archive))["left_out"]["devices"] == 3
    assert registry.names() == ["bin", "bin/sh", "f"]
    assert stat.S_ISFIFO(os.lstat(registry.path("f")).st_mode)


def test_a_hard_link_to_a_device_that_was_left_out_is_refused(registry, archive):
    tar = shell().add("sda", tarfile.BLKTYPE, devmajor=8).hardlink("disk", "sda")
    assert "entry 'disk'" in registry.refuse(tar.write(archive))


def test_whiteouts_are_left_out_and_counted(registry, archive):
    tar = (shell().add("bin/.wh.sh").add(".wh..wh..opq").dir(".wh..wh.plnk")
           .add(".wh..wh.plnk/1", data=b"x").hardlink("h", ".wh..wh.plnk/1"))
    assert registry.add(tar.write(archive))["left_out"]["whiteouts"] == 5
    assert registry.names() == ["bin", "bin/sh"]


def has_user_xattrs(path):
    try:
        os.setxattr(path, "user.cove.test", b"x")
    except OSError:
        return False
    os.removexattr(path, "user.cove.test")
    return True


def test_attributes_of_overlayfs_and_labels_are_left_out(registry, archive):
    bad = ["user.overlay.opaque", "user.overlay.redirect", "user.overlay.whiteout",
           "user.overlay.metacopy", "user.overlay.overlay.opaque", "trusted.overlay.opaque",
           "trusted.overlay.redirect", "trusted.x", "security.selinux", "security.ima",
           "system.nfs4_acl"]
    pax = {f"SCHILY.xattr.{name}": "y" for name in bad} | {"SCHILY.xattr.user.mine": "kept"}
    tar = shell().dir("d", pax=dict(pax)).add("f", pax=dict(pax)).symlink("l", "f", pax=dict(pax))
    tar.add("acl", pax={"SCHILY.acl.access": "user::rw-,user:1000:rwx,group::r--,mask::rwx,other::r--"})
    result = registry.add(tar.write(archive))
    names = {name for path in ("d", "f", "acl") for name in os.listxattr(registry.path(path))}
    assert names <= {"user.mine"}
    assert result["left_out"]["xattrs"] >= 2 * len(bad)
    if has_user_xattrs(registry.path("f")):
        assert os.getxattr(registry.path("d"), "user.mine") == b"kept"
    assert os.listxattr(registry.path("l"), follow_symlinks=False) == []


V2 = "\x01\0\0\2" + "\0\x20" + "\0" * 14                   # cap_net_raw=ep
V3 = "\x01\0\0\3" + "\0\x20" + "\0" * 14 + "\x39\x30\0\0"  # the same for root of another namespace


def test_setuid_bits_stay_and_capabilities_in_their_plain_form_only(registry, archive):
    key = "SCHILY.xattr.security.capability"
    tar = (shell().add("su", mode=0o4755, data=b"x").add("sg", mode=0o2755).dir("sticky", mode=0o1777)
           .add("ping", mode=0o755, pax={key: V2}).add("bound", pax={key: V3})
           .add("short", pax={key: V2[:12]}).dir("dir", pax={key: V2}))
    result = registry.add(tar.write(archive))
    assert os.stat(registry.path("su")).st_mode & 0o7777 == 0o4755
    assert os.stat(registry.path("sg")).st_mode & 0o7777 == 0o2755
    assert os.stat(registry.path("sticky")).st_mode & 0o7777 == 0o1777
    kept = os.getxattr(registry.path("ping"), "security.capability")
    assert kept[3] in (2, 3) and kept[5] == 0x20
    assert result["left_out"]["xattrs"] == 3
    for name in ("bound", "short", "dir"):
        assert os.listxattr(registry.path(name)) == []
    # what leads to root inside must not be reachable for anybody outside
    assert os.stat(os.path.join(registry.data, "templates")).st_mode & 0o777 == 0o700


def test_owners_are_the_archives_or_the_callers(registry, archive):
    tar = (Tar().add("root").add("user", uid=1000, gid=1001).add("last", uid=65535, gid=65535)
           .add("far", uid=2 ** 31, gid=70000).symlink("link", "x", uid=5, gid=6))
    result = registry.add(tar.write(archive))
    owners = {name: (st.st_uid, st.st_gid) for name in registry.names()
              for st in [os.lstat(registry.path(name))]}
    assert result["squashed"] == registry.squashed
    if registry.squashed:
        assert len(set(owners.values())) == 1 and (0, 0) not in owners.values()
    else:
        assert owners == {"root": (0, 0), "user": (1000, 1001), "last": (65535, 65535),
                          "far": (65534, 65534), "link": (5, 6)}
        assert result["left_out"]["owners"] == 1


def test_a_read_only_directory_does_not_stop_its_files(registry, archive):
    tar = (Tar().dir("ro", mode=0o555).dir("none", mode=0).add("ro/f", data=b"x")
           .add("none/deep/f", data=b"x"))
    registry.add(tar.write(archive))
    assert os.stat(registry.path("ro")).st_mode & 0o7777 == 0o555
    assert os.stat(registry.path("ro")).st_mtime == 1_000_000_000
    assert os.stat(registry.path("none")).st_mode & 0o7777 == 0
    assert registry.run("remove", "t").returncode == 0
    assert os.listdir(os.path.join(registry.data, "templates")) == []


# --- bombs -------------------------------------------------------------------------------------

def test_a_million_entries_stop_at_the_bound(registry, archive):
    block = b"".join(raw_header(b"f%d" % number) for number in range(1000))
    said = registry.refuse(bomb(archive, b"", block, 1000), "--set", "unpack.entries=5000")
    assert "entry 'f0': is one more than unpack.entries (5000) allows" in said


def test_implied_directories_count_as_entries(registry, archive):
    tar = Tar()
    for number in range(20):
        tar.add(f"{number}/" + "d/" * 90 + "f")
    assert "unpack.entries (1000)" in registry.refuse(tar.write(archive),
                                                      "--set", "unpack.entries=1000")


def test_skipped_entries_count_too(registry, archive):
    tar = Tar()
    for number in range(200):
        tar.add(f"d{number}", tarfile.CHRTYPE)
    assert "unpack.entries (100)" in registry.refuse(tar.write(archive),
                                                     "--set", "unpack.entries=100")


def test_a_compressed_bomb_stops_at_the_bound(registry, archive):
    size = 16 << 20
    bomb(archive, raw_header(b"ok", size=3) + b"abc".ljust(512, b"\0"),
         raw_header(b"zeros", size=size) + bytes(size), 1000)
    said = registry.refuse(archive, "--set", f"unpack.bytes={2 * size + 2}")
    assert "entry 'zeros': brings more than unpack.bytes" in said


def test_holes_stay_holes_and_count_by_their_size(registry, archive, folder):
    sparse = os.path.join(folder, "sparse")
    with open(sparse, "wb") as file:
        file.truncate(8 << 30)
        file.seek(4 << 30)
        file.write(b"middle")
    for format in ("gnu", "pax"):
        subprocess.run(["tar", "-S", f"--format={format}", "-cf", archive, "-C", folder, "sparse"],
                       check=True)
        assert "unpack.bytes" in registry.refuse(archive, "--set", f"unpack.bytes={4 << 30}")
        result = registry.add(archive)
        assert result["bytes"] == 8 << 30
        st = os.stat(registry.path("sparse"))
        assert st.st_size == 8 << 30 and st.st_blocks * 512 < 1 << 20
        with open(registry.path("sparse"), "rb") as file:
            file.seek(4 << 30)
            assert file.read(7) == b"middle\0"
        assert registry.run("remove", "t").returncode == 0


def test_a_sparse_bomb_is_refused_before_a_byte_is_written(registry, archive, folder):
    with open(os.path.join(folder, "bomb"), "wb") as file:
        file.truncate(8 << 40)
    subprocess.run(["tar", "-S", "-cf", archive, "-C", folder, "bomb"], check=True)
    assert os.stat(archive).st_size < 1 << 20
    assert "entry 'bomb': brings more than unpack.bytes" in registry.refuse(archive)


def test_time_is_bounded(registry, archive):
    # Two million empty files of a thousand names: they take a minute, and no disk.
    block = b"".join(raw_header(b"f%d" % number) for number in range(1000))
    bomb(archive, b"", block, 2000)
    assert "unpack.seconds" in registry.refuse(archive, "--set", "unpack.seconds=1", "--set", "unpack.entries=100000000")


# --- damage ------------------------------------------------------------------------------------

def full():
    tar = shell()
    for number in range(40):
        tar.add(f"d{number}/file", data=random.Random(number).randbytes(700))
    return tar.symlink("l", "x").hardlink("h", "bin/sh")


COMPRESSORS = {"none": ["cat"], "gzip": ["gzip", "-1"], "bzip2": ["bzip2"], "xz": ["xz", "-0"],
               "zstd": ["zstd", "-q"]}


@pytest.fixture(params=COMPRESSORS)
def packed(request, folder):
    plain = full().write(os.path.join(folder, "plain.tar"))
    with open(plain, "rb") as file:
        try:
            return subprocess.run(COMPRESSORS[request.param], stdin=file, capture_output=True,
                                  check=True).stdout
        except FileNotFoundError:
            pytest.skip(f"{request.param} is not installed")


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, 0o644)


def test_every_compression_is_read(registry, archive, packed):
    write(archive, packed)
    registry.add(archive)
    assert len(registry.names()) == 84


def test_an_archive_cut_off_at_random_is_refused(registry, archive, packed):
    end = len(packed.rstrip(b"\0"))     # a plain one may lose some of its zeros
    dice = random.Random(len(packed))
    for _ in range(15):
        write(archive, packed[:dice.randrange(end)])
        registry.refuse(archive)


def test_a_damaged_archive_harms_nobody(registry, archive, packed):
    dice = random.Random(len(packed) + 1)
    for _ in range(15):
        bad = bytearray(packed)
        for _ in range(dice.randrange(1, 20)):
            bad[dice.randrange(len(bad))] = dice.randrange(256)
        write(archive, bad)
        done = registry.run("add", "t", archive)
        registry.check()
        assert done.returncode in (0, 1)
        assert "signal" not in done.stderr and "no word" not in done.stderr
        if done.returncode == 0:
            assert registry.run("remove", "t").returncode == 0
        assert os.listdir(os.path.join(registry.data, "templates")) == []
