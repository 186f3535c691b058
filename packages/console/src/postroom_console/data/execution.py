"""Actions carried out, step by step: each request once, what is removed saved before, and how it ended in words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_client import (
    AnswerLost,
    BadResponse,
    DeadlineExpired,
    NoAnswer,
    PostroomError,
    RequestRejected,
    ServerError,
)

from ..i18n import tr, trn
from .link import Link, Stopped
from .text import clean
from .updates import Outcome, Result, Save, Step, Steps, Work

#: What a page of each command says of how much it did.
_COUNTED: Final = ("reprocessed", "dropped", "purged", "moved")
#: Commands that are repeated until nothing is left.
_REPEATED: Final = frozenset({"reprocess_dlq", "drop_dlq", "purge", "move"})
#: How often an action that takes long tells how far it has come.
TELL_EVERY_S: Final = 1.0
#: Letters that had died so long before they were saved are removed by pages, later ones each by its key. More than a
#: request may wait for its execution: an age is taken when it is executed.
RECENT_MS: Final = 10_000


def carry_out(
    link: Link,
    ticket: int,
    steps: Steps,
    rate: float | None = None,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Carry out all steps; the first that is refused ends it. What was done until then is counted.

    A request without an answer is sent again, the same one, until it is known what became of it; ``tell`` is called
    with an unknown outcome before, and with a running one while it takes long.
    """
    return _Action(link, ticket, rate, tell).run(steps)


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
        self._saved_at = 0.0  # when that began, of a clock that only goes forward
        self._saved: set[str] | None = None  # the keys of what may be removed, where that depends on it
        self._texts: list[str] = []
        self._told_s = time.monotonic()

    def run(self, steps: Steps) -> Outcome:
        data: Mapping[str, Any] = {}
        if any(isinstance(step, Step) and step.only_saved for step in steps):
            self._saved = set()
        try:
            for step in steps:
                if isinstance(step, Save):
                    self._save(step)
                elif isinstance(step, Work):
                    self._count, words = step.run(*self._link.ends, self._come_on)
                    self._texts.append(words)
                elif step.only_saved:
                    self._remove_saved(step)
                else:
                    data = self._repeat(step)
        except Stopped:
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
            self._come_on(self._count)
            self._pause_s = changed / self._rate if self._rate else 0.0
            after = data.get("next")
            if not repeats or not after:
                return data
            payload["after"] = after
            if "upToEvent" in data:
                payload["upToEvent"] = data["upToEvent"]

    def _remove_saved(self, step: Step) -> None:
        """Remove the dead letters that were saved, and none that has died since: it may have been published long before
        they were saved."""
        saved = self._saved or set()
        since_ms = int((time.monotonic() - self._saved_at) * 1000)
        old = {"olderThanMs": since_ms + RECENT_MS}
        self._repeat(replace(step, payload={**step.payload, "filter": old}))
        question = {"queue": step.payload["queue"], "limit": 1000, "previewBytes": 0}
        for answer in self._link.pages("list_dlq", question):
            for letter in answer["messages"]:
                if letter["messageKey"] in saved and not letter.get("quarantined"):
                    self._drop(str(letter["messageKey"]))

    def _drop(self, key: str) -> None:
        self._link.go_on()
        try:
            self._repeat(Step("drop_dlq", {"messageKey": key}))
        except ServerError as error:
            if error.code != "ERR_DLQ_NOT_FOUND":  # else somebody has brought it back meanwhile
                raise

    def _come_on(self, count: int, words: str = "") -> None:
        """Tell now and then how far it has come."""
        if time.monotonic() - self._told_s > TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(Outcome(self._ticket, Result.RUNNING, count, "", words, has_ended=False))

    def _unsure(self) -> None:
        words = tr("no answer yet: it is asked what became of it")
        self._tell(Outcome(self._ticket, Result.UNKNOWN, self._count, "", words, has_ended=False))

    def _save(self, save: Save) -> None:
        """Write a new file; if that fails, what stands in it is told."""
        fd = os.open(save.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        saved = 0
        is_whole = False
        self._saved_at = time.monotonic()
        try:
            with os.fdopen(fd, "wb") as file:
                for payload in save.payloads:
                    for answer in self._link.pages(save.command, payload):
                        if self._up_to < 0:
                            self._up_to = int(answer.get("asOfEvent") or 0)
                        for entry in answer[save.listed] if save.listed else [answer]:
                            if self._saved is not None:
                                self._saved.add(str(entry["messageKey"]))
                            file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
                            saved += 1
                        self._come_on(saved, tr("saved so far"))
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
