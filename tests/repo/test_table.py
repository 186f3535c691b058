"""A table's test runs every row, and fails if one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.table import table


def test_every_row_is_checked_and_each_that_fails_is_named(tmp_path: Path) -> None:
    seen = set()

    @table("left, right", {"equal": (1, 1), "smaller": (1, 2), "not refused": (0, 0), "larger": (2, 1)})
    def check(left: int, right: int, tmp_path: Path) -> None:
        seen.add((left, right, tmp_path))
        if left == 0:
            with pytest.raises(ValueError, match="never"):
                pass
        assert left == right

    with pytest.raises(BaseExceptionGroup, match="3 of 4 rows fail") as caught:
        check(tmp_path=tmp_path)
    assert seen == {(1, 1, tmp_path), (1, 2, tmp_path), (0, 0, tmp_path), (2, 1, tmp_path)}
    rows = {note for failure in caught.value.exceptions for note in failure.__notes__}
    assert rows == {"row: smaller", "row: not refused", "row: larger"}


@table("number", {"one": 1, "two": 2})
def test_fixtures_are_those_of_the_test(number: int, tmp_path: Path) -> None:
    (tmp_path / str(number)).touch()
    assert {path.name for path in tmp_path.iterdir()} <= {"1", "2"}


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError):
        table("number", {})
