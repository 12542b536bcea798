"""Files from and to URLs, with a real resolver and real redirects, in namespaces of their own and confined as
the server is: whatever a stranger writes, nobody but the public internet (here: 127.0.0.1, which is allowed)
hears of it. fetch_probe.c is what asks."""

import itertools
import os
import pathlib
import subprocess
import sys
import urllib.parse

import pytest

from helpers.guest import ROOT, SANITIZED, SLOWER

BUILD = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build"))
LAB = pathlib.Path(__file__).parent / "helpers/fetch_lab.py"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network and mount namespaces need root")
fresh = itertools.count()


class Lab:
    def __init__(self, where):
        self.where = where
        subprocess.run([BUILD / "cove", "tls", "init", "--data", where, "--domain", "box.test"], check=True,
                       capture_output=True)
        self.ca = where / "tls/ca.pem"
        pair = [where / "tls/server.pem", where / "tls/server.key"]
        self.process = subprocess.Popen(["unshare", "--net", "--mount", sys.executable, LAB, where, *pair],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def probe(self, *words, allow="127.0.0.1", confined=True):
        enter = ["nsenter", "--target", str(self.process.pid), "--net", "--mount"]
        options = ["-a", allow, "-c", str(self.ca)] + (["-d", str(self.where)] if confined else [])
        return subprocess.run([*enter, BUILD / "tests/e2e/fetch-probe", *options, *words],
                              capture_output=True, text=True, timeout=120 * SLOWER)

    def get(self, url, *options, **how):
        done = self.probe(*options, "get", url, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *words, **how):
        """The code and the sentence of an error, of which nothing may be secret."""
        done = self.probe(*words, **how)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "s3cret" not in done.stdout + done.stderr
        return done.stdout

    def hits(self):
        """What web servers saw since the last time."""
        path = self.where / "hits"
        text = path.read_text()
        path.write_text("")
        return text.splitlines()

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30 * SLOWER)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    where = tmp_path_factory.mktemp("lab")
    for path in [where, *where.parents[:2]]:    # another user asks
        path.chmod(0o755)
    lab = Lab(where)
    yield lab
    lab.close()


@pytest.fixture(autouse=True)
def nothing_heard(request):
    if "lab" in request.fixturenames:
        request.getfixturevalue("lab").hits()


def test_a_file_is_fetched_by_name_and_by_address(lab):
    assert lab.get("http://a-127-0-0-1.test/hello") == "hello"
    assert lab.get("http://127.0.0.1/hello") == "hello"
    assert lab.hits() == ["127.0.0.1 GET /hello "] * 2


def test_over_tls_the_certificate_decides(lab):
    assert lab.get("https://x.box.test/hello") == "hello"
    assert "certificate is refused" in lab.refused("get", "https://a-127-0-0-1.test/hello")
    machines_own = lab.refused("-c", "/etc/ssl/certs/ca-certificates.crt", "get", "https://x.box.test/hello")
    assert "certificate is refused" in machines_own
    assert lab.hits() == ["127.0.0.1 GET /hello "]


@pytest.mark.parametrize("host", [
    "127.0.0.2", "0.0.0.0", "169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1",
    "[::1]", "[::]", "[::ffff:127.0.0.2]", "[::ffff:a9fe:a9fe]", "[64:ff9b::169.254.169.254]",
    "[2002:a9fe:a9fe::]", "[::127.0.0.2]", "[fe80::1]", "[fd00::1]",
    "a-127-0-0-2.test", "a-169-254-169-254.test", "a-10-0-0-1.test", "two-127-0-0-1-10-0-0-1.test",
    "six.test", "mapped.test",
])
def test_an_inner_address_is_refused(lab, host):
    said = lab.refused("get", f"http://{host}/hello?s3cret")
    assert said.startswith("permission_denied "), said
    assert lab.hits() == []


def test_names_of_the_machines_own_file_are_judged_too(lab):
    said = lab.refused("get", "http://localhost/hello", allow="8.8.8.8")
    assert said.startswith("permission_denied localhost is this machine"), said
    assert lab.hits() == []


@pytest.mark.parametrize("host", [
    "2130706434", "0x7f000002", "017700000002", "0x7f.2", "127.2", "127.0.2", "0177.0.0.2", "127.0.0.0x2",
    "127.0.0.2%00.example", "\u2460\u2461\u2466.0.0.2", "127。0。0。2", "[::1%25lo]", "a@127.0.0.2@b",
    "a-127-0-0-1.test\\@127.0.0.2", "a-127-0-0-1.test#@127.0.0.2:x",
])
def test_another_spelling_of_an_address_is_refused(lab, host):
    done = lab.probe("get", f"http://{host}/hello")
    assert done.returncode == 1
    assert done.stdout.startswith(("invalid_argument ", "not_found ")) or "404" in done.stdout, done.stdout
    assert all(line.startswith("127.0.0.1 ") for line in lab.hits())


@pytest.mark.parametrize("there", [
    "http://127.0.0.2/hello", "http://169.254.169.254/latest/meta-data/", "http://[::1]/hello", "//127.0.0.2/hello",
    "http://a-127-0-0-2.test/hello", "http://2130706434/", "http://0x7f.2/", "file:///etc/passwd", "gopher://127.0.0.2/",
])
def test_a_redirect_inside_is_not_followed(lab, there):
    said = lab.refused("get", "http://a-127-0-0-1.test/to?" + urllib.parse.quote(there))
    assert said.startswith(("permission_denied ", "invalid_argument ")), said
    assert [line.split()[0] for line in lab.hits()] == ["127.0.0.1"]


def test_redirects_among_those_that_may_be_reached_are_followed(lab):
    twice = "/to?" + urllib.parse.quote("http://a-127-0-0-1.test/hello")
    assert lab.get("http://me:s3cret@127.0.0.1/to?" + urllib.parse.quote(twice)) == "hello"
    hits = lab.hits()
    assert len(hits) == 3
    assert "Basic" in hits[0] and "Basic" in hits[1]
    assert "Basic" not in hits[2]       # another host


def test_redirects_end(lab):
    name = "http://127.0.0.1/to?/to"
    assert "fetch.redirects" in lab.refused("get", name + urllib.parse.quote("?/to?/to?/to?/to?/to?/to?/to"))


def test_tls_is_not_given_up_by_a_redirect(lab):
    said = lab.refused("get", "https://x.box.test/to?http://x.box.test/hello")
    assert "from https to http" in said
    assert len(lab.hits()) == 1


def test_a_name_that_changes_its_address_leads_nowhere_else(lab):
    """One lookup for each connection: what was judged is what is connected to."""
    name = f"rebind-{next(fresh)}.test"
    assert lab.get(f"http://{name}/hello") == "hello"
    assert lab.refused("get", f"http://{name}/hello").startswith("permission_denied ")
    name = f"rebind-{next(fresh)}.test"
    said = lab.refused("get", f"http://{name}/to?" + urllib.parse.quote(f"http://{name}/latest/meta-data/"))
    assert said.startswith("permission_denied ")
    assert {line.split()[0] for line in lab.hits()} == {"127.0.0.1"}


def test_bounds_hold(lab):
    assert "fetch.max-bytes=10" in lab.refused("-m", "10", "get", "http://127.0.0.1/big?11")
    assert len(lab.get("http://127.0.0.1/big?3000000")) == 3000000
    assert "fetch.total-ms=500" in lab.refused("-t", "500", "get", "http://127.0.0.1/drip")
    assert lab.refused("-t", "1500", "get", "http://slow.test/").startswith(("deadline_exceeded ", "unavailable "))


def test_a_name_that_is_not_there_is_said(lab):
    assert lab.refused("get", "http://none.test/s3cret").startswith("not_found there is no host none.test")


def test_a_file_is_sent_and_follows_only_where_it_may(lab):
    done = lab.probe("put", "http://a-127-0-0-1.test/up?sig=s3cret", "some text")
    assert done.returncode == 0, done.stdout
    assert lab.hits() == ["127.0.0.1 PUT /up?sig=s3cret some text"]
    done = lab.probe("put", "http://127.0.0.1/to?" + urllib.parse.quote("http://a-127-0-0-1.test/up"), "some text")
    assert done.returncode == 0, done.stdout
    assert lab.hits() == ["127.0.0.1 PUT /to?http%3A//a-127-0-0-1.test/up ", "127.0.0.1 PUT /up some text"]
    said = lab.refused("put", "http://127.0.0.1/to?http://127.0.0.2/up", "some text")
    assert said.startswith("permission_denied ")
    assert [line.split()[0] for line in lab.hits()] == ["127.0.0.1"]


def test_an_address_of_the_machine_is_its_own_even_where_it_is_public(lab):
    enter = ["nsenter", "--target", str(lab.process.pid), "--net", "--mount"]
    subprocess.run([*enter, "ip", "addr", "add", "8.8.4.4/32", "dev", "lo"], check=True)
    try:
        assert "is this machine" in lab.refused("get", "http://8.8.4.4/hello")
        assert "is this machine" in lab.refused("get", "http://a-8-8-4-4.test/hello")
        assert lab.hits() == []
        assert lab.get("http://8.8.4.4/hello", allow="127.0.0.1,8.8.4.4") == "hello"
    finally:
        subprocess.run([*enter, "ip", "addr", "del", "8.8.4.4/32", "dev", "lo"], check=True)


def test_proxies_of_the_environment_are_not_used(lab, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.2:80")
    assert lab.get("http://a-127-0-0-1.test/hello") == "hello"
    assert lab.hits() == ["127.0.0.1 GET /hello "]


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's build is not confined")
def test_confined_it_sees_nothing_but_what_it_needs(lab):
    """The operator's certificates are shown, other files of the same directory are not."""
    hidden = lab.where / "tls/server.key"
    done = lab.probe("-c", str(hidden), "get", "https://x.box.test/hello")
    assert done.returncode == 2
    assert "--fetch-ca" in done.stderr


@pytest.mark.parametrize("words, said", [
    (["--fetch-allow", "10.0.0.1/8"], "--fetch-allow: '10.0.0.1/8' has bits behind its prefix of 8"),
    (["--fetch-allow", "10.0.0.0/8,example.org"], "--fetch-allow: 'example.org' is no address prefix"),
    (["--fetch-ca", "/nowhere/ca.pem"], "--fetch-ca /nowhere/ca.pem: No such file or directory"),
])
def test_a_slip_in_an_option_is_told_before_anything_starts(words, said, tmp_path):
    done = subprocess.run([BUILD / "cove", "serve", "--data", tmp_path / "data", "--run-dir", tmp_path / "run", *words],
                          capture_output=True, text=True, timeout=60 * SLOWER)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "data").exists()
