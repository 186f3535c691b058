"""The files of logs by themselves: appending, reading on, and finding a place, in CPU time of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from postroom_common.log_blocks import block_of
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.log.logs import LogFiles

from .figures import Report

_LOG: Final = 1
_BODY: Final = b"x" * 202
#: Records of a group, and of a page.
_GROUP: Final = 100
_PAGE: Final = 255
_RUNS: Final = 3


def measure(report: Report, records: int, place: Path) -> None:
    """Append so many records of 250 bytes, and read them."""
    files = Files()
    logs = LogFiles(place / "logs", files, Quarantine(place / "quarantine", files))
    logs.open()
    logs.create(_LOG, "bench")
    block = block_of({}, _BODY)
    assert len(block) == 210
    report.section(f"A log of {records:,} records of {len(block) + 32} bytes, in the page cache")
    appending = _cpu_us(lambda: _append(logs, records, block)) / records
    report.add(f"append, {_GROUP} records of a group, with the write", appending, "us/record", 3)
    pages = range(0, records - _PAGE, _PAGE)
    reading = [_cpu_us(lambda: _read_on(logs)) / len(pages) for _ in range(_RUNS)]
    report.add(f"read on, a page of {_PAGE}", reading, "us/page", 150)
    report.add("records read on", [_PAGE * 1e6 / one for one in reading], "records/s", 300_000, at_least=True)
    single = min(records, 5000)
    report.add("read on, one by one", _cpu_us(lambda: _read_on(logs, 1, single)) / single, "us/record")
    places = [records * number // 97 for number in range(1, 97)]
    report.add("read behind any position", _cpu_us(lambda: _find(logs, places)) / len(places), "us")
    started = time.monotonic()
    logs.checkpoint(records)
    report.add("checkpoint, with the sync", (time.monotonic() - started) * 1000, "ms")
    logs.close()
    report.add("open behind a checkpoint", _cpu_us(logs.open) / 1000, "ms")
    logs.close()
    (place / "logs" / "state.json").unlink()
    report.add("open without one, which reads all", _cpu_us(logs.open) / 1000, "ms")
    logs.close()


def _cpu_us(work: Callable[[], object]) -> float:
    started = time.process_time_ns()
    work()
    return (time.process_time_ns() - started) / 1000


def _append(logs: LogFiles, records: int, block: bytes) -> None:
    for first in range(1, records, _GROUP):
        for position in range(first, first + _GROUP):
            logs.append(_LOG, position, 1_795_811_841_655, block)
        logs.commit()


def _read_on(logs: LogFiles, limit: int = _PAGE, most: int = 2**60) -> None:
    after = 0
    while after < most and (page := logs.read(_LOG, after, limit, 2**20)).records:
        after = page.last


def _find(logs: LogFiles, places: list[int]) -> None:
    for place in places:
        assert logs.read(_LOG, place, 1, 1).last == place + 1
