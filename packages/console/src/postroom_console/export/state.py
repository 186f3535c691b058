"""The state of a device: the daemon's answers, which come in pages, brought to one event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from postroom_common.snapshot import Kind

from ..data.link import Refused
from ..data.member import Member, member_of
from .folds import ConsumerFold, DeadLetterFold, LeaseFold, PolicyFold, ReaderFold
from .journal import Journal, JournalPosition
from .lines import Fields, of_body, of_lease, of_letter, of_metrics
from .queries import Queries
from .queue_fold import QueueFold
from .redaction import Redactor, fit
from .spool import Drafts, Spool

#: Entries of a page, and dead letters of a page, whose bodies the daemon has to read.
PAGE: Final = 1000
LETTERS_PAGE: Final = 200
#: Bytes of bodies that a page of dead letters should have, estimated from the page before, and the letters of the first
#: page.
LETTERS_BYTES: Final = 1_000_000
LETTERS_FIRST: Final = 20
#: Dead letters that died during the export and whose bodies are queried individually.
LATE_LETTERS: Final = 2000


class DeviceState:
    """The state. Call ``ask`` first, then ``fold`` if there is a journal, then ``put``, then ``queues``. ``page`` is
    the number of entries per page of queues, leases and consumers, for tests."""

    def __init__(self, queries: Queries, redactor: Redactor, leases: Spool, letters: Spool, page: int = PAGE) -> None:
        self.health: Mapping[str, Any] = {}
        self.as_of = 0
        self.engine_ms = 0
        self.draining = False
        self._queries = queries
        self._redactor = redactor
        self._page = page
        self._leases = LeaseFold(leases)
        self._letters = DeadLetterFold(letters)
        self._consumers = ConsumerFold()
        self._policies = PolicyFold()
        self._readers = ReaderFold()
        self._queues = QueueFold(self._letters.existed_before)
        self._metrics: Mapping[str, Any] = {}
        self._begun = 0
        self._is_folded = False

    @property
    def wall_ms(self) -> int:
        """The daemon's wall clock at ``engine_ms``."""
        return int(self.health["timestamp"]) + self.engine_ms - int(self.health["engineNowMs"])

    @property
    def member(self) -> Member | None:
        """The node of a cluster that the daemon is; None if it is in no cluster."""
        return member_of(self.health)

    def ask(self, progress: Callable[[str, int], None]) -> None:
        """Query everything, slow answers first. The queues come last, and their event is the snapshot's."""
        queries = self._queries
        self.health = queries.ask_health()
        self._begun = self.health["asOfEvent"]
        queues = [one for page in queries.pages("list_queues", {"limit": PAGE}) for one in page["queues"]]
        self._ask_policies([one["queue"] for one in queues])
        self._ask_readers([one["queue"] for one in queues if one.get("log")])
        self._ask_letters([one["queue"] for one in queues if one["dlq"]], progress)
        self._metrics = queries.ask("metrics", {})
        for page in queries.pages("list_inflight", {"limit": self._page}):
            self._leases.begin_page(page["asOfEvent"])
            for entry in page["messages"]:
                self._leases.put(of_lease(entry))
        for page in queries.pages("list_consumers", {"limit": self._page}, rest=0):
            self._consumers.put_page(page)
        for page in queries.pages("list_queues", {"limit": self._page}, rest=0):
            self._queues.put_page(page)
            self.as_of, self.engine_ms, self.draining = page["asOfEvent"], page["engineNowMs"], page["draining"]
        if self.as_of < self._begun:
            raise Refused("the daemon was restored to an earlier state during the export: export again")

    def _ask_policies(self, queues: list[str]) -> None:
        for queue in queues:
            answer = self._queries.ask_optional("get_policy", {"queue": queue})
            if answer:
                self._policies.put(answer)

    def _ask_readers(self, logs: list[str]) -> None:
        for log in logs:
            answer = self._queries.ask_optional("list_readers", {"queue": log})
            if answer:
                self._readers.put(log, answer)

    def _ask_letters(self, queues: list[str], progress: Callable[[str, int], None]) -> None:
        count = 0
        self._letters.begin_page(self._begun)
        for queue in queues:
            asked = {"queue": queue, "limit": LETTERS_FIRST, "previewBytes": 0, "fullBodies": True}
            for page in self._queries.pages("list_dlq", asked):
                self._letters.begin_page(page["asOfEvent"])
                for entry in page["messages"]:
                    if entry["queue"] == queue:  # the name may be the dead-letter address of other queues as well
                        self._letters.put(of_letter(entry, self._redactor))
                count += len(page["messages"])
                bodies = sum(entry["bytes"] for entry in page["messages"]) or 1
                asked["limit"] = max(1, min(LETTERS_PAGE, LETTERS_BYTES * len(page["messages"]) // bodies))
                progress("dead letters", count)

    def fold(self, journal: Journal) -> None:
        """Bring everything but the queues to ``as_of`` with the events since the first answer. Raises as
        ``Journal.events``."""
        self._is_folded = True
        for event in journal.events(JournalPosition(None, self._begun), self.as_of):
            self._leases.take(event)
            self._letters.take(event)
            self._consumers.take(event)
            self._policies.take(event)
            self._readers.take(event)

    def put(self, drafts: Drafts) -> None:
        """Draft the lines of everything but the queues."""
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
        for row in self._consumers.rows(self._is_folded):
            drafts.put(Kind.CONSUMER, row)
        for figure in of_metrics(self._metrics, self.health):
            drafts.put(Kind.METRIC, figure)

    def queues(self, journal: Journal) -> list[Fields]:
        """The lines of the queues. Raises as ``Journal.events``."""
        if self._is_folded and not self._queues.is_one_page:
            for event in journal.events(JournalPosition(None, self._begun), self.as_of):
                self._queues.take(event)
        rows = self._queues.rows()
        return [{**row, **self._readers.of(row), "policy": fit(self._policies.of(row["queue"]))} for row in rows]

    def _rest_of(self, letter: Fields) -> Fields:
        """The body and the attempts of a dead letter that no page had; nothing if it is gone."""
        answer = (
            self._queries.ask_optional("get_message", {"messageKey": letter["message"], "payloadAs": "value"}) or {}
        )
        message, attempts = answer.get("message") or {}, answer.get("failures") or []
        if "payload" not in message:
            return {}
        history = [
            fit(one) for one in attempts if one.get("failedAtMs", 0) <= letter["diedMs"]
        ]  # without later attempts
        return {**of_body(message, message.get("bytes"), self._redactor), "history": history or None}
