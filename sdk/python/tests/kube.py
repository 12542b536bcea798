"""An API server with the agent-sandbox controller, as far as its clients see it, written from the project's
public description. Strict: what a real one would refuse is refused, so that no client passes by luck."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
import urllib.parse

EXT, CORE, GATEWAY = "extensions.agents.x-k8s.io", "agents.x-k8s.io", "gateway.networking.k8s.io"

# kind and allowed fields of a spec, by group, version and plural.
SPECS = {
    (EXT, "v1alpha1", "sandboxclaims"): (
        "SandboxClaim",
        {"sandboxTemplateRef"},
        {"lifecycle", "warmpool"},
    ),
    (EXT, "v1beta1", "sandboxclaims"): ("SandboxClaim", {"warmPoolRef"}, {"lifecycle", "env"}),
    (EXT, "v1beta1", "sandboxwarmpools"): ("SandboxWarmPool", {"sandboxTemplateRef"}, {"replicas"}),
}
READABLE = {
    (CORE, "v1alpha1", "sandboxes"), (CORE, "v1beta1", "sandboxes"), (GATEWAY, "v1", "gateways"), *SPECS,
}  # fmt: skip
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")


class Cluster:
    """State, and a controller that acts a moment after a claim is made."""

    def __init__(self, version="v1alpha1", templates=("python-sandbox-template",), delay=0.05):
        self.version, self.templates, self.delay = version, set(templates), delay
        self.changed = threading.Condition()
        self.objects, self.log, self.number = {}, [], 100
        self.requests, self.runs, self.files = [], [], {}
        self.fail_router, self.fatal, self.gone_watch = [], None, 0
        self.closed = threading.Event()
        self.name_of = None  # who is asked for the name of a new sandbox
        handler = type("Bound", (Handler,), {"cluster": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def names(self, plural):
        return sorted(name for (p, _, name) in self.objects if p == plural)

    def put(self, plural, namespace, name, item, kind="MODIFIED"):
        with self.changed:
            self.number += 1
            item["metadata"]["resourceVersion"] = str(self.number)
            self.objects[plural, namespace, name] = item
            self.log.append((self.number, kind, plural, namespace, json.loads(json.dumps(item))))
            self.changed.notify_all()

    def remove(self, plural, namespace, name):
        with self.changed:
            item = self.objects.pop((plural, namespace, name))
            self.number += 1
            self.log.append((self.number, "DELETED", plural, namespace, item))
            self.changed.notify_all()

    def gateway(self, name="external-http-gateway", after=0.0):
        item = {
            "apiVersion": f"{GATEWAY}/v1",
            "kind": "Gateway",
            "metadata": {"name": name},
            "status": {},
        }
        self.put("gateways", "default", name, item, "ADDED")

        def assign():
            if self.closed.wait(after):
                return
            value = self.url.removeprefix("http://")
            self.put(
                "gateways", "default", name, {**item, "status": {"addresses": [{"value": value}]}}
            )

        threading.Thread(target=assign, daemon=True).start()

    # --- the controller ----------------------------------------------------------------------

    def claimed(self, namespace, claim):
        spec = claim["spec"]
        if self.version == "v1alpha1":
            template, sandbox = spec["sandboxTemplateRef"]["name"], claim["metadata"]["name"]
        else:
            pool = self.objects.get(("sandboxwarmpools", namespace, spec["warmPoolRef"]["name"]))
            template = pool["spec"]["sandboxTemplateRef"]["name"] if pool else None
            # A member of a pool has a name of its own; a cold start has the claim's.
            warm = pool and pool["spec"].get("replicas", 1) > 0
            sandbox = f"{spec['warmPoolRef']['name']}-x7k2p" if warm else claim["metadata"]["name"]
            sandbox = self.name_of() if self.name_of else sandbox
        threading.Thread(
            target=self._provision, args=(namespace, claim, template, sandbox), daemon=True
        ).start()

    def _provision(self, namespace, claim, template, sandbox):
        time.sleep(self.delay)
        if template not in self.templates or self.fatal:
            why = self.fatal or ("TemplateNotFound" if template else "WarmPoolNotFound")
            self._status(namespace, claim, "False", why, None)  # and no sandbox
            return
        self._sandbox(namespace, sandbox, "False", "DependenciesNotReady")
        self._status(namespace, claim, "False", "SandboxNotReady", sandbox)
        time.sleep(self.delay)
        self._sandbox(namespace, sandbox, "True", "DependenciesReady")
        self._status(namespace, claim, "True", "DependenciesReady", sandbox)

    def _sandbox(self, namespace, name, status, reason):
        condition = {"type": "Ready", "status": status, "reason": reason, "message": "as it says"}
        self.put("sandboxes", namespace, name, {
            "apiVersion": f"{CORE}/{self.version}", "kind": "Sandbox",
            "metadata": {"name": name, "namespace": namespace}, "status": {"conditions": [condition]},
        })  # fmt: skip

    def _status(self, namespace, claim, status, reason, sandbox):
        name = claim["metadata"]["name"]
        if ("sandboxclaims", namespace, name) not in self.objects:
            return
        condition = {"type": "Ready", "status": status, "reason": reason, "message": "as it says"}
        found = {"conditions": [condition]}
        if sandbox:
            found["sandbox"] = {"name": sandbox}
        self.put("sandboxclaims", namespace, name, {**claim, "status": found})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = (
        5  # of a connection that is kept and not used: clients of Kubernetes never close theirs
    )
    cluster: Cluster

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def refuse(self, status, message):
        self.answer(
            status, {"kind": "Status", "status": "Failure", "code": status, "message": message}
        )

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def route(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        raw = self.body()
        self.cluster.requests.append((self.command, url.path))
        match = re.fullmatch(
            r"/apis/([^/]+)/([^/]+)/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?", url.path
        )
        if url.path.startswith("/apis/"):
            if not match or match.group(1, 2, 4) not in READABLE or not self.served(match):
                return self.refuse(404, "the server could not find the requested resource")
            if self.headers.get("Authorization") != "Bearer secret-token":
                return self.refuse(401, "Unauthorized")
            return self.resource(match, query, raw)
        return self.router(url.path, raw)

    do_GET = do_POST = do_DELETE = do_PUT = route

    def served(self, match):
        group, version = match.group(1, 2)
        return group == GATEWAY or version == self.cluster.version

    # --- resources ---------------------------------------------------------------------------

    def resource(self, match, query, raw):
        group, version, namespace, plural, name = match.groups()
        if self.command == "POST" and not name:
            return self.create(group, version, namespace, plural, raw)
        if self.command == "DELETE" and name:
            if (plural, namespace, name) not in self.cluster.objects:
                return self.refuse(404, f'{plural}.{group} "{name}" not found')
            self.cluster.remove(plural, namespace, name)
            return self.answer(200, {"kind": "Status", "status": "Success"})
        if self.command == "GET" and name:
            found = self.cluster.objects.get((plural, namespace, name))
            return (
                self.answer(200, found)
                if found
                else self.refuse(404, f'{plural}.{group} "{name}" not found')
            )
        if self.command == "GET" and not name:
            return (
                self.watch(namespace, plural, query)
                if query.get("watch")
                else self.list(group, version, namespace, plural)
            )
        return self.refuse(405, "the server does not allow this method on the requested resource")

    def create(self, group, version, namespace, plural, raw):
        if (group, version, plural) not in SPECS:
            return self.refuse(
                405, "the server does not allow this method on the requested resource"
            )
        kind, required, optional = SPECS[group, version, plural]
        item = json.loads(raw)
        if item.get("apiVersion") != f"{group}/{version}" or item.get("kind") != kind:
            return self.refuse(
                400, f"the API version or kind in the data does not match {group}/{version}"
            )
        if set(item) - {"apiVersion", "kind", "metadata", "spec"}:
            return self.refuse(400, f"unknown fields {sorted(item)}")
        name, spec = item["metadata"].get("name", ""), item.get("spec") or {}
        if not NAME.match(name) or item["metadata"].get("namespace", namespace) != namespace:
            return self.refuse(422, f'{kind} "{name}" is invalid: metadata')
        if not required <= set(spec) <= required | optional or not all(
            spec[k].get("name") for k in required
        ):
            return self.refuse(422, f'{kind} "{name}" is invalid: spec has {sorted(spec)}')
        if (plural, namespace, name) in self.cluster.objects:
            return self.refuse(409, f'{plural} "{name}" already exists')
        self.cluster.put(plural, namespace, name, item, "ADDED")
        if plural == "sandboxclaims":
            self.cluster.claimed(namespace, item)
        return self.answer(201, item)

    def list(self, group, version, namespace, plural):
        items = [
            v for (p, n, _), v in self.cluster.objects.items() if (p, n) == (plural, namespace)
        ]
        metadata = {"resourceVersion": str(self.cluster.number)}
        self.answer(
            200,
            {
                "apiVersion": f"{group}/{version}",
                "kind": "List",
                "metadata": metadata,
                "items": items,
            },
        )

    def watch(self, namespace, plural, query):
        cluster = self.cluster
        selector = query.get("fieldSelector", "")
        wanted = selector.removeprefix("metadata.name=")
        if selector and wanted == selector:
            return self.refuse(400, f"field label not supported: {selector}")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 30)
        since = int(query.get("resourceVersion") or 0)
        if cluster.gone_watch:
            cluster.gone_watch -= 1
            status = {
                "kind": "Status",
                "code": 410,
                "message": "too old resource version",
                "reason": "Expired",
            }
            self.chunk({"type": "ERROR", "object": status})
            return self.chunk(None)
        with cluster.changed:
            if not since:  # from now, after what is there
                since = cluster.number
                for (p, n, name), item in list(cluster.objects.items()):
                    if (p, n) == (plural, namespace) and wanted in ("", name):
                        self.chunk({"type": "ADDED", "object": item})
            while time.monotonic() < deadline and not cluster.closed.is_set():
                for number, kind, p, n, item in list(cluster.log):
                    told = wanted in ("", item["metadata"]["name"])
                    if number > since and (p, n) == (plural, namespace) and told:
                        self.chunk({"type": kind, "object": item})
                since = cluster.number
                cluster.changed.wait(min(0.2, max(0.0, deadline - time.monotonic())))
        return self.chunk(None)

    def chunk(self, item):
        raw = json.dumps(item).encode() + b"\n" if item is not None else b""
        try:
            self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    # --- the router and the runtime behind it ------------------------------------------------

    def router(self, path, raw):
        cluster = self.cluster
        if cluster.fail_router:
            return self.answer(cluster.fail_router.pop(0), {"detail": "for a moment"})
        sandbox = self.headers.get("X-Sandbox-ID")
        if not sandbox:
            return self.answer(400, {"detail": "X-Sandbox-ID header is required."})
        if (
            sandbox not in cluster.names("sandboxes")
            or self.headers.get("X-Sandbox-Port") != "8888"
        ):
            return self.answer(
                502, {"detail": f"Could not connect to the backend sandbox: {sandbox}"}
            )
        if self.command == "POST" and path == "/execute":
            command = json.loads(raw)["command"]
            cluster.runs.append(command)
            return self.answer(200, {"stdout": f"ran {command}\n", "stderr": "", "exit_code": 0})
        if self.command == "POST" and path == "/upload":
            name = re.search(rb'name="file"; filename="([^"]+)"', raw).group(1).decode()
            cluster.files[name] = raw.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0]
            return self.answer(200, {"message": "done"})
        if self.command == "GET" and path.startswith("/download/"):
            name = urllib.parse.unquote(path[len("/download/") :])
            if name not in cluster.files:
                return self.answer(404, {"message": "File not found"})
            return self.answer(200, cluster.files[name], "application/octet-stream")
        return self.answer(404, {"detail": "Not Found"})
