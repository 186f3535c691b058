"""Engine time over steps of the wall clock, restarts and reboots. The sources of time are given; nothing waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_daemon.platform.clock import LONGEST_GAP_MS, Clock, Mark, Now

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
START_WALL_MS = 1_795_811_841_655


class Machine:
    """A machine's clocks, to be set."""

    def __init__(self, boot_id: str = "first boot", boot_ms: int = 5_000, wall_ms: int = START_WALL_MS) -> None:
        self.boot_id, self.boot_ms, self.wall_ms = boot_id, boot_ms, wall_ms

    def clock(self) -> Clock:
        return Clock(lambda: self.boot_ms, lambda: self.wall_ms, self.boot_id)

    def run(self, ms: int) -> None:
        self.boot_ms += ms
        self.wall_ms += ms

    def reboot(self, off_ms: int, wall_ms: int | None = None) -> None:
        self.boot_id += " again"
        self.boot_ms = 3_000
        self.wall_ms = self.wall_ms + off_ms if wall_ms is None else wall_ms


def mark_of(clock: Clock) -> Mark:
    now = clock.now()
    fields = clock.mark(now, "root")
    return Mark(fields["bootId"], fields["bootMs"], now.engine, now.wall)


def restarted(machine: Machine, mark: Mark | None, last: Now) -> Clock:
    clock = machine.clock()
    clock.resume(mark, last)
    return clock


def test_a_fresh_root_begins_near_zero() -> None:
    assert Machine().clock().now() == Now(0, START_WALL_MS)


@pytest.mark.parametrize("step_ms", [10 * YEAR_MS, -10 * YEAR_MS, HOUR_MS, -1])
def test_a_step_of_the_wall_clock_moves_no_engine_time(step_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.run(1_000)
    machine.wall_ms += step_ms
    assert clock.now() == Now(1_000, START_WALL_MS + 1_000 + step_ms)


@pytest.mark.parametrize("step_ms", [0, 10 * YEAR_MS, -10 * YEAR_MS])
@pytest.mark.parametrize("off_ms", [0, 1, 45 * DAY_MS])
def test_a_restart_in_the_same_boot_is_exact(step_ms: int, off_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.run(700)
    mark = mark_of(clock)
    machine.run(300)
    last = clock.now()
    machine.run(off_ms)
    machine.wall_ms += step_ms
    assert restarted(machine, mark, last).now().engine == 1_000 + off_ms


@pytest.mark.parametrize(
    ("off_ms", "counted_ms"),
    [
        (0, 0),
        (HOUR_MS, HOUR_MS),
        (LONGEST_GAP_MS, LONGEST_GAP_MS),
        (LONGEST_GAP_MS + 1, 0),
        (10 * YEAR_MS, 0),
        (-1, 0),
        (-10 * YEAR_MS, 0),
    ],
)
def test_a_reboot_counts_the_gap_of_the_wall_clock_if_plausible(off_ms: int, counted_ms: int) -> None:
    machine = Machine()
    clock = machine.clock()
    mark = mark_of(clock)
    machine.run(1_000)
    last = clock.now()
    machine.reboot(off_ms)
    resumed = restarted(machine, mark, last)
    assert resumed.now().engine == 1_000 + counted_ms
    machine.run(250)
    assert resumed.now().engine == 1_000 + counted_ms + 250


def test_a_boot_at_1970_and_the_jump_of_ntp_expire_nothing() -> None:
    machine = Machine()
    clock = machine.clock()
    mark = mark_of(clock)
    machine.run(1_000)
    last = clock.now()
    machine.reboot(0, wall_ms=12_000)
    resumed = restarted(machine, mark, last)
    assert resumed.now().engine == 1_000
    machine.run(5_000)
    machine.wall_ms = START_WALL_MS + DAY_MS
    assert resumed.now().engine == 6_000


def test_a_boot_id_that_cannot_be_read_counts_as_another_boot() -> None:
    machine = Machine(boot_id="")
    mark = mark_of(machine.clock())
    machine.wall_ms += HOUR_MS
    assert restarted(machine, mark, Now(10, START_WALL_MS)).now().engine == 10 + HOUR_MS


def test_without_a_mark_the_last_event_decides() -> None:
    machine = Machine(wall_ms=START_WALL_MS + 60_000)
    assert restarted(machine, None, Now(500, START_WALL_MS)).now().engine == 60_500


def test_a_boot_clock_that_went_back_under_the_same_id_is_not_trusted() -> None:
    machine = Machine(boot_ms=5_000)
    mark = mark_of(machine.clock())
    machine.boot_ms = 10
    assert restarted(machine, mark, Now(0, START_WALL_MS)).now().engine == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(0, 40 * DAY_MS)),
        st.tuples(st.just("step"), st.integers(-10 * YEAR_MS, 10 * YEAR_MS)),
        st.tuples(st.just("restart"), st.integers(0, DAY_MS)),
        st.tuples(st.just("reboot"), st.integers(-10 * YEAR_MS, 10 * YEAR_MS)),
        st.tuples(st.just("mark"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_engine_time_never_goes_back_and_never_leaps(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    clock = machine.clock()
    mark, last = mark_of(clock), clock.now()
    for what, ms in steps:
        before, allowed_ms = clock.now().engine, 0
        if what == "run":
            machine.run(ms)
            allowed_ms = ms
        elif what == "step":
            machine.wall_ms += ms
        elif what == "mark":
            mark, last = mark_of(clock), clock.now()
        else:
            last = clock.now()
            if what == "restart":
                machine.run(ms)
                allowed_ms = ms
            else:
                machine.reboot(ms)
                allowed_ms = LONGEST_GAP_MS
            clock = restarted(machine, mark, last)
        assert before <= clock.now().engine <= before + allowed_ms, what
