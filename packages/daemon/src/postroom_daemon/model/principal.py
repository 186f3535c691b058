"""Who makes a request."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Who asks: the client id, and the uid that owns the request file."""

    client_id: str
    uid: int
