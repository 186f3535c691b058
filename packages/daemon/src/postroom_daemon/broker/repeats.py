"""What a transaction knows of repeats: of requests that it decides itself, and of those that were answered before."""

from __future__ import annotations

from typing import Final

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.protocol import ErrorCode

from ..journal.journal import Journal
from ..model.request import Answer
from .group import Group
from .idempotency import Idempotency

#: Refusals that depend on the moment and not on the request: a repeat is executed.
_TRANSIENT: Final = frozenset(
    {ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_FAILED, ErrorCode.QUOTA_EXCEEDED, ErrorCode.ANSWER_LOST}
)


class Repeats:
    """Those of one transaction. Nothing is remembered before ``commit``."""

    def __init__(self, idempotency: Idempotency, journal: Journal) -> None:
        self._idempotency = idempotency
        self._journal = journal
        self._answers: dict[bytes, Answer] = {}
        self._delivered_again: list[bytes] = []

    def first(self, key: bytes | None, group: Group) -> list[Event] | Answer | None:
        """What the request with this key did, or its answer if it did nothing; None: it is not known.

        Raises ``CommandError`` with ERR_ANSWER_LOST if its events are no longer stored.
        """
        if key is None:
            return None
        events = group.by_request.get(key)
        if events is None:
            place = self._answers.get(key) or self._idempotency.recall(key)
            if place is None or isinstance(place, Answer):
                return place
            events = self._journal.find(place)
            if events is None:
                raise CommandError(ErrorCode.ANSWER_LOST, "this request was executed; its answer is no longer stored")
        if events[0]["type"] == EventType.LEASED:
            self._delivered_again.append(key)
        return events

    def remember_answer(self, key: bytes | None, answer: Answer) -> None:
        """Remember the answer to a request without events."""
        if key is not None:
            self._answers[key] = answer

    def commit(self, group: Group, places: list[int]) -> None:
        """The group is durable, its events at ``places`` in the journal. Repeats are recognised from now on."""
        idempotency, first_id = self._idempotency, group.last_id - len(places) + 1
        by_request = group.by_request
        if by_request:
            idempotency.remember({key: places[events[0]["id"] - first_id] for key, events in by_request.items()})
        for key, answer in self._answers.items():
            if not answer.error or answer.error.code not in _TRANSIENT:
                idempotency.remember_answer(key, answer)
        for key in self._delivered_again:
            idempotency.note_delivered_again(key)
