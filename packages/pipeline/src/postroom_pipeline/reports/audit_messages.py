"""Each message that the audit cannot account for: lost, duplicated, or unexplained, with the evidence."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..silver.messages import build as build_messages
from ..spark.session import fully, materialized
from . import fates
from .lineage import FEW_MESSAGES, ROOT, extents, standing
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("message", c.TEXT, "key of the message"),
        c.column("finding", c.TEXT, "the contradiction: see the table of findings"),
        c.column("kind", c.TEXT, "`lost`, `duplicated` or `unexplained`"),
        c.column("queue", c.TEXT, "its last known queue"),
        c.column("published_event", c.INTEGER, "last event that published it; null if unknown"),
        c.column("ended_event", c.INTEGER, "first event that ended it; null if unknown"),
        c.column("last_event", c.INTEGER, "last event about it"),
        c.column("last_type", c.TEXT, "type of that event"),
        c.column("last_at", c.MOMENT, "wall clock of that event; null if it is suspect"),
        c.column("snapshot", c.TEXT, "snapshot used for the comparison: the last consistent one of the root"),
        c.column("missing_events", c.INTEGER, "events of the root up to there that are in no snapshot"),
        c.column("evidence", c.TEXT, "the evidence, as a text for people"),
    ]
)
KEY: Final = ("device", "root", "message", "finding")
PARTITION: Final = ()
TABLE: Final = Table("audit_messages", SCHEMA, KEY, PARTITION)
NEEDS: Final = (
    *("fates", "messages", "events", "epochs", "restores", "leases", "dead_letters", "queue_depth"),
    *("snapshots", "audit", "journal_gaps", "conflicts"),
)
#: Read only for a few roots, if at all.
SELDOM: Final = ("messages", "events", "restores")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "true"

#: What does not fit, and what that makes of the message.
FINDINGS: Final = {
    "published_twice": ("duplicated", "two events published it"),
    "ended_twice": ("duplicated", "two events ended it"),
    "back_after_end": ("duplicated", "it was done or removed, and was worked on afterwards"),
    "state_after_end": ("duplicated", "it was done or removed, and the snapshot still has it"),
    "state_differs": ("unexplained", "the snapshot shows it in another state than its events"),
    "leased_but_gone": ("lost", "by its events somebody has it, and the snapshot does not know of it"),
    "dead_but_gone": ("lost", "by its events it is a dead letter, and the snapshot does not know of it"),
    "waiting_but_gone": (
        "lost",
        "its queue holds fewer messages than its events leave in it; this is one of the oldest of them",
    ),
    "no_publication": ("unexplained", "no event published it, and it was not there before the first snapshot either"),
}
_MESSAGE: Final = (*ROOT, "message")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Events, without those that a restore undid, are compared with the last consistent snapshot of each root. If
    events are missing only because nobody exported them, what they may explain is not reported. If snapshots contradict
    each other about events, nothing is called lost, because one version may belong to another past.
    """
    chosen(THRESHOLDS, given)
    last = materialized(_last(frames))
    days = last.groupBy("day").agg(F.count_if("is_odd").alias("odd")).collect()
    of_days = F.col("day").isin([row["day"] for row in days]) if days else F.lit(False)
    frames = {**frames, **{name: frames[name].where(of_days) for name in ("leases", "dead_letters", "queue_depth")}}
    vague = partly_listed(frames, last).withColumn("is_vague", F.lit(True))
    messages = (
        known(frames, last, any(row["odd"] for row in days)).join(last, [*ROOT]).join(vague, [*ROOT, "queue"], "left")
    )
    messages = materialized(messages.withColumn("finding", _finding()))  # it is used several times
    misfits = messages.where("finding is not null")
    more = _waiting(messages, frames).unionByName(_unpublished(messages), allowMissingColumns=True)
    rows = misfits.unionByName(more, allowMissingColumns=True)
    kinds = {finding: kind for finding, (kind, _) in FINDINGS.items()}
    kind = F.coalesce(*(F.when(F.col("finding") == finding, kind) for finding, kind in kinds.items()))
    unsure = (kind == "lost") & ((F.col("missing_events") > 0) | F.col("contested").isNotNull())
    doubt = F.format_string("%d events of the root are told in two ways", "contested")
    evidence = F.concat_ws("; ", _evidence(), F.when(F.col("contested").isNotNull(), doubt))
    described = rows.withColumns({"kind": F.when(unsure, "unexplained").otherwise(kind), "evidence": evidence})
    last_published = F.coalesce("published_again_event", "published_event")
    return described.withColumn("published_event", last_published).select(*SCHEMA.names)


def _last(frames: Frames) -> DataFrame:
    """The last snapshot of each root, with the result of its audit.

    ``harmless``: missing events that were not exported or had been retired before; ``contested``: events with a
    conflict, null if there are none; ``is_odd``: not all known events count here, because a restore undid them, or
    because they came after the snapshot; or ``messages`` was written by a version that did not say enough.
    """
    audited = (
        frames["audit"]
        .where("span = 'all' and queue = ''")
        .select(
            *ROOT,
            F.col("to_snapshot").alias("snapshot"),
            F.col("to_epoch").alias("last_epoch"),
            F.col("to_event").alias("as_of_event"),
            "from_event",
            "missing_events",
            "opening",
        )
    )
    grave = (
        frames["journal_gaps"].where("gap in ('lost', 'reported')").groupBy(*ROOT).agg(F.sum("events").alias("grave"))
    )
    harmless = F.greatest(F.col("missing_events") - F.coalesce("grave", F.lit(0)), F.lit(0))
    contested = frames["conflicts"].groupBy(*ROOT).agg(F.count_if("kept").alias("contested"))
    last = audited.join(grave, [*ROOT], "left").withColumn("harmless", harmless).drop("grave")
    last = last.join(contested, [*ROOT], "left").join(extents(frames["epochs"]), [*ROOT], "left")
    is_silent = F.lit(True).alias("is_silent")
    silent = frames["fates"].where("last_event is null").select(*ROOT, is_silent).distinct()
    odd = F.col("is_set_back") | (F.col("last_known") > _end()) | F.col("is_silent")
    last = last.join(silent, [*ROOT], "left").withColumn("is_odd", F.coalesce(odd, F.lit(False)))
    day = frames["snapshots"].select("device", "snapshot", "day")
    return last.drop("is_set_back", "last_known", "is_silent").join(day, ["device", "snapshot"])


def _end() -> Column:
    """The place up to which events count."""
    return F.struct(F.col("last_epoch").alias("epoch"), F.col("as_of_event").alias("event"))


def _finding() -> Column:
    fate, seen = F.col("fate"), F.col("shown")
    gone = seen.isNull() & F.col("is_vague").isNull() & (F.col("harmless") == 0)
    return (
        F.when(F.col("ended_count") > 1, "ended_twice")
        .when(F.col("went_on"), "back_after_end")
        .when(F.col("published_count") > 1, "published_twice")
        .when((fate == "gone") & seen.isNotNull(), "state_after_end")
        .when((fate != seen) & (F.col("harmless") == 0), "state_differs")
        .when((fate == "inflight") & gone, "leased_but_gone")
        .when((fate == "dead") & gone, "dead_but_gone")
    )


def _waiting(messages: DataFrame, frames: Frames) -> DataFrame:
    """Of the messages that should wait in a queue, as many of the oldest as the queue has too few."""
    queue = [*ROOT, "queue"]
    short = frames["audit"].where("span = 'all' and queue <> '' and difference < 0").select(*queue, "difference")
    gone = (
        messages.where("finding in ('leased_but_gone', 'dead_but_gone')")
        .groupBy(*queue)
        .agg(F.count(F.lit(1)).alias("gone"))
    )
    lacking = F.col("lacking")
    published = F.coalesce("published_again_event", "published_event", F.lit(0))
    order = Window.partitionBy(*queue).orderBy(published, "message")
    return (
        messages.where("fate = 'waiting' and shown is null and finding is null")
        .join(short, queue)
        .join(gone, queue, "left")
        .withColumn("lacking", -F.col("difference") - F.coalesce("gone", F.lit(0)) - F.col("harmless"))
        .withColumns({"rank": F.row_number().over(order), "among": F.count(F.lit(1)).over(Window.partitionBy(*queue))})
        .where(F.col("rank") <= lacking)
        .withColumn("finding", F.lit("waiting_but_gone"))
    )


def _unpublished(messages: DataFrame) -> DataFrame:
    """Messages that no event published, if there are more of them than there were at the beginning."""
    later = F.col("first_event") > F.col("from_event")
    unknown = messages.where((F.col("published_count") == 0) & later & F.col("finding").isNull())
    counted = unknown.withColumn("among", F.count(F.lit(1)).over(Window.partitionBy(*ROOT)))
    return counted.where(F.col("among") > F.col("opening") + F.col("harmless")).withColumn(
        "finding", F.lit("no_publication")
    )


def _evidence() -> Column:
    last = "the snapshot as of event %d"
    texts = {
        "published_twice": ("published by event %d and again by event %d", "published_event", "published_again_event"),
        "ended_twice": ("ended by event %d and again by event %d", "ended_event", "ended_again_event"),
        "back_after_end": ("ended by event %d, then %s by event %d", "ended_event", "last_type", "last_event"),
        "state_after_end": (f"ended by event %d; {last} has it as %s", "ended_event", "as_of_event", "shown"),
        "state_differs": (f"%s by event %d; {last} has it as %s", "last_type", "last_event", "as_of_event", "shown"),
        "leased_but_gone": (f"%s by event %d; {last} has no such lease", "last_type", "last_event", "as_of_event"),
        "dead_but_gone": (f"%s by event %d; {last} has no such dead letter", "last_type", "last_event", "as_of_event"),
        "waiting_but_gone": (
            f"{last} counts %d fewer in the queue than events say; number %d by age of %d that may be meant",
            "as_of_event",
            "lacking",
            "rank",
            "among",
        ),
        "no_publication": (
            "first told of by event %d; %d such messages, and %d were there before event %d",
            "first_event",
            "among",
            "opening",
            "from_event",
        ),
    }
    evidence = (F.when(F.col("finding") == name, F.format_string(text, *of)) for name, (text, *of) in texts.items())
    return F.coalesce(*evidence)


def known(frames: Frames, last: DataFrame, any_odd: bool) -> DataFrame:
    """The messages up to the last snapshot of their root, as ``fates`` has them, except those that are gone as they
    should be; and those that are ``shown``. Events that a restore undid are left out.

    :param last: ``device``, ``root``, ``last_epoch``, ``as_of_event`` and ``is_odd`` of the snapshot.
    """
    seen = materialized(shown(frames, last))
    odd = last.where("is_odd").select(*ROOT, "last_epoch", "as_of_event")
    rows = frames["fates"].join(odd, [*ROOT], "left_anti")
    # Nearly all that a snapshot shows are among these. Of the others, most were there before the first event.
    others = seen.join(odd, [*ROOT], "left_anti").join(rows, [*_MESSAGE], "left_anti").select(*_MESSAGE)
    others = materialized(others)
    if number := others.count():
        few = F.broadcast(others) if number <= FEW_MESSAGES else others
        with fully(last.sparkSession):
            plain = frames["messages"].where(fates.is_plain()).join(few, [*_MESSAGE], "left_semi")
            rows = rows.unionByName(materialized(fates.of_messages(plain)))
    if any_odd:  # what their messages are follows from a part of their events
        with fully(last.sparkSession):
            until_last = frames["events"].join(F.broadcast(odd), [*ROOT]).where(F.struct("epoch", "event") <= _end())
            messages = build_messages(standing(until_last, frames["restores"])).join(seen, [*_MESSAGE], "left")
            messages = messages.where(~fates.is_plain() | F.col("shown").isNotNull())
            rows = rows.unionByName(materialized(fates.of_messages(messages)))
    joined = rows.drop("day").join(seen, [*_MESSAGE], "full").withColumn("queue", F.coalesce("queue", "shown_queue"))
    return joined.fillna(0, ["published_count", "ended_count"])


def shown(frames: Frames, last: DataFrame) -> DataFrame:
    """A row for each message in the last snapshot of its root: ``shown`` (``inflight``, ``dead``)."""
    leases = frames["leases"].where(~F.coalesce("of_dead", F.lit(False))).withColumn("shown", F.lit("inflight"))
    letters = frames["dead_letters"].withColumn("shown", F.lit("dead"))
    columns = (*ROOT, "snapshot", "queue", "message", "shown")
    named = leases.select(*columns).unionByName(letters.select(*columns))
    of_last = named.join(last.select(*ROOT, "snapshot"), [*ROOT, "snapshot"], "left_semi")
    return of_last.groupBy(*ROOT, "message").agg(
        F.min("shown").alias("shown"), F.min_by("queue", "shown").alias("shown_queue")
    )


def partly_listed(frames: Frames, last: DataFrame) -> DataFrame:
    """Queues of which the last snapshot counts more leases or dead letters than it lists: others may still be there."""
    place = (*ROOT, "snapshot", "queue")
    counted = frames["queue_depth"].select(*place, "inflight", "dead")
    leases = frames["leases"].where(~F.coalesce("of_dead", F.lit(False)))
    leases = leases.select(*place, F.lit(-1).alias("inflight"), F.lit(0).alias("dead"))
    letters = frames["dead_letters"].select(*place, F.lit(0).alias("inflight"), F.lit(-1).alias("dead"))
    rows = counted.unionByName(leases).unionByName(letters).join(last.select(*ROOT, "snapshot"), [*ROOT, "snapshot"])
    more = rows.groupBy(*ROOT, "queue").agg(F.sum("inflight").alias("inflight"), F.sum("dead").alias("dead"))
    return more.where("inflight > 0 or dead > 0").select(*ROOT, "queue")
