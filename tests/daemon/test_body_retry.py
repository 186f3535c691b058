"""A body that the disk does not return is not lost, and holds up its queue for a while only."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from postroom_daemon.broker.engine_state import READS, READS_MS, BodyRetry
from postroom_daemon.platform.files import Files
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]

BACKENDS = ("filesystem", "hybrid")


class Unreadable(Files):
    """Files whose messages' ones cannot be read while ``code`` is set; nor anything be synced while ``gone`` is."""

    def __init__(self) -> None:
        super().__init__()
        self.code = 0
        self.gone = False
        self.which = "message-1"
        really_open, really_sync = self.open, self.fsync

        def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if self.code and self.which in str(path) and not flags & os.O_CREAT:
                raise OSError(self.code, os.strerror(self.code))
            fd: int = really_open(path, flags, *arguments, **options)
            return fd

        def fsync(fd: int) -> None:
            if self.gone:
                raise OSError(errno.EIO, "the card was drawn")
            really_sync(fd)

        self.open, self.fsync = open_, fsync


@pytest.fixture
def disk() -> Unreadable:
    return Unreadable()


def served(make_bench: MakeBench, backend: str, disk: Unreadable) -> Bench:
    """Two messages, the first of which can be made unreadable."""
    bench = make_bench(backend)
    bench.files = disk
    bench.open()
    assert bench.publish("q", "first") == "msg:q:message-1"
    bench.publish("q", "second")
    bench.store.disk.tidy()
    return bench


def consume(bench: Bench) -> str:
    """What is delivered, or the code of the refusal."""
    sent = bench.send("consume_next", queue="q")
    data = sent.data_or_none()
    return str(data["message"]["payload"]) if data else sent.code


@pytest.mark.parametrize("code", [errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_temporary_error_costs_no_message(code: int, backend: str, disk: Unreadable, make_bench: MakeBench) -> None:
    bench = served(make_bench, backend, disk)
    disk.code = code
    assert consume(bench) == "ERR_STORAGE_FAILED"
    disk.code = 0
    assert consume(bench) == "first"
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_body_that_stays_unreadable_is_retried_for_a_while_and_then_a_dead_letter(
    backend: str, disk: Unreadable, make_bench: MakeBench
) -> None:
    bench = served(make_bench, backend, disk)
    disk.code = errno.EIO
    for _ in range(2 * READS):  # however often in that time
        assert consume(bench) == "ERR_STORAGE_FAILED"
    bench.clocks.pass_ms(READS_MS - 1)
    assert consume(bench) == "ERR_STORAGE_FAILED"
    bench.clocks.pass_ms(1)
    assert consume(bench) == "second"
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert (letter["messageKey"], letter["reasonCode"]) == ("msg:q:message-1", "BODY_LOST")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_disk_that_is_gone_costs_no_message_however_long(
    backend: str, disk: Unreadable, make_bench: MakeBench
) -> None:
    bench = served(make_bench, backend, disk)
    disk.code, disk.gone = errno.EIO, True
    for _ in range(2 * READS):
        assert consume(bench) == "ERR_STORAGE_FAILED"
        bench.clocks.pass_ms(READS_MS)
    disk.code, disk.gone = 0, False
    assert consume(bench) == "first"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_unreadable_body_is_an_error_for_the_waiting_consumer_and_not_for_the_publisher(
    backend: str, disk: Unreadable, make_bench: MakeBench
) -> None:
    bench = make_bench(backend)
    bench.files = disk
    bench.open()
    waiting = bench.make("consume_next", queue="q", waitMs=60_000)
    bench.run(waiting)
    bench.publish("q", "first", delayMs=1000)
    bench.reopen()
    bench.run(waiting := bench.again(waiting))
    disk.code = errno.EIO
    bench.clocks.pass_ms(1000)
    published = bench.send("publish", queue="q", message="second", priority=-1)
    assert (waiting.code, published.code) == ("ERR_STORAGE_FAILED", "OK")
    assert bench.event_types().count("published") == 2


def test_only_failed_reads_in_a_row_count() -> None:
    retry = BodyRetry()
    assert not any(retry.note_failure("key", 0) for _ in range(READS - 1))
    retry.forget("key")
    assert not any(retry.note_failure("key", READS_MS) for _ in range(READS))
    assert retry.note_failure("key", 2 * READS_MS)


def test_a_reprocessed_message_starts_with_no_failed_reads() -> None:
    retry = BodyRetry()
    given_up = [retry.note_failure("key", now) for now in (0, 1000, 2000, 3000, 5000)]
    assert given_up == [False, False, False, False, True]
    assert [retry.note_failure("key", now) for now in (6000, 7000, 8000, 9000)] == [False] * 4
