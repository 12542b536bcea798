"""Computers for programs that run code.

>>> from cove import Sandbox
>>> with Sandbox.create() as sandbox:
...     print(sandbox.commands.run("echo hello").stdout, end="")
hello

`Sandbox` and `Client` wait; `AsyncSandbox` and `AsyncClient` are the same with `await`. The server is found by
COVE_URL and COVE_API_KEY; where these are not set, a private one is started and ends with this process.
"""

from __future__ import annotations

from . import errors
from ._async.commands import AsyncCommand, AsyncTerminal
from ._async.sandbox import AsyncSandbox
from ._async.transport import AsyncClient
from ._server import stop_all as stop_private_servers
from ._sync.commands import Command, Terminal
from ._sync.sandbox import Sandbox
from ._sync.transport import Client
from ._types import *  # noqa: F403
from ._types import __all__ as _types
from ._version import VERSION as __version__
from .errors import *  # noqa: F403
from .errors import __all__ as _errors

__all__ = [
    "AsyncClient",
    "AsyncCommand",
    "AsyncSandbox",
    "AsyncTerminal",
    "Client",
    "Command",
    "Sandbox",
    "Terminal",
    "__version__",
    "errors",
    "stop_private_servers",
    *_types,
    *_errors,
]
