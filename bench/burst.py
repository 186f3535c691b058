"""Groups of an exact size: publish requests that all wait before the daemon looks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from .daemon import directory_bytes, running
from .load import write_requests
from .machine import device_written_bytes

#: As many clients share the requests; the daemon keeps their boxes open.
CLIENTS = 8
_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Burst:
    """The result of a burst."""

    per_second: float
    cpu_us: float
    kernel_us: float
    requests_per_group: float
    journal_bytes: float
    store_bytes: float
    written_bytes: float | None
    resident_mb: float


def run(root: Path, count: int, group: int) -> Burst:
    """Drop ``count`` publishes while the daemon of a new root stands still, then let it answer them in groups of
    ``group``. Bytes are those of one message; the store's are counted after the stop, which folds its log. Those that
    were written are None without a block device.

    Raises ``RuntimeError`` when not all are answered with success.
    """
    with running(root, "--limits-group-requests", str(group)) as daemon:
        writers = [write_requests(daemon.ipc, f"burst-{number}") for number in range(CLIENTS)]
        for number in range(CLIENTS):
            (daemon.ipc / "responses" / f"burst-{number}").mkdir(0o770)
        before = daemon.groups()
        journal = directory_bytes(root / "journal")
        daemon.pause()
        sent = [(number % CLIENTS, next(writers[number % CLIENTS])) for number in range(count)]
        written = device_written_bytes(root)
        cpu_s, kernel_s = daemon.cpu_s(), daemon.kernel_s()
        started = time.monotonic()
        daemon.go_on()
        # Requests are answered in the order in which they came, so the last one tells of all.
        last = daemon.ipc / "responses" / f"burst-{sent[-1][0]}" / f"{sent[-1][1]}.json"
        while not last.exists():
            if time.monotonic() - started > _TIMEOUT_S:
                raise RuntimeError(f"not answered within {_TIMEOUT_S:g} s; see {root}/daemon.log")
            time.sleep(0.005)
        seconds = time.monotonic() - started
        cpu_s, kernel_s = daemon.cpu_s() - cpu_s, daemon.kernel_s() - kernel_s
        written_after = device_written_bytes(root)
        after, resident_mb = daemon.groups(), daemon.resident_mb()
        journal = directory_bytes(root / "journal") - journal
        _check_answers(daemon.ipc / "responses", sent)
    return Burst(
        count / seconds,
        cpu_s / count * 1e6,
        kernel_s / count * 1e6,
        # The request for the figures stands in a group of its own.
        (after["requests"] - before["requests"] - 1) / max(1, after["count"] - before["count"] - 1),
        journal / count,
        directory_bytes(root / "data") / count,
        None if written is None or written_after is None else (written_after - written) / count,
        resident_mb,
    )


def _check_answers(responses: Path, sent: list[tuple[int, str]]) -> None:
    for number, request_id in sent:
        answer = (responses / f"burst-{number}" / f"{request_id}.json").read_bytes()
        if b'"ok":true' not in answer:
            raise RuntimeError(f"refused: {answer.decode()}")
