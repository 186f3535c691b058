"""Runs over little, which Spark does without preparing for much."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom_pipeline.spark.session import few_bytes_in
from postroom_pipeline.spark.settings import SHORT_INPUT_BYTES


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A directory with one file of half of what is small, two levels down."""
    place = tmp_path / "a place" / "dt=2026-11-28"
    place.mkdir(parents=True)
    (place / "one.jsonl.gz").write_bytes(bytes(SHORT_INPUT_BYTES // 2))
    return tmp_path


def test_a_directory_with_few_bytes_is_small(landing):
    assert few_bytes_in(str(landing)) is not None


@pytest.mark.parametrize("begin", ["file:", "file://"])
def test_a_local_directory_may_be_named_in_hadoops_form(landing, begin):
    assert few_bytes_in(f"{begin}{landing}") is not None


def test_files_are_counted_with_those_of_all_directories_below(landing):
    (landing / "two.jsonl.gz").write_bytes(bytes(SHORT_INPUT_BYTES // 2))
    assert few_bytes_in(str(landing)) is not None
    (landing / "three.jsonl.gz").write_bytes(b"1")
    assert few_bytes_in(str(landing)) is None


def test_a_link_to_nothing_counts_nothing(landing):
    (landing / "gone.jsonl.gz").symlink_to(landing / "nowhere")
    assert few_bytes_in(str(landing)) is not None


@pytest.mark.parametrize("place", ["hdfs://fleet/landing", "hdfs:/landing", "s3a://fleet"])
def test_a_remote_directory_is_not_small(place):
    assert few_bytes_in(place) is None


def test_a_missing_directory_is_not_small(tmp_path):
    assert few_bytes_in(str(tmp_path / "landing")) is None
