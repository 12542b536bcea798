"""A machine with services inside: started, waited for, asked, and read the logs of."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Any, Dict, Iterator, List, Optional, Type, TypeVar

import httpx

import cove

from ._generated import GeneratedClient, an_object
from .configs import VMConfig, _ServicesConfig
from .errors import VMOperationError
from .virtualmachine import VMManager, VMState

Self = TypeVar("Self", bound="ServicesManager")
_LOG_END = 256 << 10


class ServicesManager(VMManager):
    """What the managers of both documents have in common."""

    config_class: Type[VMConfig] = VMConfig
    cfg: _ServicesConfig

    start_timeout = 120.0
    """Seconds until the services must answer."""

    def __init__(
        self, config: Any, logger: Any = None, preserve_on_exit: bool = False, **kwargs: Any
    ) -> None:
        if not isinstance(config, self.config_class):
            wanted = self.config_class.__name__
            raise TypeError(f"config must be a {wanted}, not {type(config).__name__}")
        super().__init__(config, logger=logger, **kwargs)
        self.preserve_on_exit = preserve_on_exit
        self._generated: Optional[GeneratedClient] = None

    # --- starting ----------------------------------------------------------------------------

    def start_agent_vm(self) -> None:
        """Machine, services, client: after this everything answers. Again is a check of all of it."""
        self.create_container()
        self._start_services()
        self._wait_services()
        self._services_ready()

    def connect_or_start(self) -> None:
        """The same; a machine that runs under this name is re-used."""
        try:
            self.start_agent_vm()
        except (VMOperationError, TimeoutError):
            raise
        except Exception as problem:
            raise VMOperationError(f"the machine could not be started: {problem}") from problem

    def reconnect(self) -> None:
        """Start the services of a machine that runs once more."""
        if self.container is None:
            self._find_again()
        self._start_services()
        self._wait_services()

    def _find_again(self) -> None:
        try:
            found = self._attach()
            seen = [event.seq for event in found._events_after(0, 0)] if found else []
        except BaseException as problem:
            self._close_tunnels()
            self._release()
            if isinstance(problem, cove.CoveError):
                raise VMOperationError(str(problem)) from problem
            raise
        if found is None:
            self._release()
            raise VMOperationError(f"no machine {self.cfg.container_name} runs")
        self._hold()
        self._has(found, max(seen, default=0))

    def _start_services(self) -> None:
        """The user's own server code; the guest's services start by themselves when somebody connects."""
        own = self.cfg.own_server
        if own is None:
            return
        sandbox, there = self._running(), str(self.cfg.sandbox_server_dir)
        if self._answers(f"{self.base_url}/health"):
            return
        try:
            sandbox.files.upload(own, there, exclude=lambda p: "__pycache__" in p or ".venv" in p)
            sandbox.files.set_mode(f"{there}/start.sh", 0o755)
            sandbox.commands.start(
                "./start.sh >/dev/null 2>>start.err", cwd=there, env=self.cfg.start_environment()
            ).close()
        except cove.CoveError as problem:
            raise VMOperationError(
                f"{own} could not be started in the machine: {problem}"
            ) from problem

    def _services(self) -> Dict[str, str]:
        """What has to answer."""
        return {"server": f"{self.base_url}/health"}

    def _wait_services(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        for name, url in self._services().items():
            while not self._answers(url):
                if self.container is None or not self.container.is_running():
                    raise VMOperationError(f"the machine ended before its {name} answered")
                if time.monotonic() > deadline:
                    self._become(VMState.ERROR)
                    raise VMOperationError(self._why_not(name, url))
                time.sleep(0.1)

    def _why_not(self, name: str, url: str) -> str:
        said = f"the machine's {name} did not answer at {url} within {self.start_timeout:g} s"
        with contextlib.suppress(VMOperationError):
            return f"{said}; its log ends with:\n{self.tail_server_logs(20)}"
        with contextlib.suppress(cove.CoveError):
            if self.cfg.own_server:
                path = f"{self.cfg.sandbox_server_dir}/start.err"
                return f"{said}; start.sh said:\n{self._running().files.read(path)[-2000:]}"
        return f"{said}; this guest has no such service: host_server_dir can bring one"

    @staticmethod
    def _answers(url: str) -> bool:
        try:
            return bool(httpx.get(url, timeout=2, trust_env=False).status_code == 200)
        except httpx.HTTPError:
            return False

    def _services_ready(self) -> None:
        """What each document does then."""

    def _restarted(self) -> None:
        self._start_services()

    # --- asking ------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        host = self.cfg.host_sandbox_server_host
        return f"http://{'127.0.0.1' if host == 'localhost' else host}:{int(self.cfg.host_sandbox_server_port)}"

    @property
    def generated_client(self) -> GeneratedClient:
        """The typed client, made at its first use from the document the machine serves."""
        if self._generated is None:
            self._running()
            self._generated = GeneratedClient(
                self.base_url, self.cfg.client_output_dir, self.cfg.force_regenerate_client
            )
        return self._generated

    def sandbox_health(self) -> Dict[str, Any]:
        return an_object(self.generated_client.call("health"), "health")

    def sandbox_take_screenshot(self, method: str = "pyautogui") -> Dict[str, Any]:
        """Where the picture is in the shared directory, the pointer's place and the screen's size."""
        kind = self.generated_client.model("ScreenshotEndpointScreenshotGetMethod")
        try:
            wanted = kind(method)
        except ValueError:
            known = ", ".join(item.value for item in kind)
            raise VMOperationError(f"method={method!r} is not one of {known}") from None
        return an_object(self.generated_client.call("screenshot", method=wanted), "screenshot")

    def sandbox_start_recording(self) -> Dict[str, Any]:
        return self._record("start")

    def sandbox_stop_recording(self) -> Dict[str, Any]:
        return self._record("stop")

    def _record(self, mode: str) -> Dict[str, Any]:
        kind = self.generated_client.model("RecordRecordGetMode")
        return an_object(self.generated_client.call("record", mode=kind(mode)), "record")

    def sandbox_execute_code(
        self, code: str, packages: Optional[List[str]] = None
    ) -> Dict[str, Any]:
        """Run code in a Python of its own: `stdout` and `stderr`, where a traceback is, too."""
        request = self.generated_client.model("CodeRequest")(code=code, packages=packages)
        return an_object(self.generated_client.call("execute", body=request), "execute")

    def sandbox_list_installed_packages(self) -> List[Dict[str, Any]]:
        found = self.generated_client.call("packages")
        return list(found) if isinstance(found, list) else []

    # --- logs --------------------------------------------------------------------------------

    def tail_server_logs(self, lines: int = 100) -> str:
        """The end of the services' log, which is in the shared directory."""
        path = self.cfg.container_shared_dir / self.cfg.sandbox_server_log
        # Code inside chooses what is there, and may change it between a look and an open: what was opened
        # is looked at, only a plain file is read, and only its end. A pipe must not keep us waiting.
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as log:
                found = os.fstat(log.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise FileNotFoundError
                log.seek(max(0, found.st_size - _LOG_END))
                text = log.read(_LOG_END).decode("utf-8", "replace")
        except OSError:
            raise VMOperationError(f"there is no log at {path}") from None
        return "\n".join(text.splitlines()[-lines:])

    # --- ending ------------------------------------------------------------------------------

    def _release(self) -> None:
        if self._generated is not None:
            self._generated.close()
            self._generated = None
        super()._release()

    def __enter__(self: Self) -> Self:
        try:
            self.start_agent_vm()
        except BaseException:
            self.cleanup(delete_storage=True)
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.preserve_on_exit:
            self.detach()
        else:
            self.cleanup(delete_storage=True)

    @contextlib.contextmanager
    def sandbox_vm_context(self: Self) -> Iterator[Self]:
        """The machine for the length of a block."""
        with self:
            yield self
