"""What an object of the configuration file must look like, said alike wherever it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from postroom_common.errors import ConfigurationError
from postroom_common.settings import shown

_TYPE_NAMES: Final[dict[type, str]] = {dict: "object", list: "array", str: "string"}


def expect(value: Any, kind: type, where: str) -> Any:
    """The value, if it is of a kind. Raises ``ConfigurationError``."""
    if type(value) is not kind:
        raise ConfigurationError(f"{where}: expected {_TYPE_NAMES[kind]}, got {shown(value)}")
    return value


def refuse_strangers(entry: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Raise ``ConfigurationError`` for a key that an object cannot have."""
    for name in entry:
        if name not in known:
            raise ConfigurationError(f"{where}.{name}: unknown key; known here: {', '.join(sorted(known))}")
