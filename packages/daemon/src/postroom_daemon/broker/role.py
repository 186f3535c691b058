"""The role of this node among the machines of a cluster: who must have its groups, or whom it follows.

Without a cluster nobody must, and it follows nobody.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode, resolve_command

from ..engine.decide import QUERIES
from ..model.request import Answer, Request
from .idempotency import Idempotency


class Leader(NamedTuple):
    """The node that leads, and where its clients reach it; both are empty if that is unknown."""

    node: str = ""
    address: str = ""


class Others(Protocol):
    """Those who must have a group of the leader. Both methods raise ``NotConfirmed``."""

    def send(self, lines: list[bytes], last_id: int, epoch: int) -> None:
        """Send a group, while the local disk syncs it."""

    def wait(self, last_id: int) -> None:
        """Return once they have the group that was sent."""


class Role:
    """A leader has ``others``, or leads alone; a follower has a ``leader``."""

    def __init__(self, idempotency: Idempotency) -> None:
        self._idempotency = idempotency
        self.others: Others | None = None
        """Who must have a group before it is answered; None: the local disk is enough."""
        self.leader: Leader | None = None
        """Whom this node follows: it changes nothing by itself, and answers questions as of what it has."""
        self.uncertain: frozenset[bytes] = frozenset()
        """Idempotency keys of requests that the cluster has or has not: nobody knows before it has the next group."""
        self._undecided: list[Request] = []  # requests with such keys
        self.shown_up_to = 0
        """The store of this follower shows events up to this one, which the journal has lost: groups go to the journal
        only, until it has them again. 0: it has lost none."""

    def sort(self, requests: list[Request], leader: Leader) -> tuple[list[Request], list[tuple[Request, Answer]]]:
        """What a follower does with requests: the questions among them, and the repeats, which have an answer; and the
        others with their refusals. Those that may have been executed wait for ``end_uncertainty``."""
        questions: list[Request] = []
        refusals: list[tuple[Request, Answer]] = []
        for request in requests:
            command, key = resolve_command(request.wire.command), request.key
            if command is None or command in QUERIES or (key and self._idempotency.recall(key) is not None):
                request.wire.payload.pop("waitMs", None)  # nothing here would wake it
                questions.append(request)
                continue
            if key in self.uncertain or (key and self.shown_up_to):
                self._undecided.append(request)
                continue
            request.command = command
            text = f"{leader.node} leads" if leader.node else "no node leads at present"
            data = {"leader": leader.node, "address": leader.address}
            refusals.append((request, Answer(error=CommandError(ErrorCode.NOT_LEADER, text, data))))
        return questions, refusals

    def end_uncertainty(self) -> list[Request]:
        """The next group is there: the requests that waited for it are repeats, or were not executed."""
        if not self.uncertain:
            return []
        self.uncertain = frozenset()
        decided, self._undecided = self._undecided, []
        return decided

    def forget(self, request: Request) -> None:
        """A request that may wait here gets no answer."""
        self._undecided = [one for one in self._undecided if one is not request]

    def mark_stale(self, answers: list[tuple[Request, Answer]], applied: int) -> None:
        """Say in a follower's answers as of which event they are true."""
        for place, (request, answer) in enumerate(answers):
            if request.command in QUERIES and not answer.error:
                stale = {**(answer.data or {}), "stale": True, "asOfEvent": applied}
                answers[place] = request, Answer(stale)
