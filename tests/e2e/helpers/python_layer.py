"""A Python layer for tests, made in a second from the packages of the kernels' tests: what `cove layer add python`
downloads is tested in test_layer.py."""

import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".cache/venv-kernels/bin/python"

# Every file of ipykernel and of what it needs, below site-packages, and what Python has compiled of them.
CLOSURE = r"""
import importlib.metadata as m, importlib.util, os, re, sys
done, todo = set(), ["ipykernel"]
print("python%d.%d" % sys.version_info[:2])
while todo:
    name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
    if name in done:
        continue
    done.add(name)
    try:
        found = m.distribution(name)
    except m.PackageNotFoundError:
        continue
    todo += [re.match(r"[A-Za-z0-9._-]+", r)[0] for r in found.requires or [] if "extra ==" not in r]
    for file in found.files or []:
        if str(file).startswith("..") or "/tests/" in str(file) or str(file).endswith(".pyc"):
            continue
        print(found.locate_file(file), file, sep="\t")
        if str(file).endswith(".py"):
            cached = importlib.util.cache_from_source(str(file))
            if os.path.exists(found.locate_file(cached)):
                print(found.locate_file(cached), cached, sep="\t")
"""


def why_not():
    return None if PYTHON.exists() else "no ipykernel on this machine: tools/deps kernels"


def put(data):
    """As the command leaves one behind, in a data directory."""
    version, *files = subprocess.run([PYTHON, "-c", CLOSURE], capture_output=True, text=True, check=True).stdout.splitlines()
    layers = pathlib.Path(data) / "layers"
    site = layers / "python-test/rootfs/opt/cove/python/lib" / version / "site-packages"
    for line in files:
        source, name = line.split("\t")
        if not pathlib.Path(source).is_file():
            continue
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)        # with its time: what is compiled is of the source of that moment
    (layers / "python").symlink_to("python-test")
