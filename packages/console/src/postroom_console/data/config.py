"""The console's settings: one table, read from a TOML file, the environment and the command line.

Variables of the environment override the file, and flags override both. ``[keys]`` is only possible in the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..i18n import tr
from .text import clean
from .views import LEASE_SORTS, SORTS

#: The variable that names another file.
FILE_VARIABLE: Final = "POSTROOM_CONSOLE_CONFIG"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})


class ConfigError(Exception):
    """A setting is invalid; the text says where it is and why."""


class Option(NamedTuple):
    """A setting: a choice, or a boolean if ``choices`` is empty."""

    name: str
    default: bool | str
    help: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return f"POSTROOM_CONSOLE_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


OPTIONS: Final = (
    Option("read_only", False, "disables all actions"),
    Option("ascii", False, "draws with ASCII characters only; texts and bodies stay as they are"),
    Option("sort", SORTS[0], "initial order of the queues", SORTS),
    Option("lease_sort", LEASE_SORTS[0], "initial order of the leases", LEASE_SORTS),
    Option("bursts", True, "collapses similar lines of the tail"),
)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. ``keys`` are the keys of actions by action id, as written in the file at ``path``."""

    read_only: bool = False
    ascii: bool = False
    sort: str = SORTS[0]
    lease_sort: str = LEASE_SORTS[0]
    bursts: bool = True
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    path: Path | None = None


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of the file: the variable's, or else one in the XDG configuration directory."""
    if environ.get(FILE_VARIABLE):
        return Path(environ[FILE_VARIABLE])
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "postroom-console" / "config.toml"


def load_config(flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """Load the settings in force. A flag that is None or absent is not set. Raises ``ConfigError``.

    The file may be missing, unless the environment names it.
    """
    path = config_path(environ)
    settings = _read(path, bool(environ.get(FILE_VARIABLE)))
    values: dict[str, Any] = {"keys": _keys(path, settings.pop("keys", {})), "path": path}
    known = {option.name: option for option in OPTIONS}
    for name, value in settings.items():
        if name not in known:
            names = ", ".join((*known, "keys"))
            raise ConfigError(
                tr("{where}: unknown setting; expected one of {names}").format(where=f"{path}: {name}", names=names)
            )
        values[name] = _checked(known[name], value, f"{path}: {name}")
    for option in OPTIONS:
        if option.variable in environ:
            values[option.name] = _from_text(option, environ[option.variable])
        if flags and flags.get(option.name) is not None:
            values[option.name] = _checked(option, flags[option.name], option.flag)
    return Config(**values)


def _read(path: Path, must_exist: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(tr("{where}: there is no such file").format(where=path)) from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: {clean(str(text))}") from None


def _checked(option: Option, value: Any, where: str) -> Any:
    if option.choices:
        if value not in option.choices:
            choices = ", ".join(option.choices)
            raise ConfigError(tr("{where}: must be one of {choices}").format(where=where, choices=choices))
    elif type(value) is not bool:
        raise ConfigError(tr("{where}: must be true or false").format(where=where))
    return value


def _from_text(option: Option, text: str) -> Any:
    if option.choices:
        return _checked(option, text, option.variable)
    word = text.strip().casefold()
    value = True if word in _TRUE else False if word in _FALSE else text
    return _checked(option, value, option.variable)


def _keys(path: Path, table: Any) -> dict[str, tuple[str, ...]]:
    if type(table) is not dict:
        raise ConfigError(tr("{where}: must be a table").format(where=f"{path}: keys"))
    found = {}
    for name, value in _flat(table):
        keys = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
        if not keys or not all(isinstance(key, str) and key for key in keys):
            where = f"{path}: keys.{clean(name)}"
            raise ConfigError(tr('{where}: must be a key, "p", or a list of keys').format(where=where))
        found[name] = keys
    return found


def _flat(table: Mapping[str, Any], front: str = "") -> list[tuple[str, Any]]:
    """Pairs with dotted names: TOML reads ``pause.publish`` as a table within a table."""
    pairs: list[tuple[str, Any]] = []
    for name, value in table.items():
        pairs += _flat(value, f"{front}{name}.") if isinstance(value, dict) else [(f"{front}{name}", value)]
    return pairs
