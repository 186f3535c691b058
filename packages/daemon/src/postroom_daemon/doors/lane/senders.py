"""Who sends the requests of a connection: the user that has opened it, or a principal that a gateway names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from postroom_common.codec import Request as WireRequest
from postroom_common.errors import CommandError
from postroom_common.protocol import GATEWAY_DOOR_RULE, PRINCIPAL_RULE, ErrorCode, is_gateway_door, is_principal

from ...model.principal import Principal
from ...policy.access import may_use_response_dir
from .connection import Connection

#: Most client ids whose owners are cached, and most senders.
_CACHE_LIMIT: Final = 4096
_UNKNOWN: Final = -1


class Sender(NamedTuple):
    """Who sends a request, the gateway's door by which it came, and why it is refused, if it is."""

    who: Principal
    door: str
    problem: CommandError | None = None


class Senders:
    """Decides who sends a request. ``owner_of`` returns the uid that owns a client id, or None; ``is_gateway`` whether
    a uid may name other principals."""

    def __init__(self, owner_of: Callable[[str], int | None], is_gateway: Callable[[int], bool]) -> None:
        self._owner_of = owner_of
        self._is_gateway = is_gateway
        self._owners: dict[str, int | None] = {}
        self._accepted: dict[tuple[object, ...], Sender] = {}

    def forget(self) -> None:
        """Decide anew who sends what. Called about once a second, and when the configuration changes."""
        self._owners.clear()
        self._accepted.clear()

    def greet(self, connection: Connection, client_id: str, door: Any) -> None:
        """A client introduces itself with ``hello``. Raises ``CommandError`` if it is refused."""
        if not self._may_use(connection.uid, client_id):
            raise _foreign(client_id)
        if door is not None:
            if not self._is_gateway(connection.uid):
                raise _no_gateway(connection.uid)
            if not is_gateway_door(door):
                raise CommandError(ErrorCode.INVALID_REQUEST, f"door must be {GATEWAY_DOOR_RULE}")
            connection.door = door
        connection.client_id = client_id

    def is_gateway(self, connection: Connection) -> bool:
        """Whether a client may name the principals for which it sends requests."""
        return self._is_gateway(connection.uid)

    def of(self, connection: Connection, wire: WireRequest) -> Sender:
        """The sender of a request."""
        key = (connection.uid, connection.door, wire.client_id, wire.has_client_id, wire.acts_as, wire.door)
        try:
            sender = self._accepted.get(key)
        except TypeError:  # a name that is no text
            return self._decide(connection, wire)
        if sender is None:
            sender = self._decide(connection, wire)
            if not sender.problem:
                if len(self._accepted) >= _CACHE_LIMIT:
                    self._accepted.clear()
                self._accepted[key] = sender
        return sender

    def _decide(self, connection: Connection, wire: WireRequest) -> Sender:
        uid, client_id, door = connection.uid, wire.client_id, connection.door
        own = Principal(client_id, uid)
        if wire.acts_as is None and wire.door is None:
            return Sender(own, door, None if self._may_use(uid, client_id) else _foreign(client_id))
        if not self._is_gateway(uid):
            return Sender(own, door, _no_gateway(uid))
        if wire.door is not None:
            if not is_gateway_door(wire.door):
                return Sender(own, door, CommandError(ErrorCode.INVALID_REQUEST, f"door must be {GATEWAY_DOOR_RULE}"))
            door = wire.door
        name = wire.acts_as
        if name is None:
            return Sender(own, door, None if self._may_use(uid, client_id) else _foreign(client_id))
        if not is_principal(name):
            return Sender(own, door, CommandError(ErrorCode.INVALID_REQUEST, f"as must be {PRINCIPAL_RULE}"))
        if not wire.has_client_id:
            return Sender(Principal(name, name), door)
        is_free = client_id == name or (not is_principal(client_id) and self._owner(client_id) is None)
        return Sender(Principal(client_id, name), door, None if is_free else _foreign(client_id))

    def _may_use(self, uid: int, client_id: str) -> bool:
        """Whether a client id does not belong to another user."""
        owner = self._owner(client_id)
        return owner is None or may_use_response_dir(uid, owner)

    def _owner(self, client_id: str) -> int | None:
        owner = self._owners.get(client_id, _UNKNOWN)
        if owner == _UNKNOWN:
            if len(self._owners) >= _CACHE_LIMIT:
                self._owners.clear()
            owner = self._owners[client_id] = self._owner_of(client_id)
        return owner


def _foreign(client_id: str) -> CommandError:
    return CommandError(ErrorCode.FORBIDDEN, f"client id {client_id} belongs to another user: use one of your own")


def _no_gateway(uid: int) -> CommandError:
    text = f"uid {uid} may not send requests for others (as, door): only the users in gateway.users may"
    return CommandError(ErrorCode.FORBIDDEN, text)
