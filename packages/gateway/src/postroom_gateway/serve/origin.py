"""Which web pages may open a WebSocket connection.

A browser lets any page connect to any WebSocket, also to a loopback address of its own machine, and says in the header
``Origin`` where the page is from. Programs that are no browsers send none. So that a foreign page cannot use a door
that asks for nothing, or for what a browser shows by itself (a client certificate), such a door accepts pages of its
own origin only. A door that asks for tokens accepts all: a page that has one was given it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit


def may_connect(origin: str | None, host: str, allowed: Collection[str], needs_token: bool) -> bool:
    """Whether a page from ``origin`` (None: no page) may connect to a door that it reaches as ``host``, the header of
    its request. ``allowed`` are further origins; ``*`` stands for all."""
    if origin is None or needs_token or "*" in allowed or origin in allowed:
        return True
    try:
        page = urlsplit(origin)
        name = page.hostname or ""
    except ValueError:  # such as http://[
        return False
    return page.netloc.lower() == host.lower() and _is_own_name(name)


def _is_own_name(name: str) -> bool:
    """Whether nobody else can let this name lead here. A page of a foreign domain could, whose owner answers the second
    question for its address with that of this machine (DNS rebinding)."""
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
