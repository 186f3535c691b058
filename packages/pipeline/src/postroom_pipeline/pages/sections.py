"""What stands below the findings, as data: a section shows rows of one report, of a fleet or of one device."""

from __future__ import annotations

from typing import Final

from pyspark.sql import functions as F

from ..reports import (
    audit,
    audit_messages,
    dead_reasons_daily,
    depth_hourly,
    device_health,
    latency_daily,
    throughput,
)
from ..reports.histogram import merged
from .section import QUEUE, Section, Shown, sums
from .troubles import TROUBLES

_DROPPED: Final = " + ".join(f"dropped_{why}" for why in ("expired", "purged", "limits", "failed"))

SECTIONS: Final = (
    Section(
        "balance",
        "How the audit comes out",
        "Queues by the outcome of their audit, from the first snapshot to the last. Incomplete ones lack events, so"
        " that a difference proves nothing.",
        audit.TABLE.name,
        (
            Shown("status", "status"),
            Shown("devices", "devices"),
            Shown("queues", "queues"),
            Shown("messages too few", "few"),
            Shown("messages too many", "many"),
            Shown("counters differ", "differ"),
        ),
        ("status = 'balanced'", "status"),
        where="span = 'all' and queue <> ''",
        well="No pair of snapshots to balance yet.",
        together=sums(
            "count(distinct device) as devices",
            "count(1) as queues",
            "-sum(least(difference, 0)) as few",
            "sum(greatest(difference, 0)) as many",
            "count_if(counters_differ) as differ",
        ),
        by=("status",),
        whole=True,
    ),
    Section(
        "audit",
        "Audit of each queue",
        "Whether each message is accounted for, from the first snapshot to the last: opening + published + moved in"
        " − acked − dropped − moved out = expected; what is there in whatever state is present.",
        audit.TABLE.name,
        (
            QUEUE,
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
            QUEUE,
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
            QUEUE,
            Shown("messages now", "live_now"),
            Shown("most", "live_most"),
            Shown("dead letters now", "dead_now"),
            Shown("oldest ready, at most", "oldest", "ms"),
            Shown("last told (UTC)", "last_hour"),
        ),
        ("-(live_now + dead_now)", "-live_most", "device", "queue"),
        well="Nothing is known of any queue.",
        together=sums(
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
            QUEUE,
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
            QUEUE,
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
            QUEUE,
            *(Shown(name, name) for name in throughput.COUNTED),
            Shown("bytes", "published_bytes"),
            Shown("busiest minute", "busiest_minute"),
        ),
        ("-published", "queue"),
        well="Nothing happened.",
        together=sums(
            *(f"sum({name}) as {name}" for name in (*throughput.COUNTED, "published_bytes")),
            "max(busiest_minute) as busiest_minute",
        ),
        by=("queue",),
        whole=True,
    ),
    *TROUBLES,
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
        Shown("behind the others", "nullif(behind_ms, 0)", "ms"),
        Shown("snapshots", "snapshots"),
        Shown("dead letters", "dead_letters"),
        Shown("deaths", "deaths"),
    ),
    ("rank", "device"),
    well="No snapshot was taken in.",
    of_fleet=True,
)
