"""Executes actions step by step: each request at most once, and nothing is removed that was not saved before."""

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
    NotLeader,
    PostroomError,
    RequestRejected,
    ServerError,
)

from ..i18n import tr, trn
from .link import Link, Stopped
from .text import clean
from .updates import Outcome, Result, Save, Step, Steps, Work

#: The fields in which an answer counts its messages.
_COUNT_FIELDS: Final = ("reprocessed", "dropped", "purged", "moved")
#: Commands that work in pages and are repeated until nothing is left.
_REPEATED: Final = frozenset({"reprocess_dlq", "drop_dlq", "purge", "move"})
#: Seconds between two progress reports of a long action.
REPORT_EVERY_S: Final = 1.0
#: Dead letters that had died this long before they were saved are removed by pages, younger ones by their keys. It
#: exceeds the time that a request may wait for its execution, because ages are computed then.
RECENT_MS: Final = 10_000


def execute_action(
    link: Link,
    ticket: int,
    steps: Steps,
    rate: float | None = None,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Execute all steps; a refusal ends the action. Messages processed until then are counted.

    A request without an answer is repeated until its result is known. ``report`` gets an unknown outcome meanwhile, and
    running ones during a long action.
    """
    return _Action(link, ticket, rate, report).run(steps)


class _Action:
    """The state of one action."""

    def __init__(self, link: Link, ticket: int, rate: float | None, report: Callable[[Outcome], None]) -> None:
        self._link = link
        self._ticket = ticket
        self._rate = rate
        self._report = report
        self._count = 0
        self._pause_s = 0.0  # before the next request
        self._up_to = -1  # the event up to which messages were saved
        self._saved_at = 0.0  # when the save began (monotonic)
        self._saved: set[str] | None = None  # the keys that may be removed, if only saved messages may be
        self._texts: list[str] = []
        self._reported_s = time.monotonic()

    def run(self, steps: Steps) -> Outcome:
        if any(isinstance(step, Step) and step.only_saved for step in steps):
            self._saved = set()
        try:
            data = self._run(steps)
        except (Stopped, PostroomError, OSError) as error:
            return self._outcome(*_result_of(error))
        return self._outcome(Result.OK, data=data)

    def _run(self, steps: Steps) -> Mapping[str, Any]:
        """Run all steps; returns the last answer."""
        data: Mapping[str, Any] = {}
        for step in steps:
            if isinstance(step, Save):
                self._save(step)
            elif isinstance(step, Work):
                self._count, words = step.run(*self._link.stop_hooks, self._report_progress)
                self._texts.append(words)
            elif step.only_saved:
                self._remove_saved(step)
            else:
                data = self._repeat(step)
        return data

    def _outcome(
        self, result: Result, code: str = "", text: str = "", data: Mapping[str, Any] | None = None
    ) -> Outcome:
        words = "; ".join(filter(None, (text, *self._texts)))
        return Outcome(self._ticket, result, self._count, code, words, data or {})

    def _repeat(self, step: Step) -> Mapping[str, Any]:
        """Send a request, and its further pages; returns the last answer."""
        payload = dict(step.payload)
        repeats = step.command in _REPEATED and "messageKey" not in payload
        if repeats and self._rate and "limit" in payload:
            payload["limit"] = max(1, min(int(payload["limit"]), int(self._rate)))  # about a page a second
        if step.command == "purge" and self._up_to >= 0:
            payload.setdefault("upToEvent", self._up_to)  # messages published after the save are not removed
        while True:
            self._link.check_stopped(self._pause_s)
            try:
                data = self._link.execute(step.command, payload, self._report_unsure)
            except AnswerLost:
                if repeats:  # the position of the next page is lost with the answer
                    raise
                data = {}  # it was executed
            processed = _processed(data)
            self._count += processed
            self._report_progress(self._count)
            self._pause_s = processed / self._rate if self._rate else 0.0
            after = data.get("next")
            if not repeats or not after:
                return data
            payload["after"] = after
            if "upToEvent" in data:
                payload["upToEvent"] = data["upToEvent"]

    def _remove_saved(self, step: Step) -> None:
        """Remove the dead letters that were saved, and none that died since: those may have been published long before
        the save."""
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
        self._link.check_stopped()
        try:
            self._repeat(Step("drop_dlq", {"messageKey": key}))
        except ServerError as error:
            if error.code != "ERR_DLQ_NOT_FOUND":  # otherwise someone has reprocessed it meanwhile
                raise

    def _report_progress(self, count: int, words: str = "") -> None:
        """Report the progress now and then."""
        if time.monotonic() - self._reported_s > REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            self._report(Outcome(self._ticket, Result.RUNNING, count, "", words, has_ended=False))

    def _report_unsure(self) -> None:
        words = tr("no answer yet: asking for the result")
        self._report(Outcome(self._ticket, Result.UNKNOWN, self._count, "", words, has_ended=False))

    def _save(self, save: Save) -> None:
        """Save messages to a new file. If it fails, the text says how many are in the file."""
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
                        self._report_progress(saved, tr("saved so far"))
                file.flush()
                os.fsync(file.fileno())
            _sync_directory(save.path.parent)
            is_whole = True
        finally:
            words = (
                trn("{n} saved to", "{n} saved to", saved)
                if is_whole
                else trn("only {n} saved to", "only {n} saved to", saved)
            )
            self._texts.append(f"{words} {clean(str(save.path))}")


def _result_of(error: Exception) -> tuple[Result, str, str]:
    """What an error means for an action: the result, the code and the text."""
    match error:
        case Stopped():
            return Result.STOPPED, "", ""
        case AnswerLost():
            return Result.UNKNOWN, error.code, error.message
        case DeadlineExpired():
            return Result.REFUSED, error.code, tr("it was not executed in time, and will not be")
        case NotLeader():
            address = str((error.data or {}).get("address") or "")
            return Result.REFUSED, error.code, f"{error.message}: {address}" if address else error.message
        case ServerError():
            return Result.REFUSED, error.code, error.message
        case BadResponse():
            return Result.UNKNOWN, "", str(error)
        case RequestRejected():
            return Result.REFUSED, "", str(error)
        case NoAnswer():
            was_sent = error.request is not None and error.request.sent
            return Result.UNKNOWN if was_sent else Result.REFUSED, "", str(error)
        case OSError():
            return Result.REFUSED, "", f"{error.filename or ''}: {error.strerror}".removeprefix(": ")
        case _:
            return Result.REFUSED, "", str(error)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _processed(data: Mapping[str, Any]) -> int:
    return next((int(data[name]) for name in _COUNT_FIELDS if name in data), 1)
