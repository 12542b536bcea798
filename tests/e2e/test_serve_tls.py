"""The whole platform over TLS with a private CA, as a user sets it up who has a domain: `cove tls init`,
`cove serve --domain`, and clients that know nothing but E2B_DOMAIN and the CA. The server has port 443 of
a loopback address of its own; the clients, unmodified SDKs in processes of their own, have a resolv.conf
that only they see, with a name server that knows the domain."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from helpers import node
from helpers.cove import CLEAR, COVE
from helpers.dns import Dns
from helpers.guest import ROOT, SLOWER
from helpers.serve import Serve

pytestmark = pytest.mark.sdk

DOMAIN = "cove-e2e.test"
ECHO = pathlib.Path(os.environ.get("COVE_BUILD", ROOT / "build")) / "tests/e2e/ws-echo"
CLIENTS = pathlib.Path(__file__).parent / "tls"


class Secure:
    """A server at https://api.DOMAIN, and programs that can reach it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.made = json.loads(subprocess.run(
            [COVE, "tls", "init", "--json", "--data", self.folder / "tls-data", "--domain", DOMAIN],
            env=CLEAR, check=True, capture_output=True).stdout)
        # an address of this run's own, so that two checkouts can be tested side by side
        self.address = "127.%d.%d.%d" % (1 + os.getpid() % 250, os.urandom(1)[0], 1 + os.getpid() % 100)
        self.server = Serve(self.folder, "--ephemeral", "--domain", DOMAIN, "--preview-listen", "none",
                            "--tls-cert", self.made["certificate"], "--tls-key", self.made["key"],
                            listen=f"{self.address}:443")
        self.resolver = self.folder / "resolv.conf"
        self.resolver.write_text(f"nameserver {self.address}\n")
        self.dns = Dns(DOMAIN, self.address)

    def close(self):
        self.dns.close()
        self.server.close()

    def run(self, program, *words, ca=True):
        """In a mount namespace whose resolv.conf is ours."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        env |= {"E2B_DOMAIN": DOMAIN, "E2B_API_KEY": self.server.key, "COVE_ECHO": str(ECHO),
                "RESOLVER": str(self.resolver)}
        env |= {"SSL_CERT_FILE": self.made["ca"], "NODE_EXTRA_CA_CERTS": self.made["ca"]} if ca else {}
        mount = 'mount --bind "$RESOLVER" "$(realpath /etc/resolv.conf)" && exec "$@"'
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", program, *words],
            env=env, capture_output=True, text=True, timeout=60 * SLOWER)


@pytest.fixture(scope="module")
def secure(workspace):
    if os.geteuid() != 0:
        pytest.skip("needs root, to limit, map and mount")
    made = Secure(os.path.join(workspace, "tls"))
    yield made
    made.close()


def program(name):
    return (sys.executable if name.endswith(".py") else node.NODE), CLIENTS / name


@pytest.mark.core
@pytest.mark.parametrize("name", ["client.py", "client_async.py", "client.js"])
def test_the_sdks_need_the_domain_and_the_ca_alone(secure, name):
    """Everything a client does, at names below the domain: see the programs in tls/."""
    done = secure.run(*program(name))
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all is well"]), \
        done.stdout + done.stderr


@pytest.mark.core
@pytest.mark.parametrize("name", ["client.py", "client.js"])
def test_the_sdks_refuse_a_server_that_they_do_not_trust(secure, name):
    done = secure.run(*program(name), ca=False)
    assert done.returncode != 0 and "all is well" not in done.stdout
    assert "certificate" in (done.stdout + done.stderr).lower()
