"""Listening sockets that the service manager opened and passed (sd_listen_fds(3)).

Under the unit of the package the gateway has no network of its own: it serves what systemd listens on for it, and can
open no connection to anywhere.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import MutableMapping
from typing import Final

_FIRST: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class PassedSockets:
    """The sockets that were passed, by address, port and kind. ``is_managed`` is True if there are any: then the
    process listens on no others. The variables are removed from ``environ``: they are meant for this process alone."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        ours = environ.get("LISTEN_PID") == str(os.getpid())
        number = int(environ["LISTEN_FDS"]) if ours and environ.get("LISTEN_FDS", "").isdecimal() else 0
        for name in _VARIABLES:
            environ.pop(name, None)
        self.is_managed = number > 0
        self._sockets: dict[tuple[str, int, int], socket.socket] = {}
        for fd in range(_FIRST, _FIRST + number):
            os.set_inheritable(fd, False)
            one = socket.socket(fileno=fd)
            one.setblocking(False)
            name = one.getsockname()
            if one.family in (socket.AF_INET, socket.AF_INET6):
                self._sockets[str(ipaddress.ip_address(name[0])), name[1], one.type] = one
            else:
                one.close()

    def take(self, address: str, port: int, kind: int = socket.SOCK_STREAM) -> socket.socket | None:
        """The socket of a kind at an address, which belongs to the caller from now on."""
        wanted = "127.0.0.1" if address == "localhost" else str(ipaddress.ip_address(address))
        return self._sockets.pop((wanted, port, kind), None)

    def close_rest(self) -> list[str]:
        """Close what nobody has taken; their addresses."""
        rest = [f"{address} port {port}" for address, port, _ in self._sockets]
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()
        return rest
