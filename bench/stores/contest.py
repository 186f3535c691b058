"""The rounds: every queue in turn, with and without a backlog, so that all meet the same conditions."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..environment import ROOT, CannotInstall, Environment
from ..figures import Report
from . import tables
from .queue import BODY_BYTES, FLOORS, STORES
from .tables import Rounds, Row
from .worker import CHUNK
from .workers import QueueMissing, QueueProcess


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. ``count`` messages are published, consumed and acknowledged in a round of a row."""

    rounds: int
    count: int
    backlogs: tuple[int, ...]
    limit_s: int


TINY = Size(1, CHUNK, (2 * CHUNK,), 120)
QUICK = Size(5, 4 * CHUNK, (20_000,), 240)
NORMAL = Size(7, 8 * CHUNK, (100_000,), 1200)
FULL = Size(7, 8 * CHUNK, (100_000, 1_000_000), 3600)

#: Some peers need a newer Python than ours does.
_PEERS_ENVIRONMENT = Environment(ROOT / "bench" / "peers.txt", ROOT / "run" / "peers", ("3.14", "3.13", "3.12"))
#: A round of a row ends after this time with fewer messages: some queues become very slow behind a backlog.
_ROUND_LIMIT_S = 10.0
#: Disk space that all queues together take for one message of the backlog.
_BYTES_A_MESSAGE = 21_000
_OURS = tuple(Row(f"{kind}, groups of {group}", kind, group, ours=True) for kind in STORES for group in (1, 32))
_FLOOR = tuple(Row(f"{kind} + fdatasync alone, groups of {group}", kind, group) for kind in FLOORS for group in (1, 32))
_PEERS = (
    Row("persist-queue SQLiteAckQueue", "persist-queue", 1, note="synchronous=FULL; offers no transactions"),
    Row("litequeue", "litequeue", 1, note="synchronous=FULL"),
    Row("litequeue, transactions of 32", "litequeue", 32, note="synchronous=FULL; each pop is a transaction"),
    Row("dirq QueueSimple, its caller syncs", "dirq", 1, note="caller syncs files and directories"),
    Row("dirq QueueSimple, caller syncs every 32", "dirq", 32, note="caller syncs files and directories"),
    Row("dirq QueueSimple as it is", "dirq", 1, durable=False, note="not durable"),
)


def measure(report: Report, size: Size, place: Path, with_peers: bool) -> None:
    """All figures. ``place`` is an empty directory for the data. Raises ``RuntimeError`` when there is too little space
    for them, or when a queue loses, doubles or changes a message."""
    needed = max(size.backlogs) * _BYTES_A_MESSAGE
    if shutil.disk_usage(place).free < needed:
        raise RuntimeError(f"{place}: {needed / 1e9:.0f} GB must be free for a backlog of {max(size.backlogs):,}")
    with _opened(report, place / "shallow", with_peers) as shallow, _opened(None, place / "deep", with_peers) as deep:
        rows = [row for row in (*_FLOOR, *_OURS, *_PEERS) if row.kind in shallow and row.kind in deep]
        report.conditions["versions"] = {kind: process.versions for kind, process in shallow.items()}
        report.conditions["messageBytes"] = BODY_BYTES
        tables.print_head(rows, shallow)
        for backlog in size.backlogs:
            filled = _fill(deep, backlog)
            os.sync()
            tables.print_filled(report, backlog, filled)
            without, behind = _rounds(size, rows, shallow, deep)
            tables.print_rates(report, f"no backlog, beside those behind {backlog:,}", rows, without)
            tables.print_rates(report, f"behind a backlog of {backlog:,}", rows, behind)
            tables.print_ratios(report, f"no backlog, beside those behind {backlog:,}", rows, without)
            tables.print_ratios(report, f"behind a backlog of {backlog:,}", rows, behind)
            tables.print_growth(report, backlog, rows, without, behind)


def _fill(processes: dict[str, QueueProcess], backlog: int) -> dict[str, float]:
    """Bring all queues to a backlog, at the same time: nothing is compared here. The seconds that each took."""
    for process in processes.values():
        process.begin("fill", to=backlog)
    return {kind: process.answer()["seconds"] for kind, process in processes.items()}


def _rounds(
    size: Size, rows: list[Row], shallow: dict[str, QueueProcess], deep: dict[str, QueueProcess]
) -> tuple[Rounds, Rounds]:
    """The rounds of all rows, by turns; the first is not counted, so that all are warm."""
    without: Rounds = {row.name: [] for row in rows}
    behind: Rounds = {row.name: [] for row in rows}
    for number in range(size.rounds + 1):
        first = number % len(rows)  # nobody always comes behind the same one
        for row in rows[first:] + rows[:first]:
            for processes, found in ((shallow, without), (deep, behind)):
                outcome = processes[row.kind].ask(
                    "round",
                    group=row.group,
                    durable=row.durable,
                    count=size.count if number else CHUNK,
                    limit_s=_ROUND_LIMIT_S,
                )
                if number:
                    found[row.name].append(outcome)
    for process in (*shallow.values(), *deep.values()):
        process.ask("check")
    return without, behind


@contextmanager
def _opened(report: Report | None, place: Path, with_peers: bool) -> Iterator[dict[str, QueueProcess]]:
    """One process for each queue that can be measured here; those that cannot are told to ``report``."""
    processes: dict[str, QueueProcess] = {}
    pythons: dict[str, Any] = dict.fromkeys((*FLOORS, *STORES), Path(sys.executable))
    try:
        if with_peers:
            try:
                python = _PEERS_ENVIRONMENT.interpreter()
                pythons |= dict.fromkeys([row.kind for row in _PEERS], python)
            except CannotInstall as error:
                if report:
                    report.missing("the peers", str(error))
        for kind, python in pythons.items():
            try:
                processes[kind] = QueueProcess(python, kind, place / kind)
            except QueueMissing as error:
                if report:
                    report.missing(kind, str(error))
        yield processes
        for process in processes.values():
            process.close()
    except BaseException:
        for process in processes.values():
            process.kill()
        raise
    finally:
        with ThreadPoolExecutor() as pool:  # of millions of files: several at once
            pool.map(_remove, [place / kind for kind in processes])


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
