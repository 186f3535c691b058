"""Bodies as lines for people: whatever they are made of, and however long."""

from __future__ import annotations

import base64
import json

import pytest

from postroom_console.data.message_report import BODY_BYTES, BODY_CHARACTERS, BODY_LINES, body_lines
from postroom_console.data.text import clean


def test_json_is_indented_even_if_it_came_as_text() -> None:
    assert list(body_lines({"수집": [1]})) == ["  {", '    "수집": [', "      1", "    ]", "  }"]
    assert list(body_lines('{"a":1}')) == ["  {", '    "a": 1', "  }"]


def test_bytes_are_shown_in_hex_beside_their_characters() -> None:
    (line,) = body_lines(base64.b64encode(b"A\x00\xff").decode(), True)
    assert line.split() == ["000000", "41", "00", "ff", "A.."]


@pytest.mark.parametrize(
    ("body", "is_binary"),
    [
        ("[" * 100_000, False),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, False),
        ("[" * 900 + "]" * 900, False),
        ("9" * 5000, False),
        ("\ud800", False),
        ("\x1b[2J\n" * 10, False),
        ("no base64!", True),
        ("", False),
        ("", True),
        (None, False),
    ],
)
def test_every_body_can_be_shown_and_none_controls_the_terminal(body: str | None, is_binary: bool) -> None:
    lines = list(body_lines(body, is_binary))
    assert lines == [clean(line) for line in lines]


@pytest.mark.parametrize(
    ("body", "is_binary", "words"),
    [
        ("x" * (BODY_CHARACTERS + 7), False, "... and 7 more characters: save it to see them"),
        (json.dumps(["값" * BODY_CHARACTERS]), False, "... and 8 more characters: save it to see them"),
        ("\n" * (BODY_LINES + 1), False, "... and 2 more characters: save it to see them"),
        (base64.b64encode(bytes(BODY_BYTES + 3)).decode(), True, "... and 3B more: save it to see them"),
    ],
)
def test_a_long_body_is_cut_and_the_omitted_size_is_shown(body: str, is_binary: bool, words: str) -> None:
    *_, last = body_lines(body, is_binary)
    assert last.strip() == words


def test_a_body_that_just_fits_is_complete() -> None:
    assert list(body_lines("x" * BODY_CHARACTERS)) == ["  " + "x" * BODY_CHARACTERS]
