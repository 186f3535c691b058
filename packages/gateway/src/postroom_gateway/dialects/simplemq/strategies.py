"""Which consumer of a topic gets its next message."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeVar


class Strategy(StrEnum):
    """A way to choose, with SimpleMQ's name."""

    #: The consumer that came first, and the next message only when the one before is settled.
    ORDERED = "ORDERED"
    FIRST_AVAILABLE = "FIRST_AVAILABLE"
    ROUND_ROBIN = "ROUND_ROBIN"
    #: The highest priority; among equals the least loaded.
    PRIORITY = "PRIORITY"
    #: The least loaded: the smallest part of what it may have at one time.
    LOAD_BALANCE = "LOAD_BALANCE"


class Candidate(Protocol):
    """A consumer, as a strategy sees it."""

    @property
    def priority(self) -> tuple[int, int]: ...
    @property
    def capacity(self) -> int: ...
    @property
    def served(self) -> int:
        """The number of the topic's delivery that was its last one; 0: none."""

    @property
    def load(self) -> int:
        """How many messages it has that are not settled."""

    @property
    def has_room(self) -> bool: ...


C = TypeVar("C", bound=Candidate)


def choose(strategy: Strategy, consumers: Sequence[C]) -> C | None:
    """The consumer, of those that are given in order of arrival, that gets the next message; None if none may."""
    if strategy is Strategy.ORDERED and any(one.load for one in consumers):
        return None
    free = [one for one in consumers if one.has_room]
    if not free:
        return None
    if strategy is Strategy.ROUND_ROBIN:
        return min(free, key=lambda one: one.served)
    if strategy is Strategy.PRIORITY:
        return min(free, key=lambda one: (tuple(-part for part in one.priority), one.load / one.capacity, one.served))
    if strategy is Strategy.LOAD_BALANCE:
        return min(free, key=lambda one: (one.load / one.capacity, one.served))
    return free[0]


def priority_of(consumer_id: str, requested: int, hosts: Sequence[str]) -> tuple[int, int]:
    """The priority of a consumer: that of its host, which is what stands behind the first hyphen of its id, and among
    equals the one that it asks for."""
    host = consumer_id.split("-")[1] if "-" in consumer_id else ""
    return (len(hosts) - hosts.index(host) if host in hosts else 0), requested
