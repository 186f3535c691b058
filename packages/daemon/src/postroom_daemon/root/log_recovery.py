"""What a start does with the files of logs, before and after the journal is replayed."""

from __future__ import annotations

import logging
from binascii import a2b_base64
from typing import Any

from postroom_common.events import EventType

from ..engine.context import Draft
from ..journal.journal import Journal
from ..model.facts import FACT_LOGS
from ..model.log_record import LogRecord, position_of
from ..stores.base import Store
from ..stores.log.contract import LostRange, Records

log = logging.getLogger(__name__)


def begin_with_logs(store: Store, journal: Journal) -> None:
    """Put back from the journal the records that the files have lost; and decide from which event on the journal is to
    be folded into them. Raises ``OSError``, ``StoreError``."""
    logs = store.logs
    if logs.is_new and logs.applied < store.applied and not store.facts.get(FACT_LOGS):
        logs.applied = store.applied  # there never was a log
    for lost in list(logs.lost()):
        records = _records_in(journal, lost)
        log.error("log %d: records between %d and %d were damaged: the journal has %d", *lost, len(records))
        logs.heal(lost, records)


def _records_in(journal: Journal, lost: LostRange) -> Records:
    found: Records = {}
    if lost.before - lost.after < 2:
        return found
    for request in journal.requests_from(lost.after + 1, lambda damage: None):
        for event in request.events:
            if event["type"] != EventType.APPENDED or event["log"] != lost.log:
                continue
            position = position_of(event)
            if position >= lost.before:
                return found
            if position > lost.after:
                found[position] = (event["wallMs"], a2b_base64(event["record"]))
    return found


def differing_logs(store: Store) -> list[Draft]:
    """The event that reports where records of logs and their files differ, and makes them agree; none if they do."""
    differing: list[dict[str, Any]] = []
    store.begin()
    try:
        known = {} if store.logs.had_state else {one.created: (name, one) for name, one in _logs(store)}
        files = store.logs.facts()
        for number, facts in files.items():
            record = store.queue(facts.name)
            of_record = record.log if record and record.log and record.log.created == number else LogRecord(number)
            known[number] = (facts.name, of_record)
        for number, (name, one) in sorted(known.items()):
            _, last, records, size = files.get(number, (name, 0, 0, 0))
            if (one.records, one.bytes) != (records, size) or last > one.last:
                lost = {"records": one.records - records, "bytes": one.bytes - size, "last": last or one.last}
                differing.append({"queue": name, "log": number, **lost})
    finally:
        store.rollback()
    if not differing:
        return []
    texts = [f"{one['queue']} has lost {one['records']} records" for one in differing if one["records"] > 0]
    texts += [f"{one['queue']} has {-one['records']} more" for one in differing if one["records"] <= 0]
    what = f"logs differ from the journal: {', '.join(texts[:20])}"
    log.error("%s", what)
    return [{"type": EventType.DAMAGE_FOUND, "what": what, "messages": 0, "logs": differing}]


def _logs(store: Store) -> list[tuple[str, LogRecord]]:
    """All logs by their records."""
    found: list[tuple[str, LogRecord]] = []
    after = ""
    while store.facts.get(FACT_LOGS) and (records := store.pages.queues(after, 1000)):
        found += [(record.name, record.log) for record in records if record.log]
        after = records[-1].name
    return found
