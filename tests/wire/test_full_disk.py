"""A disk that another program has filled to the last byte: a small file system, where the tests may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon, wait_until

MIN_FREE_BYTES = 1_000_000
RESERVE_BYTES = 4 * 2**20


class Disk:
    """The file system that the daemon's root lies on. Where none can be mounted, the free space that the daemon asks
    for before it takes a publish stands for a full disk; tests/daemon/test_reserve.py has what is then not seen."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(root)]
        try:
            self.is_small = subprocess.run(mount, capture_output=True).returncode == 0
        except FileNotFoundError:
            self.is_small = False

    def fill(self, daemon: Daemon) -> None:
        """Leave no byte free."""
        if not self.is_small:
            daemon.environment["POSTROOM_STORAGE_MIN_FREE_BYTES"] = str(2**40)
            daemon.restart()
            return
        fd = os.open(self.root / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = 2**20
        while size:
            try:
                os.write(fd, bytes(size))
            except OSError:
                size //= 2
        os.close(fd)

    def empty(self, daemon: Daemon) -> None:
        """There is space again."""
        if not self.is_small:
            del daemon.environment["POSTROOM_STORAGE_MIN_FREE_BYTES"]
            daemon.restart()
            return
        (self.root / "filler").unlink()

    def free_bytes(self) -> int:
        figures = os.statvfs(self.root)
        return figures.f_bavail * figures.f_frsize

    def unmount(self) -> None:
        if self.is_small:
            subprocess.run(["umount", str(self.root)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Where the first daemon of the test has its root."""
    made = Disk(tmp_path / "root")
    yield made
    made.unmount()


def publishes(daemon: Daemon) -> Callable[[], bool]:
    """Whether a publish is taken."""
    return lambda: bool(daemon.answer(daemon.send("publish", {"queue": "q", "message": "x"}))["ok"])


@on_every_store
def test_everything_except_publishing_works_at_zero_bytes_and_publishing_when_there_is_space(
    disk: Disk, make_daemon: MakeDaemon
) -> None:
    daemon = make_daemon()
    daemon.environment.setdefault("POSTROOM_STORAGE_MIN_FREE_BYTES", str(MIN_FREE_BYTES))
    daemon.start()
    reserve = disk.root / "journal" / "reserve"
    assert reserve.stat().st_size == RESERVE_BYTES
    for _ in range(5):
        daemon.publish("q")
    one, two, three = (daemon.consume("q") for _ in range(3))
    disk.fill(daemon)
    wait_until(disk.free_bytes, "the daemon has made room for requests")
    daemon.settle("ack", one)
    daemon.settle("nack", two, requeue=False)
    daemon.settle("release", three)
    daemon.ask("pause", queue="q", operation="publish")
    daemon.ask("resume", queue="q", operation="publish")
    daemon.settle("release", daemon.consume("q"))
    assert daemon.refusal("publish", queue="q", message="x") == "ERR_STORAGE_FULL"
    assert daemon.counts("q") == {"ready": 3, "dlq": 1}
    daemon.kill()
    if disk.is_small:
        disk.fill(daemon)
    daemon.start(ready=False)
    wait_until(disk.free_bytes, "the daemon has made room for requests")
    daemon.settle("ack", daemon.consume("q"))
    assert daemon.counts("q") == {"ready": 2, "dlq": 1}
    disk.empty(daemon)
    wait_until(publishes(daemon), "a publish is taken again")
    wait_until(lambda: reserve.stat().st_size == RESERVE_BYTES, "the reserve is whole again")
    daemon.stop()


@on_every_store
def test_a_disk_that_is_full_is_emptied_by_batches(disk: Disk, make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    daemon.environment.setdefault("POSTROOM_STORAGE_MIN_FREE_BYTES", str(MIN_FREE_BYTES))
    daemon.start()
    for _ in range(10):
        daemon.ask("publish_batch", queue="q", messages=[{"message": "x"}] * 100)
    leases = [message["lease"] for message in daemon.ask("consume_next", queue="q", max=1000)["messages"]]
    assert len(leases) == 1000
    disk.fill(daemon)
    wait_until(disk.free_bytes, "the daemon has made room for requests")
    items = [{"messageKey": lease["messageKey"], "leaseId": lease["leaseId"]} for lease in leases]
    assert daemon.ask("ack_batch", items=items)["results"] == [{}] * 1000
    assert daemon.counts("q") == {}
    daemon.restart(kill=True)
    assert daemon.counts("q") == {}
    disk.empty(daemon)
    wait_until(publishes(daemon), "a publish is taken again")
    daemon.stop()
