"""The daemon, through the public client: questions and actions, each bounded in time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_client import (
    AnswerLost,
    BadResponse,
    Client,
    DeadlineExpired,
    NoAnswer,
    PostroomError,
    RequestRejected,
    RequestWithdrawn,
    ServerError,
)

from ..i18n import tr, trn
from .text import clean
from .updates import Answer, Failure, Outcome, Result, Save, Step

#: Seconds until a question counts as unanswered. Questions are asked again and again.
QUESTION_S: Final = 1.5
#: Seconds until an action counts as unanswered.
ACTION_S: Final = 5.0
#: Pages that one question gathers.
_PAGES: Final = 4
#: What a page of each command says of how much it did.
_COUNTED: Final = ("reprocessed", "dropped", "purged", "moved")
#: The lists of answers that come by pages.
_LISTS: Final = {"list_queues": "queues", "list_inflight": "messages", "list_consumers": "consumers"}
#: Commands that are repeated until nothing is left.
_REPEATED: Final = frozenset({"reprocess_dlq", "drop_dlq", "purge", "move"})


class _Stopped(Exception):
    pass


class Link:
    """Asks and acts. ``make`` gives a client; ``is_ended`` says that nobody waits for the answer any more;
    ``pause`` waits for so many seconds, or until it is ended."""

    def __init__(
        self,
        make: Callable[[], Client],
        is_ended: Callable[[], bool],
        pause: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self._make = make
        self._is_ended = is_ended
        self._pause = pause
        self._client: Client | None = None

    def close(self) -> None:
        """Give back what the client holds."""
        if self._client:
            self._client.close()
            self._client = None

    def _used(self) -> Client:
        if self._client is None:
            self._client = self._make()
        return self._client

    # --- questions --------------------------------------------------------------------------------------------

    def ask(self, name: str, command: str, payload: Mapping[str, Any]) -> Answer | Failure:
        """One question; of a list the first pages together, its ``next`` then says that there is more."""
        try:
            data = self._ask(command, payload)
            listed = _LISTS.get(command)
            for _ in range(_PAGES - 1):
                if not listed or not data.get("next"):
                    break
                page = self._ask(command, {**payload, "after": data["next"]})
                data = {**page, listed: data[listed] + page[listed]}
            return Answer(name, data)
        except ServerError as error:
            return Failure(name, error.code, error.message)
        except PostroomError as error:
            return Failure(name, "", str(error))

    def _ask(self, command: str, payload: Mapping[str, Any], timeout: float = 0.0) -> dict[str, Any]:
        client, timeout = self._used(), timeout or QUESTION_S
        return client.send(client.prepare(command, dict(payload), timeout), timeout, give_up=self._is_ended)

    # --- actions ----------------------------------------------------------------------------------------------

    def act(
        self,
        ticket: int,
        steps: tuple[Step | Save, ...],
        rate: float | None = None,
        tell: Callable[[Outcome], None] = lambda outcome: None,
    ) -> Outcome:
        """Carry out all steps; the first that is refused ends it. What was done until then is counted.

        A request without an answer is sent again, the same one, until it is known what became of it; ``tell`` is
        called with an unknown outcome before.
        """
        return _Action(self, ticket, rate, tell).run(steps)

    def execute(self, command: str, payload: Mapping[str, Any], unsure: Callable[[], None]) -> dict[str, Any]:
        """One request of an action: its answer. ``unsure`` is called each time that none came.

        The daemon executes a request once, and repeats its answer: so to send it again is to ask what became of it.
        Once its time is over, one that was not executed is refused (``DeadlineExpired``).
        """
        client = self._used()
        request = client.prepare(command, dict(payload), ACTION_S)
        while True:
            try:
                return client.send(request, ACTION_S, give_up=self._is_ended)
            except (RequestRejected, RequestWithdrawn):
                raise
            except NoAnswer:
                if not request.sent:
                    raise
                unsure()
                self._pause(QUESTION_S)
                if self._is_ended():
                    raise

    def pages(self, command: str, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """All answers to a question that is answered by pages."""
        asked = dict(payload)
        while True:
            answer = self._ask(command, asked, ACTION_S)
            yield answer
            if not answer.get("next"):
                return
            self.go_on()
            asked["after"] = answer["next"]

    def go_on(self, after_s: float = 0.0) -> None:
        """Wait for so long. Raises ``_Stopped`` when it was ended."""
        if after_s:
            self._pause(after_s)
        if self._is_ended():
            raise _Stopped


class _Action:
    """What has been done of an action."""

    def __init__(self, link: Link, ticket: int, rate: float | None, tell: Callable[[Outcome], None]) -> None:
        self._link = link
        self._ticket = ticket
        self._rate = rate
        self._tell = tell
        self._count = 0
        self._pause_s = 0.0  # before the next request
        self._up_to = -1  # the event up to which messages were saved
        self._texts: list[str] = []

    def run(self, steps: tuple[Step | Save, ...]) -> Outcome:
        data: Mapping[str, Any] = {}
        try:
            for step in steps:
                if isinstance(step, Save):
                    self._save(step)
                else:
                    data = self._repeat(step)
        except _Stopped:
            return self._outcome(Result.STOPPED)
        except AnswerLost as error:
            return self._outcome(Result.UNKNOWN, error.code, error.message)
        except DeadlineExpired as error:
            return self._outcome(Result.REFUSED, error.code, tr("it was not carried out in time, and will not be"))
        except ServerError as error:
            return self._outcome(Result.REFUSED, error.code, error.message)
        except BadResponse as error:
            return self._outcome(Result.UNKNOWN, "", str(error))
        except RequestRejected as error:
            return self._outcome(Result.REFUSED, "", str(error))
        except NoAnswer as error:
            sent = error.request is not None and error.request.sent
            return self._outcome(Result.UNKNOWN if sent else Result.REFUSED, "", str(error))
        except OSError as error:
            return self._outcome(Result.REFUSED, "", f"{error.filename or ''}: {error.strerror}".removeprefix(": "))
        except PostroomError as error:
            return self._outcome(Result.REFUSED, "", str(error))
        return self._outcome(Result.OK, data=data)

    def _outcome(
        self, result: Result, code: str = "", text: str = "", data: Mapping[str, Any] | None = None
    ) -> Outcome:
        words = " ".join(filter(None, (text, *self._texts)))
        return Outcome(self._ticket, result, self._count, code, words, data or {})

    def _repeat(self, step: Step) -> Mapping[str, Any]:
        """A request, and the same for all further pages; its last answer."""
        payload = dict(step.payload)
        repeats = step.command in _REPEATED and "messageKey" not in payload
        if repeats and self._rate and "limit" in payload:
            payload["limit"] = max(1, min(int(payload["limit"]), int(self._rate)))  # about a page a second
        if step.command == "purge" and self._up_to >= 0:
            payload.setdefault("upToEvent", self._up_to)  # what was published after the saving is not removed
        while True:
            self._link.go_on(self._pause_s)
            try:
                data = self._link.execute(step.command, payload, self._unsure)
            except AnswerLost:
                if repeats:  # where to go on is lost with it
                    raise
                data = {}  # it was executed
            changed = _changed(data)
            self._count += changed
            self._pause_s = changed / self._rate if self._rate else 0.0
            after = data.get("next")
            if not repeats or not after:
                return data
            payload["after"] = after
            if "upToEvent" in data:
                payload["upToEvent"] = data["upToEvent"]

    def _unsure(self) -> None:
        words = tr("no answer yet: it is asked what became of it")
        self._tell(Outcome(self._ticket, Result.UNKNOWN, self._count, "", words, has_ended=False))

    def _save(self, save: Save) -> None:
        """Write a new file; if that fails, what stands in it is told."""
        fd = os.open(save.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        saved = 0
        is_whole = False
        try:
            with os.fdopen(fd, "wb") as file:
                for payload in save.payloads:
                    for answer in self._link.pages(save.command, payload):
                        if self._up_to < 0:
                            self._up_to = int(answer.get("asOfEvent") or 0)
                        for entry in answer[save.listed] if save.listed else [answer]:
                            file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
                            saved += 1
                file.flush()
                os.fsync(file.fileno())
            _sync_directory(save.path.parent)
            is_whole = True
        finally:
            words = (
                trn("{n} was saved to", "{n} were saved to", saved)
                if is_whole
                else trn("not all were saved, only {n}, to", "not all were saved, only {n}, to", saved)
            )
            self._texts.append(f"{words} {clean(str(save.path))}")


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _changed(data: Mapping[str, Any]) -> int:
    return next((int(data[name]) for name in _COUNTED if name in data), 1)
