"""Telling systemd how the service is (sd_notify(3)); nothing happens where there is no systemd."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send ``state`` (such as ``READY=1``) to the service manager that started this process, if one did."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or address[0] not in "/@":
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)
    except OSError:
        pass  # a service manager that does not listen must not stop the service
