"""Fewer bytes draw the same picture."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st

from postroom_console.tui.ansi_compress import compress

COLUMNS, LINES = 30, 6
colours = st.sampled_from(["38;5;253", "38;5;247", "38;2;1;2;3", "31", "39", "97"])
backs = st.sampled_from(["48;5;233", "48;2;9;9;9", "40", "49", "107"])
attributes = st.lists(st.sampled_from(["1", "3", "4", "7", "9"]), max_size=2, unique=True)
styles = st.tuples(attributes, st.one_of(st.just(""), colours), st.one_of(st.just(""), backs)).map(
    lambda parts: ";".join([*parts[0], *filter(None, parts[1:])])
)
texts = st.text("ab 연[;m", min_size=1, max_size=6)
segments = st.tuples(styles, texts).map(lambda pair: f"\x1b[{pair[0]}m{pair[1]}\x1b[0m" if pair[0] else pair[1])
# An end of line on the last one would scroll.
places = st.tuples(st.integers(1, LINES - 1), st.integers(1, COLUMNS)).map(lambda at: f"\x1b[{at[0]};{at[1]}H")
lines = st.tuples(places, st.lists(segments, max_size=4)).map(lambda parts: parts[0] + "".join(parts[1]))


def _picture(frames: list[str]) -> list[list[tuple[object, ...]]]:
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.Stream(screen)
    screen.reset_mode(pyte.modes.DECAWM)
    for frame in frames:
        stream.feed(frame)
    cells = [[tuple(screen.buffer[y][x]) for x in range(COLUMNS)] for y in range(LINES)]
    return [*cells, [(screen.cursor.x, screen.cursor.y, tuple(screen.cursor.attrs))]]


@given(st.lists(st.lists(lines, max_size=5).map("\r\n".join), max_size=3))
def test_the_compressed_picture_is_the_same_and_no_larger(frames: list[str]) -> None:
    sent = [compress(frame) for frame in frames]
    assert _picture(sent) == _picture(frames)
    assert sum(map(len, sent)) <= sum(map(len, frames))


def test_an_unchanged_style_is_sent_once_and_a_changed_colour_is_sent_alone() -> None:
    first = "\x1b[1;1H\x1b[38;5;1;48;5;2mone\x1b[0m\x1b[38;5;3;48;5;2mtwo\x1b[0m\r\n"
    second = "\x1b[2;1H\x1b[38;5;3;48;5;2mthree\x1b[0m"
    assert compress(first + second) == "\x1b[1;1H\x1b[38;5;1;48;5;2mone\x1b[38;5;3mtwo\x1b[2;1Hthree\x1b[0m"
