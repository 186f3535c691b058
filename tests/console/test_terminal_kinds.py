"""What the process sends to terminals of all kinds, and what they show of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.site import HOSTILE, STEERING
from tests.console.terminal import Terminal, terminal

PLAIN = ("linux", "vt100", "screen")
TERMS = (*PLAIN, "tmux-256color", "xterm-256color")
#: The other screen, the cursor, the kind of pasting, the wrapping of lines: all that is asked of a terminal.
BEGINNING = ["\x1b[?1049h", "\x1b[?25l", "\x1b[?2004h", "\x1b[?7l"]
END = ["\x1b[?2004l", "\x1b[?7h", "\x1b[?1049l", "\x1b[?25h"]
#: Texts that each view has.
VIEWS = {
    "1": ("[1 Queues]", "paused"),
    "2": ("[2 Tail]", "published"),
    "3": ("[3 Leases]", "worker-7"),
    "4": ("[4 Dead]", "worker-8"),
    "5": ("[5 Health]", "mailbox"),
    "6": ("[6 Log]",),
}


def _is_readable(shown: Terminal) -> None:
    assert shown.unreadable() == []


@pytest.mark.parametrize(
    ("term", "no_color"),
    [
        *(pytest.param(term, {}, id=term) for term in TERMS),
        *(pytest.param(term, {"NO_COLOR": "1"}, id=f"{term}-no-color") for term in ("vt100", "xterm-256color")),
    ],
)
def test_each_kind_of_terminal_shows_everything_readably_and_is_never_queried(
    site: Path, term: str, no_color: dict[str, str]
) -> None:
    with terminal("--root", str(site), term=term, **no_color) as shown:
        shown.sees("alarms", "||", "RUN", "? help", "q quit")
        _is_readable(shown)
        for key, texts in VIEWS.items():
            shown.keys(key)
            shown.sees(*texts)
            _is_readable(shown)
        shown.keys("?")
        shown.sees("EVERYWHERE")
        _is_readable(shown)
        shown.keys("?")
        shown.sees("q quit")
        shown.keys("q")
        assert shown.ends() == 0
        assert shown.sequences() == BEGINNING + END
        assert shown.is_in_order()
        if no_color:
            assert shown.colours() == set()
        elif term in PLAIN:
            assert shown.colours().isdisjoint({"38", "48"})


def test_hostile_texts_never_reach_the_terminal(site: Path) -> None:
    with terminal("--root", str(site), columns=120, lines=40) as shown:
        shown.sees("paused", "q[/b] [red]")
        shown.keys("2")
        shown.sees("FOLLOW", "\\x1b]52;c;cm0=\\x07")
        shown.keys("3")
        shown.sees("TIME LEFT", "| 1 lease |")  # said of the leases themselves: the tail has their worker, too
        shown.keys("\r")
        shown.sees("BODY", "\\u202egnp")
        shown.keys("4")
        shown.sees("REASON", "worker-8")
        shown.keys("\t\r")
        shown.sees("FAILURES", "\\x9b2J")
        shown.keys("2")
        shown.sees("FOLLOW")
        shown.keys("/" + "".join(one for one in HOSTILE if one >= " ") + "\r")
        shown.sees("filter ]52;c;cm0=")
        shown.keys("q")
        assert shown.ends() == 0
        assert shown.sequences() == BEGINNING + END
        sent = shown.output.decode()
        assert [one for one in STEERING if one in sent] == []


def test_standard_error_is_not_part_of_the_screen(site: Path, tmp_path: Path) -> None:
    log = tmp_path / "errors"
    with log.open("wb") as errors, terminal("--root", str(site), stderr=errors) as shown:
        shown.sees("paused", "q quit")
        shown.keys("q")
        assert shown.ends() == 0
    assert log.read_bytes() == b""


def test_a_terminal_that_can_show_no_screen_gets_one_reading(site: Path) -> None:
    with terminal("--root", str(site), term="dumb") as shown:
        shown.sees("--once", "alarms")
        assert shown.ends() == 0
        assert shown.sequences() == []


@pytest.mark.parametrize("term", TERMS)
def test_a_name_goes_to_the_clipboard_only_on_a_key_and_if_the_terminal_has_one(site: Path, term: str) -> None:
    with terminal("--root", str(site), term=term) as shown:
        shown.sees("1 PAUSED", "[1 Queues]")  # said of the queues themselves: there is a name to take
        before = shown.output.count(b"\x1b]")
        shown.keys("y")
        shown.drawn()
        shown.keys("2")
        shown.sees("[2 Tail]")
        commands = [one for one in shown.sequences() if one.startswith("\x1b]")]
        assert before == 0
        assert [one[:7] for one in commands] == ([] if term in PLAIN else ["\x1b]52;c;"])
