"""What a copy needs beyond E2B's own calls: modes, and links as links."""

import os
import stat

import pytest

pytestmark = pytest.mark.core


def rpc(guest, method, **body):
    return guest.wire.filesystem(method, body)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


# --- SetMode ---------------------------------------------------------------------------------

def test_a_mode_is_set(guest, folder):
    for path in os.path.join(folder, "file"), os.path.join(folder, "dir"):
        if path.endswith("dir"):
            os.mkdir(path)
        else:
            open(path, "w").close()
        for wanted in 0o000, 0o640, 0o777, 0o1777:
            reply = rpc(guest, "SetMode", path=path, mode=wanted)
            assert reply.status == 200, reply
            assert mode(path) == wanted


@pytest.mark.parametrize("wanted", [-1, 0o2000, 0o4755, "x", None])
def test_what_is_no_mode_is_refused(guest, folder, wanted):
    assert rpc(guest, "SetMode", path=folder, mode=wanted).status == 400


def test_a_mode_goes_through_no_link(guest, folder):
    target, link = os.path.join(folder, "target"), os.path.join(folder, "link")
    open(target, "w").close()
    os.chmod(target, 0o600)
    os.symlink(target, link)
    assert rpc(guest, "SetMode", path=link, mode=0o777).status == 400
    assert mode(target) == 0o600
    assert rpc(guest, "SetMode", path=os.path.join(folder, "none"), mode=0o777).status == 404


# --- MakeLink --------------------------------------------------------------------------------

def test_a_link_says_what_it_was_told(guest, folder):
    path = os.path.join(folder, "new", "link")
    for target in "../x", "/no/such", "ümläut":
        reply = rpc(guest, "MakeLink", path=path, target=target)
        assert reply.status == 200, reply
        assert os.readlink(path) == target
    assert reply.json["entry"]["link"] == "ümläut"
    assert os.listdir(os.path.dirname(path)) == ["link"]


def test_a_link_takes_the_place_of_a_file_but_of_no_directory(guest, folder):
    path = os.path.join(folder, "there")
    open(path, "w").close()
    assert rpc(guest, "MakeLink", path=path, target="x").status == 200
    assert os.readlink(path) == "x"
    os.unlink(path)
    os.mkdir(path)
    assert rpc(guest, "MakeLink", path=path, target="x").status >= 400
    assert os.listdir(folder) == ["there"] and os.path.isdir(path)


@pytest.mark.parametrize("body", [{}, {"target": ""}, {"target": "x" * 5000}, {"target": 1}])
def test_what_is_no_link_is_refused(guest, folder, body):
    assert rpc(guest, "MakeLink", path=os.path.join(folder, "x"), **body).status == 400
    assert os.listdir(folder) == []


def test_a_list_tells_a_links_own_text(guest, folder):
    os.mkdir(os.path.join(folder, "dir"))
    os.symlink("dir", os.path.join(folder, "link"))
    entries = {one["name"]: one for one in rpc(guest, "ListDir", path=folder).json["entries"]}
    assert entries["link"]["link"] == "dir"
    assert entries["link"]["symlinkTarget"].endswith("/dir")
    assert "link" not in entries["dir"]


# --- POST /files?mode= -----------------------------------------------------------------------

def upload(guest, path, wanted):
    return guest.wire.upload(path, b"data", mode=wanted)


def test_an_upload_has_its_mode(guest, folder):
    path = os.path.join(folder, "file")
    for wanted in "600", "0755", "1777", "0":
        assert upload(guest, path, wanted).status == 200      # new, then in place
        assert mode(path) == int(wanted, 8)


@pytest.mark.parametrize("wanted", ["", "8", "-1", "2755", "4755", "77777", "0x1", "rwx"])
def test_an_upload_with_a_bad_mode_is_refused(guest, folder, wanted):
    assert upload(guest, os.path.join(folder, "file"), wanted).status == 400
    assert os.listdir(folder) == []
