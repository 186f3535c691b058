"""What a look at something came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a look ended."""

    GOOD = "ok"
    DOUBTFUL = "warn"
    BAD = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was looked at, what was seen, and what to do about it."""

    check: str
    verdict: Verdict
    seen: str
    mend: str = ""


def good(check: str, seen: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Verdict.GOOD, seen)


def doubtful(check: str, seen: str, mend: str) -> Finding:
    """It works, and something will not."""
    return Finding(check, Verdict.DOUBTFUL, seen, mend)


def bad(check: str, seen: str, mend: str) -> Finding:
    """It does not work."""
    return Finding(check, Verdict.BAD, seen, mend)
