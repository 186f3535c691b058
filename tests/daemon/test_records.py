"""What a store keeps of a queue."""

from __future__ import annotations

from dataclasses import fields

from postroom_daemon.model.log_record import LogRecord
from postroom_daemon.model.records import Deaths, QueueRecord


def test_a_copied_queue_record_has_every_field_and_is_independent():
    record = QueueRecord(
        "q",
        "log",
        1,
        2,
        True,
        True,
        {"retry.limit": 3},
        {"ready": 4},
        {"published": 5},
        6,
        {"NACKED": 7},
        8,
        Deaths(9, 10, ((9, 1),)),
        {"*": "msg:q:1"},
        {"ttlSec": 5},
        {"acked": 2},
        LogRecord(3, readers={"billing": (4, 5)}),
    )
    untouched = QueueRecord("")
    same = [f.name for f in fields(record) if getattr(record, f.name) == getattr(untouched, f.name)]
    assert not same, "a field that has its default here would not be missed in the copy"
    copy = record.copy()
    assert copy == record and record.log
    record.log.readers.clear()
    assert copy.log and copy.log.readers
    record.counts["ready"] = 0
    record.total("acked")
    record.reasons["NACKED"] = 0
    assert (copy.counts, copy.totals, copy.reasons) == ({"ready": 4}, {"published": 5}, {"NACKED": 7})
