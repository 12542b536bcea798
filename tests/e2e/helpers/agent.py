"""Runs inside a sandbox, on the Python that is there, and does what there.py and js/there.js ask for:
calls a function of the standard library and tells what it gave. One line of JSON each way.

{"call": "os.listdir", "args": [...], "kwargs": {...}}  ->  {"value": ...} or {"errno": n, "error": "..."}

What JSON does not have is wrapped: bytes as {"bytes": base64}, a file that was opened as {"file": n}
(its methods are then called as "n.read"), any other struct as {"fields": {...}}."""

import base64
import builtins
import importlib
import json
import sys
import types

opened = {}


def resolve(name):
    """"os.path.exists": the function; "3.read": a method of the third file that was opened."""
    first, *rest = name.split(".")
    if first in opened:
        found = opened[first]
    else:
        found = builtins if first == "builtins" else importlib.import_module(first)
    for part in rest:
        found = getattr(found, part)
    return found


def unwrap(value):
    if isinstance(value, list):
        return tuple(map(unwrap, value))
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value


def wrap(value):
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    if hasattr(value, "fileno"):
        opened[str(value.fileno())] = value
        return {"file": str(value.fileno())}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(value)}
    names = getattr(value, "_fields", [name for name in dir(value)
                                       if name.startswith(("st_", "pw_", "gr_"))])
    if names:
        return {"fields": {name: getattr(value, name) for name in names}}
    return [wrap(one) for one in value] if isinstance(value, (list, tuple)) else value


def answer(request):
    try:
        found = resolve(request["call"])
        kwargs = {name: unwrap(value) for name, value in request["kwargs"].items()}
        return {"value": wrap(found(*map(unwrap, request["args"]), **kwargs))}
    except OSError as error:
        return {"errno": error.errno, "error": error.strerror}
    except Exception as error:          # pylint: disable=broad-except
        return {"errno": 0, "error": repr(error)}


def main():
    hello = json.loads(sys.stdin.readline())
    for name, source in hello["modules"].items():
        sys.modules[name] = module = types.ModuleType(name)
        exec(source, module.__dict__)   # pylint: disable=exec-used
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


main()
