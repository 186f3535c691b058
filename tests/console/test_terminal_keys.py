"""Input as it comes to the process: bytes, in pieces, also such as no keyboard sends."""

from __future__ import annotations

from pathlib import Path

from tests.console.terminal import terminal


def test_a_single_escape_goes_back_even_if_nothing_follows(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.keys("?")
        shown.sees("EVERYWHERE")
        shown.sends(b"\x1b")
        shown.sees("[1 Queues]", "q quit")


def test_bytes_that_are_not_text_end_nothing(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.sends(b"\xff\xfe\xc3")
        shown.keys("2")
        shown.sees("[2 Tail]")
