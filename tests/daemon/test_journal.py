"""The journal as a writer, and what follows when the disk fails under it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from postroom_daemon.broker.failures import MustRecover
from postroom_daemon.journal.journal import JournalUnknown
from postroom_daemon.journal.segments import begun_at
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.errors import StoreError
from tests.conformance.bench import Bench, descriptors

Fail = Callable[..., Any]


def failing(number: int, after: int = 0, times: int = 10**9, then: Fail | None = None) -> Fail:
    """A call that fails with an error number from the ``after``-th call on, ``times`` times."""
    calls = iter(range(10**9))

    def call(*arguments: Any, **options: Any) -> Any:
        count = next(calls)
        if after <= count < after + times:
            raise OSError(number, os.strerror(number))
        assert then is not None
        return then(*arguments, **options)

    return call


def short_write(number: int, length: int, times: int = 10**9) -> Fail:
    """A write that takes ``length`` bytes of a group, and fails at the rest, in ``times`` groups."""
    state = {"begun": False, "left": times}

    def write(fd: int, data: bytes) -> int:
        if state["begun"]:
            state["begun"] = False
            raise OSError(number, os.strerror(number))
        if not state["left"]:
            return os.write(fd, data)
        state["left"] -= 1
        state["begun"] = True
        return os.write(fd, data[:length])

    return write


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "ERR_STORAGE_FULL"), (errno.EIO, "ERR_STORAGE_FAILED")])
def test_a_write_that_fails_half_way_leaves_nothing_behind(bench: Bench, number: int, code: str) -> None:
    bench.publish(message="before")
    journal = bench.segments()[-1].read_bytes()
    bench.files.write = short_write(number, 100)
    sent = bench.send("publish", queue="q", message="refused")
    assert sent.code == code
    assert bench.segments()[-1].read_bytes() == journal
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1
    bench.files.write = os.write
    assert bench.send("publish", queue="q", message="after").code == "OK"
    bench.reopen(without_store=True)
    assert [bench.do("consume_next", queue="q")["message"]["payload"] for _ in range(2)] == ["before", "after"]


def test_when_the_disk_is_full_publishes_are_refused_and_acks_of_the_same_group_work(bench: Bench) -> None:
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.files.write = short_write(errno.ENOSPC, 30, times=1)
    publishes = [bench.make("publish", queue=queue, message="x") for queue in ("q", "new")]
    ack = bench.make("ack", messageKey=key, leaseId=lease)
    pause = bench.make("pause", queue="q")
    status = bench.make("status", queue="q")
    bench.run(publishes[0], ack, publishes[1], pause, status)
    assert [sent.code for sent in publishes] == ["ERR_STORAGE_FULL"] * 2
    assert (ack.code, pause.code) == ("OK", "OK")
    assert not any(status.data["metrics"].values())
    assert bench.store.queue("new") is None
    assert [event["id"] for event in bench.events()] == list(range(1, len(bench.events()) + 1))


def test_a_refused_publish_may_be_sent_again_and_is_then_executed(bench: Bench) -> None:
    bench.files.write = failing(errno.ENOSPC)
    sent = bench.send("publish", queue="q", message="x")
    assert sent.code == "ERR_STORAGE_FULL"
    bench.files.write = os.write
    again = bench.again(sent)
    bench.run(again)
    assert again.code == "OK"


def test_on_a_full_disk_due_work_is_not_retried_without_pause(bench: Bench) -> None:
    bench.publish()
    bench.do("consume_next", queue="q", visibilityTimeoutSec=1)
    bench.clocks.pass_ms(1000)
    bench.files.write = failing(errno.ENOSPC)
    bench.run()
    due = bench.live.broker.next_due()
    assert due is not None and due > bench.live.clock.now().engine
    assert bench.do("status", queue="q")["metrics"]["inflight"] == 1
    bench.files.write = os.write
    bench.clocks.pass_ms(1000)
    bench.run()
    assert bench.do("status", queue="q")["metrics"]["delayed"] == 1


def test_a_daemon_stops_in_order_on_a_full_disk(bench: Bench) -> None:
    bench.publish()
    bench.files.write = failing(errno.ENOSPC)
    bench.stop()
    bench.files.write = os.write
    bench.reopen()
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "body"


def test_a_waiting_request_survives_a_group_that_the_disk_refused_and_keeps_its_place(bench: Bench) -> None:
    bench.publish(message="for the queue")
    bench.do("ack", messageKey=bench.do("consume_next", queue="q")["lease"]["messageKey"])
    first, second = (bench.make("consume_next", queue="q", consumerId=name, waitMs=9000) for name in ("one", "two"))
    bench.run(first)
    bench.files.write = failing(errno.EIO)
    bench.run(bench.make("publish", queue="q", message="refused"), second)
    assert first.answers == []
    assert second.code == "ERR_STORAGE_FAILED"  # of the refused group
    bench.files.write = os.write
    bench.publish(message="done")
    assert first.data["message"]["payload"] == "done"


def test_queries_are_answered_while_the_disk_refuses_every_write(bench: Bench) -> None:
    bench.publish(message="before")
    bench.files.write = failing(errno.EIO)
    publish, health, status = bench.make("publish", queue="q"), bench.make("health"), bench.make("status", queue="q")
    bench.run(publish, health, status)
    assert [sent.code for sent in (publish, health, status)] == ["ERR_STORAGE_FAILED", "OK", "OK"]
    assert status.data["metrics"]["ready"] == 1


def noting(calls: list[str], name: str, call: Any) -> Any:
    def noted(*values: Any, **options: Any) -> Any:
        calls.append(name)
        return call(*values, **options)

    return noted


def test_a_segment_is_rewritten_and_synced_before_it_replaces_the_old_one(bench: Bench) -> None:
    bench.publish(message="before")
    bench.close()
    calls: list[str] = []
    for name in ("fsync", "rename"):
        setattr(bench.files, name, noting(calls, name, getattr(bench.files, name)))
    bench.open(rewrite_journal=True)
    assert calls[:3] == ["fsync", "rename", "fsync"]


def test_a_segment_that_cannot_be_rewritten_stays_as_it_was(bench: Bench) -> None:
    bench.publish(message="before")
    bench.close()
    whole = bench.segments()[-1].read_bytes()
    bench.files.fsync = failing(errno.EIO)
    with pytest.raises(StartError):
        bench.open(rewrite_journal=True)
    assert bench.segments()[-1].read_bytes() == whole
    assert [path.name for path in bench.journal_root.glob("*.tmp")] == []


#: What fails, so that nobody knows what the disk holds.
UNKNOWN: dict[str, dict[str, Fail]] = {
    "sync": {"fdatasync": failing(errno.EIO)},
    "cut": {"write": short_write(errno.EIO, 50), "ftruncate": failing(errno.EIO)},
    "sync of the cut": {"write": short_write(errno.EIO, 50), "fsync": failing(errno.EIO)},
}


@pytest.mark.parametrize("fault", sorted(UNKNOWN))
def test_if_the_outcome_is_unknown_nobody_is_answered_and_recovery_decides(bench: Bench, fault: str) -> None:
    key = bench.publish(message="before")
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    for name, call in UNKNOWN[fault].items():
        setattr(bench.files, name, call)
    sents = [
        bench.make("publish", queue="q", message="x"),
        bench.make("ack", messageKey=key, leaseId=lease),
        bench.make("status", queue="q"),
    ]
    with pytest.raises(JournalUnknown):
        bench.run(*sents)
    assert [sent.answers for sent in sents] == [[], [], []]
    bench.close()
    bench.files = Files()
    bench.open(rewrite_journal=True)
    for _ in range(2):
        again = [bench.again(sent) for sent in sents]
        bench.run(*again)
        assert [sent.code for sent in again] == ["OK", "OK", "OK"]
    types = bench.event_types()
    assert types.count("published") == 2 and types.count("acked") == 1
    assert bench.counts("q") == {"ready": 1}


def test_a_store_that_fails_to_commit_synced_events_is_rebuilt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.publish(message="before")

    def refuse() -> None:
        raise StoreError("SQLite: disk I/O error")

    monkeypatch.setattr(bench.store, "commit", refuse)
    sents = [bench.make("publish", queue="q", message="x"), bench.make("consume_next", queue="q")]
    with pytest.raises(MustRecover):
        bench.run(*sents)
    assert [sent.answers for sent in sents] == [[], []]
    bench.reopen()
    again = [bench.again(sent) for sent in sents]
    bench.run(*again)
    assert again[1].data["message"]["payload"] == "before"
    assert bench.event_types().count("published") == 2 and bench.event_types().count("leased") == 1


def test_a_store_that_fails_before_the_sync_costs_only_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.publish(message="before")

    def refuse() -> None:
        raise StoreError("SQLite: database is locked")

    monkeypatch.setattr(bench.store, "begin", refuse)
    assert bench.send("publish", queue="q", message="x").code == "ERR_STORAGE_FAILED"
    monkeypatch.undo()
    assert bench.send("publish", queue="q", message="x").code == "OK"


def test_a_new_segment_whose_name_cannot_be_made_durable_refuses_the_group(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(segment_bytes=300).open()
    bench.publish(message="before")
    bench.files.fsync = failing(errno.EIO)
    assert bench.send("publish", queue="q", message="x").code == "ERR_STORAGE_FAILED"
    bench.files.fsync = os.fsync
    bench.publish(message="after")
    bench.reopen(without_store=True)
    assert [bench.do("consume_next", queue="q")["message"]["payload"] for _ in range(2)] == ["before", "after"]
    assert [int(path.stem) for path in bench.segments()] == sorted({int(path.stem) for path in bench.segments()})


def test_segments_begin_with_a_clock_mark_and_hold_whole_groups(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(segment_bytes=1000).open()
    for _ in range(8):
        bench.run(*[bench.make("publish", queue="q", message="x" * 100) for _ in range(3)])
    assert len(bench.segments()) > 3
    for path in bench.segments()[1:]:
        first = next(event for event in bench.events() if event["id"] == int(path.stem))
        assert first["grp"] > int(path.stem)
        marks = [e for e in bench.events() if e["type"] == "clock_marked" and e["grp"] == first["grp"]]
        assert len(marks) == 1


@pytest.mark.parametrize(
    ("folded", "old", "most", "left"),
    [(0, True, 0, 4), (10**9, False, 10**9, 4), (10**9, True, 10**9, 1), (10**9, False, 0, 1)],
)
def test_segments_are_deleted_only_if_they_are_folded_and_old_or_too_many(
    make_bench: Callable[..., Bench], folded: int, old: bool, most: int, left: int
) -> None:
    bench = make_bench(segment_bytes=1000).open()
    while len(bench.segments()) < 4:
        bench.publish(message="x" * 300)
    last = bench.segments()[-1]
    removed = bench.live.journal.drop_segments(folded, 2**62 if old else 0, most, 2**62)
    assert len(bench.segments()) == left and bench.segments()[-1] == last
    assert len(removed) == 4 - left


@pytest.mark.parametrize(("old", "most"), [(2**62, 10**9), (0, 0)], ids=["old", "too many"])
def test_a_segment_that_has_just_ended_stays_whatever_retention_says(
    make_bench: Callable[..., Bench], old: int, most: int
) -> None:
    bench = make_bench(segment_bytes=1000).open()
    while len(bench.segments()) < 4:
        bench.publish(message="x" * 300)
        bench.clocks.pass_ms(1000)
    recent = begun_at(bench.segments()[2])
    assert recent is not None
    bench.live.journal.drop_segments(10**9, old, most, recent)
    assert len(bench.segments()) == 3


def test_a_full_disk_at_the_first_start_is_reported_and_leaves_the_root_unlocked(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.files.write = failing(errno.ENOSPC)
    before = descriptors(bench.path)
    for _ in range(3):
        with pytest.raises(StartError, match="No space left"):
            bench.open()
    assert not descriptors(bench.path) - before
    bench.files.write = os.write
    bench.open()
    assert bench.send("publish", queue="q", message="x").code == "OK"


def test_a_segment_that_was_replaced_under_the_daemon_shows_in_health(bench: Bench) -> None:
    bench.publish()
    assert bench.do("health")["checks"]["journal"]["ok"]
    path = bench.segments()[-1]
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    assert not bench.do("health")["checks"]["journal"]["ok"]
