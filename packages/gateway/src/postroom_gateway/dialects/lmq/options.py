"""What the configuration of a door says about LMQ: its table ``options``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from postroom_common.errors import ConfigurationError

from .properties import default_policy

#: Header fields that every answer has of its own, or that belong to a connection.
_TAKEN: Final = re.compile(
    r"(x-lmq-.*|content-.*|connection|date|keep-alive|server|transfer-encoding|trailer|upgrade)\Z"
)
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")


@dataclass(frozen=True)
class Options:
    """How a door treats queues."""

    #: The policy with which queues are created.
    create_with: Mapping[str, Any]
    #: Names of header fields, in lower case, that are stored with a message and returned with it.
    preserve_headers: tuple[str, ...] = ()
    #: Whether a nack counts as a delivery, as in LMQ since 0.6.
    nack_counts: bool = True


def read_options(table: Mapping[str, Any]) -> Options:
    """The options of a door. Raises ``ConfigurationError``."""
    unknown = set(table) - {"preserve_headers", "nack_counts", "statistics"}
    if unknown:
        raise ConfigurationError(
            f"options: {min(unknown)!r} is no option; there are preserve_headers, nack_counts, statistics"
        )
    for name in ("nack_counts", "statistics"):
        if type(table.get(name, True)) is not bool:
            raise ConfigurationError(f"options.{name} must be true or false")
    return Options(
        create_with=default_policy(table.get("statistics", True)),
        preserve_headers=_read_names(table.get("preserve_headers", [])),
        nack_counts=table.get("nack_counts", True),
    )


def _read_names(given: Any) -> tuple[str, ...]:
    if type(given) is not list or not all(type(name) is str and _NAME.match(name) for name in given):
        raise ConfigurationError("options.preserve_headers must be a list of names of header fields")
    names = tuple(dict.fromkeys(name.lower() for name in given))
    for name in names:
        if _TAKEN.match(name):
            raise ConfigurationError(f"options.preserve_headers: {name} cannot be preserved; answers have their own")
    return names
