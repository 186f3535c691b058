"""Who may do what. Identity is the uid that owns the request file, nothing that the file says."""

from __future__ import annotations

from typing import NamedTuple

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode

from .records import pin_fact
from .stores.base import Store


class Principal(NamedTuple):
    """Who asks: the client id, the uid that owns the request file, and the uid that owns the client's box
    (None: no box yet)."""

    client_id: str
    uid: int
    box_uid: int | None = None


def pin_client(who: Principal, daemon_uid: int, store: Store) -> list[dict[str, object]]:
    """Check that ``who`` may act as its client id; the events that bind the id to the uid, if it is new.

    A client id belongs to the owner of its box. Where the daemon made the box, it belongs to the uid that used it
    first. Raises ``CommandError`` (ERR_FORBIDDEN).
    """
    if who.uid == who.box_uid:
        return []
    if who.box_uid is not None and who.box_uid != daemon_uid:
        raise CommandError(ErrorCode.FORBIDDEN, f"client id {who.client_id} belongs to another user")
    pinned = store.fact(pin_fact(who.client_id))
    if pinned is None:
        if who.uid == daemon_uid:
            return []
        return [{"type": EventType.CLIENT_PINNED, "client": who.client_id, "uid": who.uid}]
    if pinned != who.uid:
        raise CommandError(ErrorCode.FORBIDDEN, f"client id {who.client_id} belongs to another user")
    return []
