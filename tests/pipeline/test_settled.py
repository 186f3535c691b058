"""A run that would find nothing new ends before it starts Spark; whatever may be new starts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from postroom_pipeline.errors import Occupied
from postroom_pipeline.local import settled
from postroom_pipeline.local.settled import NOTE, is_settled
from postroom_pipeline.spark.warehouse import LOCK, locked_locally


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A directory with settled files, and tables with the note that a run leaves."""
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    (landing / "dt=1").mkdir(parents=True)
    (landing / "dt=1" / "one.jsonl.gz").write_bytes(b"one")
    (landing / "readme.txt").write_bytes(b"read")
    (tables / "inventory").mkdir(parents=True)
    (tables / "_staging").mkdir()  # every run leaves it empty
    (tables / "inventory" / "part-1.parquet").write_bytes(b"rows")
    (tables / NOTE).write_text(settled._found(landing, tables))
    return landing, tables


def test_nothing_is_new_where_names_and_times_alone_are(places: tuple[Path, Path]) -> None:
    landing, tables = places
    assert is_settled(str(landing), str(tables), "test", reports=True)
    (landing / "dt=1" / "one.jsonl.gz").rename(landing / "renamed.jsonl.gz")
    (landing / "copy.jsonl.gz").write_bytes(b"one")
    for name in ("coming.jsonl.gz.part", ".hidden.jsonl.gz", "_own"):
        (landing / name).write_bytes(b"two")
    assert is_settled(f"file://{landing}", f"file:{tables}", "test", reports=True)


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "new content": lambda landing, tables: (landing / "two.jsonl.gz").write_bytes(b"two"),
    "other content of a length": lambda landing, tables: (landing / "dt=1" / "one.jsonl.gz").write_bytes(b"two"),
    "a file less": lambda landing, tables: (landing / "dt=1" / "one.jsonl.gz").unlink(),
    "another name that is not read": lambda landing, tables: (landing / "readme.txt").rename(landing / "other.txt"),
    "an empty file": lambda landing, tables: (landing / "none.jsonl.gz").touch(),
    "a link to a directory": lambda landing, tables: (landing / "more").symlink_to(tables),
    "another inventory": lambda landing, tables: (tables / "inventory" / "part-2.parquet").touch(),
    "no inventory": lambda landing, tables: (tables / "inventory").rename(tables / "kept"),
    "no note": lambda landing, tables: (tables / NOTE).unlink(),
    "a killed run": lambda landing, tables: (tables / "_staging" / "0").mkdir(),
    "reports that are behind": lambda landing, tables: (tables / settled.BEHIND).touch(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_be_new_is_looked_at(places: tuple[Path, Path], name: str) -> None:
    landing, tables = places
    CHANGES[name](landing, tables)
    assert not is_settled(str(landing), str(tables), "test", reports=True)


def test_places_elsewhere_and_missing_ones_are_looked_at(places: tuple[Path, Path]) -> None:
    landing, tables = places
    assert not is_settled("hdfs://fleet/landing", str(tables), "test", reports=True)
    assert not is_settled(str(landing), "s3a://fleet/tables", "test", reports=True)
    assert not is_settled(str(landing / "none"), str(tables), "test", reports=True)


def test_while_another_run_writes_nobody_says_that_nothing_is_new(places: tuple[Path, Path]) -> None:
    landing, tables = places
    with locked_locally(tables / LOCK, "ingest"), pytest.raises(Occupied, match="by ingest"):
        is_settled(str(landing), str(tables), "test", reports=True)
