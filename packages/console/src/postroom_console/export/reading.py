"""The state of a device as its daemon tells it by pages, and as it was at one event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from postroom_common.snapshot import Kind

from ..plain import Refused
from .counts import Queues
from .folds import Leases, Letters
from .holders import Consumers, Policies
from .journal import Journal, Place
from .lines import Fields, of_body, of_lease, of_letter, of_metrics
from .questions import Questions
from .redaction import Redactor, fit
from .spool import Drafts, Spool

#: Entries of a page: of what one look of the daemon gives, and of dead letters, whose bodies it has to read.
PAGE: Final = 1000
LETTERS_PAGE: Final = 200
#: Bytes of bodies that a page of dead letters is to have, by those of the page before, and letters of the first page.
LETTERS_BYTES: Final = 1_000_000
LETTERS_FIRST: Final = 20
#: Letters that died while the snapshot was made whose bodies are asked for, one by one.
LATE_LETTERS: Final = 2000


class State:
    """Reads it: ``ask`` first, then ``fold`` where there is a journal, then ``put``. ``page`` is for tests: entries of
    a page of queues, leases and consumers."""

    def __init__(
        self, questions: Questions, redactor: Redactor, leases: Spool, letters: Spool, page: int = PAGE
    ) -> None:
        self.health: Mapping[str, Any] = {}
        self.as_of = 0
        self.engine_ms = 0
        self.draining = False
        self._questions = questions
        self._redactor = redactor
        self._page = page
        self._leases = Leases(leases)
        self._letters = Letters(letters)
        self._consumers = Consumers()
        self._policies = Policies()
        self._queues = Queues(self._letters.was_there)
        self._metrics: Mapping[str, Any] = {}
        self._begun = 0
        self._is_folded = False

    @property
    def wall_ms(self) -> int:
        """The daemon's wall clock at ``engine_ms``."""
        return int(self.health["timestamp"]) + self.engine_ms - int(self.health["engineNowMs"])

    def ask(self, progress: Callable[[str, int], None]) -> None:
        """Ask for everything, what may take long first; the queues come last, and their event is the snapshot's."""
        questions = self._questions
        self.health = questions.meet()
        self._begun = self.health["asOfEvent"]
        queues = [one for page in questions.pages("list_queues", {"limit": PAGE}) for one in page["queues"]]
        self._ask_policies([one["queue"] for one in queues])
        self._ask_letters([one["queue"] for one in queues if one["dlq"]], progress)
        self._metrics = questions.ask("metrics", {})
        for page in questions.pages("list_inflight", {"limit": self._page}):
            self._leases.begin_page(page["asOfEvent"])
            for told in page["messages"]:
                self._leases.put(of_lease(told))
        for page in questions.pages("list_consumers", {"limit": self._page}, rest=0):
            self._consumers.put_page(page)
        for page in questions.pages("list_queues", {"limit": self._page}, rest=0):
            self._queues.put_page(page)
            self.as_of, self.engine_ms, self.draining = page["asOfEvent"], page["engineNowMs"], page["draining"]
        if self.as_of < self._begun:
            raise Refused("the daemon was restored to an earlier state meanwhile: export again")

    def _ask_policies(self, queues: list[str]) -> None:
        for queue in queues:
            answer = self._questions.find("get_policy", {"queue": queue})
            if answer:
                self._policies.put(answer)

    def _ask_letters(self, queues: list[str], progress: Callable[[str, int], None]) -> None:
        count = 0
        self._letters.begin_page(self._begun)
        for queue in queues:
            asked = {"queue": queue, "limit": LETTERS_FIRST, "previewBytes": 0, "fullBodies": True}
            for page in self._questions.pages("list_dlq", asked):
                self._letters.begin_page(page["asOfEvent"])
                for told in page["messages"]:
                    if told["queue"] == queue:  # the name may stand for the dead letters of other queues as well
                        self._letters.put(of_letter(told, self._redactor))
                count += len(page["messages"])
                bodies = sum(told["bytes"] for told in page["messages"]) or 1
                asked["limit"] = max(1, min(LETTERS_PAGE, LETTERS_BYTES * len(page["messages"]) // bodies))
                progress("dead letters", count)

    def fold(self, journal: Journal) -> None:
        """Bring all to ``as_of``, by the events since the first answer. Raises as ``Journal.events``."""
        self._is_folded = True
        for event in journal.events(Place(None, self._begun), self.as_of):
            self._leases.take(event)
            self._letters.take(event)
            self._consumers.take(event)
            self._policies.take(event)

    def put(self, drafts: Drafts) -> None:
        """Draft the lines of all but the queues."""
        late: list[Fields] = []
        for lease in self._leases.entries():
            self._consumers.count(lease)
            drafts.put(Kind.LEASE, lease)
        for letter in self._letters.entries():
            if self._letters.is_late(letter) and len(late) < LATE_LETTERS:
                late.append(letter)
            else:
                drafts.put(Kind.DEAD, letter)
        for letter in late:
            drafts.put(Kind.DEAD, {**letter, **self._rest_of(letter)})
        for row in self._consumers.settled(self._is_folded):
            drafts.put(Kind.CONSUMER, row)
        for figure in of_metrics(self._metrics, self.health):
            drafts.put(Kind.METRIC, figure)

    def queues(self, journal: Journal) -> list[Fields]:
        """The lines of the queues; behind ``put``. Raises as ``Journal.events``."""
        if self._is_folded and not self._queues.is_one_page:
            for event in journal.events(Place(None, self._begun), self.as_of):
                self._queues.take(event)
        return [{**row, "policy": fit(self._policies.of(row["queue"]))} for row in self._queues.settled()]

    def _rest_of(self, letter: Fields) -> Fields:
        """What is told of the body and the attempts of a letter that no page had; nothing where it is gone again."""
        told = self._questions.find("get_message", {"messageKey": letter["message"], "payloadAs": "value"}) or {}
        message, attempts = told.get("message") or {}, told.get("failures") or []
        if "payload" not in message:
            return {}
        history = [fit(one) for one in attempts if one.get("failedAtMs", 0) <= letter["diedMs"]]  # not what came later
        return {**of_body(message, message.get("bytes"), self._redactor), "history": history or None}
