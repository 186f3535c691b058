"""The fold of events about logs: into the record of the log, and into its files. See ``fold``.

The two are at different events after a crash: the record follows ``store.applied``, the files follow
``store.logs.applied``.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Final

from postroom_common.events import Event, EventType

from ..model.facts import FACT_LOGS
from ..model.log_record import LOG, LogRecord, number_of, position_of, record_bytes
from ..model.records import QueueRecord
from ..stores.base import Store
from ..stores.errors import NotStored
from ..stores.log.contract import Logs


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


def _appended(event: Event, store: Store) -> None:
    record, log = log_of(event, store)
    if log.append(position_of(event), record_bytes(event["record"])):
        record.used = event["engineMs"]
        record.total(EventType.APPENDED.value)


def _trimmed(event: Event, store: Store) -> None:
    log_of(event, store)[1].trim(event["before"], event["last"], event["records"], event["bytes"])


def _reader_moved(event: Event, store: Store) -> None:
    log_of(event, store)[1].readers[event["reader"]] = (event["position"], event["engineMs"])


def _reader_deleted(event: Event, store: Store) -> None:
    log_of(event, store)[1].readers.pop(event["reader"], None)


#: The fold into the record of a log.
OF_LOGS: Final[dict[str, Callable[[Event, Store], None]]] = {
    EventType.APPENDED: _appended,
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


def _append_record(event: Event, logs: Logs) -> None:
    logs.create(event["log"], event["queue"])  # if the event that created it was lost to damage
    logs.append(event["log"], position_of(event), event["wallMs"], a2b_base64(event["record"]))


def _trim_records(event: Event, logs: Logs) -> None:
    logs.trim(event["log"], event["before"], event["records"], event["bytes"])


#: The fold into the files of a log. Each does nothing if the files show it already.
_OF_FILES: Final[dict[str, Callable[[Event, Logs], None]]] = {
    EventType.QUEUE_CREATED: _create_files,
    EventType.QUEUE_DELETED: _delete_files,
    EventType.APPENDED: _append_record,
    EventType.TRIMMED: _trim_records,
}


def fold_into_files(event: Event, logs: Logs) -> None:
    """Fold an event into the files of logs, unless it was before, or is about something else. Raises ``StoreError``."""
    fold = _OF_FILES.get(event["type"])
    if fold and event["id"] > logs.applied:
        fold(event, logs)
