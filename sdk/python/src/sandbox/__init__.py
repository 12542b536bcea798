"""Virtual machines for agents: managers, their configurations, and executors of code.

The machine behind a manager is a sandbox of Cove. See docs/python.md for every field of a configuration and
what it does.
"""

from .configs import AgentVMConfig, SandboxVMConfig
from .errors import (
    RemoteCommandError,
    SSHError,
    VMCreationError,
    VMManagerError,
    VMOperationError,
)
from .virtualmachine import VMConfig, VMManager, VMState

__all__ = [
    "AgentVMConfig",
    "RemoteCommandError",
    "SSHError",
    "SandboxVMConfig",
    "VMConfig",
    "VMCreationError",
    "VMManager",
    "VMManagerError",
    "VMOperationError",
    "VMState",
]
