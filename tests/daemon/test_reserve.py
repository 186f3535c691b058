"""The reserve: what still works when the disk is full, on a disk of so many bytes that is made of counted calls."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from postroom_daemon.broker.failures import MustRecover
from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.journal.reserve import CLIENTS_BYTES, STEP_BYTES, Reserve
from postroom_daemon.model.request import Answer
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.errors import StoreFull
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]
MIB = 2**20


class Disk(Files):
    """So many bytes are free; writing takes of them, cutting a file gives them back."""

    def __init__(self, free: int, code: int = errno.ENOSPC) -> None:
        super().__init__()
        self.free = free
        self.inodes = 1000
        self.code = code
        self.write = self._write
        self.ftruncate = self._ftruncate
        self.allocate = self._allocate
        self.statvfs = lambda path: SimpleNamespace(f_bavail=self.free, f_frsize=1, f_files=1000, f_favail=self.inodes)

    def _take(self, size: int) -> None:
        if size > self.free:
            raise OSError(self.code, os.strerror(self.code))
        self.free -= size

    def _write(self, fd: int, data: bytes) -> int:
        part = data[: max(1, self.free)]
        self._take(len(part))
        return os.write(fd, part)

    def _ftruncate(self, fd: int, size: int) -> None:
        self.free += os.fstat(fd).st_size - size
        os.ftruncate(fd, size)

    def _allocate(self, fd: int, offset: int, size: int) -> None:
        self._take(max(0, size - os.fstat(fd).st_size))
        os.posix_fallocate(fd, offset, size)


def opened(make_bench: MakeBench, backend: str = "sqlite", reserve: int = 4 * MIB, **flags: str) -> tuple[Bench, Disk]:
    """An open root with a whole reserve on a disk of 64 MiB."""
    bench = make_bench(backend, **{"storage.reserveBytes": str(reserve), "storage.minFreeBytes": "0", **flags})
    bench.files = disk = Disk(64 * MIB)
    bench.open()
    assert bench.live.reserve.bytes == reserve
    bench.publish("other")
    return bench, disk


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("backend", ["filesystem", "hybrid", "memory", "sqlite"])
def test_everything_except_publishing_works_when_the_disk_is_full(
    backend: str, code: int, make_bench: MakeBench
) -> None:
    bench, disk = opened(make_bench, backend)
    for _ in range(4):
        bench.publish()
    one, two, three = (bench.do("consume_next", queue="q")["lease"] for _ in range(3))
    disk.free, disk.code = 0, code
    assert bench.send("publish", queue="q", message="refused").code == "ERR_STORAGE_FULL"
    bench.do("ack", messageKey=one["messageKey"], leaseId=one["leaseId"])
    bench.do("nack", messageKey=two["messageKey"], leaseId=two["leaseId"], requeue=False)
    bench.do("release", messageKey=three["messageKey"], leaseId=three["leaseId"])
    bench.do("reprocess_dlq", messageKey=two["messageKey"])
    bench.do("pause", queue="q", operation="publish")
    assert bench.do("consume_next", queue="q")["message"]
    assert bench.counts("q") == {"ready": 2, "inflight": 1}
    assert bench.do("health")["checks"]["disk"]["heldBackBytes"] == 4 * MIB - STEP_BYTES
    bench.reopen(without_store=backend == "sqlite")
    assert bench.counts("q") == {"ready": 2, "inflight": 1}


def test_a_publish_gets_nothing_of_the_reserve(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    disk.free = 0
    for _ in range(3):
        assert bench.send("publish", queue="q", message="refused").code == "ERR_STORAGE_FULL"
    assert bench.live.reserve.is_complete and bench.store.queue("q") is None


def test_leases_and_delays_end_while_a_schedule_has_no_space_to_publish(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    bench.publish()
    bench.publish(queue="later", delayMs=12_000)
    bench.do("set_schedule", name="s", queue="by the clock", cron="@every 10s")
    bench.do("consume_next", queue="q", visibilityTimeoutSec=12)
    for _ in range(20):
        disk.free = 0  # what the reserve gave is taken by others
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.do("status", queue="q")["metrics"]["inflight"] == 0
    assert bench.do("status", queue="later")["metrics"]["ready"] == 1
    assert not bench.do("status", queue="by the clock")["exists"]
    disk.free = 64 * MIB
    for _ in range(6):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.do("status", queue="by the clock")["metrics"]["ready"] > 0


def test_a_step_of_the_clock_is_followed_even_if_the_disk_was_full_at_that_moment(
    make_bench: MakeBench,
) -> None:
    bench, disk = opened(make_bench, reserve=0)
    bench.publish(deliverAt=bench.clocks.wall_ms + 10**9)
    bench.run()
    bench.clocks.wall_ms += 2 * 10**9
    disk.free = 0
    for _ in range(8):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.do("status", queue="q")["metrics"]["delayed"] == 1
    disk.free = 64 * MIB
    for _ in range(8):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1


def test_the_reserve_is_restored_when_there_is_space(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    disk.free = 0
    bench.do("pause", queue="other")
    reserve = bench.live.reserve
    disk.free = STEP_BYTES
    reserve.tick()
    assert reserve.bytes == 4 * MIB - STEP_BYTES
    disk.free = 3 * STEP_BYTES
    reserve.tick()
    assert reserve.is_complete and disk.free == 2 * STEP_BYTES
    assert os.stat(bench.journal_root / "reserve").st_size == 4 * MIB


def test_half_of_the_reserve_is_released_so_that_clients_can_write_their_requests(tmp_path: Path) -> None:
    disk = Disk(64 * MIB)
    reserve = Reserve(tmp_path, disk, 4 * MIB)
    reserve.open()
    reserve.tick()
    for _ in range(100):
        disk.free = CLIENTS_BYTES - 1  # somebody else takes all that becomes free
        reserve.tick()
    assert reserve.bytes == 2 * MIB
    assert reserve.release()


def test_the_size_of_the_reserve_is_read_after_a_restart(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    disk.free = 0
    bench.do("pause", queue="other")
    held = bench.live.reserve.bytes
    bench.reopen()
    assert bench.live.reserve.bytes == held < 4 * MIB


def test_a_smaller_reserve_releases_the_excess(tmp_path: Path) -> None:
    disk = Disk(64 * MIB)
    for size in (4 * MIB, MIB, 0):
        reserve = Reserve(tmp_path, disk, size)
        reserve.open()
        reserve.tick()
        assert (reserve.bytes, (tmp_path / "reserve").stat().st_size) == (size, size)
        reserve.close()
    assert disk.free == 64 * MIB


def test_a_group_too_large_for_the_reserve_is_processed_one_by_one(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench, reserve=2 * STEP_BYTES)
    for _ in range(40):
        bench.publish()
    leases = [bench.do("consume_next", queue="q")["lease"] for _ in range(40)]
    disk.free = 0
    nacks = [
        bench.make("nack", messageKey=lease["messageKey"], leaseId=lease["leaseId"], reason="x" * 4000)
        for lease in leases
    ]
    bench.run(*nacks)
    assert {nack.code for nack in nacks} == {"OK"}
    assert not any("gn" in event for event in bench.events()[-40:])


def test_without_a_reserve_a_full_disk_refuses_acks_and_answers_questions(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench, reserve=0)
    key = bench.publish()
    bench.do("consume_next", queue="q")
    disk.free = 0
    ack = bench.make("ack", messageKey=key)
    status = bench.make("status", queue="q")
    bench.run(ack, status)
    assert (ack.code, status.code) == ("ERR_STORAGE_FULL", "OK")
    disk.free = MIB
    bench.do("ack", messageKey=key)


def test_exhausted_inodes_use_nothing_of_the_reserve(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    disk.free, disk.inodes = 0, 0
    assert bench.send("pause", queue="other").code == "ERR_STORAGE_FULL"
    assert bench.live.reserve.is_complete


def test_if_the_reserve_cannot_be_allocated_the_daemon_works_without_it(make_bench: MakeBench) -> None:
    bench = make_bench("sqlite", **{"storage.reserveBytes": str(MIB)})

    def unsupported(*arguments: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    bench.files.allocate = unsupported
    bench.open()
    bench.publish()
    assert bench.live.reserve.bytes == 0 and bench.do("health")["status"] == "ok"


def test_a_disk_without_space_for_the_reserve_gets_none_and_loses_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("sqlite", **{"storage.reserveBytes": str(4 * MIB), "storage.minFreeBytes": "0"})
    bench.files = disk = Disk(7 * MIB)
    bench.open()
    bench.publish()
    assert bench.live.reserve.bytes == 0 and disk.free > 6 * MIB


def test_a_start_on_a_full_disk_uses_space_of_the_reserve(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    key = bench.publish()
    bench.close()
    with bench.segments()[-1].open("ab") as file:
        file.write(b'{"id":torn')  # its bytes go to quarantine, which takes space
    disk.free = 0
    bench.open()
    assert list(bench.quarantined().values()) == [b'{"id":torn']
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == key


def test_a_start_of_hybrid_makes_the_directory_of_its_bodies_from_the_reserve(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench, "hybrid", 4 * MIB, **{"hybrid.inlineBelowBytes": "1000"})
    key = bench.publish()
    bench.close()
    bench.config.settings.hybrid_payload_root.rmdir()

    def mkdir(path: Any, mode: int = 0o777, dir_fd: int | None = None) -> None:
        if disk.free <= 0 and not os.path.isdir(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.mkdir(path, mode, dir_fd=dir_fd)

    disk.free, disk.mkdir = 0, mkdir
    bench.open()
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == key


def test_a_start_that_lacks_only_space_says_so(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench, reserve=0)
    bench.publish()
    bench.close()
    with bench.segments()[-1].open("ab") as file:
        file.write(b"torn")
    disk.free = 0
    with pytest.raises(StartError) as caught:
        bench.open()
    assert caught.value.full
    disk.free = MIB
    bench.open()


def test_a_commit_without_space_is_completed_from_the_reserve(make_bench: MakeBench) -> None:
    """Somebody took the space between the journal's write and the store's."""
    bench, _ = opened(make_bench)
    store = bench.store

    def full() -> None:
        raise StoreFull("database or disk is full")

    store.commit = full  # type: ignore[method-assign]
    pause = bench.make("pause", queue="other")
    with pytest.raises(MustRecover):
        bench.run(pause)
    assert pause.answers == [] and bench.live.reserve.bytes == 4 * MIB - STEP_BYTES
    bench.reopen()
    again = bench.again(pause)
    bench.run(again)
    assert again.code == "OK" and bench.event_types().count("paused") == 1


def test_an_orderly_stop_on_a_full_disk_writes_its_clock_mark(make_bench: MakeBench) -> None:
    bench, disk = opened(make_bench)
    disk.free = 0
    bench.stop()
    assert bench.events()[-1]["clean"] is True


def test_a_response_without_space_gets_it_from_the_reserve(tmp_path: Path) -> None:
    disk = Disk(64 * MIB)
    reserve = Reserve(tmp_path, disk, MIB)
    reserve.open()
    reserve.tick()
    mailbox = Mailbox(load(tmp_path, None, {}, {}).settings, disk, lambda reason: None, reserve.release)
    request = {"requestId": "r1", "clientId": "c", "command": "status", "payload": {"queue": "q"}}
    (tmp_path / "ipc" / "requests" / "r1.json").write_text(json.dumps(request))
    (call,) = mailbox.collect()
    disk.free = 0
    call.on_answer(Answer({"done": True}))
    response = json.loads((tmp_path / "ipc" / "responses" / "c" / "r1.json").read_text())
    assert response["data"] == {"done": True} and reserve.bytes == MIB - STEP_BYTES
    mailbox.close()


def test_health_says_that_the_disk_takes_nothing_until_it_takes_a_group(make_bench: MakeBench) -> None:
    bench = make_bench("sqlite").open()
    for ended in ("a group", "time"):
        with bench.full_disk():
            assert bench.send("publish", queue="q", message="x").code == "ERR_STORAGE_FULL"
            shown = bench.do("health")
        assert shown["status"] == "degraded" and "No space left" in shown["checks"]["disk"]["error"]
        if ended == "a group":
            bench.publish()
        else:
            bench.clocks.pass_ms(60_001)
        assert bench.do("health")["checks"]["disk"]["ok"], ended
