"""The daemon, through the public client: questions and actions, each bounded in time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from postroom_client import Client, NoAnswer, PostroomError, ServerError

from .updates import Answer, Failure, Outcome, Result, Save, Step

#: Seconds until a question counts as unanswered. Questions are asked again and again.
QUESTION_S: Final = 1.5
#: Seconds until an action counts as unanswered.
ACTION_S: Final = 5.0
#: Entries that a page asks for.
PAGE: Final = 500
#: Pages that one question gathers.
_PAGES: Final = 4
#: What a page of each command says of how much it did.
_COUNTED: Final = ("reprocessed", "dropped", "purged", "moved")
#: The lists of answers that come by pages.
_LISTS: Final = {"list_queues": "queues", "list_inflight": "messages", "list_consumers": "consumers"}
#: Commands that are repeated until nothing is left.
_REPEATED: Final = frozenset({"reprocess_dlq", "drop_dlq", "purge", "move"})


class Link:
    """Asks and acts. ``make`` gives a client; ``is_ended`` says that nobody waits for the answer any more."""

    def __init__(self, make: Callable[[], Client], is_ended: Callable[[], bool]) -> None:
        self._make = make
        self._is_ended = is_ended
        self._client: Client | None = None

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def _send(self, command: str, payload: Mapping[str, Any], timeout: float, keep: bool = False) -> dict[str, Any]:
        if self._client is None:
            self._client = self._make()
        request = self._client.prepare(command, dict(payload), timeout)
        answer: dict[str, Any] = self._client.send(request, timeout, keep, give_up=self._is_ended)
        return answer

    def ask(self, name: str, command: str, payload: Mapping[str, Any]) -> Answer | Failure:
        """One question; of a list the first pages together, its ``next`` then says that there is more."""
        try:
            data = self._send(command, payload, QUESTION_S)
            listed = _LISTS.get(command)
            for _ in range(_PAGES - 1):
                if not listed or not data.get("next"):
                    break
                page = self._send(command, {**payload, "after": data["next"]}, QUESTION_S)
                data = {**page, listed: data[listed] + page[listed]}
            return Answer(name, data)
        except ServerError as error:
            return Failure(name, error.code, error.message)
        except PostroomError as error:
            return Failure(name, "", str(error))

    def act(self, ticket: int, steps: tuple[Step | Save, ...], rate: float | None) -> Outcome:
        """Carry out all steps; the first that is refused ends it. What was done until then is counted."""
        count = 0
        data: Mapping[str, Any] = {}
        try:
            for step in steps:
                if isinstance(step, Save):
                    self._save(step)
                    continue
                for data in self._pages(step, rate):
                    count += _changed(data)
        except ServerError as error:
            return Outcome(ticket, Result.REFUSED, count, error.code, error.message)
        except NoAnswer as error:
            return Outcome(ticket, Result.UNKNOWN, count, "", str(error))
        except (PostroomError, OSError) as error:
            return Outcome(ticket, Result.REFUSED, count, "", str(error))
        return Outcome(ticket, Result.OK, count, data=data)

    def _pages(self, step: Step, rate: float | None) -> Iterator[Mapping[str, Any]]:
        payload = dict(step.payload)
        while True:
            data = self._send(step.command, payload, ACTION_S)
            yield data
            after = data.get("next")
            if step.command not in _REPEATED or not after or self._is_ended():
                return
            if rate:
                time.sleep(_changed(data) / rate)
            payload["after"] = after
            if "upToEvent" in data:
                payload["upToEvent"] = data["upToEvent"]

    def _save(self, save: Save) -> None:
        fd = os.open(save.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            for payload in save.payloads:
                for answer in self._answers(save.command, payload):
                    for entry in answer[save.listed] if save.listed else [answer]:
                        file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())

    def _answers(self, command: str, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        asked = dict(payload)
        while True:
            answer = self._send(command, asked, ACTION_S)
            yield answer
            if not answer.get("next") or self._is_ended():
                return
            asked["after"] = answer["next"]


def _changed(data: Mapping[str, Any]) -> int:
    return next((int(data[name]) for name in _COUNTED if name in data), 1)
