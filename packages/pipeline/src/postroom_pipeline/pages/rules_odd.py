"""The rules of what is odd: it harms nothing by itself, and often tells what else is wrong."""

from __future__ import annotations

from typing import Final

from ..reports import anomalies, clock_trouble, consumer_health, duplicate_publishes
from .rule import Rule
from .words import AGAINST, METRICS, TROUBLES, figure, in_words

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
