"""The findings: what is wrong according to the rules, the worst first. Computed in Spark, put into words here."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ..schema.table import Frames
from .rules import BY_KIND, RULES, SEVERITIES, Rule
from .text import formatted_facts, quoted

#: The order of findings; the last columns only make it unambiguous.
ORDER: Final = ("severity", "-n", "device", "queue", "kind", "facts")


@dataclass(frozen=True)
class Finding:
    """One problem, in words."""

    device: str
    queue: str
    kind: str
    severity: int
    title: str
    since: dt.datetime | None
    said: str
    do: str
    run: str
    facts: Mapping[str, Any]

    @property
    def grade(self) -> str:
        """The severity as a word."""
        return SEVERITIES[self.severity]


def findings(frames: Frames) -> DataFrame | None:
    """All findings: ``device``, ``queue`` (empty for the whole device), ``kind``, ``severity``, ``n``, ``since`` and
    ``facts``, a JSON object. None if no report with rules exists.

    :param frames: the existing reports, by name.
    """
    parts = [_of(rule, frames[rule.report]) for rule in RULES if rule.report in frames]
    return reduce(DataFrame.unionByName, parts) if parts else None


def worded(row: Row | Mapping[str, Any]) -> Finding:
    """A row of ``findings`` in words."""
    rule = BY_KIND[row["kind"]]
    facts = json.loads(row["facts"]) | {"n": row["n"], "queue": row["queue"]}
    facts = {name: facts.get(name) for name in _names(rule)} | {"n": row["n"], "queue": row["queue"]}
    words = formatted_facts({name: _moment(value) for name, value in facts.items()})
    texts = {f"q_{name}": quoted(value) for name, value in facts.items() if isinstance(value, str)}
    return Finding(
        device=row["device"],
        queue=row["queue"],
        kind=rule.kind,
        severity=rule.severity,
        title=rule.title,
        since=row["since"],
        said=rule.said.format_map(words),
        do=rule.do,
        run=rule.run.format_map(texts) if rule.run else "",
        facts=facts,
    )


def _names(rule: Rule) -> tuple[str, ...]:
    return (*(name for name in rule.by if name != "queue"), *(name for name in rule.facts if name != "n"))


def _of(rule: Rule, report: DataFrame) -> DataFrame:
    facts = [F.expr(of).alias(name) for name, of in rule.facts.items() if name != "n"]
    grouped = report.where(rule.where).groupBy("device", *rule.by)
    facts_of = grouped.agg(F.expr(rule.n).cast("double").alias("n"), F.expr(rule.since).alias("since"), *facts)
    names = _names(rule)
    return facts_of.select(
        "device",
        (F.coalesce("queue", F.lit("")) if "queue" in rule.by else F.lit("")).alias("queue"),
        F.lit(rule.kind).alias("kind"),
        F.lit(rule.severity).alias("severity"),
        "n",
        "since",
        (F.to_json(F.struct(*names)) if names else F.lit("{}")).alias("facts"),
    )


def _moment(value: Any) -> Any:
    """The value, as a time again if it is one that JSON turned into text."""
    if isinstance(value, str) and len(value) >= 20 and value[10:11] == "T" and value[:4].isdigit():
        try:
            return dt.datetime.fromisoformat(value)
        except ValueError:
            return value
    return value
