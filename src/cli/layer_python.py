"""layer_python.py - builds the Python layer inside a builder sandbox; `cove layer add python` runs it.

Arguments: requirements. Standard output: a tar of opt/cove/python, the same bytes for the same
files. Standard error: what it is doing. Needs nothing but the standard library: uv is fetched from
the package index by hand, since a template may have neither pip nor uv.
"""
import glob
import hashlib
import html
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

PLACE = "/opt/cove/python"
ROOT = "/tmp/layer"  # what is in force now may be seen at its place already
LAYER = ROOT + PLACE
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
WHEELS = "/wheels"  # the operator's own, where he has some


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(1)


def usual_index():
    """The one that pip has when nobody names another: installed, or as Debian keeps it for new environments."""
    sys.path += sorted(glob.glob("/usr/share/python-wheels/pip-*.whl"))
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        fail("no package index is known: give --index URL, or set index-url in pip.conf")
    return PyPI.simple_url


def indexes():
    first = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL") \
        or os.environ.get("PIP_INDEX_URL") or usual_index()
    more = os.environ.get("UV_EXTRA_INDEX_URL") or os.environ.get("PIP_EXTRA_INDEX_URL") or ""
    return [first, *more.split()]


def fetch(url, accept="*/*"):
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "cove-layer"})
    if parts.username:
        host = parts.hostname + (f":{parts.port}" if parts.port else "")
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=host)),
                                         headers=dict(request.header_items()))
        import base64
        request.add_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read(), answer.headers.get_content_type(), answer.geturl()


def files_of(index):
    """(name, address, sha256 or None) of every file that the index has of uv."""
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    body, kind, base = fetch(index.rstrip("/") + "/uv/", accept)
    if kind.endswith("json"):
        for file in json.loads(body)["files"]:
            yield file["filename"], urllib.parse.urljoin(base, file["url"]), file.get("hashes", {}).get("sha256")
        return
    for link in re.findall(r'<a[^>]*href="([^"]+)"', body.decode("utf-8", "replace")):
        address = urllib.parse.urljoin(base, html.unescape(link))
        path, _, fragment = address.partition("#")
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        yield urllib.parse.unquote(path.rsplit("/", 1)[-1]), path, digest


def version_key(name):
    return [int(n) for n in re.findall(r"\d+", name.split("-")[1])]


def runs_here(name):
    libc = "musllinux" if not platform.libc_ver()[0] else "manylinux"
    return name.startswith("uv-") and name.endswith(f"_{platform.machine()}.whl") and libc in name \
        and re.fullmatch(r"[0-9.]+", name.split("-")[1])


def download_uv():
    """Name and bytes of the newest wheel that the first index with any has."""
    problem = "no index has uv for this machine"
    for index in indexes():
        try:
            wheels = [file for file in files_of(index) if runs_here(file[0])]
        except (OSError, ValueError, KeyError) as error:
            problem = f"the package index cannot be read: {error}"
            continue
        if wheels:
            name, address, digest = max(wheels, key=lambda file: version_key(file[0]))
            break
    else:
        fail(problem)
    say(f"fetching {name}")
    body = fetch(address)[0]
    if digest and hashlib.sha256(body).hexdigest() != digest:
        fail(f"{name} is not what the index says it is")
    return name, body


def fetch_uv(target):
    """A wheel is a zip: the program is in its .data/scripts."""
    given = [name for name in os.listdir(WHEELS) if runs_here(name)] if os.path.isdir(WHEELS) else []
    if given:
        name = max(given, key=version_key)
        with open(f"{WHEELS}/{name}", "rb") as file:
            body = file.read()
    else:
        name, body = download_uv()
    with zipfile.ZipFile(io.BytesIO(body)) as wheel:
        script = next(n for n in wheel.namelist() if n.endswith("/scripts/uv"))
        with wheel.open(script) as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
    os.chmod(target, 0o755)


def install(uv, requirements):
    version = "%d.%d" % sys.version_info[:2]
    target = f"{LAYER}/lib/python{version}/site-packages"
    os.makedirs(target)
    environment = dict(os.environ, UV_CACHE_DIR="/tmp/uv-cache", UV_LINK_MODE="copy", UV_NO_CONFIG="1")
    if not environment.get("SSL_CERT_FILE") and os.path.exists(CERTIFICATES):
        environment["SSL_CERT_FILE"] = CERTIFICATES
    wheels = ["--find-links", WHEELS] if os.path.isdir(WHEELS) else []
    command = [uv, "pip", "install", "--no-progress", "--python", sys.executable, "--target", target,
               *wheels, "--", *requirements]
    if subprocess.run(command, env=environment, stdout=sys.stderr).returncode:
        fail("the packages could not be installed")
    say("compiling")
    # by hash, not by time: times are not the same in every build, and the layer's are all zero
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode",
                    "unchecked-hash", "-s", ROOT, "-p", "/", target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for folder, _, files in os.walk(target):
        for name in files:
            if name in ("uv_cache.json", "direct_url.json"):  # when and where it was built
                os.unlink(os.path.join(folder, name))


def clean(info):
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = "root"
    info.mode = 0o755 if info.isdir() or info.mode & 0o111 else 0o644
    return info


def write_tar():
    names = [LAYER]
    for folder, dirs, files in os.walk(LAYER):
        names += [os.path.join(folder, name) for name in dirs + files]
    say(f"packing {len(names)} files")
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for name in [f"{ROOT}/opt", f"{ROOT}/opt/cove", *sorted(names)]:
            tar.add(name, name[len(ROOT) + 1:], recursive=False, filter=clean)


def main():
    os.umask(0o022)
    os.makedirs(f"{LAYER}/bin")
    fetch_uv(f"{LAYER}/bin/uv")
    say("installing " + ", ".join(sys.argv[1:]))
    install(f"{LAYER}/bin/uv", sys.argv[1:])
    write_tar()


main()
