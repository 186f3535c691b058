"""A part of the crash campaign, chosen by a fixed spread: ``scripts/campaign crash`` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from postroom_daemon.engine.decide import QUERIES, VERBS
from postroom_daemon.journal.journal import Journal
from tests.crash.campaign import working_folder
from tests.crash.scenarios import SCENARIOS
from tests.crash.sweep import BACKENDS, Case, Sweep, in_process, in_processes

pytestmark = pytest.mark.slow

#: Every so many series has a run here. Each scenario has 14 series: a step without a common factor meets all kinds.
SERIES_STEP = 13
PROCESSES_STEP = 83
#: Runs that each test makes.
RUNS_OF_A_BACKEND = 30
RUNS_OF_PROCESSES = 30
#: Calls from one kill to the next.
KILL_STEP = 5
#: The run of a series is at one of its first so many calls, or of as many as it has.
SPREAD = 37


@pytest.fixture(scope="module")
def sweep() -> Iterator[Sweep]:
    with working_folder() as folder:
        yield Sweep(folder)


def run_some(sweep: Sweep, chosen: list[tuple[int, Case]]) -> int:
    """One run of each series. How many came to their fault; a series without such a call has none."""
    runs = 0
    for index, series in chosen:
        number = 1 + index * 11 % SPREAD
        while number and not sweep.run(replace(series, number=number)):
            number = min(number // 2, sweep.calls)  # the scenario has fewer
        runs += number > 0
    return runs


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_fault_of_any_file_call_breaks_a_promise(backend: str, sweep: Sweep) -> None:
    series = [(index, case) for index, case in enumerate(in_process()) if case.backend == backend]
    runs = run_some(sweep, series[BACKENDS.index(backend) :: SERIES_STEP])
    print(f"{runs} runs")
    assert runs >= RUNS_OF_A_BACKEND


@pytest.mark.parametrize(("backend", "first"), [("filesystem", 1), ("hybrid", 2)])
def test_killed_before_every_fifth_file_operation_it_restarts_with_everything_that_was_answered(
    backend: str, first: int, sweep: Sweep
) -> None:
    number = first
    while sweep.run(Case(backend, "everything", "KILL", number)):
        number += KILL_STEP
    print(f"{number // KILL_STEP} runs")
    assert number > 100


def test_no_fault_of_a_system_call_breaks_a_promise(sweep: Sweep) -> None:
    runs = run_some(sweep, list(enumerate(in_processes()))[::PROCESSES_STEP])
    print(f"{runs} runs")
    assert runs >= RUNS_OF_PROCESSES


def test_every_command_appears_in_a_scenario() -> None:
    asking = {str(command) for command in QUERIES}
    assert {str(command) for command in VERBS} - asking <= set(SCENARIOS) | asking


def test_the_text_of_a_case_reproduces_it() -> None:
    for case in (*in_process(), *in_processes()):
        assert Case.parse(str(case)) == case


@pytest.mark.parametrize(
    "case",
    [
        "filesystem/restart/EIO/79",
        "filesystem/restart/EIO/84",
        "filesystem/everything/EIO/79",
        "filesystem/everything/EIO/95",
        "filesystem/everything/SHORT/16/for-ever",
        "filesystem/everything/EIO/62/for-ever",
        "filesystem/extend_lease/EIO/5",
        "filesystem/nack_dead/EIO/12",
        "hybrid/everything/EIO/76/for-ever",
        "memory/crash/EIO/17/for-ever",
        "hybrid/everything/EROFS:unlinkat/10/for-ever",
        "hybrid/recover/EIO:openat/30",
    ],
)
def test_cases_that_once_broke_a_promise_no_longer_do(case: str, sweep: Sweep) -> None:
    assert sweep.run(Case.parse(case))


def test_a_broken_promise_is_detected(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that answers and writes nothing."""
    sweep.template("sqlite")
    monkeypatch.setattr(Journal, "append", lambda journal, lines, last_id: [0] * len(lines))
    with pytest.raises(AssertionError):
        sweep.run(Case("sqlite", "publish", "KILL", 9))
