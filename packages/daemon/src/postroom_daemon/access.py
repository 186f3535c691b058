"""Who may do what. Identity is the uid that owns the request file, nothing that the file says."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Who asks: the client id, and the uid that owns the request file."""

    client_id: str
    uid: int


def is_operator(uid: int, daemon_uid: int) -> bool:
    """Whether a uid may see and do everything: it is the daemon's own, or root."""
    return uid in (0, daemon_uid)


def may_use_box(uid: int, box_uid: int) -> bool:
    """Whether a uid may act as the client whose box ``box_uid`` owns: a client id belongs to the owner of its box."""
    return uid == box_uid
