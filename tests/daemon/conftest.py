"""Roots that are opened in the test's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests share modules, however pytest was started

from tests.conformance.bench import Bench


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes benches that are not opened yet, each on a fresh root."""
    made: list[Bench] = []

    def make(*arguments: str, **options: object) -> Bench:
        made.append(Bench(tmp_path / f"root{len(made)}", *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """An open root on SQLite."""
    return make_bench().open()
