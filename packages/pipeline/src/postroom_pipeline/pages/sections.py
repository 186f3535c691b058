"""What stands below the findings, as data: a section shows rows of one report, of a fleet or of one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..reports import (
    anomalies,
    audit,
    audit_messages,
    clock_trouble,
    consumer_health,
    dead_reasons_daily,
    depth_hourly,
    device_health,
    duplicate_publishes,
    journal_gaps,
    latency_daily,
    poison_messages,
    retry_storms,
    stuck_leases,
    throughput,
)
from ..reports.histogram import merged


class Shown(NamedTuple):
    """A column of a page: its head, the expression (SQL) it shows, and how (see ``text.told``)."""

    head: str
    of: str
    kind: str = ""


@dataclass(frozen=True)
class Section:
    """Rows of one report, in the order in which they matter."""

    name: str
    title: str
    #: What the numbers mean, for who reads them the first time.
    lead: str
    report: str
    columns: tuple[Shown, ...]
    order: tuple[str, ...]
    where: str = "true"
    #: What is said where there is no row.
    well: str = "None."
    #: Puts rows together by the columns that it is given, before any are chosen.
    together: Callable[[DataFrame, tuple[str, ...]], DataFrame] | None = None
    #: Columns beside the device that rows are put together by.
    by: tuple[str, ...] = ()
    #: On the page of the fleet its rows are of all devices together.
    whole: bool = False
    #: Only the page of the fleet has it.
    of_fleet: bool = False


def _sums(*aggregates: str) -> Callable[[DataFrame, tuple[str, ...]], DataFrame]:
    return lambda frame, by: frame.groupBy(*by).agg(*map(F.expr, aggregates))


_QUEUE: Final = Shown("queue", "queue")
_DROPPED: Final = " + ".join(f"dropped_{why}" for why in ("expired", "purged", "limits", "failed"))

SECTIONS: Final = (
    Section(
        "audit",
        "Audit",
        "Whether each message is accounted for, from the first snapshot to the last: opening + published + moved in"
        " − acked − dropped − moved out = expected; what is there in whatever state is present.",
        audit.TABLE.name,
        (
            _QUEUE,
            Shown("status", "status"),
            Shown("opening", "opening"),
            Shown("published", "published"),
            Shown("moved in", "moved_in"),
            Shown("acked", "acked"),
            Shown("dropped", _DROPPED),
            Shown("moved out", "moved_out"),
            Shown("expected", "expected"),
            Shown("present", "present"),
            Shown("difference", "difference", "signed"),
            Shown("events missing", "missing_events"),
            Shown("counters differ", "counters_differ"),
        ),
        ("status = 'balanced'", "not coalesce(counters_differ, false)", "-abs(difference)", "device", "queue", "root"),
        where="span = 'all' and queue <> ''",
        well="No pair of snapshots to balance yet.",
    ),
    Section(
        "messages",
        "Messages that the audit names",
        "Lost, there twice, or not explained by their events.",
        audit_messages.TABLE.name,
        (
            _QUEUE,
            Shown("message", "message"),
            Shown("kind", "kind"),
            Shown("evidence", "evidence"),
            Shown("last event", "last_event"),
            Shown("at (UTC)", "last_at"),
            Shown("events missing", "missing_events"),
        ),
        ("kind <> 'lost'", "kind", "device", "queue", "message", "finding", "root"),
    ),
    Section(
        "depth",
        "Depth",
        "Messages in each queue at the end of what is known: those that wait or are worked on, and dead letters.",
        depth_hourly.TABLE.name,
        (
            _QUEUE,
            Shown("messages now", "live_now"),
            Shown("most", "live_most"),
            Shown("dead letters now", "dead_now"),
            Shown("oldest ready, at most", "oldest", "ms"),
            Shown("last told (UTC)", "last_hour"),
        ),
        ("-(live_now + dead_now)", "-live_most", "device", "queue"),
        well="Nothing is known of any queue.",
        together=_sums(
            "max_by(live_end, struct(hour, root)) as live_now",
            "max(live_max) as live_most",
            "max_by(dead_end, struct(hour, root)) as dead_now",
            "max(oldest_ready_age_ms) as oldest",
            "max(hour) as last_hour",
        ),
        by=("queue",),
    ),
    Section(
        "dead",
        "Dead letters by reason",
        "Deaths in the whole time, on the last day on which a message died so, and against the day before that.",
        dead_reasons_daily.TABLE.name,
        (
            _QUEUE,
            Shown("reason", "nullif(reason_code, '')"),
            Shown("last attempt", "cause"),
            Shown("devices", "devices"),
            Shown("deaths", "deaths"),
            Shown("last day", "last_day"),
            Shown("that day", "last"),
            Shown("growth", "growth", "signed"),
            Shown("example", "example"),
        ),
        ("-deaths", "queue", "reason_code", "cause"),
        well="No message died.",
        together=lambda frame, by: (
            frame.groupBy(*by, "day")
            .agg(
                F.sum("deaths").alias("died"),
                F.sum("growth").alias("grew"),
                F.min("example").alias("one"),
                F.collect_set("device").alias("whose"),
            )
            .groupBy(*by)
            .agg(
                F.size(F.array_distinct(F.flatten(F.collect_list("whose")))).alias("devices"),
                F.sum("died").alias("deaths"),
                F.max("day").alias("last_day"),
                F.max_by("died", "day").alias("last"),
                F.max_by("grew", "day").alias("growth"),
                F.max_by("one", "day").alias("example"),
            )
        ),
        by=("queue", "reason_code", "cause"),
        whole=True,
    ),
    Section(
        "latency",
        "Latency",
        "How long messages waited (publish to lease), were worked on (lease to ack, of the last delivery), and both;"
        " by the device's own running time.",
        latency_daily.TABLE.name,
        (
            _QUEUE,
            Shown("measure", "replace(measure, '_', ' ')"),
            Shown("messages", "count"),
            Shown("half within", "p50_ms", "ms"),
            Shown("9 of 10", "p90_ms", "ms"),
            Shown("99 of 100", "p99_ms", "ms"),
            Shown("longest", "max_ms", "ms"),
        ),
        ("-p90_ms", "queue", "measure"),
        well="No message was delivered.",
        together=merged,
        by=("queue", "measure"),
        whole=True,
    ),
    Section(
        "throughput",
        "Throughput",
        "What happened in each queue in the whole time.",
        throughput.TABLE.name,
        (
            _QUEUE,
            *(Shown(name, name) for name in throughput.COUNTED),
            Shown("bytes", "published_bytes"),
            Shown("busiest minute", "busiest_minute"),
        ),
        ("-published", "queue"),
        well="Nothing happened.",
        together=_sums(
            *(f"sum({name}) as {name}" for name in (*throughput.COUNTED, "published_bytes")),
            "max(busiest_minute) as busiest_minute",
        ),
        by=("queue",),
        whole=True,
    ),
    Section(
        "consumers",
        "Consumers",
        "Who fell silent while messages piled up; the times are those of the longest silence.",
        consumer_health.TABLE.name,
        (
            _QUEUE,
            Shown("consumer", "consumer"),
            Shown("status", "status"),
            Shown("last active (UTC)", "last_active_at"),
            Shown("silent since (UTC)", "from_at"),
            Shown("for", "to_engine_ms - from_engine_ms", "ms"),
            Shown("usual pause", "usual_ms", "ms"),
            Shown("backlog from", "backlog_from"),
            Shown("to", "backlog_to"),
            Shown("others took", "others_took"),
        ),
        ("status <> 'dead'", "-backlog_to", "device", "queue", "consumer", "root"),
        where=consumer_health.TROUBLE,
        well="All consumers are at work.",
    ),
    Section(
        "leases",
        "Stuck leases",
        "Held far longer than is usual, or over and not ended.",
        stuck_leases.TABLE.name,
        (
            _QUEUE,
            Shown("message", "message"),
            Shown("consumer", "consumer"),
            Shown("why", "why"),
            Shown("held", "held_ms", "ms"),
            Shown("usual", "usual_ms", "ms"),
            Shown("overdue", "overdue_ms", "ms"),
            Shown("seen (UTC)", "seen_at"),
            Shown("still held", "still_held"),
        ),
        ("not still_held", "-held_ms", "device", "queue", "message", "leased_engine_ms", "root"),
    ),
    Section(
        "poison",
        "Poison messages",
        "They fail at each delivery while others of their queue are done.",
        poison_messages.TABLE.name,
        (
            _QUEUE,
            Shown("message", "message"),
            Shown("failures", "failures"),
            Shown("consumers", "consumers"),
            Shown("others done", "others_done"),
            Shown("reason", "reason_code"),
            Shown("last attempt", "cause"),
            Shown("now", "state"),
            Shown("from (UTC)", "from_at"),
            Shown("to (UTC)", "to_at"),
            Shown("with this body", "same_body"),
        ),
        ("-failures", "device", "queue", "message", "root"),
    ),
    Section(
        "storms",
        "Retry storms",
        "Times in which most deliveries of a queue failed and were tried again.",
        retry_storms.TABLE.name,
        (
            _QUEUE,
            Shown("from (UTC)", "from_at"),
            Shown("lasted", "to_engine_ms - from_engine_ms", "ms"),
            Shown("failed", "retries"),
            Shown("deliveries", "deliveries"),
            Shown("messages", "messages"),
            Shown("consumers", "consumers"),
            Shown("died", "died"),
            Shown("reason", "reason_code"),
        ),
        ("-retries", "device", "queue", "from_event", "epoch", "root"),
    ),
    Section(
        "twice",
        "Published twice",
        "The same body in two requests, close together, in a queue whose bodies do not repeat otherwise.",
        duplicate_publishes.TABLE.name,
        (
            _QUEUE,
            Shown("message", "message"),
            Shown("first message", "first_message"),
            Shown("apart", "apart_ms", "ms"),
            Shown("client", "client"),
            Shown("at (UTC)", "wall_at"),
        ),
        ("device", "queue", "event", "epoch", "root"),
        where=duplicate_publishes.TROUBLE,
    ),
    Section(
        "clocks",
        "Clocks and starts",
        "Where the wall clock and the device's own running time part, and starts of the machine without a stop.",
        clock_trouble.TABLE.name,
        (
            Shown("trouble", "replace(trouble, '_', ' ')"),
            Shown("at (UTC)", "wall_at"),
            Shown("step", "step_ms", "ms"),
            Shown("clock before (UTC)", "timestamp_millis(wall_before_ms)"),
            Shown("events", "events"),
            Shown("first event", "event"),
        ),
        ("device", "root", "epoch", "event", "trouble"),
        where=clock_trouble.TROUBLE,
        well="All clocks ran on, and no machine was cut off.",
    ),
    Section(
        "gaps",
        "Gaps in the journal",
        "Events that no snapshot has. Not exported and retired ones are told for completeness: export more often.",
        journal_gaps.TABLE.name,
        (
            Shown("gap", "replace(gap, '_', ' ')"),
            Shown("events", "events"),
            Shown("first", "first_event"),
            Shown("last", "last_event"),
            Shown("epoch", "epoch"),
            Shown("before (UTC)", "before_at"),
            Shown("after (UTC)", "after_at"),
        ),
        (f"not ({journal_gaps.TROUBLE})", "-events", "device", "root", "epoch", "first_event"),
        well="Every event is there.",
    ),
    Section(
        "anomalies",
        "Figures that stand out",
        "Held against the device's own past, or against the same queue on the other devices; spread is the median of"
        " the distances from the median.",
        anomalies.TABLE.name,
        (
            _QUEUE,
            Shown("figure", "replace(metric, '_', ' ')"),
            Shown("of", "period"),
            Shown("at (UTC)", "begins_at"),
            Shown("value", "value"),
            Shown("against", "against"),
            Shown("median", "median"),
            Shown("spread", "mad"),
            Shown("figures", "n"),
            Shown("times the spread", "round(z, 1)", "signed"),
        ),
        ("-abs(z)", "device", "queue", "period", "begins_at", "metric", "against"),
    ),
)

#: Of the devices, on the page of the fleet alone.
DEVICES: Final = Section(
    "devices",
    "Devices",
    "Those that need somebody first. The score adds up all troubles of the whole time, each with its weight.",
    device_health.TABLE.name,
    (
        Shown("rank", "rank"),
        Shown("score", "score"),
        Shown("mostly", "replace(worst, '_', ' ')"),
        Shown("last snapshot (UTC)", "last_at"),
        Shown("snapshots", "snapshots"),
        Shown("dead letters", "dead_letters"),
        Shown("deaths", "deaths"),
    ),
    ("rank", "device"),
    well="No snapshot was taken in.",
    of_fleet=True,
)
