"""The columns and rows of each list. Pure: all times are parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..i18n import mark, tr, trn
from .bursts import Shown
from .model import Model, Queue
from .records import Record
from .rows import Cell, Column, Row, Tone
from .text import age, clean, figure, size
from .times import moment

#: Milliseconds before its end at which a lease is marked.
ENDING_MS: Final = 5000
_RAMP: Final = " .:-=+*#"
_TREND: Final = 12
_BAR: Final = 10
LEASE_SORTS: Final = ("left", "queue", "holder", "try", "held")
SORTS: Final = (mark("trouble"), mark("name"), mark("ready"), mark("dead"), mark("oldest"), mark("rate"))


def trend(points: Iterable[float], cells: int = _TREND) -> str:
    """The last points as characters of a ramp, scaled to the largest of them."""
    last = list(points)[-cells:]
    top = max(last, default=0)
    drawn = "".join(_RAMP[round(point / top * (len(_RAMP) - 1))] if top else "." for point in last)
    return drawn.rjust(cells)


def state_mark(queue: Queue) -> str:
    """The state of a queue in two characters."""
    return "||" if queue.is_paused else "! " if any(queue.trouble) else "ok"


def queue_columns() -> list[Column]:
    return [
        Column(tr("QUEUE"), 12, grows=True),
        Column(tr("ST"), 2),
        Column(tr("READY"), 5, right=True),
        Column(tr("INFL"), 5, right=True, from_width=44),
        Column(tr("DELAY"), 5, right=True, from_width=58),
        Column(tr("DEAD"), 6, right=True),
        Column(tr("OLDEST"), 6, right=True),
        Column(tr("IN/s"), 5, right=True, from_width=64),
        Column(tr("OUT/s"), 5, right=True, from_width=64),
        Column(tr("TREND"), _TREND, from_width=74),
        Column(tr("IN"), _TREND, from_width=100),
        Column(tr("OUT"), _TREND, from_width=100),
        Column(tr("HOLD"), 5, right=True, from_width=110),
        Column(tr("BYTES"), 6, right=True, from_width=110),
        Column(tr("GATHER"), 6, right=True, from_width=122),
        Column(tr("DRAFT"), 6, right=True, from_width=129),
    ]


def queue_rows(model: Model, sort: str = "trouble", part: str = "") -> list[Row]:
    """The queues with ``part`` in their names, in the order of ``sort``."""
    wanted = part.casefold()
    queues = [queue for queue in model.queues.values() if wanted in queue.name.casefold()]
    return [_queue_row(queue) for queue in sorted(queues, key=lambda queue: _order(queue, sort))]


def queues_words(model: Model) -> str:
    """The number of queues, or that there are more than are shown."""
    number = len(model.queues)
    if model.has_more_queues:
        return tr("more than {n} queues").format(n=f"{number:,}")
    return trn("{n} queue", "{n} queues", number)


def _order(queue: Queue, sort: str) -> tuple[Any, ...]:
    match sort:
        case "ready":
            first: Any = -queue.ready
        case "dead":
            first = -queue.dead
        case "oldest":
            first = -(queue.oldest_ready_ms or -1)
        case "rate":
            first = -((queue.in_rate or 0) + (queue.out_rate or 0))
        case "trouble":
            first = tuple(not wrong for wrong in queue.trouble)
        case _:
            first = 0
    return (first, queue.name)


def _queue_row(queue: Queue) -> Row:
    oldest = queue.oldest_ready_ms
    paused = queue.is_paused
    return Row(
        queue.name,
        (
            Cell(clean(queue.name)),
            Cell(state_mark(queue), Tone.WARN if paused else Tone.BAD if any(queue.trouble) else Tone.GOOD),
            Cell(figure(queue.ready)),
            Cell(figure(queue.inflight)),
            Cell(figure(queue.delayed)),
            Cell(f"{figure(queue.dead)}{'!' if queue.dead else ' '}", Tone.BAD if queue.dead else Tone.PLAIN),
            Cell("-" if oldest is None else age(oldest) + "!" * queue.is_old, Tone.BAD if queue.is_old else Tone.PLAIN),
            Cell(_rate(queue.in_rate)),
            Cell(_rate(queue.out_rate)),
            Cell(trend(queue.trend), Tone.DIM),
            Cell(trend(queue.in_trend), Tone.DIM),
            Cell(trend(queue.out_trend), Tone.DIM),
            Cell(figure(queue.held)),
            Cell(size(queue.bytes)),
            Cell(figure(queue.gathering)),
            Cell(figure(queue.drafting)),
        ),
        "!" if any(queue.trouble) else " ",
    )


def _rate(rate: float | None) -> str:
    return "-" if rate is None else "0" if not rate else f"{rate:.1f}" if rate < 10 else figure(rate)


def lease_columns() -> list[Column]:
    return [
        Column(tr("QUEUE"), 10, grows=True),
        Column(tr("MESSAGE"), 8, from_width=42),
        Column(tr("CONSUMER"), 14, wide=40),
        Column(tr("UID"), 5, right=True, from_width=64),
        Column(tr("TRY"), 3, right=True, from_width=46),
        Column(tr("LEASED"), 6, right=True, from_width=70),
        Column(tr("LEFT"), 6, right=True),
        Column(tr("TIME LEFT"), _BAR + 10, from_width=58),
    ]


def lease_rows(model: Model, now_ms: int, sort: str = "left") -> list[Row]:
    """The leases of the last answer in the order of ``sort``, by default the one that ends first."""
    engine_now = model.engine_now("leases", now_ms)
    messages = sorted(model.data("leases").get("messages", []), key=lambda message: _lease_order(message, sort))
    return [_lease_row(message, engine_now) for message in messages]


def _lease_order(message: Mapping[str, Any], sort: str) -> tuple[Any, ...]:
    end = message["leaseUntilEngineMs"]
    match sort:
        case "queue":
            return (str(message["queue"]), end)
        case "holder":
            return (str(message.get("consumerId") or ""), end)
        case "try":
            return (-int(message.get("attempt") or 0), end)
        case "held":
            return (message.get("leasedAtEngineMs") or 0, end)
        case _:
            return (end,)


def _lease_row(message: Mapping[str, Any], engine_now: int) -> Row:
    begin, end = int(message.get("leasedAtEngineMs") or 0), int(message["leaseUntilEngineMs"])
    left = end - engine_now
    whole = max(end - begin, 1)
    filled = max(0, min(_BAR, round(left / whole * _BAR)))
    word, tone = (
        (tr("OVERDUE"), Tone.BAD) if left <= 0 else (tr("ending"), Tone.WARN) if left <= ENDING_MS else ("", Tone.PLAIN)
    )
    who = message.get("uid", message.get("principal"))
    return Row(
        message["messageKey"],
        (
            Cell(clean(str(message["queue"]))),
            Cell(short_key(message["messageKey"])),
            Cell(clean(str(message.get("consumerId") or ""))),
            Cell("-" if who is None else clean(str(who))),
            Cell(str(message.get("attempt", ""))),
            Cell(age(engine_now - begin)),
            Cell(age(left), tone),
            Cell(f"[{'=' * filled:{_BAR}}] {word}".rstrip(), tone),
        ),
        "!" if tone is not Tone.PLAIN else " ",
    )


def short_key(key: str) -> str:
    """The end of a message key, which differs from its neighbours."""
    return clean(key[-8:])


def dead_columns() -> list[Column]:
    return [
        Column(tr("QUEUE"), 10, from_width=50, wide=30),
        Column(tr("MESSAGE"), 8),
        Column(tr("DIED"), 8, from_width=56),
        Column(tr("TRY"), 3, right=True, from_width=44),
        Column(tr("CODE"), 11, wide=16),
        Column(tr("REASON"), 14, grows=True),
        Column(tr("SIZE"), 6, right=True, from_width=64),
        Column(tr("BY"), 12, from_width=76, wide=40),
    ]


def dead_rows(letters: Sequence[Mapping[str, Any]], wall_ms: int) -> list[Row]:
    """Dead letters as ``list_dlq`` returns them. ``wall_ms`` is the present."""
    return [
        Row(
            letter["messageKey"],
            (
                Cell(clean(str(letter["queue"]))),
                Cell(short_key(letter["messageKey"])),
                Cell(moment(int(letter["dlqAt"]), wall_ms)),
                Cell(str(letter.get("attempt", ""))),
                Cell(clean(str(letter.get("reasonCode") or "")), Tone.BAD),
                Cell(clean(str(letter.get("reason") or ""))),
                Cell(size(int(letter.get("bytes") or 0))),
                Cell(clean(str(letter.get("consumerId") or ""))),
            ),
            "Q" if letter.get("quarantined") else "L" if letter.get("leased") else " ",
        )
        for letter in letters
    ]


def reason_columns() -> list[Column]:
    return [
        Column(tr("QUEUE"), 14, grows=True),
        Column(tr("DEAD"), 6, right=True),
        Column(tr("REASON"), 16),
        Column(tr("NEW"), 5, right=True, from_width=56),
        Column(tr("+1h"), 5, right=True, from_width=64),
        Column(tr("+24h"), 5, right=True, from_width=64),
        Column(tr("LAST"), 8, right=True, from_width=72),
    ]


def reason_row(
    queue: str, part: str, number: int, reason: str, growth: int, counts: Mapping[str, Any], wall_ms: int
) -> Row:
    """The dead letters of a queue, or with ``part`` those of one reason. ``growth`` is the increase since the console
    first saw them, ``counts`` the answer of ``count_dlq``, ``wall_ms`` the present."""
    newest = counts.get("newestAt")
    return Row(
        (queue, part),
        (
            Cell("" if part else clean(queue)),
            Cell(figure(number), Tone.DIM if part else Tone.BAD),
            Cell(clean(reason) or tr("all reasons")),
            Cell(f"{growth:+d}" if growth else "0", Tone.BAD if growth > 0 else Tone.DIM),
            Cell(_growth(counts, "diedLastHour"), Tone.DIM),
            Cell(_growth(counts, "diedLastDay"), Tone.DIM),
            Cell("" if newest is None else moment(int(newest), wall_ms), Tone.DIM),
        ),
    )


def _growth(counts: Mapping[str, Any], name: str) -> str:
    return figure(int(counts[name])) if name in counts else ""


def record_columns() -> list[Column]:
    return [
        Column(tr("TIME"), 8, from_width=42),
        Column(tr("WHAT"), 12, wide=18),
        Column(tr("QUEUE"), 10, wide=30),
        Column(tr("MESSAGE"), 8, from_width=56),
        Column(tr("CLIENT"), 14, from_width=96, wide=30),
        Column(tr("DETAIL"), 14, grows=True),
    ]


def record_row(number: int, record: Record, wall_ms: int, count: int = 1) -> Row:
    """A line of the tail, which may represent ``count`` lines. ``wall_ms`` is the present."""
    tone = Tone.BAD if record.is_trouble else Tone.PLAIN if record.is_event else Tone.DIM
    detail = f"x{figure(count)}  {record.detail}" if count > 1 else record.detail
    return Row(
        number,
        (
            Cell(moment(record.wall_ms, wall_ms), Tone.DIM),
            Cell(("" if record.is_event else ">") + clean(record.kind), tone),
            Cell(clean(record.queue)),
            Cell("..." if count > 1 else short_key(record.key or record.request)),
            Cell(clean(record.client), Tone.DIM),
            Cell(detail, tone),
        ),
        "!" if record.is_trouble else " ",
    )


def tail_rows(shown: Sequence[Shown], wall_ms: int) -> list[Row]:
    """Lines of the tail."""
    return [record_row(one.number, one.record, wall_ms, one.times) for one in shown]
