"""What the packages `sandbox` and `agentic_sandbox` share: the names that other systems have for templates."""

from __future__ import annotations

from typing import Iterable, Optional

from .errors import NotFoundError

DEFAULTS = ("base", "ubuntu", "qemux/qemu", "python-sandbox-template")
"""The documents' own names, which all mean the default."""


def template(wanted: Optional[str], known: Iterable[str]) -> Optional[str]:
    """The template for a name from a document; None is the server's default.

    >>> template("ubuntu", ["host"]) is None
    True
    >>> template("host", ["host"])
    'host'
    >>> template("windows", ["host", "debian"])
    Traceback (most recent call last):
    ...
    cove.errors.NotFoundError: there is no template 'windows'; there are: debian, host, and as names of the \
default: base, ubuntu, qemux/qemu, python-sandbox-template
    """
    known = sorted(known)
    if wanted is None:
        return None
    if wanted in known:  # one of that very name goes before an alias
        return wanted
    if wanted in DEFAULTS:
        return None
    raise NotFoundError(
        f"there is no template {wanted!r}; there are: {', '.join(known)}, and as names of the default: "
        f"{', '.join(DEFAULTS)}"
    )
