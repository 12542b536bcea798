"""A small internet for the tests of fetch, in network and mount namespaces of its own: a name server that
changes its mind, web servers on addresses that may be reached and on others that must not be.

Run as a program: fetch_lab.py DIR [CERTIFICATE KEY]. It says "ready" once everything listens, writes a line
for each request that a web server saw to DIR/hits, and ends with its standard input.

Names: a-127-0-0-1.test is that address; two-A-B.test has both; rebind-N.test is 127.0.0.1 when it is looked
up first and 169.254.169.254 from then on; six.test is ::1; mapped.test is ::ffff:127.0.0.2; slow.test is never
answered; x.box.test is 127.0.0.1. 127.0.0.1 is what the tests allow."""

import http.server
import pathlib
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from helpers import dns                                                 # noqa: E402

GOOD, METADATA = "127.0.0.1", "169.254.169.254"
NAME_SERVER = "127.0.0.53"
seen = {}                               # rebind-N.test: how often it was looked up


def dotted(text):
    return text.replace("-", ".")


def addresses_of(name, kind):
    """None: no such name; [] none of that type; False: no answer at all."""
    if name == "slow.test":
        return False
    if name == "six.test":
        return ["::1"] if kind == dns.AAAA else []
    if name == "mapped.test":
        return ["::ffff:127.0.0.2"] if kind == dns.AAAA else []
    if kind != dns.A:
        return [] if name.endswith(".test") and not name.startswith("none") else None
    if name.startswith("rebind-"):
        seen[name] = seen.get(name, 0) + 1
        return [GOOD if seen[name] == 1 else METADATA]
    if name.startswith("a-"):
        return [dotted(name[2:-len(".test")])]
    if name.startswith("two-"):
        parts = name[4:-len(".test")].split("-")
        return [".".join(parts[:4]), ".".join(parts[4:])]
    return [GOOD] if name.endswith(".box.test") else None


def serve_names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((NAME_SERVER, 53))
    while True:
        query, sender = server.recvfrom(4096)
        name, kind, _ = dns.question(query)
        found = addresses_of(name, kind)
        if found is not False:
            server.sendto(dns.reply(query, found), sender)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hits = None

    def note(self, extra=""):
        with open(self.hits, "a") as f:
            f.write(f"{self.connection.getsockname()[0]} {self.command} {self.path} {extra}\n")

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.note(self.headers.get("Authorization", ""))
        path, _, query = self.path.partition("?")
        if path == "/to":
            return self.say(302, Location=urllib.parse.unquote(query))
        if path == "/big":
            return self.say(200, b"x" * int(query))
        if path == "/drip":
            return self.drip()
        return self.say(200 if path == "/hello" else 404, b"hello")

    def drip(self):
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(b"x")
            time.sleep(0.05)

    def do_PUT(self):
        path, _, query = self.path.partition("?")
        if path == "/to":
            self.note()
            return self.say(307, Location=urllib.parse.unquote(query))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.note(body.decode())
        return self.say(200)

    def handle_expect_100(self):
        return True if self.path.startswith("/to?") else super().handle_expect_100()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):         # clients leave in the middle, on purpose
        pass


class Server6(Server):
    address_family = socket.AF_INET6


def main():
    where = pathlib.Path(sys.argv[1])
    for line in (f"link set lo up|addr add {METADATA}/32 dev lo").split("|"):
        subprocess.run(["ip", *line.split()], check=True)
    (where / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\noptions timeout:1 attempts:1\n")
    subprocess.run(["mount", "--bind", where / "resolv.conf", "/etc/resolv.conf"], check=True)
    Web.hits = where / "hits"
    Web.hits.write_text("")
    servers = [Server(("0.0.0.0", 80), Web), Server6(("::1", 80), Web)]
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2], sys.argv[3])
        servers.append(Server((GOOD, 443), Web))
        servers[-1].socket = context.wrap_socket(servers[-1].socket, server_side=True)
    for target in [serve_names] + [s.serve_forever for s in servers]:
        threading.Thread(target=target, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
