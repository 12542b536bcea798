"""SandboxVMManager: a machine with a REST service and Jupyter kernels. SandboxClient: its REST service."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import httpx

from ._generated import an_object
from ._services import ServicesManager
from .configs import SandboxVMConfig
from .errors import VMOperationError

__all__ = ["SandboxClient", "SandboxVMConfig", "SandboxVMManager"]


class SandboxClient:
    """The REST service of a machine: of a manager, or at an address."""

    def __init__(
        self,
        host: Optional[str] = None,
        port: Optional[int] = None,
        manager: Optional[ServicesManager] = None,
    ) -> None:
        if manager is None and (host is None or port is None):
            raise TypeError("SandboxClient needs host and port, or manager")
        self._manager = manager
        self._url = f"http://{'127.0.0.1' if host == 'localhost' else host}:{port}"

    @property
    def base_url(self) -> str:
        return self._manager.base_url if self._manager else self._url

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        try:
            reply = httpx.request(
                method,
                self.base_url + path,
                timeout=options.pop("timeout", 30),
                trust_env=False,
                **options,
            )
            return reply.json()
        except (httpx.HTTPError, ValueError) as problem:
            raise VMOperationError(f"{self.base_url}{path}: {problem}") from problem

    def health(self) -> Dict[str, Any]:
        return an_object(self._ask("GET", "/health"), "/health")

    def take_screenshot(self, method: str = "pyautogui") -> Dict[str, Any]:
        return an_object(self._ask("GET", "/screenshot", params={"method": method}), "/screenshot")

    def start_recording(self) -> Dict[str, Any]:
        return an_object(self._ask("GET", "/record", params={"mode": "start"}), "/record")

    def stop_recording(self) -> Dict[str, Any]:
        return an_object(self._ask("GET", "/record", params={"mode": "stop"}), "/record")

    def execute_code(self, code: str, packages: Optional[List[str]] = None) -> Dict[str, Any]:
        body = {"code": code, "packages": packages}
        return an_object(self._ask("POST", "/execute", json=body, timeout=None), "/execute")

    def list_installed_packages(self) -> List[Dict[str, Any]]:
        found = self._ask("GET", "/packages")
        return list(found) if isinstance(found, list) else []


class SandboxVMManager(ServicesManager):
    """A machine, its REST service and its kernels."""

    config_class = SandboxVMConfig
    cfg: SandboxVMConfig

    def __init__(
        self, config: Any, logger: Any = None, preserve_on_exit: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(config, logger, preserve_on_exit, **kwargs)
        self.sandbox_client = SandboxClient(manager=self)

    @property
    def kernel_url(self) -> str:
        host = self.cfg.host_sandbox_jupyter_kernel_host
        port = int(self.cfg.host_sandbox_jupyter_kernel_port)
        return f"http://{'127.0.0.1' if host == 'localhost' else host}:{port}"

    def _services(self) -> Dict[str, str]:
        return {**super()._services(), "kernel gateway": f"{self.kernel_url}/api"}
