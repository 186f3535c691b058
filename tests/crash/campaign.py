"""``scripts/campaign crash``: every series of cases, on all cores, and what did not hold."""

from __future__ import annotations

import itertools
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

from tests.crash.sweep import Case, Sweep, in_process, in_processes

#: Violations that are shown with where they were found.
SHOWN = 10


@dataclass
class Outcome:
    """What a series came to: its runs, and the cases that did not hold, each with the reason."""

    series: Case
    runs: int = 0
    cut_short: bool = False
    violations: list[tuple[Case, str]] = field(default_factory=list)


@contextmanager
def working_folder() -> Iterator[Path]:
    """In memory where there is such a place: it is the order of calls that counts, not the medium."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="postroom-crash-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def run_series(series: Case, first: int, every: int, ends: float) -> Outcome:
    """The cases ``first``, ``first + every``, … of a series, until a life has no such call, or time is over
    (``ends``, on the monotonic clock)."""
    logging.disable(logging.CRITICAL)
    outcome = Outcome(series)
    with working_folder() as folder:
        sweep = Sweep(folder)
        for number in itertools.count(first, every):
            if time.monotonic() > ends:
                outcome.cut_short = True
                return outcome
            case = replace(series, number=number)
            try:
                fired = sweep.run(case)
            except Exception as error:
                fired = True
                where = traceback.extract_tb(error.__traceback__)[-1]
                outcome.violations.append((case, f"{error!r:.600} ({Path(where.filename).name}:{where.lineno})"))
            if not fired:
                return outcome
            outcome.runs += 1
    raise AssertionError("a life has no end")


def run_campaign(every: int, processes_every: int, minutes: float) -> str:
    """Every ``every``-th call of the lives in this process, every ``processes_every``-th of those in their own, in a
    fixed mixed order, until all are done or the minutes are over. The summary; progress goes to standard error.

    Raises ``AssertionError`` after all, if something did not hold.
    """
    began = time.monotonic()
    ends = began + 60 * minutes
    work = [(case, 1 + index % every, every, ends) for index, case in enumerate(in_process())]
    work += [(case, 1 + index % processes_every, processes_every, ends) for index, case in enumerate(in_processes())]
    Random(1).shuffle(work)
    runs: Counter[str] = Counter()
    violations: list[tuple[Case, str]] = []
    cut_short = 0
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        for done in as_completed([pool.submit(run_series, *one) for one in work]):
            outcome = done.result()
            runs["in a process of their own" if outcome.series.call else "in one process"] += outcome.runs
            runs[outcome.series.backend] += outcome.runs
            runs["runs"] += outcome.runs
            violations += outcome.violations
            cut_short += outcome.cut_short
            print(f"\r{runs['runs']} runs, {len(violations)} violations", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for case, reason in violations[:SHOWN]:
        print(f"VIOLATION {reason}\n  again: .venv/bin/python -m tests.crash.sweep {case}", file=sys.stderr)
    total = runs.pop("runs")
    parts = ", ".join(f"{count} {name}" for name, count in sorted(runs.items()))
    cut = f", {cut_short} of {len(work)} series cut short by the time" if cut_short else ""
    summary = f"{total} runs ({parts}), {len(violations)} violations, {time.monotonic() - began:.0f} s{cut}"
    assert not violations, summary
    return summary
