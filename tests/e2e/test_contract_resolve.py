"""The contract's URLs by names, in the confined server itself: a name server that changes its mind, redirects
to names, and a certificate by the operator's own CA. Names are looked up by a resolv.conf that only the server
and its family see."""

import http.server
import itertools
import os
import pathlib
import ssl
import subprocess
import threading
import urllib.parse

import pytest

from helpers import dns
from helpers.contract import Contract, add_user
from helpers.guest import ROOT
from helpers.serve import Serve

BUILD = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build"))
# Of 127/8, and not those of another test or checkout: only GOOD may be reached.
NET = f"127.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}"
GOOD, INNER, NAME_SERVER = f"{NET}.1", f"{NET}.2", f"{NET}.53"
SEE = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
fresh = itertools.count()

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to limit, map and mount")


class Names(dns.Dns):
    """good.test, *.box.test: GOOD; inner.test: INNER; both.test: either; rebind-N.test: GOOD once, then INNER;
    slow.test has no answer."""

    def __init__(self):
        self.asked = {}
        super().__init__("test", NAME_SERVER)

    def addresses_of(self, name, kind):
        if kind != dns.A:
            return [] if name.endswith(".test") else None
        if name.startswith("rebind-"):
            self.asked[name] = self.asked.get(name, 0) + 1
            return [GOOD] if self.asked[name] == 1 else [INNER]
        if name.endswith(".box.test"):
            return [GOOD]
        return {"good.test": [GOOD], "inner.test": [INNER], "both.test": [GOOD, INNER]}.get(name)

    def serve(self):
        while True:
            query, sender = self.socket.recvfrom(4096)
            if not query:
                return
            name, kind, _ = dns.question(query)
            if name == "slow.test":
                continue
            self.socket.sendto(dns.reply(query, self.addresses_of(name, kind)), sender)


class Web(http.server.BaseHTTPRequestHandler):
    """/file, /to?URL, and whatever is PUT; remembers whom it was reached as."""

    protocol_version = "HTTP/1.1"
    seen = []

    def answer(self, status, body=b"", **headers):
        self.seen.append((self.connection.getsockname()[0], self.command, self.path.split("?")[0]))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/to":
            return self.answer(307, Location=urllib.parse.unquote(query))
        return self.answer(200, b"far away")

    def do_PUT(self):
        if self.path.startswith("/to?"):
            return self.do_GET()
        self.rfile.read(int(self.headers["Content-Length"]))
        return self.answer(200)

    def handle_expect_100(self):
        return True if self.path.startswith("/to?") else super().handle_expect_100()

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):         # clients that do not trust us leave in the middle
        pass


class Far:
    """Web servers on both addresses, on one port, and one with TLS."""

    def __init__(self, pair):
        self.servers = [Quiet((GOOD, 0), Web)]
        self.port = self.servers[0].server_port
        self.servers += [Quiet((INNER, self.port), Web), Quiet((GOOD, 0), Web)]
        self.tls_port = self.servers[2].server_port
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        self.servers[2].socket = context.wrap_socket(self.servers[2].socket, server_side=True)
        self.threads = [threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.05}) for s in self.servers]
        for thread in self.threads:
            thread.start()

    def url(self, name, path="/file"):
        return f"http://{name}:{self.port}{path}"

    def to(self, name, there):
        return self.url(name, "/to?" + urllib.parse.quote(there))

    def close(self):
        for server, thread in zip(self.servers, self.threads):
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(scope="module")
def far(workspace):
    made = pathlib.Path(workspace) / "resolve-tls"
    subprocess.run([BUILD / "cove", "tls", "init", "--data", made, "--domain", "box.test"], check=True,
                   capture_output=True)
    made.chmod(0o755)
    (made / "tls").chmod(0o755)
    (made / "tls/ca.pem").chmod(0o644)
    far = Far([made / "tls/server.pem", made / "tls/server.key"])
    far.ca = made / "tls/ca.pem"
    yield far
    far.close()


@pytest.fixture(scope="module")
def user(workspace, far):
    resolv = pathlib.Path(workspace) / "resolv.conf"
    resolv.write_text(f"nameserver {NAME_SERVER}\noptions timeout:2 attempts:2\n")
    names = Names()

    class There(Serve):
        before = ["unshare", "--mount", "sh", "-c", SEE, str(resolv)]

    started = There(pathlib.Path(workspace) / "contract-resolve", "--ephemeral", "--fetch-allow", GOOD,
                    "--fetch-ca", far.ca)
    user = Contract(started, add_user(started, "rita"))
    user.box = user.create()["sandbox_id"]
    user.write(user.box, "/tmp/leaves", "text that leaves")
    user.server_log = started.log
    yield user
    started.close()
    names.close()


@pytest.fixture(autouse=True)
def nobody_seen():
    Web.seen.clear()


def pull(user, url):
    return user.call("POST", "upload-file-from-url", {"sandbox_id": user.box, "file_path": "/tmp/pulled", "url": url})


def push(user, url):
    return user.call("POST", "download-to-presigned-url",
                     {"sandbox_id": user.box, "sandbox_path": "/tmp/leaves", "presigned_url": url})


def reached():
    return {address for address, _, _ in Web.seen}


def test_a_name_is_looked_up_in_the_confined_server(user, far):
    assert pull(user, far.url("good.test")).status == 200
    assert push(user, far.url("good.test")).status == 200
    assert reached() == {GOOD}


@pytest.mark.parametrize("name", ["inner.test", "both.test", "localhost"])
def test_a_name_of_an_inner_address_is_refused(user, far, name):
    for how in (pull, push):
        reply = how(user, far.url(name))
        assert reply.status in (403, 422), reply
    assert Web.seen == []


def test_a_name_that_is_bound_anew_gains_nothing(user, far):
    for how in (pull, push):
        name = f"rebind-{next(fresh)}.test"
        assert how(user, far.url(name)).status == 200
        assert how(user, far.url(name)).status in (403, 422)
        name = f"rebind-{next(fresh)}.test"
        assert how(user, far.to(name, far.url(name))).status in (403, 422)
    assert reached() == {GOOD}


def test_redirects_go_where_they_may(user, far):
    for how in (pull, push):
        assert how(user, far.to("good.test", far.url("good.test"))).status == 200
        for there in (far.url("inner.test"), far.url(INNER), far.url("[::1]"), "http://2130706433/", "//" + INNER):
            assert how(user, far.to("good.test", there)).status in (403, 422), there
    assert reached() == {GOOD}


def test_the_operators_certificates_are_trusted_by_name(user, far):
    assert pull(user, f"https://x.box.test:{far.tls_port}/file").status == 200
    assert push(user, f"https://x.box.test:{far.tls_port}/file").status == 200
    Web.seen.clear()
    assert pull(user, f"https://good.test:{far.tls_port}/file").status >= 400
    there = urllib.parse.quote(far.url("good.test"))
    assert pull(user, f"https://x.box.test:{far.tls_port}/to?{there}").status >= 400
    assert [path for _, _, path in Web.seen] == ["/to"]


def test_what_is_secret_in_a_url_is_in_no_log(user, far):
    for name in ("good.test", "inner.test", "none.test"):
        pull(user, f"http://me:pa55word@{name}:{far.port}/file?sig=s1gnature")
    text = user.server_log.read_text()
    assert "pa55word" not in text and "s1gnature" not in text


def test_a_name_server_that_does_not_answer_holds_nobody_else_up(user, far):
    replies = []
    waiting = [threading.Thread(target=lambda: replies.append(pull(user, far.url("slow.test")))) for _ in range(6)]
    for thread in waiting:
        thread.start()
    assert user.run(user.box, "echo still here")["success"] is True
    for thread in waiting:
        thread.join()
    assert len(replies) == 6
    assert all(reply.status >= 400 for reply in replies), replies
    assert pull(user, far.url("good.test")).status == 200
