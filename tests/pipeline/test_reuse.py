"""A report is made again only if its tables, its arguments or its files are others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroom_pipeline.cli import main
from postroom_pipeline.local.reuse import ground_of, made_of, note_made

ARGUMENTS = {"device": "", "days": [None, None], "form": "html", "top": 50}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Tables, and a report of them."""
    tables, target = tmp_path / "tables", tmp_path / "report"
    (tables / "audit").mkdir(parents=True)
    (tables / "audit" / "part-1.parquet").touch()
    (target / "devices").mkdir(parents=True)
    for name in ("index.html", "devices/press.html"):
        (target / name).write_text(name)
    ground = ground_of(str(tables), ARGUMENTS)
    assert ground
    note_made(str(target), ground, str(target / "index.html"))
    return tables, target


def test_a_report_of_unchanged_tables_is_not_made_again(places: tuple[Path, Path]) -> None:
    tables, target = places
    (tables / "runs").mkdir()
    (tables / "runs" / "part-9.parquet").touch()
    run = CliRunner().invoke(main, ["report", "--from", str(tables), "--out", str(target)])
    assert (run.exit_code, run.stdout) == (0, f"{target}/index.html\n")


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "another table": lambda tables, target: (tables / "audit" / "part-1.parquet").rename(
        tables / "audit" / "2.parquet"
    ),
    "a page less": lambda tables, target: (target / "devices" / "press.html").unlink(),
    "a changed page": lambda tables, target: (target / "index.html").write_text("mine"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_report_is_made_again_if_anything_is_different(places: tuple[Path, Path], name: str) -> None:
    tables, target = places
    CHANGES[name](tables, target)
    ground = ground_of(str(tables), ARGUMENTS)
    assert ground
    assert made_of(str(target), ground) is None


def test_other_arguments_make_another_report(places: tuple[Path, Path]) -> None:
    tables, target = places
    ground = ground_of(str(tables), ARGUMENTS | {"top": 5})
    assert ground
    assert made_of(str(target), ground) is None
    assert ground_of("hdfs://fleet/tables", ARGUMENTS) is None
