"""Very many request files at once: before the start, and while the daemon is stopped in the midst of its work."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.wire.audit import audit
from tests.wire.daemon import Daemon, Sent

#: What the daemon may grow by while it answers a flood, beside what it remembers of each request.
GROWTH_KB = 8 * 1024
GROWTH_BYTES_A_REQUEST = 400


@dataclass(frozen=True)
class Flood:
    """What a flood came to."""

    files: int
    answered_s: float
    resident_before_kb: int
    resident_after_kb: int

    def __str__(self) -> str:
        rate = self.files / self.answered_s
        return (
            f"{self.files} requests answered in {self.answered_s:.1f} s ({rate:.0f}/s), resident memory"
            f" {self.resident_before_kb} -> {self.resident_after_kb} kB"
        )


def flood_before_start(daemon: Daemon, files: int) -> Flood:
    """Requests that are there before the daemon is."""
    daemon.start()
    _warm(daemon)
    before_kb = daemon.resident_kb()
    daemon.stop()
    sent = _drop(daemon, files)
    began = time.monotonic()
    daemon.start(ready=False)
    return _finish(daemon, sent, began, before_kb)


def flood_while_running(daemon: Daemon, files: int) -> Flood:
    """Requests that come faster than the daemon looks: it is stopped (SIGSTOP) while they are renamed in."""
    daemon.start()
    _warm(daemon)
    before_kb = daemon.resident_kb()
    daemon.freeze()
    sent = _drop(daemon, files)
    began = time.monotonic()
    daemon.thaw()
    return _finish(daemon, sent, began, before_kb)


def _warm(daemon: Daemon) -> None:
    """Let it reach the memory of ordinary work."""
    daemon.freeze()
    sent = _drop(daemon, 600)
    daemon.thaw()
    for one in sent:
        assert daemon.answer(one)["ok"]


def _drop(daemon: Daemon, files: int) -> list[Sent]:
    return [daemon.send("publish", {"queue": "flood", "message": f"{number}"}) for number in range(files)]


def _finish(daemon: Daemon, sent: list[Sent], began: float, before_kb: int) -> Flood:
    daemon.wait(lambda: daemon.answer_path(sent[-1]).exists(), "the last one has its answer", patience_s=600)
    answered_s = time.monotonic() - began
    keys = {daemon.answer(one)["data"]["messageKey"] for one in sent}
    assert len(keys) == len(sent), "two requests got one message"
    assert not list(daemon.requests.iterdir())
    after_kb = daemon.resident_kb()
    ledger = audit(daemon.events())
    assert keys <= set(ledger.messages)
    assert daemon.counts("flood") == {"ready": len(ledger.messages)}
    allowed_kb = GROWTH_KB + len(sent) * GROWTH_BYTES_A_REQUEST // 1024
    assert after_kb - before_kb <= allowed_kb, f"memory grew from {before_kb} to {after_kb} kB"
    return Flood(len(sent), answered_s, before_kb, after_kb)
