"""``scripts/bench fair``: what users of a shared mailbox notice of one who has very much waiting. Needs root, which can
be several users.

The others are measured alone first, then, by turns in the same run, while the requests of one are held and worked off,
and while one goes on sending as fast as it can.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from .daemon import Daemon, die_with_parent, running
from .figures import Report, percentile
from .floor import Floor
from .load import lean_publisher, write_requests


@dataclass(frozen=True, slots=True)
class Size:
    """How many requests one user drops; how long the others are measured, in seconds, and how often."""

    files: int
    span_s: float
    rounds: int
    limit_s: int


QUICK = Size(30_000, 2.0, 2, 600)
NORMAL = Size(100_000, 4.0, 3, 1800)
#: The others: so many users, each of whom sends so many requests a second, or the next as soon as it has its answer.
OTHERS = 4
PACES = ((50.0, "50 requests/s each"), (0.0, "closed loop"))
_HOSTILE = 4100
_PATIENCE_S = 120.0
_FORK = multiprocessing.get_context("fork")


@dataclass(slots=True)
class _Found:
    """Of one pace: the latencies alone and under attack, by round, in ms."""

    alone: list[list[float]]
    held: list[list[float]]
    sending: list[list[float]]


def measure(report: Report, size: Size, place: Path, floor: Floor | None) -> None:
    """All figures. Raises ``RuntimeError`` for who cannot be several users, and for a request that is refused."""
    if os.geteuid():
        raise RuntimeError("bench fair acts as several users: run it as root")
    for path in (place, *place.parents):  # the users must get through
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    if floor:
        report.section("The floor")
        report.add(
            "append + fdatasync of one event, median", [floor.syncs(1000)[1] / 1000 for _ in range(size.rounds)], "ms"
        )
    for number, (pace, words) in enumerate(PACES):
        found = _Found([], [], [])
        took_s: list[float] = []
        for turn in range(size.rounds):  # each on a new root, so that all meet the same weather
            _one_round(place / f"root-{number}-{turn}", size, pace, found, took_s)
        _tell(report, size, words, found, took_s)


def _one_round(root: Path, size: Size, pace: float, found: _Found, took_s: list[float]) -> None:
    share(root)
    with running(root) as daemon, _others(daemon, pace) as others:
        found.alone.append(others.measure(size.span_s))
        daemon.pause()
        _as_user(_HOSTILE, _drop, daemon.ipc, size.files)
        began = time.monotonic()
        daemon.go_on()
        _wait_until_held(daemon, size.files * 9 // 10)
        took_s.append(time.monotonic() - began)
        found.held.append(others.measure(size.span_s))
        if not daemon.client.metrics()["mailbox"]["held"]:
            raise RuntimeError("all that was held was worked off before the others were measured: drop more")
        flood = _FORK.Process(target=_user, args=(_HOSTILE + 1, _drop, daemon.ipc, None), daemon=True)
        flood.start()
        try:
            found.sending.append(others.measure(size.span_s))
        finally:
            flood.kill()
            flood.join()


def _tell(report: Report, size: Size, words: str, found: _Found, took_s: list[float]) -> None:
    report.section(f"{OTHERS} users, {words}; one who has dropped {size.files:,} requests")
    report.add("from the first look until 9 of 10 are held", took_s, "s")
    alone = [percentile(one, 99) for one in found.alone]
    for name, runs in (
        ("alone", found.alone),
        ("beside what is held", found.held),
        ("beside one who sends", found.sending),
    ):
        report.add(
            f"the others {name}: p50", [statistics.median(one) for one in runs], "ms", note=f"{len(runs[0])} a run"
        )
        p99 = [percentile(one, 99) for one in runs]
        report.add(f"the others {name}: p99", p99, "ms")
        if runs is not found.alone:
            ratios = [mine / its for mine, its in zip(p99, alone, strict=True)]
            budget = 3.0 if runs is found.held else None
            report.add(f"the others {name}: p99, as a multiple", ratios, "x", budget)
        report.add(f"the others {name}: longest", [max(one) for one in runs], "ms")


def share(root: Path) -> None:
    """Lay out a mailbox that several users share."""
    for name, mode in (("", 0o711), ("ipc", 0o711), ("ipc/requests", 0o3733), ("ipc/responses", 0o3733)):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)


# --- users -----------------------------------------------------------------------------------------------------------


class _Others:
    """Processes that publish for a span whenever they are told to."""

    def __init__(self, daemon: Daemon, pace: float) -> None:
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(OTHERS):
            mine, its = _FORK.Pipe()
            arguments = (_HOSTILE + 10 + number, _publish, its, str(daemon.ipc), pace)
            process = _FORK.Process(target=_user, args=arguments, daemon=True)
            process.start()
            its.close()
            self._pipes.append(mine)
            self._processes.append(process)
        for pipe in self._pipes:
            _receive(pipe)

    def measure(self, span_s: float) -> list[float]:
        """The latencies of all of them over a span, in ms."""
        for pipe in self._pipes:
            pipe.send((time.monotonic() + 0.2, span_s))
        return [took for pipe in self._pipes for took in _receive(pipe)]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@contextlib.contextmanager
def _others(daemon: Daemon, pace: float) -> Iterator[_Others]:
    others = _Others(daemon, pace)
    try:
        yield others
    finally:
        others.end()


def _receive(pipe: Connection) -> list[float]:
    if not pipe.poll(_PATIENCE_S):
        raise RuntimeError(f"a client process said nothing for {_PATIENCE_S:g} s")
    found: list[float] = pipe.recv()
    return found


def _user(uid: int, work: object, *arguments: object) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.umask(0o007)
    die_with_parent()  # behind the change of users, which forgets it
    assert callable(work)
    work(*arguments)


def _as_user(uid: int, work: object, *arguments: object) -> None:
    process = _FORK.Process(target=_user, args=(uid, work, *arguments), daemon=True)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError("the hostile user failed")


def _publish(pipe: Connection, ipc: str, pace: float) -> None:
    publish = lean_publisher(ipc, f"user-{os.getuid()}")
    publish()
    pipe.send([])
    while True:
        begin, span_s = pipe.recv()
        end, latencies, number = begin + span_s, [], 0
        while True:
            due = begin + (number / pace if pace else 0.0)
            time.sleep(max(0.0, due - time.monotonic()))
            started = time.monotonic()
            publish()
            now = time.monotonic()
            if now > end:
                break
            latencies.append((now - started) * 1000)
            number += 1
        pipe.send(latencies)


def _drop(ipc: Path, count: int | None) -> None:
    box = ipc / "responses" / f"hostile-{os.getuid()}"
    box.mkdir(0o770, exist_ok=True)
    requests = write_requests(ipc, box.name)
    dropped = 0
    while count is None or dropped < count:
        next(requests)
        dropped += 1


def _wait_until_held(daemon: Daemon, count: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while daemon.client.metrics()["mailbox"]["held"] < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{count} requests were not held within {_PATIENCE_S:g} s")
        time.sleep(0.05)
