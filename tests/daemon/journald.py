"""A socket in the place of systemd's journal, and the fields of its datagrams."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def journal(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(str(path))
        reader.settimeout(20)
        yield reader


def read_fields(datagram: bytes) -> dict[str, str]:
    """What journald reads of a datagram."""
    fields = {}
    while datagram:
        name, _, rest = datagram.partition(b"\n")
        if b"=" in name:
            name, _, value = name.partition(b"=")
        else:
            length = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
        fields[name.decode()] = value.decode()
        datagram = rest
    return fields
