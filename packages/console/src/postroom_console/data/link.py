"""The daemon, through the public client: questions and actions, each bounded in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from postroom_client import Client, NoAnswer, PostroomError, RequestRejected, RequestWithdrawn, ServerError

from .updates import Answer, Failure

#: Seconds until a question counts as unanswered. Questions are asked again and again.
QUESTION_S: Final = 1.5
#: Seconds until an action counts as unanswered.
ACTION_S: Final = 5.0
#: The lists of answers that come by pages, and how many pages one question gathers.
_LISTS: Final = {"list_queues": ("queues", 10), "list_inflight": ("messages", 4), "list_consumers": ("consumers", 4)}


class Stopped(Exception):
    """Somebody has ended it."""


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

    @property
    def ends(self) -> tuple[Callable[[], bool], Callable[[float], object]]:
        """What says that it is ended, and what waits for so many seconds or until then."""
        return self._is_ended, self._pause

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
            listed, pages = _LISTS.get(command, ("", 1))
            for _ in range(pages - 1):
                if not data.get("next"):
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

    # --- parts of actions ------------------------------------------------------------------------------------------

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
        """Wait for so long. Raises ``Stopped`` when it was ended."""
        if after_s:
            self._pause(after_s)
        if self._is_ended():
            raise Stopped
