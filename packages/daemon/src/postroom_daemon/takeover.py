"""Taking over a database of the C++ system: what is in it becomes events, of which the store is then folded as ever.

The events are written into a directory beside the journal's segments and synced; its rename is the moment from which
the database counts as taken over. Whatever fails before leaves the old database as it was, and the next start begins
anew; whatever fails after is gone on with. The old database stays beside the new one under another name.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.errors import ConfigurationError
from postroom_common.events import EventType, encode_event
from postroom_common.policy import read_layer
from postroom_common.protocol import (
    DELAY_MS_LIMIT,
    VISIBILITY_MS_LIMIT,
    ReasonCode,
    queue_name_problem,
)

from .clock import Clock, Now
from .config import Config
from .context import Draft
from .files import CREATE_FLAGS, Files
from .ids import Ids
from .policies import Policies
from .quarantine import Quarantine
from .segments import list_segments, segment_name
from .stores.base import StoreBusy, StoreError
from .stores.sqlite_cpp import CppDatabase, CppMessage, OddRow, is_cpp_database

log = logging.getLogger(__name__)

#: Directories in the journal's: events that are being written, and those that are whole.
_STAGING: Final = "taking-over"
_WHOLE: Final = "taken-over"
#: What the old database is called afterwards.
BEFORE: Final = ".before-migration"
#: Messages whose events make one group.
_GROUP_MESSAGES: Final = 200
#: Ages beyond this count as this (ms): what a clock says that was never set.
_LONGEST_AGE_MS: Final = 366 * 24 * 3600 * 1000
#: Rows that are set aside in one file (bytes).
_ASIDE_BYTES: Final = 1024 * 1024
_BACKENDS: Final = ("sqlite", "hybrid")
_PRIORITIES: Final = (-(2**31), 2**31 - 1)


def take_over(config: Config, files: Files, clock: Clock, ids: Ids, quarantine: Quarantine) -> None:
    """Take over the database at ``sqlite.dbPath`` if it is one of the C++ system.

    Raises ``OSError``; ``StoreError`` where it cannot be, with the old database as it was.
    """
    settings = config.settings
    if settings.backend not in _BACKENDS:
        return
    journal, path = settings.journal_root, settings.sqlite_db_path
    if (journal / _WHOLE).is_dir():
        _finish(journal, path, files)
        return
    if (journal / _STAGING).is_dir():
        _discard(journal / _STAGING, files)
    tables = settings.sqlite_kv_table, settings.sqlite_message_index_table
    if not is_cpp_database(path, *tables):
        return
    if list_segments(journal):
        raise StoreError(
            f"{path}: a database of the C++ system, and the journal {journal} has other messages already: let"
            " sqlite.dbPath name the database that belongs to the journal, or use a new root for the old one"
        )
    database = CppDatabase(path, *tables, config.root)
    try:
        database.open()
    except StoreBusy as error:
        raise StoreError(f"{error}: stop the C++ daemon, and whoever else has it open") from error
    try:
        _write_events(database, config, files, clock, ids, quarantine)
        _finish(journal, path, files)
    finally:
        database.close()


def _write_events(
    database: CppDatabase, config: Config, files: Files, clock: Clock, ids: Ids, quarantine: Quarantine
) -> None:
    settings = config.settings
    journal, wall = settings.journal_root, clock.now().wall
    oldest = database.oldest()
    # Engine time begins so that everything has the age that it had.
    clock.resume(None, Now(_clamped(wall - (wall if oldest is None else oldest), _LONGEST_AGE_MS), wall))
    policies = Policies(config.defaults, {name: queue.policy for name, queue in config.queues.items()})
    staging = journal / _STAGING
    try:
        writer = _Writer(staging, files, clock, ids.root(), settings.journal_segment_bytes)
        try:
            teller = _Teller(database, clock.now(), policies, ids)
            epoch = _epoch(settings.sqlite_db_path.name, writer.root_id)
            writer.write_all([[epoch], [clock.mark(clock.now(), writer.root_id)]])
            writer.write_all(teller.requests())
            writer.write_all([[clock.mark(clock.now(), writer.root_id)]])
        finally:
            writer.close()
        teller.set_aside(quarantine, settings.sqlite_db_path.name)
        directory = files.open_directory(journal)
        try:
            files.rename(_STAGING, _WHOLE, src_dir_fd=directory, dst_dir_fd=directory)
            files.fsync(directory)
        finally:
            files.close(directory)
    except BaseException:
        if staging.is_dir():
            _discard(staging, files)
        raise
    log.warning(
        "%s is taken over from the C++ system: %s; %d rows of which nothing can be made are in quarantine",
        settings.sqlite_db_path,
        ", ".join(f"{count} {name}" for name, count in sorted(teller.counts.items())) or "nothing was in it",
        teller.odd_count,
    )


def _epoch(name: str, root_id: str) -> Draft:
    return {"type": EventType.EPOCH_STARTED, "root": root_id, "reason": f"taken over from {name} of the C++ system"}


def _finish(journal: Path, path: Path, files: Files) -> None:
    """The events are whole: the old database makes room, they become the journal. May be done in several goes."""
    if path.exists():
        kept, number = path.with_name(path.name + BEFORE), 1
        while kept.exists():
            number += 1
            kept = path.with_name(f"{path.name}{BEFORE}.{number}")
        files.rename(path, kept)
        files.sync_directory(path.parent)
        log.warning("the old database is kept as %s; remove it when you are sure", kept)
    whole = journal / _WHOLE
    for _, segment in list_segments(whole):
        files.rename(segment, journal / segment.name)
    files.sync_directory(journal)
    files.rmdir(whole)
    files.sync_directory(journal)


def _discard(staging: Path, files: Files) -> None:
    """Remove events that were never whole."""
    for _, segment in list_segments(staging):
        files.unlink(segment)
    files.rmdir(staging)


class _Writer:
    """Segments in a directory of their own, each durable when it is full."""

    def __init__(self, directory: Path, files: Files, clock: Clock, root_id: str, segment_bytes: int) -> None:
        self.root_id = root_id
        self._files = files
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._directory = files.open_directory(directory)
        self._fd = -1
        self._size = 0
        self._last_id = 0

    def write_all(self, requests: Iterator[list[Draft]] | list[list[Draft]]) -> None:
        """Write requests, each with all its events or not at all once they are read back."""
        group: list[list[Draft]] = []
        for request in requests:
            group.append(request)
            if len(group) == _GROUP_MESSAGES:
                self._write(group)
                group = []
        if group:
            self._write(group)

    def _write(self, group: list[list[Draft]]) -> None:
        if self._fd < 0 or self._size >= self._segment_bytes:
            self._begin_segment()
            if self._last_id:
                group = [[self._clock.mark(self._clock.now(), self.root_id)], *group]
        now = self._clock.now()
        first = self._last_id + 1
        last_of_group = self._last_id + sum(len(request) for request in group)
        lines = []
        for request in group:
            last = self._last_id + len(request)
            for draft in request:
                self._last_id += 1
                event = {"id": self._last_id, "epoch": 1, "req": last, "grp": last_of_group}
                event |= {"engineMs": now.engine, "wallMs": now.wall, **draft}
                if self._last_id == last and len(request) > 1:
                    event["n"] = len(request)
                if self._last_id == last_of_group > first:
                    event["gn"] = last_of_group - first + 1
                lines.append(encode_event(event))
        data = b"".join(lines)
        self._files.write_all(self._fd, data)
        self._size += len(data)

    def _begin_segment(self) -> None:
        self._end_segment()
        self._fd = self._files.open(segment_name(self._last_id + 1), CREATE_FLAGS, 0o600, dir_fd=self._directory)
        self._size = 0

    def _end_segment(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)

    def close(self) -> None:
        """Make all of it durable. Raises ``OSError``."""
        try:
            self._end_segment()
            self._files.fsync(self._directory)
        finally:
            self._files.close(self._directory)


class _Teller:
    """What happened to queues and messages, told as events; and the rows that tell nothing."""

    def __init__(self, database: CppDatabase, now: Now, policies: Policies, ids: Ids) -> None:
        self.counts: Counter[str] = Counter()
        self.odd_count = 0
        self._database = database
        self._now = now
        self._policies = policies
        self._ids = ids
        self._queues: set[str] = set()
        self._odd: list[OddRow] = []

    def requests(self) -> Iterator[list[Draft]]:
        """Everything that is in the database, each message in one request."""
        for row in self._database.messages():
            problem = queue_name_problem(row.queue) if isinstance(row, CppMessage) else None
            if isinstance(row, OddRow):
                self._odd.append(row)
            elif problem:
                shown = {"message_key": row.key, "queue": row.queue, "state": row.state, "payload": row.payload}
                self._odd.append(OddRow(f"queue: {problem}", json.dumps(shown).encode()))
            else:
                yield [*self._creation(row.queue), *self._life(row)]
                self.counts[f"messages {row.state}"] += 1
        for policy in self._database.policies():
            if isinstance(policy, OddRow):
                self._odd.append(policy)
            else:
                drafts = self._policy(*policy)
                if drafts:
                    yield drafts

    def set_aside(self, quarantine: Quarantine, name: str) -> None:
        """Keep the rows that tell nothing, each with the reason. Raises ``OSError``."""
        self.odd_count = len(self._odd)
        lines: list[bytes] = []
        for odd in self._odd:
            lines.append(b'{"reason":%b,"row":%b}\n' % (orjson.dumps(odd.reason), odd.row))
            if sum(map(len, lines)) > _ASIDE_BYTES:
                quarantine.keep(f"{name}.rows", b"".join(lines), "rows of the C++ system that tell nothing")
                lines = []
        if lines:
            quarantine.keep(f"{name}.rows", b"".join(lines), "rows of the C++ system that tell nothing")

    def _creation(self, queue: str) -> list[Draft]:
        if queue in self._queues:
            return []
        self._queues.add(queue)
        self.counts["queues"] += 1
        return [{"type": EventType.QUEUE_CREATED, "queue": queue, "kind": "queue"}]

    def _policy(self, queue: str, tree: dict[str, Any]) -> list[Draft]:
        """A stored policy, as far as the configuration says something else: that daemon stored the configured ones."""
        problem = queue_name_problem(queue)
        try:
            layer = read_layer(tree, "policy", lambda text: log.warning("policy of queue %r: %s", queue, text))
        except ConfigurationError as error:
            problem, layer = str(error), {}
        if problem:
            self._odd.append(OddRow(problem, json.dumps({"key": f"policy:{queue}", "value": tree}).encode()))
            return []
        if layer.get("dlq.queue", "") in (self._queues | {queue, ""}):
            layer.pop("dlq.queue", None)  # it was never looked at there, and cannot address what is a queue
        configured = self._policies.resulting(queue, {}).to_wire()
        override = {path: value for path, value in layer.items() if _at(configured, path) != value}
        if not override:
            return []
        policy = self._policies.resulting(queue, override).to_wire()
        self.counts["policies"] += 1
        return [
            *self._creation(queue),
            {"type": EventType.POLICY_SET, "queue": queue, "override": override, "policy": policy},
        ]

    def _life(self, message: CppMessage) -> list[Draft]:
        """The events that lead to the state that a message has."""
        m, now = message, self._now
        due = now.engine + _clamped(m.available_at - now.wall, DELAY_MS_LIMIT)
        waits = m.state in ("ready", "delayed") and due > now.engine
        told = [self._published(m, due if waits and not m.attempt else 0)]
        if m.attempt or m.state == "inflight":
            until = now.engine + (
                _clamped(m.lease_until - now.wall, VISIBILITY_MS_LIMIT) if m.state == "inflight" else 0
            )
            told.append(
                {
                    **self._about(EventType.LEASED, m),
                    "lease": self._ids.lease(),
                    "consumer": "",  # that system did not write down who has it
                    "untilEngineMs": until,
                    "attempt": max(1, m.attempt),
                }
            )
        lease = told[-1].get("lease", "")
        if m.state == "dlq":
            told.append({**self._about(EventType.DIED, m), **self._at(m.dlq_at), "lease": lease, **_failure(m)})
        elif waits and m.attempt:
            told.append({**self._about(EventType.RETRIED, m), "lease": lease, "dueEngineMs": due, **_failure(m)})
        elif m.attempt and m.state != "inflight":
            told.append({**self._about(EventType.RELEASED, m), "lease": lease, "attempt": m.attempt})
        return told

    def _published(self, m: CppMessage, due: int) -> Draft:
        envelope: dict[str, Any] = {"parts": [{"text": m.payload}]}
        if m.attributes != "{}":
            envelope["attributes"] = {"text": m.attributes}
        draft = {**self._about(EventType.PUBLISHED, m), **self._at(m.created_at)}
        if m.priority:
            draft["priority"] = min(max(m.priority, _PRIORITIES[0]), _PRIORITIES[1])
        if due:
            draft["dueEngineMs"] = due
        if m.target:
            draft["target"] = m.target
        return draft | {"message": envelope}

    def _about(self, type_: EventType, message: CppMessage) -> Draft:
        return {"type": type_, "queue": message.queue, "key": message.key}

    def _at(self, wall: int) -> Draft:
        """The two times of something that happened then."""
        age = _clamped(self._now.wall - wall, min(self._now.engine, _LONGEST_AGE_MS))
        return {"engineMs": self._now.engine - age, "wallMs": wall}


def _failure(m: CppMessage) -> Draft:
    code = ReasonCode.LEASE_EXPIRED
    if m.state == "dlq":
        code = ReasonCode.RETRY_LIMIT if m.dlq_reason.startswith("retry limit") else ReasonCode.REJECTED
    failure = {"reasonCode": code, "reasonMessage": m.dlq_reason, "attempt": m.attempt, "consumerId": ""}
    return {"failure": failure}


def _at(tree: dict[str, Any], path: str) -> Any:
    """The value at a dotted path."""
    for name in path.split("."):
        tree = tree[name]
    return tree


def _clamped(value: int, high: int) -> int:
    return min(max(value, 0), high)
