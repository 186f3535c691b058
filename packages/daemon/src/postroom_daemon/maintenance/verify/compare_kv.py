"""Compare the key-values of a store with the journal: claims, names of messages, schedules, policy patterns, and
whether the root is draining."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ...model.facts import CLAIM, CLAIM_END, FACT_DRAINING, FACT_POLICY_PATTERNS, NAME, SCHEDULE, claim_end_fact
from .findings import Finding, Kind

#: Prefixes of key-values that the journal defines. Ends of claims follow from the claims.
KV_PREFIXES: Final = (CLAIM, NAME, FACT_DRAINING, FACT_POLICY_PATTERNS, SCHEDULE)


class RebuiltKv(NamedTuple):
    """A key-value by the journal: its ``value``, or None. ``base`` is the event that set all of it, ``last`` the last
    one that changed it."""

    name: str
    base: int
    last: int
    value: Any


class Correction(NamedTuple):
    """A wrong key-value, and its right value; None: it should not exist."""

    finding: Finding
    name: str
    value: Any


def corrections(
    found: dict[str, Any],
    rebuilt: Iterable[RebuiltKv],
    claimed: dict[str, str] | None,
    at: int,
    doubt: int,
    complete: bool,
) -> Iterator[Correction]:
    """All wrong key-values of a store, ``found``, which has folded the journal up to event ``at``.

    ``claimed`` are the claims and names of existing messages, with their keys; None if the messages may be ahead of the
    key-values. Values defined by events up to ``doubt`` are not trusted, since later events are missing. ``complete``:
    the journal defines all of them.
    """
    found = {name: value for name, value in found.items() if name.startswith((*KV_PREFIXES, CLAIM_END))}
    right = {name: value for name, value in found.items() if not name.startswith(CLAIM_END)}
    open_names = set(right) | set(claimed or ())
    for one in rebuilt:
        if one.last > at:  # it will be folded
            open_names.discard(one.name)
        elif one.base > doubt:
            open_names.discard(one.name)
            right[one.name] = one.value
    for name in open_names:  # the journal does not define it: use the store's own messages
        if complete:
            right[name] = None
        elif claimed is None:
            continue
        elif name in claimed:
            key = claimed[name]
            right[name] = key if name.startswith(NAME) else {"key": key, "untilEngineMs": 0}
        elif name.startswith(NAME) or (name.startswith(CLAIM) and not right[name]["untilEngineMs"]):
            right[name] = None
    right |= _ends(right)
    for name in sorted(found.keys() | right.keys()):
        if found.get(name) != right.get(name):
            yield Correction(_finding(name, found.get(name), right.get(name)), name, right.get(name))


def _ends(claims: dict[str, Any]) -> dict[str, Any]:
    """The key-values for the ends of claims."""
    ends = {}
    for name, value in claims.items():
        if name.startswith(CLAIM) and value and value["untilEngineMs"]:
            ends[claim_end_fact(value["untilEngineMs"], *_claim(name))] = True
    return ends


def _claim(fact: str) -> tuple[str, str]:
    """Queue and name of a claim, from its key-value's name."""
    queue, _, name = fact.removeprefix(CLAIM).rpartition("\0")
    return queue, name


def _finding(name: str, found: Any, right: Any) -> Finding:
    text = f"it is {_shown(found)}, and should be {_shown(right)}"
    if name.startswith(CLAIM):
        queue, claim = _claim(name)
        return Finding(Kind.CLAIM_WRONG, queue, f"{claim}: {text}")
    if name.startswith(CLAIM_END):
        until, _, rest = name.removeprefix(CLAIM_END).partition(":")
        queue, _, claim = rest.rpartition("\0")
        noted = "is not known" if right else "is known, and there is none"
        return Finding(Kind.CLAIM_WRONG, queue, f"{claim}: its end at {int(until)} {noted}")
    if name.startswith(NAME):
        return Finding(Kind.NAME_WRONG, name.removeprefix(NAME), text)
    if name.startswith(SCHEDULE):
        return Finding(Kind.SCHEDULE_WRONG, name.removeprefix(SCHEDULE), text)
    if name == FACT_POLICY_PATTERNS:
        return Finding(Kind.POLICY_PATTERNS_WRONG, name, text)
    return Finding(Kind.DRAIN_WRONG, name, text)


def _shown(value: Any) -> str:
    return "not there" if value is None else repr(value)
