"""Queries the daemon, with pauses in between: the daemon should have nearly all of its time for its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from postroom_client import Client, NoAnswer, PostroomError, ServerError

from ..data.link import Refused, Stopped, Unreachable

#: Seconds until a query counts as unanswered.
QUERY_TIMEOUT_S: Final = 20.0
#: The pause after a query, in multiples of the time to its answer, most of which is transit. After a page of many
#: entries, most of which is the daemon's work, it is longer. The last value limits it, in seconds.
REST: Final = 6
PAGE_REST: Final = 19
REST_S: Final = 2.0

Answer = dict[str, Any]


class Queries:
    """``pause`` waits for seconds or until the export is stopped, which ``is_stopped`` reports.

    Every method raises ``Unreachable``, ``Refused`` and ``Stopped``.
    """

    def __init__(self, client: Client, is_stopped: Callable[[], bool], pause: Callable[[float], object]) -> None:
        self._client = client
        self._is_ended = is_stopped
        self._pause = pause

    def ask(self, command: str, payload: Mapping[str, Any], rest: float = REST) -> Answer:
        """The answer to a query."""
        begun = time.monotonic()
        try:
            request = self._client.prepare(command, dict(payload), QUERY_TIMEOUT_S)
            answer: Answer = self._client.send(request, QUERY_TIMEOUT_S, give_up=self._is_ended)
        except ServerError as error:
            raise Refused(f"{command}: {error.code}: {error.message}") from error
        except PostroomError as error:
            self.check_stopped()
            raise (Unreachable if isinstance(error, NoAnswer) else Refused)(str(error)) from error
        if rest:
            self._pause(min((time.monotonic() - begun) * rest, REST_S))
        self.check_stopped()
        return answer

    def ask_health(self) -> Answer:
        """The answer to ``health``, the first query. Raises ``Unreachable`` at once if no daemon serves the mailbox."""
        if self._client.is_daemon_running() is False:
            raise Unreachable(f"no daemon serves {self._client.ipc_root}")
        return self.ask("health", {})

    def ask_optional(self, command: str, payload: Mapping[str, Any]) -> Answer | None:
        """The answer to a query; None if what it asks for does not exist any more."""
        try:
            return self.ask(command, payload)
        except Refused as error:
            cause = error.__cause__
            if isinstance(cause, ServerError) and cause.code.endswith("_NOT_FOUND"):
                return None
            raise

    def pages(self, command: str, payload: Mapping[str, Any], rest: float = PAGE_REST) -> Iterator[Answer]:
        """All pages of an answer. Changes of ``payload`` in between apply to the next page."""
        after: Answer = {}
        while True:
            answer = self.ask(command, {**payload, **after}, rest)
            yield answer
            if not answer.get("next"):
                return
            after = {"after": answer["next"]}

    def check_stopped(self) -> None:
        """Raise ``Stopped`` if the export was stopped."""
        if self._is_ended():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait for so long. Raises ``Stopped``."""
        self._pause(seconds)
        self.check_stopped()
