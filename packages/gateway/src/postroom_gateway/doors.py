"""The doors of a configuration: what makes each of them, and the checks that only its dialect and its files allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from postroom_common.errors import ConfigurationError

from .config.settings import DoorSection, Settings
from .contract import Daemon, HttpDialect, MessageDialect, StreamDialect
from .dialects.lmq.http import LmqHttp
from .dialects.lmq.rpc import RpcDialect
from .dialects.simplemq.door import SimpleMq
from .dialects.simplemq.tcp import SimpleMqTcp
from .dialects.smss.door import Smss
from .dialects.websocket_mq.door import WebSocketMq
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


class _NoDaemon:
    """A daemon for checks, which is never asked."""

    async def request(self, *arguments: Any, **named: Any) -> Any:
        """As ``Daemon.request``."""
        raise AssertionError("a check asks no daemon")

    def ask(self, *arguments: Any, **named: Any) -> Any:
        """As ``Daemon.ask``."""
        raise AssertionError("a check asks no daemon")

    ask_waiting = ask
