"""The typed client of a machine's REST service, made from the document that the machine itself serves.

Each machine has a directory of its own, and its package is imported under a name of its own: two machines with
different documents do not see each other's client."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Dict

import httpx

from .errors import VMOperationError

PACKAGE = "sandbox_rest_server_client"
_STAMP = ".document"
_FETCH_S = 30.0
_GENERATE_S = 600  # of a document of any size that is read; usually it is one second
_DOCUMENT_MAX = 8 << 20
# Where a document has names, which the client's own are made of; `key` is every key.
_NAMES = ("key", "$ref", "const", "enum", "format", "in", "name", "operationId", "required", "type")
_numbers = itertools.count(1)

# Operation of the document -> module of the generated client.
MODULES = {
    "health": "health_check_health_get",
    "execute": "run_code_execute_post",
    "screenshot": "screenshot_endpoint_screenshot_get",
    "packages": "get_installed_packages_packages_get",
    "record": "record_record_get",
}


class GeneratedClient:
    """Made, imported and ready."""

    def __init__(self, base_url: str, output: Path, force: bool = False) -> None:
        document = _fetch(base_url)
        self.regenerated = _generate(document, output, force)
        self.package = _import(output / PACKAGE)
        module = importlib.import_module(f"{self.package.__name__}.client")
        # Code that runs in a service may take as long as it likes: the caller's patience is the limit.
        self.client: Any = module.Client(base_url=base_url, timeout=httpx.Timeout(10, read=None))

    def call(self, operation: str, **arguments: Any) -> Any:
        """`.sync_detailed(client=...).parsed`, as plain dicts and lists."""
        name = f"{self.package.__name__}.api.default.{MODULES[operation]}"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            raise VMOperationError(
                f"the machine's service has no operation {MODULES[operation]}"
            ) from None
        try:
            reply = module.sync_detailed(client=self.client, **arguments)
        except httpx.TransportError as problem:
            raise VMOperationError(f"the machine's service does not answer: {problem}") from problem
        except Exception as problem:  # an answer that is not what its own document says, in any way
            raise VMOperationError(
                f"the machine's service gave an answer to {operation} that cannot be read: {problem!r}"
            ) from problem
        if reply.parsed is not None:
            return plain(reply.parsed)
        try:  # a schema without a type gives nothing parsed
            return json.loads(reply.content)
        except ValueError:
            raise VMOperationError(
                f"the machine's service answered {int(reply.status_code)}"
            ) from None

    def model(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package.__name__}.models"), name)

    def close(self) -> None:
        """Twice is once."""
        self.client.get_httpx_client().close()
        for name in [n for n in sys.modules if n.split(".")[0] == self.package.__name__]:
            del sys.modules[name]


def an_object(answer: Any, operation: str) -> Dict[str, Any]:
    """What most operations answer with; a service inside may say anything."""
    if not isinstance(answer, dict):
        raise VMOperationError(f"the machine's service answered {operation} with {answer!r:.200}")
    return dict(answer)


def plain(parsed: Any) -> Any:
    if isinstance(parsed, list):
        return [plain(item) for item in parsed]
    return parsed.to_dict() if hasattr(parsed, "to_dict") else parsed


def _fetch(base_url: str) -> bytes:
    url, raw = f"{base_url}/openapi.json", b""
    try:
        with httpx.stream("GET", url, timeout=_FETCH_S, trust_env=False) as reply:
            reply.raise_for_status()
            for piece in reply.iter_bytes():
                raw += piece
                if len(raw) > _DOCUMENT_MAX:
                    raise VMOperationError(f"{url} is larger than {_DOCUMENT_MAX >> 20} MiB")
        document = json.loads(raw)
    except (httpx.HTTPError, ValueError, RecursionError) as problem:
        raise VMOperationError(f"{url}: {problem or type(problem).__name__}") from problem
    if not isinstance(document, dict):
        raise VMOperationError(f"{url} is not a document")
    try:
        return json.dumps(harmless(document), sort_keys=True).encode()
    except (ValueError, RecursionError) as problem:
        raise VMOperationError(f"{url}: {problem}") from None


def harmless(part: Any, place: str = "") -> Any:
    """The document without texts that could end a string of a program: the client made of it is code that
    runs here, and the document is what the machine says. Prose can be left out; names cannot.

    >>> harmless({"description": 'say "hi"', "type": "string"})
    {'type': 'string'}
    >>> harmless({"operationId": 'a" + b'})
    Traceback (most recent call last):
    ...
    ValueError: operationId 'a" + b' has a character that no name has
    """
    if isinstance(part, dict):
        return {
            harmless(key, "key"): harmless(value, key)
            for key, value in part.items()
            if key in _NAMES or not _harmful(value)
        }
    if isinstance(part, list):
        return [harmless(item, place) for item in part if place in _NAMES or not _harmful(item)]
    if _harmful(part):
        raise ValueError(f"{place} {part[:60]!r} has a character that no name has")
    return part


def _harmful(part: Any) -> bool:
    return (
        isinstance(part, str)
        and re.search("[\\x00-\\x1f\\x7f\\u2028\\u2029\"'`\\\\]", part) is not None
    )


def _generate(document: bytes, output: Path, force: bool) -> bool:
    """Whether it had to be: the document may have changed, or somebody wants it."""
    stamp = hashlib.sha256(document).hexdigest()
    note = output / _STAMP
    if not force and note.exists() and note.read_text() == stamp and (output / PACKAGE).is_dir():
        return False
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(document)
        file.flush()
        command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", file.name]
        command += ["--output-path", str(output), "--overwrite"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_GENERATE_S)
        except subprocess.TimeoutExpired:
            raise VMOperationError(
                f"openapi-python-client made no client in {output} within {_GENERATE_S} s"
            ) from None
    if done.returncode != 0 or not (output / PACKAGE).is_dir():
        said = (done.stderr or done.stdout).strip()[-1000:]
        raise VMOperationError(f"openapi-python-client made no client in {output}: {said}")
    note.write_text(stamp)
    return True


def _import(path: Path) -> ModuleType:
    name = f"{PACKAGE}_{next(_numbers)}"
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(
        name, path / "__init__.py", submodule_search_locations=[str(path)]
    )
    if spec is None or spec.loader is None:
        raise VMOperationError(f"{path} is not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
