"""The document names the keys, settings and filters that the console has."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom_console.data import message_filter
from postroom_console.data.config import OPTIONS
from postroom_console.tui.keys import BACK, EVERYWHERE, LIST, REPLAY, SCREENS, VIEWS, Key

DOCUMENT = Path(__file__).parents[2] / "docs" / "console.md"
NAMES = {
    "queues": "Queues",
    "queue": "a queue",
    "tail": "Tail",
    "leases": "Leases",
    "dead": "Dead",
    "message": "a message",
    "log": "Log",
}


def shown(key: Key) -> str:
    """The keys of an action as people write them."""
    more = [name for name in key.keys.split(",")[1:] if name.isascii()]
    return " ".join(f"`{name}`" for name in (key.shown, *more))


def keys_table() -> str:
    """All keys, by the screens on which they work."""
    parts = [(NAMES[name], keys) for name, keys in SCREENS.items() if keys]
    parts += [("lists", LIST), ("everywhere", (*EVERYWHERE, *BACK)), ("a recording", REPLAY)]
    lines = ["| where | key | what it does | id |", "|---|---|---|---|"]
    for where, keys in parts:
        for at, key in enumerate(keys):
            words = f"the screen {key.words}" if key in VIEWS else key.words
            lines.append(f"| {'' if at else where} | {shown(key)} | {words} | `{key.id}` |")
    return "\n".join(lines)


def settings_table() -> str:
    """All settings."""
    lines = ["| in the file | environment | flag | default | what it does |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        default = str(option.default).lower() if isinstance(option.default, bool) else f'"{option.default}"'
        choices = f": {', '.join(f'`{choice}`' for choice in option.choices)}" if option.choices else ""
        flag = f"`{option.flag}`" if option.name in ("read_only", "ascii") else ""
        lines.append(f"| `{option.name}` | `{option.variable}` | {flag} | `{default}` | {option.help}{choices} |")
    return "\n".join(lines)


@pytest.mark.parametrize("table", [keys_table, settings_table])
def test_a_table_of_the_document_is_what_the_code_says(table: object) -> None:
    assert callable(table)
    wanted = table()
    assert wanted in DOCUMENT.read_text(), f"put this into {DOCUMENT.name}:\n{wanted}"


def test_every_word_of_the_filters_is_documented() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in message_filter._FIELDS if f"`{name}:" not in text] == []


def test_every_picture_of_the_document_exists_and_is_used() -> None:
    text = DOCUMENT.read_text() + (DOCUMENT.parents[1] / "README.md").read_text()
    for path in DOCUMENT.parent.glob("pictures/*.svg"):
        assert f"pictures/{path.name}" in text
