"""Helpers for a table of settings: one declaration feeds file, environment, flags, ``--help`` and documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ConfigurationError

Corrector = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    ``key`` is the dotted path in the configuration file. ``correct`` returns the value to use instead of one that is
    out of range (the same value when it is fine). ``choices`` are the accepted values of a text, if they are few.
    """

    key: str
    type: type
    default: Any
    help: str
    correct: Corrector | None = None
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """What a value must be, for error texts."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        return {str: "string", int: "integer", float: "number", bool: "boolean"}[self.type]

    @property
    def environment(self) -> str:
        """Name of the environment variable: ``ipc.staleTimeoutMs`` is ``POSTROOM_IPC_STALE_TIMEOUT_MS``."""
        return "POSTROOM_" + _split_words(self.key, "_").upper()

    @property
    def flag(self) -> str:
        """Name of the command line flag: ``ipc.staleTimeoutMs`` is ``--ipc-stale-timeout-ms``."""
        return "--" + _split_words(self.key, "-").lower()

    def check(self, value: Any, source: str, warn: Callable[[str], None]) -> Any:
        """The value to use for ``value``, which came from ``source``.

        Raises ``ConfigurationError`` for a wrong type; corrects what is out of range and says so to ``warn``.
        """
        fits = type(value) is self.type or (self.type is float and type(value) is int)
        if not fits:
            raise ConfigurationError(f"{source}: {self.key}: expected {self.expected}, got {value!r}")
        if self.choices and value not in self.choices:
            raise ConfigurationError(f"{source}: {self.key}: expected {self.expected}, got {value!r}")
        corrected = self.correct(value) if self.correct else value
        if corrected != value:
            warn(f"{source}: {self.key}: {value!r} is out of range, using {corrected!r}")
        return corrected

    def parse(self, text: str, source: str) -> Any:
        """A value from the text of an environment variable or flag.

        Raises ``ConfigurationError`` when the text is no such value.
        """
        try:
            if self.type is bool:
                return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
            return self.type(text)
        except (KeyError, ValueError):
            raise ConfigurationError(f"{source}: {self.key}: expected {self.expected}, got {text!r}") from None


def at_least(low: float, otherwise: Any) -> Corrector:
    """A corrector: values below ``low`` become ``otherwise``."""
    return lambda value: otherwise if value < low else value


def flatten(tree: Mapping[str, Any], table: Mapping[str, Setting], source: str) -> dict[str, Any]:
    """The leaves of a configuration tree by dotted key, in the file's order.

    Raises ``ConfigurationError`` for a key that ``table`` does not know, naming the keys beside it.
    """
    groups = {key.rpartition(".")[0] for key in table} - {""}
    flat: dict[str, Any] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for name, value in node.items():
            key = prefix + name
            if key in table:
                flat[key] = value
            elif key not in groups:
                beside = sorted(known for known in table if known.rpartition(".")[0] == prefix[:-1])
                raise ConfigurationError(f"{source}: {key}: unknown key; known here: {', '.join(beside)}")
            elif type(value) is not dict:
                raise ConfigurationError(f"{source}: {key}: expected object, got {value!r}")
            else:
                walk(value, key + ".")

    walk(tree, "")
    return flat


def _split_words(key: str, joint: str) -> str:
    words = "".join(joint + char if char.isupper() else char for char in key)
    return words.replace(".", joint)
