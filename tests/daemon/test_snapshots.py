"""The hourly state file: its content while the daemon works, what crashes and faults leave, and which files stay."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from postroom_daemon.observe.state import read_state, steady
from postroom_daemon.observe.state_files import Snapshots
from postroom_daemon.observe.state_files.hourly import SETTLED_S
from postroom_daemon.platform.files import Files
from postroom_daemon.stores.errors import StoreDamaged
from tests.conformance.bench import Bench
from tests.crash.faults import CALLS, FaultyFiles, Killed
from tests.daemon.random_work import work
from tests.daemon.states import plain

HOUR_MS = 3600 * 1000
LATER_S = 10 * SETTLED_S


class Keeper:
    """Has the state of an open bench written, as the daemon's loop does."""

    def __init__(self, bench: Bench, files: Files | None = None, **settings: Any) -> None:
        self.bench = bench
        self.settings = replace(bench.config.settings, storage_min_free_bytes=0, **settings)
        live = bench.live
        self.files = files or Files()
        self.snapshots = Snapshots(self.settings, live.store, live.journal, live.clock, self.files)
        self.meanwhile: Callable[[], None] = lambda: None

    def begin(self) -> bool:
        """A second in which it may be time. Whether it is."""
        self.snapshots.tick(self.bench.live.clock.elapsed_s() + LATER_S, self.bench.live.clock.now())
        return self.snapshots.busy

    def look(self) -> None:
        """As ``begin``, and all that follows."""
        self.begin()
        while self.snapshots.busy:
            self.snapshots.step()
            self.meanwhile()

    def pass_hours(self, hours: int = 1) -> None:
        """Let hours pass, of which each is looked at."""
        for _ in range(hours):
            self.bench.clocks.pass_ms(HOUR_MS)
            self.look()

    def change_and_pass(self, hours: int) -> None:
        """In each of these hours something changes."""
        for _ in range(hours):
            self.bench.publish()
            self.pass_hours()

    @property
    def root(self) -> Path:
        return self.settings.snapshots_root

    def names(self) -> list[str]:
        """All that is in the directory."""
        return sorted(os.listdir(self.root)) if self.root.is_dir() else []

    def newest(self) -> dict[str, Any]:
        """What the last file holds; it must be whole."""
        name = self.names()[-1]
        with (self.root / name).open("rb") as file:
            return plain(read_state(file, name))


def now_as_state(bench: Bench) -> dict[str, Any]:
    return plain(steady(lambda command, payload: bench.do(command, **payload)))


def reported(state: dict[str, Any]) -> dict[str, Any]:
    """A state without its moment."""
    return {name: part for name, part in state.items() if name != "head"}


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_a_file_has_the_state_at_one_event_although_groups_were_processed_meanwhile(
    make_bench: Callable[..., Bench], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom_daemon.observe.state_files.writing._PAGE", 3)
    monkeypatch.setattr("postroom_daemon.observe.state_files.hourly._SLICE_NS", 1)
    bench, random = make_bench(backend, segment_bytes=20_000).open(), Random(5)
    for _ in range(80):
        work(bench, random)
    keeper, states, left = Keeper(bench), {}, 40

    def go_on() -> None:
        nonlocal left
        left -= 1
        if left > 0:
            for _ in range(3):
                work(bench, random)
                states[bench.store.applied] = now_as_state(bench)

    keeper.meanwhile = go_on
    keeper.look()
    found = keeper.newest()
    expected = states[found["head"]["event"]]
    assert reported(found) == reported(expected)
    assert len(found["messages"]) > 6


def test_no_file_is_written_while_nothing_changes(bench: Bench) -> None:
    keeper = Keeper(bench)
    keeper.change_and_pass(2)
    assert len(keeper.names()) == 2
    keeper.pass_hours(3)
    bench.stop()  # the clock is marked
    keeper.pass_hours(3)
    assert len(keeper.names()) == 2
    keeper.change_and_pass(1)
    assert len(keeper.names()) == 3


def test_after_a_restart_an_existing_file_is_not_written_again(bench: Bench) -> None:
    Keeper(bench).change_and_pass(1)
    bench.stop()
    bench.reopen()
    keeper = Keeper(bench)
    keeper.look()
    keeper.pass_hours(2)
    assert len(keeper.names()) == 1
    keeper.change_and_pass(1)
    assert len(keeper.names()) == 2


def test_no_file_is_written_right_after_a_start(bench: Bench) -> None:
    keeper = Keeper(bench)
    bench.publish()
    live = bench.live
    keeper.snapshots.tick(live.clock.elapsed_s(), live.clock.now())
    assert not keeper.snapshots.busy
    keeper.look()
    assert len(keeper.names()) == 1


def test_a_file_is_named_by_the_hour_and_private(bench: Bench) -> None:
    keeper = Keeper(bench)
    keeper.change_and_pass(1)
    hour = datetime.fromtimestamp(bench.clocks.wall_ms / 1000, UTC)
    assert keeper.names() == [f"{hour:%Y-%m-%d-%H}.json"]
    assert (keeper.root / keeper.names()[0]).stat().st_mode & 0o777 == 0o600
    assert keeper.root.stat().st_mode & 0o777 == 0o700


def test_a_clock_that_jumps_to_and_fro_does_not_wear_the_flash(bench: Bench) -> None:
    keeper, written = Keeper(bench), 0
    for number in range(40):
        bench.publish()
        bench.clocks.pass_ms(60_000)
        bench.clocks.wall_ms += HOUR_MS if number % 2 else -HOUR_MS
        written += keeper.begin()
        keeper.look()
    assert written == 2


def test_a_clock_without_a_battery_gets_a_file_for_each_hour_that_passes(bench: Bench) -> None:
    keeper = Keeper(bench)
    bench.clocks.wall_ms = 0
    keeper.change_and_pass(1)
    first = keeper.newest()["head"]["event"]
    bench.clocks.wall_ms = 0  # after a boot
    keeper.change_and_pass(1)
    assert keeper.names() == ["1970-01-01-01.json"]
    assert keeper.newest()["head"]["event"] > first


@pytest.mark.parametrize("bound", [{"snapshots_max_files": 3}, {"snapshots_retention_hours": 3}])
def test_the_oldest_files_are_removed(bench: Bench, bound: dict[str, Any]) -> None:
    keeper = Keeper(bench, **bound)
    keeper.change_and_pass(2)
    first, second = keeper.names()
    keeper.change_and_pass(6)
    assert 3 <= len(keeper.names()) <= 4
    assert first not in keeper.names()
    assert second not in keeper.names()


def test_the_total_size_of_the_files_is_bounded(bench: Bench) -> None:
    bench.publish(message="x" * 20_000)
    keeper = Keeper(bench, snapshots_max_bytes=100_000)
    keeper.change_and_pass(10)
    sizes = [(keeper.root / name).stat().st_size for name in keeper.names()]
    assert len(sizes) > 2
    assert 50_000 < sum(sizes) <= 100_000


def test_a_state_that_is_too_large_is_not_written_and_replaces_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(bench, snapshots_max_bytes=70_000)
    keeper.change_and_pass(1)
    bench.publish(message="x" * 100_000)
    keeper.pass_hours()
    assert len(keeper.names()) == 1
    assert "more than snapshots.maxBytes" in caplog.text
    bench.do("consume_next", queue="q")


def test_a_clock_that_is_years_ahead_for_an_hour_costs_no_more_than_a_file(bench: Bench) -> None:
    keeper = Keeper(bench)
    keeper.change_and_pass(5)
    before = keeper.names()
    bench.clocks.wall_ms += 10 * 365 * 24 * HOUR_MS
    keeper.change_and_pass(1)
    bench.clocks.wall_ms -= 10 * 365 * 24 * HOUR_MS
    keeper.change_and_pass(2)
    assert set(before[1:]) < set(keeper.names())


def test_foreign_files_stay_and_remnants_of_a_killed_daemon_are_removed(bench: Bench) -> None:
    keeper = Keeper(bench, snapshots_max_files=1)
    keeper.root.mkdir(parents=True)
    for name in ("notes.txt", "2026-99-99-99.json", "2026-01-01-01.json.tmp"):
        (keeper.root / name).touch()
    (keeper.root / "state-x").mkdir()
    keeper.change_and_pass(3)
    assert len(keeper.names()) == 3
    assert {"notes.txt", "2026-99-99-99.json"} < set(keeper.names())


@pytest.mark.parametrize("kind", ["KILL", "ENOSPC", "EIO", "SHORT"])
def test_whatever_interrupts_it_a_file_is_complete_or_absent(
    make_bench: Callable[..., Bench], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    bench, number, fired = make_bench().open(), 0, True
    while fired:
        number += 1
        files = FaultyFiles()
        keeper = Keeper(bench, files, snapshots_max_files=2)
        bench.publish()
        bench.clocks.pass_ms(HOUR_MS)
        newest = keeper.names()[-1:]
        files.arm(kind, number, persistent=True)
        try:
            keeper.look()
        except Killed:
            pass
        fired = files.fired
        whole = [name for name in keeper.names() if name.endswith(".json")]
        for name in whole:
            with (keeper.root / name).open("rb") as file:
                for _ in read_state(file, name).messages:
                    pass
        assert set(newest) <= set(whole)
        assert bench.publish()
        again = Keeper(bench, snapshots_max_files=2)
        again.pass_hours()
        assert again.newest()["messages"] == now_as_state(bench)["messages"]
        assert all(name.endswith(".json") for name in again.names()), "what was left is gone"
    assert number > len(CALLS[kind]) // 2
    assert kind == "KILL" or "snapshots" in caplog.text


def test_space_reserved_for_messages_is_not_used(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(bench)
    files, free = keeper.files, os.statvfs(bench.path)
    keeper.snapshots.reload(replace(keeper.settings, storage_min_free_bytes=free.f_bavail * free.f_frsize // 2))
    looks = 0

    def shrinking(path: Any) -> os.statvfs_result:
        nonlocal looks
        looks += 1
        return os.statvfs_result(free[:4] + (free.f_bavail // (3 if looks > 2 else 1),) + free[5:])

    files.statvfs = shrinking
    keeper.change_and_pass(1)
    assert looks > 2, "it had begun"
    assert keeper.names() == []
    assert "storage.minFreeBytes" in caplog.text
    files.statvfs = os.statvfs
    keeper.change_and_pass(1)
    assert len(keeper.names()) == 1


def test_a_damaged_store_is_reported_to_the_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Keeper(bench)
    bench.publish()

    def damaged(*_: object) -> None:
        raise StoreDamaged("a page")

    monkeypatch.setattr(bench.store.pages, "entries", damaged)
    with pytest.raises(StoreDamaged):
        keeper.pass_hours()
    assert not keeper.snapshots.busy
    assert keeper.names() == []


def test_a_file_that_is_unfinished_at_a_stop_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom_daemon.observe.state_files.hourly._SLICE_NS", 1)
    for _ in range(50):
        bench.publish()
    keeper = Keeper(bench)
    bench.clocks.pass_ms(HOUR_MS)
    assert keeper.begin()
    while not any(name.endswith(".tmp") for name in keeper.names()):
        keeper.snapshots.step()
    keeper.snapshots.stop()
    assert keeper.names() == []
    assert not keeper.snapshots.busy


def test_an_abandoned_file_is_not_synced(bench: Bench) -> None:
    bench.publish()
    keeper = Keeper(bench)
    begun, goes_on = threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            goes_on.wait()

    keeper.files.fsync = slow
    bench.clocks.pass_ms(HOUR_MS)
    assert keeper.begin()
    while not begun.is_set():
        keeper.snapshots.step()
    keeper.snapshots.reload(keeper.settings)
    assert keeper.names() == []
    goes_on.set()


def test_the_first_error_is_reported_even_if_the_remains_cannot_be_removed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(code: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        return fail

    bench.publish()
    keeper = Keeper(bench)
    keeper.files.fsync, keeper.files.unlink = failing(errno.EIO), failing(errno.EROFS)
    keeper.pass_hours()
    assert os.strerror(errno.EIO) in caplog.text
    directory = os.open(bench.path, os.O_RDONLY)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        keeper.files.put(directory, "file", b"x", durable=True)
    os.close(directory)


def test_a_file_has_lines_that_other_programs_can_read(bench: Bench) -> None:
    bench.publish("orders", message={"n": 1})
    keeper = Keeper(bench)
    keeper.pass_hours()
    lines = [orjson.loads(line) for line in (keeper.root / keeper.names()[0]).read_bytes().splitlines()]
    assert [line["kind"] for line in lines] == ["head", "queue", "message", "end"]
    assert lines[1]["name"] == lines[2]["queue"] == "orders"
