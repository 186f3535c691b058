"""What ``GET /stats`` returns: LMQ's figures of queues, from those of the daemon."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from .properties import Properties, number

#: The rates of a meter: LMQ's name and the daemon's.
_RATES: Final = (
    ("one", "oneMinute"),
    ("five", "fiveMinutes"),
    ("fifteen", "fifteenMinutes"),
    ("day", "oneDay"),
)
#: The change of a rate from one window to a longer one, each second.
_ACCELERATIONS: Final = (("one", "five", 300), ("five", "fifteen", 600), ("one", "fifteen", 900))
#: The figures of the sample of waiting times: LMQ's name and the daemon's.
_SAMPLE: Final = (
    ("min", "min"),
    ("max", "max"),
    ("arithmetic_mean", "mean"),
    ("geometric_mean", "geometricMean"),
    ("harmonic_mean", "harmonicMean"),
    ("median", "median"),
    ("variance", "variance"),
    ("standard_deviation", "standardDeviation"),
    ("skewness", "skewness"),
    ("kurtosis", "kurtosis"),
)
#: Percentiles by LMQ's name, with the daemon's.
_PERCENTILES: Final = {"50": "50", "75": "75", "90": "90", "95": "95", "99": "99", "999": "99.9"}
#: Totals of a queue that count pushes.
_PUSHES: Final = ("published", "part_appended")
#: States whose messages LMQ counts as the size of a queue; it has no dead letters.
_STATES: Final = ("ready", "delayed", "inflight", "held", "gathering")


class QueueFigures(NamedTuple):
    """A queue: its row of ``list_queues``, its properties, and its row of ``queue_statistics``, or nothing."""

    row: Mapping[str, Any]
    properties: Properties
    measured: Mapping[str, Any]


def encode_statistics(node: str, queues: Iterable[QueueFigures]) -> bytes:
    """The body of the answer. ``node`` is the name of the only node."""
    return _json(
        {
            "active_nodes": [node],
            "all_nodes": [node],
            "queues": {queue.row["queue"]: _queue(queue, node) for queue in queues},
        }
    )


def _queue(queue: QueueFigures, node: str) -> dict[str, Any]:
    row, properties, measured = queue
    totals = row.get("totals", {})
    return {
        "stats": {
            "push": _meter(measured.get("published", {}), sum(totals.get(name, 0) for name in _PUSHES)),
            "pull": _meter(measured.get("delivered", {}), totals.get("leased", 0)),
            "retention": _retention(measured.get("retention", {})),
        },
        "size": sum(row.get(state, 0) for state in _STATES),
        "memory": row.get("bytes", 0),
        "nodes": [node],
        # In milliseconds here, in seconds everywhere else.
        "props": properties | {"accum": round(properties.get("accum", 0) * 1000)},
    }


def _meter(meter: Mapping[str, Any], total: int) -> dict[str, Any]:
    """A meter; without one, the queue's total and no rates."""
    rates = {ours: meter.get(theirs, 0) for ours, theirs in _RATES}
    accelerations = {
        f"{short}_to_{long}": (rates[short] - rates[long]) / seconds for short, long, seconds in _ACCELERATIONS
    }
    return {"count": meter.get("count", total), **rates, "mean": meter.get("mean", 0), "acceleration": accelerations}


def _retention(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The waiting times of messages, in seconds; zeros if there are none."""
    percentiles = sample.get("percentiles", {})
    bins = [{"bin": one["upTo"], "count": one["count"]} for one in sample.get("histogram", ())]
    return {
        **{ours: sample.get(theirs, 0) for ours, theirs in _SAMPLE},
        "percentile": {ours: percentiles.get(theirs, 0) for ours, theirs in _PERCENTILES.items()},
        "histogram": bins or [{"bin": 0, "count": 0}],
        "n": sample.get("n", 0),
    }


def _json(value: Any) -> bytes:
    """JSON with numbers as LMQ prints them."""
    if isinstance(value, dict):
        return b"{%b}" % b",".join(b"%b:%b" % (_json(name), _json(item)) for name, item in value.items())
    if isinstance(value, list):
        return b"[%b]" % b",".join(map(_json, value))
    return json.dumps(value, ensure_ascii=False).encode() if isinstance(value, str) else number(value)
