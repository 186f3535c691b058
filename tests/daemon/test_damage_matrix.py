"""Every kind of damage on every kind of file of a root, on each store, once: see ``damage`` for what is promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.damage import BACKENDS, DAMAGES, Victim, build, targets, try_one

SEGMENTS = ("first segment", "middle segment", "last segment")
KINDS = {
    "sqlite": (*SEGMENTS, "lock", "database", "log"),
    "filesystem": (*SEGMENTS, "lock", "checkpoint", "message"),
    "hybrid": (*SEGMENTS, "lock", "database", "message"),
}


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Victim, Victim]]:
    """For each store a root to be damaged, and another one."""
    root = tmp_path_factory.mktemp("victims")
    return {
        backend: (
            build(root / backend, backend, with_log="log" in KINDS[backend]),
            build(root / f"other-{backend}", backend, "other's", with_log="log" in KINDS[backend]),
        )
        for backend in BACKENDS
    }


def try_all(victims: tuple[Victim, Victim], scratch: Path, kind: str, without_store: bool) -> None:
    for number, how in enumerate(DAMAGES):
        try:
            try_one(*victims, scratch, kind, how, number, without_store)
        except Exception as error:
            raise AssertionError(f"{kind}, {how}, seed {number}: {error}") from error


@pytest.mark.parametrize(("backend", "kind"), [(name, kind) for name in BACKENDS for kind in KINDS[name]])
def test_a_damaged_file_stops_no_start_and_costs_only_its_own_data(
    victims: dict[str, tuple[Victim, Victim]], tmp_path: Path, backend: str, kind: str
) -> None:
    assert set(targets(victims[backend][0])) == set(KINDS[backend])
    try_all(victims[backend], tmp_path / "scratch", kind, without_store=False)


@pytest.mark.parametrize(("backend", "kind"), [(name, kind) for name in BACKENDS for kind in SEGMENTS])
def test_a_damaged_journal_without_its_store_restores_its_intact_requests(
    victims: dict[str, tuple[Victim, Victim]], tmp_path: Path, backend: str, kind: str
) -> None:
    try_all(victims[backend], tmp_path / "scratch", kind, without_store=True)


#: Damaged roots that once broke a promise: store, kind of file, damage, seed, and whether the store was lost as well.
PAST = [
    ("sqlite", "database", "a bit flipped", 80, False),  # an index gave a leased message as ready, again and again
]


@pytest.mark.parametrize(("backend", "kind", "how", "seed", "without_store"), PAST)
def test_cases_that_once_broke_a_promise_keep_it(
    victims: dict[str, tuple[Victim, Victim]],
    tmp_path: Path,
    backend: str,
    kind: str,
    how: str,
    seed: int,
    without_store: bool,
) -> None:
    try_one(*victims[backend], tmp_path / "scratch", kind, how, seed, without_store)
