"""Snapshots that tell some events again: they are compared as a whole where that is enough, and the tables are those of
a comparison of each event."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroom_pipeline.silver import overlaps
from tests.pipeline.killing import take_in
from tests.pipeline.overlapping import ALIKE, told_again
from tests.pipeline.test_ingest import exported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_events_that_two_snapshots_tell_alike_are_compared_as_a_whole_and_the_tables_are_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    told_again(tmp_path / "landing")
    found: list[tuple[str, bool]] = []
    repeats, seams = overlaps.repeats, overlaps.seams

    def watched(*given: DataFrame) -> DataFrame:
        rows = repeats(*given)
        found.extend((row["device"], row["earlier"] < row["later"]) for row in rows.collect())
        return rows

    monkeypatch.setattr(overlaps, "repeats", watched)
    at_once = exported(take_in(spark, tmp_path / "landing", tmp_path / "a"))
    assert sorted(device for device, _ in found) == [*ALIKE]
    assert {is_earlier for _, is_earlier in found} == {True, False}, "the smaller id is that of either of them"
    monkeypatch.setattr(overlaps, "seams", lambda *given: seams(*given).where("false"))
    assert exported(take_in(spark, tmp_path / "landing", tmp_path / "b")) == at_once
    assert {row.split("device='")[1].split("'")[0] for row in at_once["conflicts"]} == {"another-content"}
    assert len(at_once["events"]) == 9 * (len(ALIKE) + 7) + 6 + 1
