"""ESC, and what comes soon after it: two keys, or the sequence of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Key

from postroom_console.tui.escape import Keys
from tests.console.terminal import terminal


def pressed(*pieces: str) -> list[str]:
    keys = Keys()
    return [event.key for piece in pieces for event in keys.feed(piece) if isinstance(event, Key)]


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        (["\x1b1"], ["escape", "1"]),
        (["\x1b", "1"], ["escape", "1"]),
        (["\x1b", "q"], ["escape", "q"]),
        (["\x1b", "qj"], ["escape", "q", "j"]),
        (["\x1bf"], ["escape", "f"]),
        (["\x1b/"], ["escape", "slash"]),
        (["\x1b", "ㅂ"], ["escape", "ㅂ"]),
        (["\x1b[A"], ["up"]),
        (["\x1b", "[A"], ["up"]),
        (["\x1b", "[", "A"], ["up"]),
        (["\x1bOB"], ["down"]),
        (["jk"], ["j", "k"]),
        (["", "j"], ["j"]),
    ],
)
def test_a_key_soon_after_esc_is_a_key_and_a_sequence_is_one(pieces: list[str], keys: list[str]) -> None:
    assert pressed(*pieces) == keys


def test_what_is_pasted_is_one_piece_of_text() -> None:
    (paste,) = Keys().feed("\x1b[200~1/q\x1b[201~")
    assert getattr(paste, "text", "") == "1/q"


def test_a_line_that_is_left_in_a_hurry_is_left_and_half_a_character_ends_no_input(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.keys("/")
        shown.sees("filter >")
        shown.keys("\x1b2")
        shown.sees("[2 Tail]", "FOLLOW")
        for byte in "ㅊ".encode():
            shown.sends(bytes([byte]))
        shown.keys("1")
        shown.sees("[1 Queues]")
        shown.keys("q")
        assert shown.ends() == 0
