"""Checks of objects in the configuration file, with uniform error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from postroom_common.errors import ConfigurationError
from postroom_common.settings import shown

_TYPE_NAMES: Final[dict[type, str]] = {dict: "object", list: "array", str: "string", int: "integer"}


def expect(value: Any, kind: type, where: str) -> Any:
    """Return the value if it has the type ``kind``. Raises ``ConfigurationError``."""
    if type(value) is not kind:
        raise ConfigurationError(f"{where}: expected {_TYPE_NAMES[kind]}, got {shown(value)}")
    return value


def refuse_unknown_keys(entry: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    """Raise ``ConfigurationError`` for an unknown key of an object."""
    for name in entry:
        if name not in allowed:
            raise ConfigurationError(f"{where}.{name}: unknown key; expected one of: {', '.join(sorted(allowed))}")
