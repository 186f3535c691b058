"""``scripts/campaign crash``: runs every series of cases on all cores, and reports the violations."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.crash.sweep import BACKENDS, KINDS, MOST_CALLS, Case, Sweep, in_process, in_processes


@dataclass
class Outcome:
    """The result of a series: the number of runs, and the violations with their reasons."""

    series: Case
    runs: int = 0
    cut_short: bool = False
    violations: list[tuple[Case, str]] = field(default_factory=list)


#: The first number beyond the calls of a scenario, as far as this process knows: no fault needs to be tried there.
_beyond: dict[tuple[str, str, str], int] = {}


@contextmanager
def working_folder() -> Iterator[Path]:
    """A temporary folder, in memory if possible: only the order of calls matters, not the medium."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="postroom-crash-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def run_series(series: Case, first: int, every: int, ends: float) -> Outcome:
    """Run the cases ``first``, ``first + every``, ... of a series, until the scenario makes fewer calls or the time
    ``ends`` (on the monotonic clock)."""
    logging.disable(logging.CRITICAL)
    outcome = Outcome(series)
    calls = series.backend, series.scenario, series.call or series.kind
    with working_folder() as folder:
        sweep = Sweep(folder)
        for number in range(first, MOST_CALLS, every):
            if time.monotonic() > ends:
                outcome.cut_short = True
                return outcome
            if number >= _beyond.get(calls, MOST_CALLS):
                return outcome
            case = replace(series, number=number)
            try:
                fired = sweep.run(case)
            except Exception as error:
                fired = True
                where = traceback.extract_tb(error.__traceback__)[-1]
                outcome.violations.append((case, f"{error!r:.600} ({Path(where.filename).name}:{where.lineno})"))
                if not isinstance(error, AssertionError):
                    return outcome  # the rest of the series would fail in the same way
            if not fired:
                _beyond[calls] = number
                return outcome
            outcome.runs += 1
    raise AssertionError("a scenario that makes no end of calls")


def run_campaign(every: int, processes_every: int, minutes: float, backend: str = "") -> str:
    """Run every ``every``-th case in this process and every ``processes_every``-th in processes of their own, in a
    fixed random order, until all are done or the minutes are over; on one store, or on all. Returns the summary; the
    progress goes to standard error.

    Raises ``AssertionError`` at the end if there were violations.
    """
    began = time.monotonic()
    ends = began + 60 * minutes
    work = [(case, 1 + index % every, every, ends) for index, case in enumerate(in_process())]
    work += [(case, 1 + index % processes_every, processes_every, ends) for index, case in enumerate(in_processes())]
    work = [one for one in work if backend in ("", one[0].backend)]
    Random(1).shuffle(work)
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        for done in as_completed([pool.submit(run_series, *one) for one in work]):
            outcomes.append(done.result())
            for case, reason in outcomes[-1].violations:
                again = f".venv/bin/python -m tests.crash.sweep {case}"
                print(f"\rVIOLATION {reason}\n  again: {again}", file=sys.stderr)
            runs = sum(outcome.runs for outcome in outcomes)
            violations = sum(len(outcome.violations) for outcome in outcomes)
            progress = f"{len(outcomes)} of {len(work)} series, {runs} runs, {violations} violations"
            print(f"\r{progress}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    text = summary(outcomes, time.monotonic() - began)
    assert not any(outcome.violations for outcome in outcomes), text
    return text


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """A table of the runs by store and kind of fault, as ``in one process + by strace``, and a line of sums."""
    runs: Counter[tuple[str, str, bool]] = Counter()
    for outcome in outcomes:
        runs[outcome.series.backend, outcome.series.kind, bool(outcome.series.call)] += outcome.runs
    lines = [f"{'':10}" + "".join(f"{kind:>13}" for kind in KINDS)]
    for backend in BACKENDS:
        cells = (f"{runs[backend, kind, False]} + {runs[backend, kind, True]}" for kind in KINDS)
        lines.append(f"{backend:10}" + "".join(f"{cell:>13}" for cell in cells))
    by_strace = sum(count for (_, _, real), count in runs.items() if real)
    violations = sum(len(outcome.violations) for outcome in outcomes)
    short = sum(outcome.cut_short for outcome in outcomes)
    cut = f", {short} of {len(outcomes)} series cut short by the time" if short else ""
    lines.append(
        f"{runs.total()} runs: {runs.total() - by_strace} with file calls that fail in one process, {by_strace} with"
        f" system calls of a real process that strace makes fail; {violations} violations, {seconds:.0f} s{cut}"
    )
    return "\n".join(lines)
