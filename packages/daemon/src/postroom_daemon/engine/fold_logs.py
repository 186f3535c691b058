"""The fold of events about logs: into the record of the log, and into its files. See ``fold``.

The two are at different events after a crash: the record follows ``store.applied``, the files follow
``store.logs.applied``.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Sequence
from typing import Final

from postroom_common.events import Event, EventType
from postroom_common.log_blocks import record_bytes

from ..model.facts import FACT_LOGS
from ..model.log_record import LOG, LogRecord, number_of, position_of
from ..model.records import QueueRecord
from ..stores.base import Store
from ..stores.errors import NotStored
from ..stores.log.contract import Logs

#: Its count in the totals of a queue.
_APPENDED: Final = EventType.APPENDED.value


def log_of(event: Event, store: Store) -> tuple[QueueRecord, LogRecord]:
    """The record of an event's log, for changes. Creates it if the event that created it was lost to damage."""
    name, created = event["queue"], event["log"]
    try:
        record = store.queue_for_update(name)
    except NotStored:
        store.add_queue(QueueRecord(name, LOG, event["wallMs"]))
        store.facts.put(FACT_LOGS, True)
        record = store.queue_for_update(name)
    if record.log is None or record.log.created != created:
        record.kind, record.log = LOG, LogRecord(created)
    return record, record.log


def append_to_record(events: Sequence[Event], store: Store) -> None:
    """Fold events that append to one log into its record."""
    record, log = log_of(events[0], store)
    append, appended = log.append, 0
    for event in events:
        appended += append(position_of(event), record_bytes(event["record"]))
    if appended:
        record.used = events[-1]["engineMs"]
        record.totals[_APPENDED] = record.totals.get(_APPENDED, 0) + appended


def _trimmed(event: Event, store: Store) -> None:
    log_of(event, store)[1].trim(event["before"], event["last"], event["records"], event["bytes"])


def _reader_moved(event: Event, store: Store) -> None:
    log_of(event, store)[1].readers[event["reader"]] = (event["position"], event["engineMs"])


def _reader_deleted(event: Event, store: Store) -> None:
    log_of(event, store)[1].readers.pop(event["reader"], None)


#: The fold into the record of a log, but for ``append_to_record``.
OF_LOGS: Final[dict[str, Callable[[Event, Store], None]]] = {
    EventType.TRIMMED: _trimmed,
    EventType.READER_MOVED: _reader_moved,
    EventType.READER_DELETED: _reader_deleted,
}


def _create_files(event: Event, logs: Logs) -> None:
    if event["kind"] == LOG:
        logs.create(number_of(event), event["queue"])


def _delete_files(event: Event, logs: Logs) -> None:
    if "log" in event:
        logs.delete(event["log"])


def _trim_records(event: Event, logs: Logs) -> None:
    logs.trim(event["log"], event["before"], event["records"], event["bytes"])


#: The fold into the files of a log. Each does nothing if the files show it already.
_OF_FILES: Final[dict[str, Callable[[Event, Logs], None]]] = {
    EventType.QUEUE_CREATED: _create_files,
    EventType.QUEUE_DELETED: _delete_files,
    EventType.TRIMMED: _trim_records,
}


def append_to_files(events: Sequence[Event], logs: Logs) -> None:
    """Fold events that append to one log into its files, but for those that were before. Raises ``StoreError``."""
    number, append, applied = events[0]["log"], logs.append, logs.applied
    if events[-1]["id"] <= applied:
        return
    logs.create(number, events[0]["queue"])  # if the event that created it was lost to damage
    for event in events:
        if event["id"] > applied:
            append(number, position_of(event), event["wallMs"], a2b_base64(event["record"]))


def fold_into_files(event: Event, logs: Logs) -> None:
    """Fold an event into the files of logs, unless it was before, or is about something else. Raises ``StoreError``."""
    if event["type"] == EventType.APPENDED:
        append_to_files([event], logs)
    elif event["id"] > logs.applied and event["type"] in _OF_FILES:
        _OF_FILES[event["type"]](event, logs)
