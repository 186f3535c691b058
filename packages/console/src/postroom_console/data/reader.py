"""The journal and the traffic log as one stream of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .records import Record, from_event, from_request
from .tails import BACKLOG_BYTES, Tail, whole_groups, whole_lines
from .updates import Lines


class _Source(NamedTuple):
    tail: Tail
    record: Callable[[bytes], Record | None]


class Reader:
    """Reads on in the directories that are given. Of one thread."""

    def __init__(self, journal: Path | None, traffic: Path | None, backlog_bytes: int = BACKLOG_BYTES) -> None:
        self._sources = []
        if journal:
            self._sources.append(_Source(Tail(journal, whole_groups, backlog_bytes), from_event))
        if traffic:
            self._sources.append(_Source(Tail(traffic, whole_lines, backlog_bytes), from_request))
        self._last_event = 0

    @property
    def is_blind(self) -> bool:
        """Whether nothing at all could be read by the last look."""
        return all(source.tail.problem for source in self._sources)

    @property
    def is_missing(self) -> bool:
        """Whether none of the directories is there."""
        return not any(source.tail.root.exists() for source in self._sources)

    def read(self) -> Lines:
        """What has come since the last call, in the order of engine time."""
        records: list[Record] = []
        skipped = bad = missing = 0
        for tail, record in self._sources:
            lines = tail.read()
            found = [one for one in map(record, lines) if one]
            bad += len(lines) - len(found)
            missing += max(0, self._missing(found) - (len(lines) - len(found)))
            skipped += tail.skipped_bytes
            tail.skipped_bytes = 0
            records += found
        records.sort(key=lambda one: one.engine_ms)
        problem = "; ".join(source.tail.problem for source in self._sources if source.tail.problem)
        return Lines(tuple(records), skipped, bad, problem, missing)

    def _missing(self, records: list[Record]) -> int:
        """Events between those that were read: their numbers have no holes."""
        missing = 0
        for record in records:
            if record.is_event:
                if 0 < self._last_event < record.number:
                    missing += record.number - self._last_event - 1
                self._last_event = record.number
        return missing

    def close(self) -> None:
        """Let go of the files."""
        for source in self._sources:
            source.tail.close()
