"""Checkpoints of the filesystem store beside the work: what happens meanwhile, and what a crash then leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Event as Signal

import pytest

from postroom_daemon.stores.errors import StoreError, StoreFull
from tests.conformance.bench import Bench, seen_in
from tests.daemon.filesystem_store import MakeBench, expected_of, tree


class SlowSync:
    """A sync that ends when the test says so."""

    def __init__(self, bench: Bench) -> None:
        self.begun, self.may_end = Signal(), Signal()
        self._really: Callable[[int], None] = bench.files.syncfs
        bench.files.syncfs = self

    def __call__(self, fd: int) -> None:
        self.begun.set()
        assert self.may_end.wait(60)
        self._really(fd)


def begin(bench: Bench) -> SlowSync:
    """A checkpoint that has begun, and syncs."""
    sync = SlowSync(bench)
    assert bench.store.disk.checkpoint_step() is None
    assert sync.begun.wait(60)
    return sync


def finish(bench: Bench, sync: SlowSync) -> int:
    sync.may_end.set()
    while (event := bench.store.disk.checkpoint_step()) is None:
        pass
    return event


def settle(bench: Bench, key: str, command: str = "ack", **fields: object) -> None:
    lease = bench.do("consume_next", queue="q")["lease"]
    assert lease["messageKey"] == key
    bench.do(command, messageKey=key, leaseId=lease["leaseId"], **fields)


def test_work_continues_during_a_checkpoint_and_a_crash_then_loses_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    keys = [bench.publish("q", str(number)) for number in range(4)]
    begun_at = bench.store.applied
    sync = begin(bench)
    settle(bench, keys[0])
    settle(bench, keys[1], "nack", requeue=False)
    bench.publish("q", "new")
    assert bench.store.disk.checkpoint_step() is None
    assert finish(bench, sync) == begun_at
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)


def test_a_message_that_ends_during_a_checkpoint_that_contains_it_stays_ended(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("q", "x")
    sync = begin(bench)
    settle(bench, key)
    assert [name.split("/")[1] for name in tree(bench)] == ["archive"]
    finish(bench, sync)
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)
    assert bench.store.queue("q").totals["acked"] == 1  # type: ignore[union-attr]
    bench.store.disk.checkpoint()
    assert tree(bench) == []


def test_a_crash_during_a_checkpoint_is_like_one_before_it(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    keys = [bench.publish("q", str(number)) for number in range(3)]
    bench.store.disk.checkpoint()
    settle(bench, keys[0])

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "gone")

    bench.files.syncfs = fail
    with pytest.raises(StoreError, match="gone"):
        finish_failed(bench)
    settle(bench, keys[1])
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)


def finish_failed(bench: Bench) -> None:
    while bench.store.disk.checkpoint_step() is None:
        pass


def test_a_full_disk_is_reported_as_such_and_the_next_checkpoint_is_complete(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    keys = [bench.publish("q", str(number)) for number in range(2)]
    bench.store.disk.checkpoint()
    settle(bench, keys[0])
    really = bench.files.write

    def refuse(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    bench.files.write = refuse
    with pytest.raises(StoreFull):
        bench.store.disk.checkpoint()
    bench.files.write = really
    assert bench.store.disk.checkpoint() == bench.store.applied
    assert [name.split("/")[1] for name in tree(bench)] == ["inbox"], "the file of the ended message is left"


def test_a_stop_waits_for_the_checkpoint_under_way_and_makes_its_own(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish("q", "x")
    sync = begin(bench)
    bench.publish("q", "y")
    sync.may_end.set()
    assert bench.store.disk.checkpoint() == bench.store.applied
    bench.close()
    bench.open()
    assert seen_in(bench) == expected_of(bench, make_bench)
