"""Each message that the audit cannot account for: lost, duplicated, or unexplained, with the evidence."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import materialized
from .lineage import FEW_MESSAGES, ROOT, order, standing
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
NEEDS: Final = ("events", "restores", "leases", "dead_letters", "queue_depth", "audit", "journal_gaps", "conflicts")
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
#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = ("device", "root", "epoch", "event", "type", "message", "state", "of_dead", "keep", "wall_at")
_MESSAGE: Final = (*ROOT, "message")
_PLACE: Final = ("epoch", "event")
_ENDS: Final = ("acked", "dropped")
#: What may have become of a message.
FATES: Final = ("waiting", "inflight", "dead", "done", "gone")
_WAITS: Final = ("published", "retried", "reprocessed", "held", "unheld", "moved", "retargeted", "rescheduled")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Events, without those that a restore undid, are compared with the last consistent snapshot of each root. If
    events are missing only because nobody exported them, what they may explain is not reported. If snapshots contradict
    each other about events, nothing is called lost, because one version may belong to another past.
    """
    chosen(THRESHOLDS, given)
    last = materialized(_last(frames))
    vague = partly_listed(frames, last).withColumn("is_vague", F.lit(True))
    messages = (
        fates(frames, last).join(last, [*ROOT]).join(vague, [*ROOT, "queue"], "left").withColumn("finding", _finding())
    )
    messages = materialized(messages)  # it is used several times
    misfits = messages.where("finding is not null")
    more = _waiting(messages, frames).unionByName(_unpublished(messages), allowMissingColumns=True)
    rows = misfits.unionByName(more, allowMissingColumns=True)
    kinds = {finding: kind for finding, (kind, _) in FINDINGS.items()}
    kind = F.coalesce(*(F.when(F.col("finding") == finding, kind) for finding, kind in kinds.items()))
    unsure = (kind == "lost") & ((F.col("missing_events") > 0) | F.col("contested").isNotNull())
    doubt = F.format_string("%d events of the root are told in two ways", "contested")
    evidence = F.concat_ws("; ", _evidence(), F.when(F.col("contested").isNotNull(), doubt))
    described = rows.withColumns({"kind": F.when(unsure, "unexplained").otherwise(kind), "evidence": evidence})
    return described.select(*SCHEMA.names)


def _last(frames: Frames) -> DataFrame:
    """The last snapshot of each root, with the result of its audit.

    ``harmless``: missing events that were not exported or had been retired before; ``contested``: events with a
    conflict, null if there are none.
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
    return last.join(contested, [*ROOT], "left")


def _finding() -> Column:
    fate, seen = F.col("fate"), F.col("shown")
    gone = seen.isNull() & F.col("is_vague").isNull() & (F.col("harmless") == 0)
    return (
        F.when(F.col("endings") > 1, "ended_twice")
        .when(F.col("went_on"), "back_after_end")
        .when(F.col("publications") > 1, "published_twice")
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
    order = Window.partitionBy(*queue).orderBy(F.coalesce("published_event", F.lit(0)), "message")
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
    unknown = messages.where((F.col("publications") == 0) & later & F.col("finding").isNull())
    counted = unknown.withColumn("among", F.count(F.lit(1)).over(Window.partitionBy(*ROOT)))
    return counted.where(F.col("among") > F.col("opening") + F.col("harmless")).withColumn(
        "finding", F.lit("no_publication")
    )


def _evidence() -> Column:
    last = "the snapshot as of event %d"
    texts = {
        "published_twice": ("published by event %d and again by event %d", "first_published_event", "published_event"),
        "ended_twice": ("ended by event %d and again by event %d", "ended_event", "last_ended_event"),
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


def fates(frames: Frames, last: DataFrame) -> DataFrame:
    """The messages in the events, except those that are gone as it should be: ``fate`` (``waiting``, ``inflight``,
    ``dead``, ``done``, ``gone``), their last queue, and the events that say so; and those that are ``shown``. Events
    that a restore undid, and those after the last snapshot, are left out.

    :param last: ``device``, ``root``, ``last_epoch`` and ``as_of_event`` of the snapshot.
    """
    seen = shown(frames, last)
    shows = seen.select(*_MESSAGE, F.lit(True).alias("_shows"))
    rows = _events(frames, last).unionByName(shows, allowMissingColumns=True)
    place = F.col("_place")
    # All of these are numbers: sums of texts would be sorted, by all messages. The texts of the few are looked up.
    summed = rows.groupBy(*_MESSAGE).agg(
        F.max_by("_fate", F.when(F.col("_fate").isNotNull(), place)).alias("_fate"),
        F.max_by("epoch", place).alias("epoch"),
        F.min_by("event", place).alias("first_event"),
        F.max_by("event", place).alias("last_event"),
        F.max_by("wall_at", place).alias("last_at"),
        F.count_if("_published").alias("publications"),
        F.min_by("event", F.when(F.col("_published"), place)).alias("first_published_event"),
        F.max_by("event", F.when(F.col("_published"), place)).alias("published_event"),
        F.count_if("_ended").alias("endings"),
        F.min_by("event", F.when(F.col("_ended"), place)).alias("ended_event"),
        F.max_by("event", F.when(F.col("_ended"), place)).alias("last_ended_event"),
        (F.max(place) > F.min(F.when(F.col("_ended"), place))).alias("went_on"),
        F.max("_shows").alias("_shows"),
    )
    fits = (
        F.coalesce(F.col("_fate") == FATES.index("gone"), F.lit(False))
        & (F.col("publications") == 1)
        & (F.col("endings") <= 1)
        & ~F.coalesce("went_on", F.lit(False))
        & F.col("_shows").isNull()
    )
    kept = materialized(summed.where(~fits))
    fate = F.try_element_at(F.array(*map(F.lit, FATES)), F.col("_fate") + 1)
    texts = _texts(frames["events"], kept)
    return (
        kept.withColumn("fate", fate)
        .join(texts, [*_MESSAGE], "left")
        .join(seen, [*_MESSAGE], "left")
        .withColumn("queue", F.coalesce("queue", "shown_queue"))
        .drop("epoch", "_fate", "_shows")
    )


def _events(frames: Frames, last: DataFrame) -> DataFrame:
    """The events of messages up to the last snapshot: what they are, as numbers."""
    kind = F.col("type")
    events = standing(frames["events"].select(*_READ), frames["restores"]).where("message is not null")
    until_last = events.join(last.select(*ROOT, "last_epoch", "as_of_event"), [*ROOT]).where(
        F.struct(*_PLACE) <= F.struct(F.col("last_epoch").alias("epoch"), F.col("as_of_event").alias("event"))
    )
    return until_last.withColumn("_text", _fate()).select(
        *_MESSAGE,
        *_PLACE,
        order().alias("_place"),
        "wall_at",
        F.coalesce(*(F.when(F.col("_text") == name, number) for number, name in enumerate(FATES))).alias("_fate"),
        (kind == "published").alias("_published"),
        (kind.isin(*_ENDS) & F.col("keep").isNull()).alias("_ended"),
    )


def _texts(events: DataFrame, kept: DataFrame) -> DataFrame:
    """``queue`` and ``last_type`` of messages, from their last event."""
    last = kept.select(*_MESSAGE, "epoch", F.col("last_event").alias("event"))
    if kept.count() <= FEW_MESSAGES:
        last = F.broadcast(last)
    of_event = events.select(*ROOT, *_PLACE, F.col("type").alias("last_type"), F.coalesce("to", "queue").alias("queue"))
    return of_event.join(last, [*ROOT, *_PLACE]).select(*_MESSAGE, "last_type", "queue")


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


def _fate() -> Column:
    """The fate of a message after an event; null if the event does not change it."""
    kind = F.col("type")
    given_back = F.when(F.col("state") == "dead", "dead").otherwise("waiting")
    return (
        F.when((kind == "acked") & F.col("keep").isNotNull(), "done")
        .when(kind.isin(*_ENDS), "gone")
        .when(kind.isin(*_WAITS), "waiting")
        .when(kind.isin("died", "quarantined"), "dead")
        .when(kind == "leased", F.when(F.coalesce("of_dead", F.lit(False)), "dead").otherwise("inflight"))
        .when(kind == "released", given_back)
    )
