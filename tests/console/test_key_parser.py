"""Keys out of terminal input: sequences, ESC and the keys after it, pastes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, Paste
from textual.keys import key_to_character

from postroom_console.tui.key_parser import KeyParser, key_name
from tests.console.terminal import terminal


def pressed(*pieces: str) -> list[str]:
    """The keys of some pieces, after which nothing comes."""
    parser = KeyParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return [event.key for event in (*events, *parser.flush()) if isinstance(event, Key)]


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


@pytest.mark.parametrize(
    ("sequence", "keys"),
    [
        ("\x1b[1~", ["home"]),
        ("\x1b[6~", ["pagedown"]),
        ("\x1b[1;5A", ["ctrl+up"]),
        ("\x1b[1;3A", ["escape", "up"]),
        ("\x1b[15~", ["f5"]),
        ("\x1bOP", ["f1"]),
        ("\x1b[[E", ["f5"]),
        ("\x1b[Z", ["shift+tab"]),
        ("\x1b[3;2~", ["shift+delete"]),
        ("\x1b[3$", ["shift+delete"]),
        ("\x1bOj", ["asterisk"]),
        ("\x07", ["ctrl+g"]),
        ("\x7f", ["backspace"]),
    ],
)
def test_each_kind_of_terminal_has_its_sequences(sequence: str, keys: list[str]) -> None:
    assert pressed(sequence) == keys


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b[?1;2c",
        "\x1b[?2026;2$y",
        "\x1b[<0;1;1M",
        "\x1b]11;rgb:0/0/0\x07",
        "\x1bP>|xterm\x1b\\",
        "\x1b[" + "9" * 99 + "A",
    ],
)
def test_an_unknown_sequence_is_dropped_completely(sequence: str) -> None:
    assert pressed(f"a{sequence}b") == ["a", "b"]
    assert pressed("a", *sequence, "b") == ["a", "b"], "also in pieces"


@pytest.mark.parametrize(("piece", "keys"), [("\x1b", ["escape"]), ("\x1bX", ["escape", "X"]), ("\x1b[1", [])])
def test_an_incomplete_sequence_is_esc_and_a_key_or_no_key(piece: str, keys: list[str]) -> None:
    assert pressed(piece) == keys


@given(st.lists(st.text(st.sampled_from("\x1b[]OPX201~;5Aq\x07\\"), max_size=8), max_size=8))
def test_no_input_ends_the_parser(pieces: list[str]) -> None:
    parser = KeyParser()
    for piece in pieces:
        list(parser.feed(piece))
    list(parser.flush())
    assert parser.is_pending is False


@pytest.mark.parametrize(
    "pieces", [["\x1b[200~1/q\x1b[201~"], ["\x1b[200~1", "/q\x1b[20", "1~"], [*"\x1b[200~1/q\x1b[201~"]]
)
def test_pasted_text_is_one_piece(pieces: list[str]) -> None:
    parser = KeyParser()
    (paste,) = (event for piece in pieces for event in parser.feed(piece))
    assert isinstance(paste, Paste)
    assert paste.text == "1/q"


def test_keys_have_the_names_of_the_library() -> None:
    names = {character: key_name(character) for character in "!/-@_+\\a1"}
    assert all((key_to_character(name) or character) == character for character, name in names.items())
    assert [names[one] for one in "!/-"] == ["exclamation_mark", "slash", "minus"]


def test_escape_and_a_key_leave_a_line_and_half_a_character_does_not_end_the_input(site: Path) -> None:
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
