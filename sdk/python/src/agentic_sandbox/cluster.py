"""The sandbox is a pod of a Kubernetes cluster with the agent-sandbox controller.

Both generations of its resources: with v1alpha1 a claim names a template, and the sandbox has the claim's name;
with v1beta1 it names a warm pool, and the sandbox's name is in the claim's status."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generator,
    List,
    Mapping,
    Optional,
    Tuple,
)
from urllib.parse import quote

import httpx

from .client import ExecutionResult, SandboxError, SandboxTimeoutError, _log

if TYPE_CHECKING:
    from .client import SandboxClient

_CORE = "agents.x-k8s.io"
_EXTENSIONS = "extensions.agents.x-k8s.io"
_GATEWAY = ("gateway.networking.k8s.io", "v1", "gateways")
_ROUTER = "svc/sandbox-router-svc"
_RETRY_STATUS = (500, 502, 503, 504)
_RETRIES = 5
_LOOK_S = 2.0

# Reasons of a claim that no waiting changes.
_FATAL = (
    "InvalidMetadata", "EnvVarsInjectionRejected", "VolumeClaimTemplatesError", "ClaimExpired",
    "SandboxExpired", "InvalidConfiguration", "PodFailed", "PodSucceeded", "TemplateNotFound",
    "WarmPoolNotFound",
)  # fmt: skip


def load() -> Optional[Any]:
    """The API of the cluster this machine is in or configured for; None where there is none."""
    path = os.environ.get("KUBECONFIG", os.path.expanduser("~/.kube/config"))
    configured = any(os.path.exists(part) for part in path.split(os.pathsep) if part)
    inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if not configured and not inside:
        return None
    try:
        from kubernetes import client, config
    except ImportError:
        raise SandboxError(
            "there is a Kubernetes configuration, but no package to read it: "
            "pip install 'cove-sandbox[kubernetes]' (or set COVE_URL to use Cove)"
        ) from None
    try:
        config.load_incluster_config()
    except config.ConfigException:
        try:
            config.load_kube_config()
        except config.ConfigException:
            return None  # a file without a cluster in it
        except Exception as problem:  # not YAML, or of another shape: its reader fails in many ways
            _log.warning("%s is no Kubernetes configuration, Cove is used: %s", path, problem)
            return None
    return client.CustomObjectsApi()


class ClusterSandbox:
    def __init__(self, owner: SandboxClient, api: Any) -> None:
        self._owner = owner
        self._api = api
        self._undo = contextlib.ExitStack()
        try:
            self._http = self._connect(self._claim())
        except BaseException:
            self.close()
            raise

    # --- the claim ---------------------------------------------------------------------------

    def _claim(self) -> str:
        """Makes the claim and waits for its sandbox; returns the sandbox's name."""
        owner = self._owner
        claim = owner.claim_name = f"sandbox-claim-{uuid.uuid4().hex[:8]}"
        deadline = time.monotonic() + owner.sandbox_ready_timeout
        pools = self._pools()
        # A v1alpha1 claim on a cluster that stores v1beta1 only works by luck: the newer goes first.
        self._version = "v1alpha1" if pools is None else "v1beta1"
        if pools is None:
            spec: Dict[str, Any] = {"sandboxTemplateRef": {"name": owner.template_name}}
        else:
            spec = {"warmPoolRef": {"name": self._pool(pools, claim)}}
        self._create("SandboxClaim", "sandboxclaims", claim, spec)
        if pools is None:
            where = (_CORE, self._version, "sandboxes")
            name = self._wait(where, claim, deadline, _ready_sandbox, between=self._look_at_claim)
        else:
            where = (_EXTENSIONS, self._version, "sandboxclaims")
            name = self._wait(where, claim, deadline, _ready_claim)
        owner.sandbox_name = name
        return name

    def _pools(self) -> Optional[List[Dict[str, Any]]]:
        """The warm pools; None where the cluster does not know v1beta1."""
        where = (_EXTENSIONS, "v1beta1", self._owner.namespace, "sandboxwarmpools")
        try:
            answer = self._call(lambda: self._api.list_namespaced_custom_object(*where))
        except _Missing:
            return None
        return list(answer.get("items") or ())

    def _pool(self, pools: List[Dict[str, Any]], claim: str) -> str:
        """A pool for the template. One of size 0, for us alone, does when nobody keeps one."""
        for pool in pools:
            reference = (pool.get("spec") or {}).get("sandboxTemplateRef") or {}
            if reference.get("name") == self._owner.template_name:
                return str(pool["metadata"]["name"])
        spec = {"replicas": 0, "sandboxTemplateRef": {"name": self._owner.template_name}}
        self._create("SandboxWarmPool", "sandboxwarmpools", claim, spec)
        return claim

    def _create(self, kind: str, plural: str, name: str, spec: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": f"{_EXTENSIONS}/{self._version}",
            "kind": kind,
            "metadata": {"name": name, "namespace": self._owner.namespace},
            "spec": dict(spec),
        }
        where = (_EXTENSIONS, self._version, self._owner.namespace, plural)
        # Noted first: a create whose answer is lost may have happened.
        self._undo.callback(self._delete, *where, name)
        self._call(lambda: self._api.create_namespaced_custom_object(*where, body))

    def _delete(self, *where: str) -> None:
        with contextlib.suppress(_Missing):
            self._call(lambda: self._api.delete_namespaced_custom_object(*where))

    # --- waiting -----------------------------------------------------------------------------

    def _wait(
        self,
        where: Tuple[str, str, str],
        name: str,
        deadline: float,
        done: Callable[[Mapping[str, Any]], Optional[str]],
        namespace: Optional[str] = None,
        between: Optional[Callable[[], object]] = None,
    ) -> str:
        """Watches one object until `done` finds what it wants in it; `between` is called now and then."""
        namespace = namespace or self._owner.namespace
        last: Mapping[str, Any] = {}
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                state = f"; it says: {_says(last)}" if last else "; it has not appeared"
                raise TimeoutError(f"{where[2]} {namespace}/{name} was not ready in time{state}")
            if between is not None:
                between()
                left = min(left, _LOOK_S)
            with contextlib.closing(self._watch(where, namespace, name, left)) as items:
                for item in items:
                    last = item
                    found = done(item)
                    if found is not None:
                        return found
            time.sleep(0.1)  # a server that ends every watch at once is not asked in a loop

    def _look_at_claim(self) -> None:
        """Where there is no sandbox, the claim says why: a template that is unknown has none to watch."""
        where = (_EXTENSIONS, self._version, self._owner.namespace, "sandboxclaims")
        name = self._owner.claim_name
        _ready_sandbox(self._call(lambda: self._api.get_namespaced_custom_object(*where, name)))

    def _watch(
        self, where: Tuple[str, str, str], namespace: str, name: str, seconds: float
    ) -> Generator[Mapping[str, Any], None, None]:
        from kubernetes import watch
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        group, version, plural = where
        try:
            events = watch.Watch().stream(
                self._api.list_namespaced_custom_object,
                group,
                version,
                namespace,
                plural,
                field_selector=f"metadata.name={name}",
                timeout_seconds=max(1, int(seconds)),
                _request_timeout=seconds + 5,
            )
            with contextlib.closing(events):  # else its connection stays until somebody collects it
                for event in events:
                    if event.get("type") in ("ADDED", "MODIFIED"):
                        yield event["object"]
        except ApiException as problem:
            if problem.status != 410:  # too old a version: look again from now
                raise _said(problem) from problem
        except HTTPError:
            time.sleep(0.5)  # a broken stream

    # --- the way in --------------------------------------------------------------------------

    def _connect(self, name: str) -> httpx.Client:
        owner = self._owner
        if owner.api_url:
            url = owner.api_url
        elif owner.gateway_name:
            deadline = time.monotonic() + owner.gateway_ready_timeout
            address = self._wait(
                _GATEWAY, owner.gateway_name, deadline, _gateway_address, owner.gateway_namespace
            )
            url = f"http://[{address}]" if address.count(":") > 1 else f"http://{address}"
        else:
            url = f"http://127.0.0.1:{self._port_forward()}"
        owner.base_url = url.rstrip("/")
        headers = {
            "X-Sandbox-ID": name,
            "X-Sandbox-Namespace": owner.namespace,
            "X-Sandbox-Port": str(owner.server_port),
        }
        return self._undo.enter_context(httpx.Client(base_url=owner.base_url, headers=headers))

    def _port_forward(self) -> int:
        kubectl = shutil.which("kubectl")
        if not kubectl:
            raise SandboxError(
                "without gateway_name or api_url the way in is `kubectl port-forward`, and there is no kubectl"
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        process = subprocess.Popen(
            [kubectl, "port-forward", _ROUTER, f"{port}:8080", "-n", self._owner.gateway_namespace],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._undo.callback(_end, process)
        deadline = time.monotonic() + self._owner.port_forward_ready_timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                said = (
                    process.stderr.read().decode("utf-8", "replace").strip()
                    if process.stderr
                    else ""
                )
                raise SandboxError(f"kubectl port-forward ended: {said}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return port
            time.sleep(0.1)
        raise TimeoutError(f"kubectl port-forward to {_ROUTER} was not ready in time")

    # --- using it ----------------------------------------------------------------------------

    def _request(self, method: str, path: str, timeout: float, **options: Any) -> httpx.Response:
        """Tried again where that cannot run a command twice: reads, and what never left."""
        for attempt in range(_RETRIES + 1):
            last = attempt == _RETRIES
            try:
                reply = self._http.request(method, path, timeout=timeout, **options)
            except httpx.TransportError as problem:
                unsent = isinstance(problem, (httpx.ConnectError, httpx.ConnectTimeout))
                if last or not (unsent or method == "GET"):
                    late = isinstance(problem, httpx.TimeoutException)
                    raise (SandboxTimeoutError if late else SandboxError)(
                        f"{method} {path}: {problem or type(problem).__name__}"
                    ) from problem
            else:
                if reply.is_success:
                    return reply
                if last or method != "GET" or reply.status_code not in _RETRY_STATUS:
                    raise SandboxError(f"{method} {path}: {reply.status_code} {_detail(reply)}")
            time.sleep(min(0.5 * 2**attempt, 8))
        raise AssertionError("not reached")

    def run(self, command: str, timeout: float) -> ExecutionResult:
        reply = self._request("POST", "/execute", timeout, json={"command": command})
        try:
            found = reply.json()
            return ExecutionResult(
                str(found.get("stdout", "")),
                str(found.get("stderr", "")),
                int(found.get("exit_code", -1)),
            )
        except (ValueError, AttributeError, TypeError):
            raise SandboxError(
                "the runtime's answer to /execute is not what it should be"
            ) from None

    def write(self, path: str, content: bytes, timeout: float) -> None:
        self._request("POST", "/upload", timeout, files={"file": (path, content)})

    def read(self, path: str, timeout: float) -> bytes:
        return self._request("GET", f"/download/{quote(path, safe='')}", timeout).content

    def close(self) -> None:
        self._undo.close()
        with contextlib.suppress(AttributeError):  # its own close() leaves connections open
            self._api.api_client.rest_client.pool_manager.clear()

    def _call(self, call: Callable[[], Any]) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call()
        except ApiException as problem:
            raise _said(problem) from problem
        except HTTPError as problem:
            raise SandboxError(f"the cluster's API cannot be reached: {problem}") from problem


class _Missing(SandboxError):
    """404 of the cluster's API."""


def _said(problem: Any) -> SandboxError:
    """The API server's own sentence."""
    import json

    try:
        message = json.loads(problem.body or "{}").get("message") or problem.reason
    except (ValueError, AttributeError):
        message = problem.reason
    kind = _Missing if problem.status == 404 else SandboxError
    return kind(f"the cluster says {problem.status}: {message}")


def _detail(reply: httpx.Response) -> str:
    try:
        found = reply.json()
        return str(found.get("detail") or found.get("message") or "")
    except (ValueError, AttributeError):
        return reply.text[:200]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stderr:
        process.stderr.close()


# --- what is looked for in objects -----------------------------------------------------------


def _condition(item: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == "Ready"), {})


def _says(item: Mapping[str, Any]) -> str:
    ready = _condition(item)
    return f"{ready.get('reason', 'nothing yet')} {ready.get('message', '')}".strip()


def _ready_sandbox(item: Mapping[str, Any]) -> Optional[str]:
    ready = _condition(item)
    if ready.get("status") != "True" and ready.get("reason") in _FATAL:
        raise SandboxError(f"the sandbox will not become ready: {_says(item)}")
    return str(item["metadata"]["name"]) if ready.get("status") == "True" else None


def _ready_claim(item: Mapping[str, Any]) -> Optional[str]:
    if _ready_sandbox(item) is None:
        return None
    sandbox = (item.get("status") or {}).get("sandbox") or {}
    name = sandbox.get("name") or sandbox.get("Name")  # v0.1.x wrote the second
    return str(name) if name else None


def _gateway_address(item: Mapping[str, Any]) -> Optional[str]:
    for address in (item.get("status") or {}).get("addresses") or ():
        if address.get("value"):
            return str(address["value"])
    return None
