"""A sandbox."""

from __future__ import annotations

from typing import Any, AsyncGenerator, Dict, List, Mapping, Optional, Sequence, Union

from .. import errors
from .._types import Event, Forward, Limits, Metrics, Mount, SandboxInfo, Usage
from .code import AsyncCode
from .commands import AsyncCommands, AsyncPty
from .files import AsyncFiles
from .guest import AsyncGuest
from .ports import AsyncPorts
from .transport import AsyncClient, new_key


class AsyncSandbox:
    """A computer of its own: `commands`, `pty`, `files`, `code` and `ports`.

    >>> async with await AsyncSandbox.create(timeout=60) as sandbox:
    ...     print((await sandbox.commands.run("echo hello")).stdout)
    hello
    <BLANKLINE>

    Used as a context manager, its end is the sandbox's end. Otherwise `kill()` ends it, or its time-out; and
    `aclose()` lets go of it.
    """

    def __init__(self, client: AsyncClient, raw: Mapping[str, Any], *, owns_client: bool) -> None:
        self._client = client
        self._owns_client = owns_client
        self._info = SandboxInfo.from_json(raw)
        self._secrets = {name: raw.get(name) for name in ("token", "traffic_token")}
        guest = AsyncGuest(client, self._info.id, self._secrets)
        self.commands = AsyncCommands(guest)
        self.pty = AsyncPty(guest)
        self.files = AsyncFiles(guest)
        self.code = AsyncCode(guest)
        self.ports = AsyncPorts(guest, self._info)

    # --- making and finding ------------------------------------------------------------------

    @classmethod
    async def create(
        cls,
        template: Optional[str] = None,
        *,
        timeout: int = 300,
        idle: int = 0,
        on_expiry: str = "kill",
        auto_resume: bool = False,
        restart: str = "no",
        metadata: Optional[Mapping[str, str]] = None,
        env: Optional[Mapping[str, str]] = None,
        network: Optional[str] = None,
        limits: Optional[Limits] = None,
        mounts: Sequence[Mount] = (),
        forwards: Sequence[Forward] = (),
        label: Optional[str] = None,
        strict: bool = False,
        public: bool = True,
        ping: bool = False,
        client: Optional[AsyncClient] = None,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> AsyncSandbox:
        """Make one. It ends `timeout` seconds from now (0: no limit) unless told otherwise; with
        ``on_expiry="pause"`` it is paused then instead. With ``restart="always"`` it is started again on its
        files when its first process dies.

        `network` is ``open`` or ``none``; `ping` lets programs inside open ping sockets. Without `client`,
        `url` or COVE_URL a private server is started for this process. Sent twice because an answer was
        lost, the request still makes one sandbox."""
        body: Dict[str, Any] = {"timeout": timeout, "strict": strict, "public": public}
        given = {
            "template": template,
            "idle": idle,
            "on_expiry": None if on_expiry == "kill" else on_expiry,
            "auto_resume": auto_resume,
            "restart": None if restart == "no" else restart,
            "metadata": dict(metadata or {}),
            "env": dict(env or {}),
            "network": network,
            "label": label,
            "ping": ping,
            "limits": limits.to_json() if limits else None,
            "mounts": [mount.to_json() for mount in mounts],
            "forwards": [forward.to_json() for forward in forwards],
        }
        body.update({name: value for name, value in given.items() if value})
        async with _Borrowed(client, url, api_key) as borrowed:
            raw = await borrowed.client.json(
                "POST",
                "/v1/sandboxes",
                json=body,
                headers={"Idempotency-Key": new_key()},
                repeatable=True,
            )
            return cls(borrowed.keep(), raw, owns_client=client is None)

    @classmethod
    async def connect(
        cls,
        id: str,
        *,
        timeout: Optional[int] = None,
        client: Optional[AsyncClient] = None,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> AsyncSandbox:
        """One that is there. A paused one is resumed. `timeout` only ever extends its time."""
        async with _Borrowed(client, url, api_key) as borrowed:
            raw = await borrowed.client.json("GET", f"/v1/sandboxes/{_segment(id)}")
            if raw.get("state") == "ended":
                raise errors.SandboxGoneError(f"sandbox {id} has ended: {raw.get('reason', '')}")
            sandbox = cls(borrowed.keep(), raw, owns_client=client is None)
        if sandbox._info.state in ("paused", "pausing"):
            await sandbox.resume(timeout)
        elif timeout is not None:
            await sandbox.set_timeout(timeout, extend=True)
        return sandbox

    @classmethod
    async def list(
        cls,
        *,
        state: Union[str, Sequence[str], None] = None,
        metadata: Optional[Mapping[str, str]] = None,
        template: Optional[str] = None,
        ended: bool = False,
        client: Optional[AsyncClient] = None,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> List[SandboxInfo]:
        """Your sandboxes that run or are paused, the latest first; filtered."""
        params: Dict[str, str] = {"limit": "100"}
        if state:
            params["state"] = state if isinstance(state, str) else ",".join(state)
        if template:
            params["template"] = template
        if ended:
            params["ended"] = "true"
        if metadata:
            from urllib.parse import urlencode

            params["metadata"] = urlencode(dict(metadata))
        found: List[SandboxInfo] = []
        async with _Borrowed(client, url, api_key) as borrowed:
            while True:
                page = await borrowed.client.json("GET", "/v1/sandboxes", params=params)
                found += [SandboxInfo.from_json(item) for item in page["sandboxes"]]
                if not page.get("next"):
                    return found
                params["after"] = str(page["next"])

    # --- its life ----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def client(self) -> AsyncClient:
        return self._client

    @property
    def forwards(self) -> Dict[int, int]:
        """Port inside -> port of the server's loopback."""
        return {forward.port: forward.host_port for forward in self._info.forwards}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._info.template}>"

    def _repr_html_(self) -> str:
        return self._info._repr_html_()

    async def info(self) -> SandboxInfo:
        """Everything about it, for a while after its end too."""
        return SandboxInfo.from_json(await self._json("GET", ""))

    async def is_running(self) -> bool:
        try:
            return (await self.info()).state == "running"
        except errors.NotFoundError:
            return False

    async def kill(self) -> bool:
        """End it. False: it had ended already."""
        try:
            await self._json("DELETE", "")
        except errors.NotFoundError:
            return False
        return True

    async def set_timeout(self, seconds: int, *, extend: bool = False) -> SandboxInfo:
        """End it so many seconds from now (0: no limit); with `extend` only if that is later."""
        body = {"timeout": seconds, "extend": extend}
        return SandboxInfo.from_json(
            await self._json("POST", "/timeout", json=body, repeatable=True)
        )

    async def set_limits(self, limits: Limits) -> None:
        """Change limits while it runs; None stays."""
        await self._json("PATCH", "/limits", json=limits.to_json(), repeatable=True)

    async def pause(self) -> None:
        """Its processes stop where they are, and it uses no processor until `resume()`."""
        await self._json("POST", "/pause")

    async def resume(self, timeout: Optional[int] = None) -> SandboxInfo:
        body = {} if timeout is None else {"timeout": timeout}
        raw = await self._json("POST", "/resume", json=body)
        self._secrets.update({name: raw[name] for name in self._secrets if raw.get(name)})
        return SandboxInfo.from_json(raw)

    async def usage(self) -> Usage:
        """What it uses now."""
        return Usage.from_json(await self._json("GET", "/stat"))

    async def metrics(self) -> List[Metrics]:
        """What it used lately: a sample every ten seconds, and one of now."""
        answer = await self._json("GET", "/metrics")
        return [Metrics.from_json(item) for item in answer["samples"]]

    async def events(self, after: int = 0, *, limit: int = 1000) -> List[Event]:
        """What happened to it.

        >>> async with await AsyncSandbox.create() as sandbox:
        ...     [event.kind for event in await sandbox.events()]
        ['created', 'started']
        """
        answer = await self._json("GET", "/events", params={"after": after, "limit": limit})
        return [Event.from_json(item) for item in answer["events"]]

    async def follow_events(self, after: int = 0, *, wait: int = 30) -> AsyncGenerator[Event, None]:
        """What happened, and what happens from now on, until its end. A question that nothing answers is
        asked again after `wait` seconds."""
        while True:
            for event in await self._events_after(after, wait):
                after = event.seq
                yield event
                if event.kind == "ended":
                    return

    async def _events_after(self, after: int, wait: int) -> List[Event]:
        params = {"after": after, "wait": wait}
        answer = await self._json("GET", "/events", params=params, timeout=wait + 30.0)
        return [Event.from_json(item) for item in answer["events"]]

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        return await self._client.json(method, f"/v1/sandboxes/{self.id}{path}", **options)

    # --- letting go --------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Let go of it. It goes on."""
        if self._owns_client:
            await self._client.aclose()

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        try:
            await self.kill()
        finally:
            await self.aclose()


class _Borrowed:
    """The given client, or one of our own, which is closed unless somebody keeps it."""

    def __init__(
        self, client: Optional[AsyncClient], url: Optional[str], api_key: Optional[str]
    ) -> None:
        self._given = client
        self._where = (url, api_key)
        self._kept = False

    async def __aenter__(self) -> _Borrowed:
        self.client = self._given or await AsyncClient.open(*self._where)
        return self

    def keep(self) -> AsyncClient:
        self._kept = True
        return self.client

    async def __aexit__(self, *_exc: object) -> None:
        if self._given is None and not self._kept:
            await self.client.aclose()


def _segment(id: str) -> str:
    """An id in a path: nothing else may be smuggled in with it."""
    if not id.isalnum():
        raise errors.InvalidRequestError(f"{id!r} is not the id of a sandbox")
    return id
