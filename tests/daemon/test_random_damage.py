"""Random damage on every store, a few seeds of it: see ``random_damage``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.random_damage import build, damage_one

SEEDS = range(1000, 1010)


@pytest.mark.parametrize("backend", ["sqlite", "hybrid"])
def test_nothing_is_lost_or_changed_in_silence_whatever_is_damaged(backend: str, tmp_path: Path) -> None:
    roots = build(tmp_path / "roots", backend)
    for seed in SEEDS:
        damage_one(roots, tmp_path / "damaged", seed)
