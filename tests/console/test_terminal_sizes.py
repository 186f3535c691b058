"""Terminals of all sizes, and those that change it."""

from __future__ import annotations

from pathlib import Path

from tests.console.terminal import terminal

SIZES = ((1, 1), (2, 2), (20, 5), (39, 24), (80, 9), (40, 10), (60, 20), (300, 100), (120, 40), (1, 100), (300, 1))


def test_no_size_ends_it(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        for view in "1245":
            shown.keys(view)
            for columns, lines in SIZES:
                shown.resize(columns, lines)
                shown.drawn()
            shown.resize(80, 24)
            shown.sees("RUN", "q quit")
        shown.keys("1")
        shown.sees("paused")
        shown.keys("q")
        assert shown.ends() == 0
        assert shown.is_in_order()


def test_on_a_screen_that_is_too_small_a_line_says_so_and_the_keys_work(site: Path) -> None:
    with terminal("--root", str(site), columns=39, lines=10) as shown:
        shown.sees("need 40x10, have 39x10")
        assert "RUN" not in shown.text()
        shown.resize(40, 9)
        shown.sees("need 40x10, have 40x9")
        shown.resize(20, 5)
        shown.sees("need 40x10, have 20~")
        shown.resize(40, 10)
        shown.sees("paused", "RUN")
        shown.keys("2")
        shown.sees("published")
        shown.resize(30, 5)
        shown.sees("need 40x10, have 30x5")
        shown.keys("q")
        assert shown.ends() == 0


def test_a_storm_of_sizes_ends_with_the_last_one(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        for columns in (*range(200, 10, -7), *range(10, 200, 7), 100):
            shown.resize(columns, columns // 4)
        shown.sees("paused", "RUN", "q quit")
        shown.waits(lambda: "FOLLOW" not in shown.text(), "the view is the same")
        assert shown.process.poll() is None
