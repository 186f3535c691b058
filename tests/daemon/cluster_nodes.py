"""Nodes of a cluster in the process of the test, and what they have in common: a list of groups."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from postroom_common.events import decode_event
from postroom_daemon.broker.failures import NotConfirmed
from postroom_daemon.broker.following import apply_groups
from postroom_daemon.root.divergent import Divergent
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]
_BEGINS = count(1000, 1000)


class Killed(BaseException):
    """The process or the machine ends here."""


class Stream:
    """The groups that the cluster has, in order. ``outcome`` is what happens to the next one: ``confirmed``;
    ``refused``, or ``late``, when it is there and the answer is not; ``killed before`` or ``killed after`` it is there;
    ``killed unsynced`` when it is there, and the leader has not synced it."""

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self.outcome = "confirmed"
        self._sent: list[bytes] = []

    def send(self, lines: list[bytes], last_id: int, epoch: int) -> None:
        assert decode_event(lines[-1])["id"] == last_id
        self._sent = lines
        if self.outcome == "killed unsynced":
            self.groups.append(lines)
            raise Killed

    def wait(self, last_id: int) -> None:
        if self.outcome in ("confirmed", "late", "killed after"):
            self.groups.append(self._sent)
        if self.outcome.startswith("killed"):
            raise Killed
        if self.outcome != "confirmed":
            raise NotConfirmed(self.outcome)

    @property
    def has_last(self) -> bool:
        """Whether the outcome leaves the group in the stream."""
        return self.outcome in ("late", "killed after", "killed unsynced")


def make_node(make_bench: MakeBench, backend: str = "sqlite", **options: Any) -> Bench:
    bench = make_bench(backend, **{"cluster.enabled": "true", **options})
    begin = next(_BEGINS)  # no two nodes assign the same ids
    bench.ids, bench.requests = count(begin), count(begin)
    return bench


def lead(bench: Bench, stream: Stream, epoch: int) -> None:
    """Open a closed node as leader."""
    bench.close()
    bench.open(lead=epoch)
    stream.outcome = "confirmed"
    bench.live.broker.begin_epoch(f"node-{epoch}", stream, bench.live.found)


def follow(bench: Bench, stream: Stream) -> None:
    """Open a node as follower if it is closed, and give it all groups that it lacks."""
    if bench.root is None:
        bench.open()
    lacking = [lines for lines in stream.groups if decode_event(lines[-1])["id"] > bench.live.journal.last_id]
    if lacking:
        apply_groups(bench.live.broker, lacking)
    for lines in lacking:
        divergent(bench).forget(lines)


def divergent(bench: Bench) -> Divergent:
    return Divergent(bench.journal_root, bench.files)
