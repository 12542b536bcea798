"""Where the server is, and who asks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Dict, Optional, Sequence

from ._version import VERSION

REQUEST_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Connection:
    """A server and a key to it. The key is in no repr, so that no log has it."""

    url: str
    api_key: str = field(repr=False)
    ca_file: Optional[str] = None
    timeout: float = REQUEST_TIMEOUT_S

    def headers(self) -> Dict[str, str]:
        return {"X-API-Key": self.api_key, "User-Agent": f"cove-python/{VERSION}"}


def resolve(
    url: Optional[str] = None,
    api_key: Optional[str] = None,
    *,
    timeout: float = REQUEST_TIMEOUT_S,
    allow_mount: Sequence[str] = (),
) -> Connection:
    """The arguments, else COVE_URL and COVE_API_KEY, else a private server of this process."""
    url = url or os.environ.get("COVE_URL")
    api_key = api_key or os.environ.get("COVE_API_KEY")
    if url:
        return Connection(
            url.rstrip("/"), api_key or "", os.environ.get("COVE_CA_FILE") or None, timeout
        )
    from . import _server

    server = _server.private(allow_mount)
    return Connection(server.url, server.api_key, None, timeout)
