"""What a user of the Python SDK does with a server of its own domain; run by test_serve_tls.py."""

import os
import ssl
import sys
import urllib.error
import urllib.request

from e2b import Sandbox
from websockets.sync.client import connect


def fetch(url, body=None, **headers):
    request = urllib.request.Request(url, body, {k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


context = ssl.create_default_context()          # it reads SSL_CERT_FILE as the SDK does
sandbox = Sandbox.create(timeout=60, envs={"A": "1"})
assert sandbox.sandbox_domain == os.environ["E2B_DOMAIN"], sandbox.sandbox_domain

# commands, files and lists
assert sandbox.commands.run("echo $A").stdout == "1\n"
data = os.urandom(3 << 20)
sandbox.files.write("data", data)
assert bytes(sandbox.files.read("data", format="bytes")) == data
assert sandbox.is_running()
assert sandbox.sandbox_id in {info.sandbox_id for info in Sandbox.list().next_items()}
assert Sandbox.connect(sandbox.sandbox_id).files.exists("data")
handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
handle.send_stdin("this\n")
assert handle.wait().stdout == "got this\n"

# signed URLs, as a browser would follow them
url = sandbox.download_url("data", use_signature_expiration=60)
assert url.startswith(f"https://49983-{sandbox.sandbox_id}.{os.environ['E2B_DOMAIN']}/files?"), url
assert fetch(url) == (200, data)
assert fetch(url.replace("signature=v1_", "signature=v1_x"))[0] == 401
form = (b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nup\r\n--b--\r\n")
assert fetch(sandbox.upload_url("up"), form,
             Content_Type="multipart/form-data; boundary=b")[0] == 200
assert sandbox.files.read("up") == "up"

# ports
assert fetch(f"https://{sandbox.get_host(8000)}/")[0] == 502
sandbox.files.write("www/index.html", "hello")
sandbox.commands.run("exec python3 -m http.server -d www 8000", background=True, timeout=0)
sandbox.commands.run("until bash -c '>/dev/tcp/127.0.0.1/8000' 2>/dev/null; do sleep 0.02; done")
assert fetch(f"https://{sandbox.get_host(8000)}/") == (200, b"hello")
with open(os.environ["COVE_ECHO"], "rb") as program:
    sandbox.files.write("ws-echo", program)
handle = sandbox.commands.run("chmod +x ws-echo; exec ./ws-echo 9000", background=True, timeout=0)
assert next(iter(handle))[0] == "ready 9000\n"
with connect(f"wss://{sandbox.get_host(9000)}/", ssl=context, max_size=None) as ws:
    for message in ("žluť", data):
        ws.send(message)
        assert ws.recv(20) == message

assert sandbox.kill() is True
assert sandbox.is_running() is False
sys.stdout.write("all is well\n")
