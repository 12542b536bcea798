"""What calls return: plain frozen records. Fields the server adds later are kept in `raw`."""

from __future__ import annotations

import base64
import datetime as dt
import html
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

__all__ = [
    "CommandResult",
    "Context",
    "Entry",
    "Event",
    "Execution",
    "ExecutionError",
    "FileEvent",
    "Forward",
    "Limits",
    "Metrics",
    "Mount",
    "Output",
    "ProcessInfo",
    "Result",
    "SandboxInfo",
    "TemplateInfo",
    "Usage",
]


def _time(value: object) -> Optional[dt.datetime]:
    """RFC 3339, as far as Python 3.9 can read it.

    >>> _time("2026-01-02T03:04:05.678Z").isoformat()
    '2026-01-02T03:04:05.678000+00:00'
    """
    if not isinstance(value, str):
        return None
    try:
        head, _, fraction = value.rstrip("Z").partition(".")
        at = dt.datetime.fromisoformat(head).replace(tzinfo=dt.timezone.utc)
        return at + dt.timedelta(microseconds=int((fraction + "000000")[:6])) if fraction else at
    except ValueError:
        return None


def _dict(value: object) -> Dict[str, Any]:
    """From a guest, which may send anything."""
    return value if isinstance(value, dict) else {}


def _rows(pairs: Mapping[str, object]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in pairs.items()
        if value not in (None, "", {}, ())
    )
    return f"<table>{cells}</table>"


@dataclass(frozen=True)
class Limits:
    """Bounds of a sandbox. None leaves the template's."""

    memory_bytes: Optional[int] = None
    cpu_milli: Optional[int] = None
    pids: Optional[int] = None
    disk_bytes: Optional[int] = None
    open_files: Optional[int] = None
    io_weight: Optional[int] = None
    log_bytes: Optional[int] = None

    def to_json(self) -> Dict[str, int]:
        return {name: value for name, value in self.__dict__.items() if value is not None}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Limits:
        return cls(**{name: raw.get(name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Mount:
    """A directory of the server's machine, shown inside."""

    host: str
    guest: str
    read_only: bool = False

    def to_json(self) -> Dict[str, Any]:
        return {"host": self.host, "guest": self.guest, "ro": self.read_only}


@dataclass(frozen=True)
class Forward:
    """A port of the server's loopback that leads to one inside. Port 0: any that is free; another one
    can be named by an admin, or within the server's ``--forward-ports``.

    Every account of the server's machine can connect, and is asked for nothing. To a port on which a service
    of Cove's runs code for everybody who connects (8765, 8888, 49999) it leads only with ``public=True``;
    `sandbox.ports.forward()` needs none of this."""

    host_port: int
    port: int
    public: bool = False

    def to_json(self) -> Dict[str, Any]:
        public = {"public": True} if self.public else {}
        return {"host_port": self.host_port, "port": self.port, **public}


@dataclass(frozen=True)
class SandboxInfo:
    """Everything the server says about a sandbox."""

    id: str
    state: str
    template: str
    owner: str
    network: str
    metadata: Dict[str, str]
    label: Optional[str]
    limits: Limits
    created: Optional[dt.datetime]
    started: Optional[dt.datetime]
    ends: Optional[dt.datetime]
    ended: Optional[dt.datetime]
    reason: Optional[str]
    domain: str
    mounts: Tuple[Mount, ...]
    forwards: Tuple[Forward, ...]
    raw: Dict[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SandboxInfo:
        secrets = ("token", "traffic_token")  # shown nowhere, so that no log has them
        return cls(
            id=str(raw["id"]),
            state=str(raw.get("state", "running")),
            template=str(raw.get("template", "")),
            owner=str(raw.get("owner", "")),
            network=str(raw.get("network", "")),
            metadata=dict(raw.get("metadata") or {}),
            label=raw.get("label"),
            limits=Limits.from_json(raw.get("limits") or {}),
            created=_time(raw.get("created")),
            started=_time(raw.get("started")),
            ends=_time(raw.get("ends")),
            ended=_time(raw.get("ended")),
            reason=raw.get("reason"),
            domain=str(raw.get("domain", "")),
            mounts=tuple(
                Mount(m["host"], m["guest"], bool(m.get("ro"))) for m in raw.get("mounts") or ()
            ),
            forwards=tuple(
                Forward(f["host_port"], f["port"], f.get("public", False))
                for f in raw.get("forwards") or ()
            ),
            raw={name: value for name, value in raw.items() if name not in secrets},
        )

    def _repr_html_(self) -> str:
        return _rows(
            {
                "sandbox": self.id,
                "state": self.state,
                "template": self.template,
                "ends": self.ends,
                "reason": self.reason,
                "metadata": self.metadata,
            }
        )


@dataclass(frozen=True)
class TemplateInfo:
    """What sandboxes are made of; `provider` is who makes their machines."""

    name: str
    kind: str
    limits: Limits
    provider: str = "local"

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> TemplateInfo:
        return cls(
            str(raw["name"]),
            str(raw.get("kind", "")),
            Limits.from_json(raw.get("limits") or {}),
            str(raw.get("provider") or "local"),
        )


@dataclass(frozen=True)
class Usage:
    """What a sandbox uses now."""

    cpu_us: int
    memory_bytes: int
    memory_cache_bytes: int
    memory_peak_bytes: int
    pids: int
    disk_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int
    limits: Limits

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Usage:
        names = [n for n in cls.__dataclass_fields__ if n != "limits"]
        return cls(
            **{n: int(raw.get(n) or 0) for n in names},
            limits=Limits.from_json(raw.get("limits") or {}),
        )

    def _repr_html_(self) -> str:
        return _rows(self.__dict__)


@dataclass(frozen=True)
class Metrics:
    """One sample. `cpu_pct` 100 is one core."""

    at: Optional[dt.datetime]
    cpu_pct: float
    cpu_milli: int
    memory_bytes: int
    memory_max_bytes: int
    memory_cache_bytes: int
    disk_bytes: int
    disk_max_bytes: int
    pids: int
    net_rx_bytes: int
    net_tx_bytes: int

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Metrics:
        names = [n for n in cls.__dataclass_fields__ if n not in ("at", "cpu_pct")]
        return cls(
            at=_time(raw.get("at")),
            cpu_pct=float(raw.get("cpu_pct") or 0),
            **{n: int(raw.get(n) or 0) for n in names},
        )


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox: when, what, by whom, and in words why."""

    seq: int
    at: Optional[dt.datetime]
    kind: str
    actor: str
    text: str

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Event:
        return cls(
            int(raw["seq"]),
            _time(raw.get("at")),
            str(raw.get("kind", "")),
            str(raw.get("actor", "")),
            str(raw.get("text", "")),
        )


# --- inside ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """A piece of output. `offset` is where its bytes begin in all output of the process."""

    stream: str
    text: str
    data: bytes
    offset: int


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. `exit_code` is -1 when a signal ended it; `error` then says which.

    >>> CommandResult(0, "hello\\n", "").ok
    True
    """

    exit_code: int
    stdout: str
    stderr: str
    pid: int = 0
    error: Optional[str] = None
    lost_bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.error is None

    def _repr_html_(self) -> str:
        err = "background:#fdd"
        parts = [("", self.stdout), (err, self.stderr)]
        body = "".join(
            f"<pre style='{style}'>{html.escape(text)}</pre>" for style, text in parts if text
        )
        return (
            body
            if self.ok
            else f"{body}<i>{html.escape(self.error or f'exit status {self.exit_code}')}</i>"
        )


@dataclass(frozen=True)
class ProcessInfo:
    pid: int
    command: str
    args: Tuple[str, ...]
    env: Dict[str, str]
    cwd: Optional[str]
    tag: Optional[str]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ProcessInfo:
        config = raw.get("config") or {}
        return cls(
            pid=int(raw.get("pid", 0)),
            command=str(config.get("cmd", "")),
            args=tuple(config.get("args") or ()),
            env=dict(config.get("envs") or {}),
            cwd=config.get("cwd"),
            tag=raw.get("tag"),
        )


_KINDS = {
    "FILE_TYPE_FILE": "file",
    "FILE_TYPE_DIRECTORY": "directory",
    "FILE_TYPE_SYMLINK": "link",
}


@dataclass(frozen=True)
class Entry:
    """A file, directory or link inside. `kind` is that of what a link leads to."""

    name: str
    path: str
    kind: str
    size: int
    mode: int
    owner: str
    group: str
    modified: Optional[dt.datetime]
    target: Optional[str]

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"

    @property
    def is_link(self) -> bool:
        return self.target is not None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Entry:
        return cls(
            name=str(raw.get("name", "")),
            path=str(raw.get("path", "")),
            kind=_KINDS.get(str(raw.get("type")), "other"),
            size=int(raw.get("size") or 0),
            mode=int(raw.get("mode") or 0) & 0o7777,
            owner=str(raw.get("owner", "")),
            group=str(raw.get("group", "")),
            modified=_time(raw.get("modifiedTime")),
            target=raw.get("symlinkTarget") or None,
        )


@dataclass(frozen=True)
class FileEvent:
    """A change below a watched directory. After `overflow` some were missed: look again."""

    kind: str
    name: str
    overflow: bool = False

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> FileEvent:
        kind = str(raw.get("type", "")).replace("EVENT_TYPE_", "").lower()
        return cls(kind, str(raw.get("name", "")), bool(raw.get("overflow")))


# --- code ------------------------------------------------------------------------------------

# How a result's keys are called in a notebook. A page runs what it shows: scripts, and markup that may have
# some (HTML, SVG, Markdown), would be code from inside that runs out here, with the user's rights.
_MIME = {
    "text": "text/plain",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "latex": "text/latex",
    "json": "application/json",
}


def _shown(formats: Mapping[str, Any]) -> Optional[str]:
    """Markup from inside, for a page: in a frame that runs nothing, or as a picture, which does not either.

    >>> _shown({"html": "<script>"})
    '<iframe sandbox srcdoc="&lt;script&gt;" style="width:100%;height:20em;border:0"></iframe>'
    """
    markup, svg = formats.get("html"), formats.get("svg")
    if isinstance(markup, str):
        style = "width:100%;height:20em;border:0"
        return f'<iframe sandbox srcdoc="{html.escape(markup)}" style="{style}"></iframe>'
    if isinstance(svg, str):
        return f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'
    return None


@dataclass(frozen=True)
class Result:
    """Something that code displayed, in every form it offered. Images are base64."""

    formats: Dict[str, Any]
    is_main: bool

    @property
    def text(self) -> Optional[str]:
        return self.formats.get("text")

    @property
    def png(self) -> Optional[str]:
        return self.formats.get("png")

    @property
    def html(self) -> Optional[str]:
        return self.formats.get("html")

    @property
    def chart(self) -> Optional[Dict[str, Any]]:
        return self.formats.get("chart")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Dict[str, Any]:
        found = {mime: self.formats[key] for key, mime in _MIME.items() if key in self.formats}
        shown = _shown(self.formats)
        return {**found, "text/html": shown} if shown else found


@dataclass(frozen=True)
class ExecutionError:
    name: str
    value: str
    traceback: str


@dataclass
class Execution:
    """What a piece of code did."""

    stdout: str = ""
    stderr: str = ""
    results: List[Result] = field(default_factory=list)
    error: Optional[ExecutionError] = None
    count: Optional[int] = None

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression, as text."""
        return next((r.text for r in self.results if r.is_main), None)

    def take(self, line: bytes) -> Optional[Tuple[str, Any]]:
        """One line of the service's answer. Returns what callbacks want to know of it."""
        try:
            item = json.loads(line)
        except ValueError:
            return None
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in ("stdout", "stderr"):
            setattr(self, kind, getattr(self, kind) + str(item.get("text", "")))
            return kind, str(item.get("text", ""))
        if kind == "result":
            known = {k: v for k, v in item.items() if k not in ("type", "is_main_result", "extra")}
            self.results.append(
                Result({**_dict(item.get("extra")), **known}, bool(item.get("is_main_result")))
            )
            return kind, self.results[-1]
        if kind == "error":
            self.error = ExecutionError(
                *(str(item.get(n, "")) for n in ("name", "value", "traceback"))
            )
            return kind, self.error
        if kind == "number_of_executions":
            self.count = item.get("execution_count")
        return None

    def _repr_html_(self) -> str:
        parts = [("", self.stdout), ("background:#fdd", self.stderr)]
        if self.error:
            parts.append(("background:#fdd", self.error.traceback))
        out = "".join(f"<pre style='{s}'>{html.escape(t)}</pre>" for s, t in parts if t)
        for result in self.results:
            shown = _shown(result.formats)
            if shown:
                out += shown
            elif result.png:
                out += f"<img src='data:image/png;base64,{html.escape(result.png)}'>"
            elif result.text:
                out += f"<pre>{html.escape(result.text)}</pre>"
        return out


@dataclass(frozen=True)
class Context:
    id: str
    language: str
    cwd: str

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Context:
        return cls(str(raw["id"]), str(raw.get("language", "")), str(raw.get("cwd", "")))
