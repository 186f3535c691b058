"""Questions to the daemon, with rests between them: it is to have nearly all of its time for its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from postroom_client import Client, NoAnswer, PostroomError, ServerError

from ..data.link import Stopped
from ..plain import Refused, Unreachable

#: Seconds until a question counts as unanswered.
QUESTION_S: Final = 20.0
#: A question is followed by a rest of so many times as long as its answer took, most of which is on its way; one for
#: many entries, most of which is the daemon's work, by a longer one. None is longer than these seconds.
REST: Final = 6
PAGE_REST: Final = 19
REST_S: Final = 2.0

Answer = dict[str, Any]


class Questions:
    """``pause`` waits for so many seconds or until the export is to end, which ``is_ended`` tells.

    Every method raises ``Unreachable``, ``Refused`` and ``Stopped``.
    """

    def __init__(self, client: Client, is_ended: Callable[[], bool], pause: Callable[[float], object]) -> None:
        self._client = client
        self._is_ended = is_ended
        self._pause = pause

    def ask(self, command: str, payload: Mapping[str, Any], rest: float = REST) -> Answer:
        """One question."""
        begun = time.monotonic()
        try:
            request = self._client.prepare(command, dict(payload), QUESTION_S)
            answer: Answer = self._client.send(request, QUESTION_S, give_up=self._is_ended)
        except ServerError as error:
            raise Refused(f"{command}: {error.code}: {error.message}") from error
        except PostroomError as error:
            self.go_on()
            raise (Unreachable if isinstance(error, NoAnswer) else Refused)(str(error)) from error
        if rest:
            self._pause(min((time.monotonic() - begun) * rest, REST_S))
        self.go_on()
        return answer

    def meet(self) -> Answer:
        """The answer to ``health``, the first question: it is not waited for where nobody is there."""
        if self._client.is_daemon_running() is False:
            raise Unreachable(f"no daemon serves {self._client.ipc_root}")
        return self.ask("health", {})

    def find(self, command: str, payload: Mapping[str, Any]) -> Answer | None:
        """As ``ask``; None where what is asked for is not there any more."""
        try:
            return self.ask(command, payload)
        except Refused as error:
            cause = error.__cause__
            if isinstance(cause, ServerError) and cause.code.endswith("_NOT_FOUND"):
                return None
            raise

    def pages(self, command: str, payload: Mapping[str, Any], rest: float = PAGE_REST) -> Iterator[Answer]:
        """All answers to a question that is answered by pages. Who changes ``payload`` meanwhile asks the next so."""
        after: Answer = {}
        while True:
            answer = self.ask(command, {**payload, **after}, rest)
            yield answer
            if not answer.get("next"):
                return
            after = {"after": answer["next"]}

    def go_on(self) -> None:
        """Raise ``Stopped`` when it was ended."""
        if self._is_ended():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait so long. Raises ``Stopped``."""
        self._pause(seconds)
        self.go_on()
