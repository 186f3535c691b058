"""The doors of a configuration: what makes each of them, and the checks that only its dialect and its files allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from postroom_common.errors import ConfigurationError

from .config.settings import DoorSection, Settings
from .contract import Daemon, DaemonUnavailable, HttpDialect, MessageDialect, Principal, StreamDialect
from .dialects.lmq.http import LmqHttp
from .dialects.lmq.rpc import RpcDialect
from .dialects.simplemq.door import SimpleMq
from .dialects.simplemq.export import export as export_messages
from .dialects.simplemq.tcp import SimpleMqTcp
from .dialects.smss.door import Smss
from .dialects.websocket_mq.door import WebSocketMq
from .lane import Lane
from .observe.counters import DoorCounters
from .serve.authentication import Authenticator, Directory
from .serve.door import Door
from .serve.limits import Limits
from .serve.listener import Listener
from .serve.tls import InvalidTls, read_tls

#: Makes the dialect of a door: from the daemon, the door's name, and the keys of its table ``options``. Raises
#: ``ConfigurationError`` for a wrong option.
Make = Callable[[Daemon, str, Mapping[str, Any]], HttpDialect | MessageDialect | StreamDialect]
_MAKERS: Final[Mapping[str, Make]] = {
    "lmq-http": LmqHttp,
    "lmq-rpc": RpcDialect,
    "mq-websocket": WebSocketMq,
    "smss": Smss,
    "simplemq": SimpleMq,
    "simplemq-tcp": SimpleMqTcp,
}


def check(settings: Settings) -> None:
    """Check what only the dialects and the files of TLS can. Raises ``ConfigurationError``."""
    for door in settings.doors.values():
        try:
            make_dialect(door, _NoDaemon())
        except ConfigurationError as error:
            raise ConfigurationError(f"doors.{door.name}.{error}") from None
        try:
            read_tls(door)
        except InvalidTls as error:
            raise ConfigurationError(f"doors.{door.name}: {error}") from None


def make_dialect(door: DoorSection, daemon: Daemon) -> HttpDialect | MessageDialect | StreamDialect:
    """The dialect of a door. Raises ``ConfigurationError``."""
    return _MAKERS[door.dialect](daemon, door.name, door.options)


def make_listener(door: DoorSection, settings: Settings, limits: Limits) -> Listener:
    """The listener of a door, which is not open yet."""
    authenticator = Authenticator(door.name, door.authentication, Directory(settings.principals))
    return Listener(Door(door.name, authenticator, limits, DoorCounters()), door)


async def export(settings: Settings, principal: str, topics: Sequence[str], directory: Path) -> Mapping[str, int]:
    """Write the messages of topics, or of all, as SimpleMQ's files: how many there are, by day. Raises
    ``PostroomError``, ``OSError``."""
    daemon = settings.daemon
    lane = Lane(daemon.socket, daemon.client_id, daemon.patience_seconds, daemon.answer_seconds, waiting_limit=1)
    try:
        if not await lane.until_connected(daemon.patience_seconds):
            raise DaemonUnavailable(lane.problem)
        return (await export_messages(lane, Principal(principal), "simplemq", topics, directory)).days
    finally:
        await lane.close(0)


class _NoDaemon:
    """A daemon for checks, which is never asked."""

    async def request(self, *arguments: Any, **named: Any) -> Any:
        """As ``Daemon.request``."""
        raise AssertionError("a check asks no daemon")

    def ask(self, *arguments: Any, **named: Any) -> Any:
        """As ``Daemon.ask``."""
        raise AssertionError("a check asks no daemon")

    ask_waiting = ask
