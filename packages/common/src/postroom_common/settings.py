"""Declarations of settings: each one defines the file key, the variable, the flag, the help and the document."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from .errors import ConfigurationError

Warn = Callable[[str], None]

_EXPECTED: Final = {
    str: "string",
    Path: "path (a string, not empty, without control characters)",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_PATH_PATTERN: Final = r"[^\x00-\x1f\x7f]+"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. ``key`` is its dotted path in the configuration file; a ``Path`` is a string there.

    A value of the wrong type is refused. A number below ``low`` becomes ``below`` (the default if None), one above
    ``high`` becomes ``high``. A text must be one of ``choices``, in any case, and match ``pattern`` completely;
    ``form`` describes the pattern in words. A text in ``corrected`` becomes the default, and so does any text if
    ``corrected`` is None. Every correction causes a warning.
    """

    key: str
    type: type
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    below: Any = None
    choices: tuple[str, ...] = ()
    corrected: tuple[str, ...] | None = ()
    pattern: str = ""
    form: str = ""
    #: Why the setting has no effect; any value but the default causes a warning.
    unused: str = ""
    #: Whether an environment variable can set it. False if other programs give the variable another meaning.
    by_variable: bool = True

    @property
    def expected(self) -> str:
        """The expected kind of value, for error texts."""
        return "one of " + ", ".join(filter(None, self.choices)) if self.choices else self.form or _EXPECTED[self.type]

    @property
    def range(self) -> str:
        """The allowed numbers or texts, for error texts."""
        if self.low is None:
            return self.expected
        return f"{self.low:,} to {self.high:,}" if self.high is not None else f"from {self.low:,}"

    @property
    def environment(self) -> str:
        """Name of the environment variable: ``POSTROOM_IPC_STALE_TIMEOUT_MS`` for ``ipc.staleTimeoutMs``; "" if the
        setting has none."""
        return "POSTROOM_" + split_words(self.key, "_").upper() if self.by_variable else ""

    @property
    def flag(self) -> str:
        """Name of the command line flag: ``--ipc-stale-timeout-ms`` for ``ipc.staleTimeoutMs``."""
        return "--" + split_words(self.key, "-")

    def check(self, value: Any, where: str, warn: Warn) -> Any:
        """The value to use for a JSON value. ``where`` is its source and key, for error texts.

        Corrects a value that is out of range, and reports it to ``warn``. Raises ``ConfigurationError`` for an invalid
        value.
        """
        if self.type in (str, Path):
            used = self._checked_text(value, where)
            corrected = used.lower() != str(value).lower()
        else:
            used = self._checked_number(value, where)
            corrected = used != value
        if corrected:
            warn(f"{where}: {shown(value)} is out of range ({self.range}), using {shown(used)}")
        used = Path(used) if self.type is Path else used
        if self.unused and used != self.default:
            warn(f"{where}: has no effect: {self.unused}")
        return used

    def parse(self, text: str, where: str, warn: Warn) -> Any:
        """Like ``check``, for the text of an environment variable or flag."""
        value: Any = text
        try:
            if self.type is bool:
                value = text.lower() in _TRUE if text.lower() in _TRUE + _FALSE else text
            elif self.type is int:
                value = int(text)
            elif self.type is float:
                value = float(text)
        except ValueError:
            raise self._refused(text, where) from None
        return self.check(value, where, warn)

    def _refused(self, value: Any, where: str) -> ConfigurationError:
        return ConfigurationError(f"{where}: expected {self.expected}, got {shown(value)}")

    def _checked_text(self, value: Any, where: str) -> Any:
        pattern = _PATH_PATTERN if self.type is Path else self.pattern
        # A path may contain bytes that are not UTF-8, from arguments and the environment; a text may not.
        if type(value) is not str or (self.type is str and not is_text(value)):
            raise self._refused(value, where)
        if pattern and re.fullmatch(pattern, value) is None:
            raise self._refused(value, where)
        if not self.choices:
            return value
        for choice in self.choices:
            if choice.lower() == value.lower():
                return choice
        if self.corrected is None or value.lower() in [known.lower() for known in self.corrected]:
            return self.default
        raise self._refused(value, where)

    def _checked_number(self, value: Any, where: str) -> Any:
        fits = type(value) is self.type or (self.type is float and type(value) is int)
        if not fits:
            raise self._refused(value, where)
        endless = type(value) is float and not math.isfinite(value)
        if endless or (self.low is not None and value < self.low):
            return self.default if self.below is None else self.below
        return self.high if self.high is not None and value > self.high else value


def flatten(
    tree: Mapping[str, Any], table: Mapping[str, Setting], where: str, elsewhere: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The leaves of a configuration tree by dotted key, in the order of the tree.

    ``where`` precedes each key in error texts. Top-level keys ``elsewhere`` are skipped: the caller reads them.
    Raises ``ConfigurationError`` for a key that is not in ``table``, with the keys that are allowed there.
    """
    groups = {key.rpartition(".")[0] for key in table} - {""}
    flat: dict[str, Any] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for name, value in node.items():
            key = prefix + name
            if key in table and "." not in name:
                flat[key] = value
            elif key in elsewhere:
                pass
            elif key not in groups or "." in name:
                known_keys = (*table, *elsewhere)
                beside = {known[len(prefix) :].partition(".")[0] for known in known_keys if known.startswith(prefix)}
                raise ConfigurationError(f"{where}{key}: unknown key; expected one of: {', '.join(sorted(beside))}")
            elif type(value) is not dict:
                raise ConfigurationError(f"{where}{key}: expected object, got {shown(value)}")
            else:
                walk(value, key + ".")

    walk(tree, "")
    return flat


@cache
def split_words(key: str, joint: str) -> str:
    """A camel-case or dotted name in lower case, with ``joint`` between its words."""
    words = "".join(joint + char.lower() if char.isupper() else char for char in key)
    return words.replace(".", joint)


def is_text(value: str) -> bool:
    """Whether a string has no lone surrogates, which stand for bytes that are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A JSON value for an error text, truncated to 80 characters."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 80 else text[:77] + "..."
