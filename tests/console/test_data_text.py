"""Text for a terminal: what is escaped, and how wide it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from postroom_console.data.rows import Cell, Column, Row, head, layout, line, plain
from postroom_console.data.text import age, clean, cut, figure, fit, size, width

texts = st.text()
#: What tends to shift columns: wide characters, marks that take no cell, conjoining letters, flags, skin tones.
awkward = st.text(
    st.sampled_from(
        [*"ab가設한각⌚😀👍ｶﾞกำ▒†❤", "\u0301", "\u0903", "\u094d", "\ufe0f", "\u200d", "\U0001f1f0", "\U0001f3fd"]
    )
)


def test_every_assigned_character_has_the_width_that_the_terminal_library_assumes() -> None:
    wrong = [
        hex(number)
        for number in range(0x110000)
        if unicodedata.category(chr(number)) != "Cn" and width(clean(chr(number))) != cell_len(clean(chr(number)))
    ]
    assert wrong == []


@given(texts | awkward)
def test_a_cleaned_text_is_as_wide_as_its_characters(text: str) -> None:
    cleaned = clean(text)
    assert width(cleaned) == sum(map(cell_len, cleaned))


@given(texts | awkward)
def test_a_cleaned_text_has_no_control_sequences(text: str) -> None:
    cleaned = clean(text)
    assert not any(unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for one in cleaned)
    assert not any(one in cleaned for one in "\ufe0f\u200d\U0001f1f0\U0001f3fd\x1b\x9b")


@given(texts | awkward)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [/b] text", "plain [/b] text"),
        ("\x1b]52;c;cm0=\x07", "\\x1b]52;c;cm0=\\x07"),
        ("a\u202eb", "a\\u202eb"),
        ("\x9b2J", "\\x9b2J"),
        ("two\nlines\tand\r", "two\\nlines\\tand\\r"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\U0001f1f0\U0001f1f7", "\\U0001f1f0\\U0001f1f7"),
        ("수집-센서", "수집-센서"),
    ],
)
def test_invisible_characters_are_shown_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(texts | awkward, st.integers(0, 40), st.booleans())
def test_a_fitted_text_takes_exactly_its_cells(text: str, cells: int, right: bool) -> None:
    assert width(fit(clean(text), cells, right)) == cells


@given(texts | awkward, st.integers(0, 40))
def test_a_cut_text_is_the_beginning_of_the_text(text: str, cells: int) -> None:
    cleaned = clean(text)
    kept = cut(cleaned, cells)
    assert width(kept) <= cells
    assert kept == cleaned or kept == "" or (kept.endswith("~") and cleaned.startswith(kept[:-1]))


def test_a_wide_character_is_not_cut_in_half() -> None:
    assert fit("설정가", 4) == "설~ "
    assert fit("설정가", 5) == "설정~"
    assert fit("설정가", 6) == "설정가"


columns = st.lists(
    st.builds(
        Column, st.text("ABC대기", max_size=8), st.integers(1, 14), st.booleans(), st.integers(0, 60), st.booleans()
    ),
    min_size=1,
    max_size=8,
)


@given(columns, st.data(), st.integers(30, 130))
def test_every_line_of_a_table_has_the_same_width(made: list[Column], data: st.DataObject, cells: int) -> None:
    contents = st.lists(texts | awkward, min_size=len(made), max_size=len(made))
    rows = [Row(number, tuple(Cell(clean(text)) for text in data.draw(contents))) for number in range(2)]
    places = layout(made, cells)
    expected = width(head(made, places))
    assert [sum(width(cell.text) for cell in line(row, places)) for row in rows] == [expected] * len(rows)


def test_one_column_takes_the_remaining_width() -> None:
    made = [Column("A", 5, grows=True), Column("B", 4)]
    assert width(head(made, layout(made, 80))) == 80


def test_a_plain_table_has_a_line_for_its_head_and_for_each_row() -> None:
    made = [Column("NAME", 8, grows=True), Column("N", 3, right=True), Column("WIDE", 4, from_width=60)]
    rows = [Row(1, (Cell("수집"), Cell("7"), Cell("x")), "!"), Row(2, (Cell("a"), Cell("12"), Cell("y")))]
    assert plain(made, rows, 20) == [" NAME              N", "!수집              7", " a                12"]


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0s"),
        (59_999, "59s"),
        (252_000, "4m12"),
        (11_520_000, "3h12"),
        (273_600_000, "3d04"),
        (-2000, "-2s"),
        (-1, "0s"),
    ],
)
def test_ages_are_short(milliseconds: int, shown: str) -> None:
    assert age(milliseconds) == shown


@given(st.integers(0, 10**14))
def test_figures_and_sizes_have_room_in_their_columns(number: int) -> None:
    assert len(figure(number)) <= 5
    assert len(size(number)) <= 5
    assert len(age(number)) <= 8
