"""``validate``: what a file holds is judged where neither Java nor Spark is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroom_pipeline.cli import main
from tests.pipeline.making import Device, bundle, fleet, text_of

CUT = 40


def judged(*places: Path) -> tuple[int, list[dict[str, str]]]:
    result = CliRunner().invoke(main, ["validate", "--json", *map(str, places)])
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_complete_snapshots_are_listed_one_a_line(tmp_path: Path) -> None:
    paths = fleet(tmp_path, 2)
    status, lines = judged(tmp_path)
    assert (status, [line["file"] for line in lines]) == (0, sorted(map(str, paths)))
    assert {line["reason"] for line in lines} == {""}


def test_each_member_of_a_bundle_has_its_line(tmp_path: Path) -> None:
    whole = bundle(tmp_path / "bundle.jsonl.gz", fleet(tmp_path / "single", 2))
    status, lines = judged(whole)
    assert (status, len(lines), len({line["snapshot"] for line in lines})) == (0, 4, 4)


def test_a_truncated_file_is_reported_and_is_a_failure(tmp_path: Path) -> None:
    path = Device("press").export(tmp_path)
    path.write_bytes(path.read_bytes()[:-CUT])
    status, (line,) = judged(tmp_path)
    assert (status, line["reason"]) == (1, "truncated")


@pytest.mark.parametrize(
    ("name", "reason"), [("x.jsonl", ""), ("x.jsonl.gz", "not_gzip"), ("x.tar", "unknown_name"), ("x", "unknown_name")]
)
def test_a_name_says_how_a_file_is_read(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).write_bytes(text_of(Device("press").export(tmp_path / "packed")))
    status, (line,) = judged(tmp_path / name)
    assert (status, line["reason"]) == (int(bool(reason)), reason)


def test_files_still_being_copied_are_skipped(tmp_path: Path) -> None:
    path = Device("press").export(tmp_path)
    for name in (".x.jsonl.gz", "x.jsonl.gz.part", "_x/x.jsonl.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes()[:CUT])
    assert [line["file"] for line in judged(tmp_path)[1]] == [str(path)]


def test_a_place_without_snapshots_is_a_failure(tmp_path: Path) -> None:
    assert judged(tmp_path) == (1, [])


@pytest.mark.parametrize("name", ["gone.jsonl.gz", "landing"])
def test_a_missing_path_is_reported(tmp_path: Path, name: str) -> None:
    status, (line,) = judged(tmp_path / name)
    assert (status, line["reason"], line["detail"]) == (1, "unreadable", "No such file or directory")
