"""What a kind of finding is, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: How bad it is, by number: what is at stake decides, not how much of it there is.
SEVERITIES: Final = {1: "lost", 2: "stopped", 3: "failing", 4: "odd"}


@dataclass(frozen=True)
class Rule:
    """One kind of finding. All expressions are SQL over the report's columns.

    ``said`` and ``run`` are filled with the facts, told for people; ``run`` with words of a command line in ``q_NAME``.
    """

    kind: str
    severity: int
    report: str
    where: str
    title: str
    said: str
    do: str
    run: str = ""
    #: Rows of one device (and queue) that these have alike are one finding; no columns: all of the device.
    by: tuple[str, ...] = ("queue",)
    #: Name and aggregate of each fact; ``n`` orders findings of one severity, the largest first.
    facts: Mapping[str, str] = field(default_factory=dict)
    since: str = "cast(null as timestamp)"
    n: str = "count(1)"
