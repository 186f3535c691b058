"""The rules for findings, as data: which rows of which report are a problem, how they are grouped, and the words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..reports import (
    anomalies,
    audit,
    audit_messages,
    clock_trouble,
    consumer_health,
    dead_reasons_daily,
    device_health,
    duplicate_publishes,
    journal_gaps,
    poison_messages,
    retry_storms,
    stuck_leases,
)
from .text import AGAINST, FINDINGS, METRICS, TROUBLES, figure, in_words

#: The severities: what is at stake decides, not how much of it there is.
SEVERITIES: Final = {1: "lost", 2: "stopped", 3: "failing", 4: "odd"}


@dataclass(frozen=True)
class Rule:
    """One kind of finding. All expressions are SQL over the report's columns.

    ``said`` is formatted with the facts as text; ``run`` with the facts as quoted words of a shell command, ``q_NAME``.
    """

    kind: str
    severity: int
    report: str
    where: str
    title: str
    said: str
    do: str
    run: str = ""
    #: Rows of one device with equal values in these columns are one finding; without columns, all rows of the device.
    by: tuple[str, ...] = ("queue",)
    #: Name and aggregate of each fact.
    facts: Mapping[str, str] = field(default_factory=dict)
    since: str = "cast(null as timestamp)"
    #: Orders findings of one severity, the largest first.
    n: str = "count(1)"


_PARTED: Final = {
    "what": f"max({in_words('trouble', TROUBLES)})",
    "step_ms": "max_by(step_ms, abs(step_ms))",
}
_PARTED_SINCE: Final = "min(coalesce(wall_at, timestamp_millis(wall_before_ms)))"

ODD: Final = (
    Rule(
        "published-twice",
        4,
        duplicate_publishes.TABLE.name,
        duplicate_publishes.TROUBLE,
        "Messages were published twice",
        "{n} messages came a second time with the same body, {apart_ms} apart at most, by {client}."
        " One is {example}, after {first}.",
        "Let the publisher give a deduplication key, or repeat a request under its old id.",
        "postroom message --message-key={q_example} --events 20",
        facts={
            "apart_ms": "max(apart_ms)",
            "client": "min(client)",
            "example": "min(message)",
            "first": "min_by(first_message, message)",
        },
        since="min(wall_at)",
    ),
    Rule(
        "consumer-recovered",
        4,
        consumer_health.TABLE.name,
        "status = 'recovered'",
        "A consumer was dead for a time",
        "{consumer} was silent for {lasted_ms}; the queue grew from {backlog_from} to {backlog_to} messages."
        " It came back.",
        "Look at its log of that time.",
        "postroom consumers --queue={q_queue}",
        by=("queue", "consumer"),
        facts={
            "lasted_ms": "max(to_engine_ms - from_engine_ms)",
            "backlog_from": "max(backlog_from)",
            "backlog_to": "max(backlog_to)",
        },
        since="min(from_at)",
        n="max(backlog_to)",
    ),
    Rule(
        "power-cut",
        4,
        clock_trouble.TABLE.name,
        "trouble = 'power_cut'",
        "Power cuts",
        "The machine started {n} times without having been stopped in order, the last time at {last}.",
        "Look at the supply; what was in work is delivered again, nothing that was acknowledged is lost by it.",
        by=(),
        facts={"last": "nvl(date_format(max(wall_at), 'yyyy-MM-dd HH:mm'), 'a time that is not known')"},
        since="min(wall_at)",
    ),
    Rule(
        "clock",
        4,
        clock_trouble.TABLE.name,
        "trouble not in ('power_cut', 'boot', 'engine_back')",
        "The clock is wrong",
        "{n} times {what}, by {step_ms} at most; times of that part of its life are not to be trusted.",
        "Look at the source of time (the battery of the clock, NTP).",
        "postroom health",
        by=("trouble",),
        facts=_PARTED,
        since=_PARTED_SINCE,
    ),
    Rule(
        "time-back",
        4,
        clock_trouble.TABLE.name,
        "trouble = 'engine_back'",
        "The running time went back",
        "{n} times {what}, by {step_ms} at most. It only goes forward, whatever becomes of the clock.",
        "An earlier copy of the data directory was put back by hand, or runs a second time: restore by the program.",
        "postroomd restore --help",
        by=("trouble",),
        facts=_PARTED,
        since=_PARTED_SINCE,
    ),
    Rule(
        "anomaly",
        4,
        anomalies.TABLE.name,
        anomalies.TROUBLE,
        "Figures that stand out",
        "In one {period} {what}: {value}. The middle of {figures} {whose} is {median}, and half of them are within"
        " {mad} of it. That is {z_signed} times what counts as usual; so {n} times.",
        "Look what else is told of the device at that time.",
        by=("queue", "metric", "period", "against"),
        facts={
            "what": f"max({in_words('metric', METRICS)})",
            "whose": f"max({in_words('against', AGAINST)})",
            "value": f"max_by({figure('value')}, abs(z))",
            "z_signed": "round(max_by(z, abs(z)), 1)",
            "median": f"max_by({figure('median')}, abs(z))",
            "mad": f"max_by({figure('mad')}, abs(z))",
            "figures": "max_by(n, abs(z))",
        },
        since="min(begins_at)",
    ),
)


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
