"""Sections of a TOML configuration: dataclasses whose fields are settings. Nothing in a file is ignored or corrected:
what is wrong is an error that names the key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConfigurationError
from .settings import Setting, shown

T = TypeVar("T")


def setting(key: str, default: T, help: str, **rules: Any) -> T:  # noqa: A002 - the name in Setting
    """Declare a field with the type of its default. ``rules`` are further fields of ``Setting``."""
    kind = Path if isinstance(default, Path) else type(default)
    made: T = field(default=default, metadata={"setting": Setting(key, kind, default, help, **rules)})
    return made


@dataclass(frozen=True)
class LogSection:
    """``[log]``: the log of this process."""

    log_level: str = setting(
        "level", "info", "lowest level that is logged", choices=("debug", "info", "warning", "error", "critical")
    )
    log_format: str = setting(
        "format",
        "auto",
        "form of the log on standard error; auto chooses by what that is",
        choices=("auto", "text", "json", "journald"),
    )
    log_per_minute: int = setting(
        "per_minute", 60, "most records of one kind in a minute; 0: no limit", low=0, high=1_000_000
    )


def attributes_of(section: type) -> dict[str, Setting]:
    """The settings of a section by attribute."""
    return {one.name: one.metadata["setting"] for one in fields(section) if "setting" in one.metadata}


def table_of(section: type) -> dict[str, Setting]:
    """The settings of a section by key."""
    return {one.key: one for one in attributes_of(section).values()}


def load_toml(path: Path) -> dict[str, Any]:
    """The tables of a file. Raises ``ConfigurationError``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None


def read_section(kind: type[T], table: Mapping[str, Any], where: str, **further: Any) -> T:
    """A section of settings from its table, and ``further`` fields. Raises ``ConfigurationError``."""
    settings = table_of(kind)
    refuse_unknown(table, settings, f"{where}.")
    attributes = {setting.key: name for name, setting in attributes_of(kind).items()}

    def refuse(text: str) -> None:
        raise ConfigurationError(text.partition(", using ")[0])

    values = {attributes[key]: settings[key].check(value, f"{where}.{key}", refuse) for key, value in table.items()}
    return kind(**further, **values)


def read_table(value: Any, where: str) -> dict[str, Any]:
    """A copy of a table of the file. Raises ``ConfigurationError`` if it is none."""
    if type(value) is not dict:
        raise ConfigurationError(f"{where}: expected a table, got {shown(value)}")
    return dict(value)


def refuse_unknown(table: Mapping[str, Any], known: Any, where: str) -> None:
    """Raise ``ConfigurationError`` for the first key of a table that is not known."""
    for key in table:
        if key not in known:
            raise ConfigurationError(f"{where}{key}: unknown key; expected one of: {', '.join(sorted(known))}")
