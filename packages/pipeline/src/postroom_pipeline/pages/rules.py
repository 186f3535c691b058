"""What is told as wrong, as data: of which rows of which report, how they are put together, and in which words."""

from __future__ import annotations

from typing import Final

from ..reports import (
    audit,
    audit_messages,
    consumer_health,
    dead_reasons_daily,
    device_health,
    journal_gaps,
    poison_messages,
    retry_storms,
    stuck_leases,
)
from .rule import Rule
from .rules_odd import ODD
from .words import FINDINGS, in_words

_WHY: Final = "max(concat_ws(': ', nullif(reason_code, ''), nullif(cause, '')))"
_LOST: Final = {
    "n": "count(1)",
    "example": "min(message)",
    "evidence": "min_by(evidence, message)",
    "missing": "max(missing_events)",
}

RULES: Final = (
    Rule(
        "messages-lost",
        1,
        audit_messages.TABLE.name,
        "kind = 'lost'",
        "Messages are lost",
        "{n} messages that were not done, dropped or moved are not in the queue any more."
        " One is {example}: {evidence}.",
        "Look whether the data directory was damaged or put back from a copy; publish again what was lost.",
        "postroom message --message-key={q_example} --events 20",
        facts=_LOST,
        since="min(last_at)",
    ),
    Rule(
        "audit-unbalanced",
        1,
        audit.TABLE.name,
        f"span = 'between' and queue <> '' and ({audit.TROUBLE})",
        "The audit does not balance",
        "Between {n} pairs of snapshots the queue holds another number of messages than its events leave in it:"
        " {off_signed} in all, {worst_signed} at worst, the first time up to event {to_event}."
        " Counters of the daemon differ in {counters} of them.",
        "Compare with the messages listed below; check the data directory on the device.",
        "postroomd verify --root ROOT",
        facts={
            "off_signed": "sum(difference)",
            "worst_signed": "max_by(difference, abs(difference))",
            "to_event": "min(to_event)",
            "counters": "count_if(counters_differ)",
        },
        since="min(to_at)",
        n="count(1)",
    ),
    Rule(
        "journal-lost",
        1,
        journal_gaps.TABLE.name,
        journal_gaps.TROUBLE,
        "Part of the journal is missing",
        "{events} events are missing in {n} stretches, the first from event {first} to {last};"
        " {reported} of them the device itself reports as missing. What happened then nobody knows:"
        " the audit of that time is incomplete.",
        "Find out what removed files from the journal (a full disk, a cleaner, a restore); export more often.",
        "postroomd verify --root ROOT",
        by=(),
        facts={
            "events": "sum(events)",
            "first": "min(struct(epoch, first_event, last_event)).first_event",
            "last": "min(struct(epoch, first_event, last_event)).last_event",
            "reported": "sum(case when gap = 'reported' then events else 0 end)",
        },
        since="min(before_at)",
    ),
    Rule(
        "events-conflict",
        1,
        device_health.TABLE.name,
        "conflicts > 0",
        "Two histories of one device",
        "{n} events are told differently by different snapshots: numbers of events were given out twice.",
        "A copy of the data directory was put back, or runs a second time. Let one root be the right one; restore by"
        " the program, which begins a new epoch, not by copying files.",
        "postroomd restore --help",
        by=(),
        n="sum(conflicts)",
    ),
    Rule(
        "device-silent",
        2,
        device_health.TABLE.name,
        "silent > 0",
        "A device is silent",
        "There is no snapshot of it of the last {behind_ms}; nine of ten of its pauses were no longer than {usual_ms}."
        " What is told of it here is that old.",
        "Look whether it is switched on and reaches the network, and whether it still exports.",
        "postroom health",
        by=(),
        facts={"behind_ms": "max(behind_ms)", "usual_ms": "max(usual_ms)"},
        since="max(last_at)",
        n="max(behind_ms / 3600000)",
    ),
    Rule(
        "consumer-dead",
        2,
        consumer_health.TABLE.name,
        "status = 'dead'",
        "A consumer is dead",
        "{consumer} has been silent for {silent_ms}; nine of ten of its pauses were no longer than {usual_ms}."
        " Since then the queue has grown from {backlog_from} to {backlog_to} messages.",
        "Look whether the program runs, and start it again.",
        "postroom consumers --queue={q_queue}",
        by=("queue", "consumer"),
        facts={
            "silent_ms": "max(silent_ms)",
            "usual_ms": "max(usual_ms)",
            "backlog_from": "max(backlog_from)",
            "backlog_to": "max(backlog_to)",
        },
        since="min(from_at)",
        n="max(backlog_to)",
    ),
    Rule(
        "lease-stuck",
        2,
        stuck_leases.TABLE.name,
        stuck_leases.TROUBLE,
        "Leases are stuck",
        "{consumer} holds {n} messages and does not end them: the longest for {held_ms}, where nine of ten deliveries"
        " were held no longer than {usual_ms}. {still} of them it held still in the last snapshot. One is {example}.",
        "The consumer hangs: end the program and start it again; its leases then end by themselves.",
        "postroom inflight --queue={q_queue}",
        by=("queue", "consumer"),
        facts={
            "held_ms": "max(held_ms)",
            "usual_ms": "max(usual_ms)",
            "still": "count_if(still_held)",
            "example": "min(message)",
        },
        since="min(seen_at - make_dt_interval(0, 0, 0, held_ms / 1000))",
    ),
    Rule(
        "poison",
        3,
        poison_messages.TABLE.name,
        poison_messages.TROUBLE,
        "Poison messages",
        "{n} messages fail at every delivery ({failures} times at most); meanwhile {done} others were done."
        " They fail with {why}. One is {example}.",
        "Look at the body of one and at what the consumer says of it; mend one of the two, then reprocess or drop.",
        "postroom message --message-key={q_example} --events 20",
        by=("queue", "reason_code", "cause"),
        facts={"why": _WHY, "failures": "max(failures)", "done": "max(others_done)", "example": "min(message)"},
        since="min(from_at)",
    ),
    Rule(
        "retry-storm",
        3,
        retry_storms.TABLE.name,
        retry_storms.TROUBLE,
        "Retry storms",
        "{failed} deliveries failed in {n} storms, the longest of {lasted_ms}, in which {deliveries} were made:"
        " {messages} messages at {consumers} consumers, most often of {reason_code}; {died} became dead letters.",
        "Look at what the consumers need at that time (a database, a network); give the queue a longer back-off.",
        "postroom policy get --queue={q_queue}",
        facts={
            "failed": "sum(retries)",
            "deliveries": "sum(deliveries)",
            "lasted_ms": "max(to_engine_ms - from_engine_ms)",
            "messages": "sum(messages)",
            "consumers": "max(consumers)",
            "reason_code": "max_by(reason_code, struct(retries, reason_code))",
            "died": "sum(died)",
        },
        since="min(from_at)",
        n="count(1)",
    ),
    Rule(
        "dead-letters",
        3,
        dead_reasons_daily.TABLE.name,
        dead_reasons_daily.TROUBLE,
        "Dead letters",
        "{n} messages died of {why}: {last} of them on {last_day} (the day before: {before}). One is {example}.",
        "Look at the letters; when the cause is gone, reprocess them, or drop them.",
        "postroom list-dlq --queue={q_queue}",
        by=("queue", "reason_code", "cause"),
        facts={
            "why": _WHY,
            "last_day": "max(day)",
            "last": "max_by(deaths, day)",
            "before": "nvl(max(struct(day, format_number(day_before, 0) as deaths)).deaths, 'not known')",
            "example": "max_by(example, day)",
        },
        since="cast(min(day) as timestamp)",
        n="sum(deaths)",
    ),
    Rule(
        "messages-doubtful",
        3,
        audit_messages.TABLE.name,
        "kind <> 'lost'",
        "Messages that do not fit their events",
        "{n} messages are {kind}; of each: {what}. One is {example}: {evidence}. {missing} events are missing.",
        "Look at the history of one; where events are missing, they may explain it.",
        "postroom message --message-key={q_example} --events 20",
        by=("queue", "kind", "finding"),
        facts=_LOST | {"what": f"max({in_words('finding', FINDINGS)})"},
        since="min(last_at)",
    ),
    *ODD,
)
BY_KIND: Final = {rule.kind: rule for rule in RULES}
