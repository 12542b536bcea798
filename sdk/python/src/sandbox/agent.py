"""AgentVMManager: a machine whose REST service runs code."""

from __future__ import annotations

from typing import Any

from ._services import ServicesManager
from .configs import AgentVMConfig
from .sandbox import SandboxClient

__all__ = ["AgentVMConfig", "AgentVMManager"]


class AgentVMManager(ServicesManager):
    """After the start the client is generated from the machine's own document, and imported."""

    config_class = AgentVMConfig
    cfg: AgentVMConfig

    def __init__(self, config: Any, preserve_on_exit: bool = False, **kwargs: Any) -> None:
        super().__init__(config, preserve_on_exit=preserve_on_exit, **kwargs)
        self.sandbox_client = SandboxClient(manager=self)

    def _services_ready(self) -> None:
        if self._generated is not None:  # the document may have changed
            self._generated.close()
            self._generated = None
        self.generated_client.call("health")
