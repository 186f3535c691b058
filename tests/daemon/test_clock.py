"""Engine time only goes forward, and no step of the wall clock moves it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom_daemon.platform.clock import LONGEST_GAP_MS, Clock, Mark, Now
from tests.conformance.bench import Bench, MachineClocks

YEARS_MS = 10 * 366 * 24 * 3600 * 1000


def test_a_fresh_clock_begins_at_zero_and_follows_the_time_since_boot() -> None:
    clocks = MachineClocks()
    clock = clocks.clock()
    assert clock.now() == (0, clocks.wall_ms)
    clocks.boot_ms += 5
    clocks.wall_ms -= 1000
    assert clock.now() == (5, clocks.wall_ms)


@pytest.mark.parametrize("step", [YEARS_MS, -YEARS_MS, 0])
def test_within_a_boot_it_is_exact_over_a_restart_whatever_the_wall_clock_does(step: int) -> None:
    clocks = MachineClocks(boot_ms=70_000, wall_ms=2 * YEARS_MS)
    mark = Mark("first-boot", 50_000, 1000, clocks.wall_ms)
    clocks.wall_ms += step
    clock = clocks.clock()
    clock.resume(mark, Now(1500, mark.wall + 500))
    assert clock.now().engine == 21_000


@pytest.mark.parametrize(
    ("gap", "advance"),
    [
        (0, 0),
        (5000, 5000),
        (LONGEST_GAP_MS, LONGEST_GAP_MS),
        (LONGEST_GAP_MS + 1, 0),
        (-1, 0),
        (-YEARS_MS, 0),
        (YEARS_MS, 0),
    ],
)
@pytest.mark.parametrize("boot_id", ["second-boot", ""])
def test_over_a_reboot_it_advances_by_the_gap_of_the_wall_clock_if_plausible(
    gap: int, advance: int, boot_id: str
) -> None:
    clocks = MachineClocks(boot_ms=40, wall_ms=2 * YEARS_MS + gap, boot_id=boot_id)
    clock = clocks.clock()
    clock.resume(Mark("first-boot", 50_000, 1000, 0), Now(1500, 2 * YEARS_MS))
    assert clock.now().engine == 1500 + advance


def test_an_unknown_boot_never_counts_as_the_same_boot() -> None:
    clocks = MachineClocks(boot_ms=90_000, boot_id="")
    clock = clocks.clock()
    clock.resume(Mark("", 50_000, 1000, 0), Now(1500, clocks.wall_ms))
    assert clock.now().engine == 1500


def test_it_never_falls_behind_the_last_event() -> None:
    clocks = MachineClocks(boot_ms=50_100)
    clock = clocks.clock()
    clock.resume(Mark("first-boot", 50_000, 1000, 0), Now(5000, 0))
    assert clock.now().engine == 5000


def test_a_mark_says_when_it_was_since_boot() -> None:
    clocks = MachineClocks(boot_ms=50_000)
    clock = Clock(lambda: clocks.boot_ms, lambda: 0, "x")
    clock.resume(None, Now(700, 0))
    clocks.boot_ms += 300
    mark = clock.mark(clock.now(), "root-id")
    assert mark["bootId"] == "x" and mark["bootMs"] == 50_300 and mark["root"] == "root-id"


@pytest.mark.parametrize("step", [YEARS_MS, -YEARS_MS])
@pytest.mark.parametrize("restart", [False, True])
def test_a_step_of_the_wall_clock_neither_ends_nor_delays_a_lease_or_a_delay(
    bench: Bench, step: int, restart: bool
) -> None:
    bench.publish(message="leased")
    bench.do("consume_next", queue="q", visibilityTimeoutSec=10)
    bench.publish(message="delayed", delayMs=10_000)
    bench.clocks.wall_ms += step
    if restart:
        bench.reopen()
    bench.clocks.boot_ms += 9_999
    assert bench.counts("q") == {"inflight": 1, "delayed": 1}
    bench.clocks.boot_ms += 1
    assert bench.counts("q") == {"ready": 1, "delayed": 1}


def test_every_run_begins_with_a_mark_and_a_stop_ends_with_one(bench: Bench) -> None:
    bench.run()
    bench.stop()
    assert bench.events()[-1]["clean"] is True
    bench.reopen()
    bench.publish()
    marks = [event for event in bench.events() if event["type"] == "clock_marked"]
    assert marks[-1]["id"] > next(event["id"] for event in marks if event.get("clean"))
    bench.clocks.pass_ms(3600 * 1000)
    bench.run()
    assert bench.events()[-1]["type"] == "clock_marked"


@pytest.mark.parametrize("boot", ["first-boot", "second-boot"])
def test_without_any_journal_engine_time_continues_from_the_store(make_bench: Callable[..., Bench], boot: str) -> None:
    bench = make_bench().open()
    bench.clocks.pass_ms(10**9)
    bench.publish(message="before", delayMs=5000)
    bench.close()
    for path in bench.segments():
        path.unlink()
    bench.clocks.boot_id = boot
    bench.clocks.pass_ms(5000)
    bench.open()
    assert bench.live.clock.now().engine >= 10**9
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "before"
