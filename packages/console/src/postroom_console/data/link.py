"""The daemon through the public client: queries and actions, each with a timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from postroom_client import Client, NoAnswer, PostroomError, RequestRejected, RequestWithdrawn, ServerError

from .updates import Answer, Failure

#: Seconds until a query counts as unanswered. Queries are repeated.
QUERY_TIMEOUT_S: Final = 1.5
#: Seconds until a request of an action counts as unanswered.
ACTION_TIMEOUT_S: Final = 5.0
#: Answers with pages: the field of the list, and the pages that one query collects.
_LISTS: Final = {"list_queues": ("queues", 10), "list_inflight": ("messages", 4), "list_consumers": ("consumers", 4)}


class Unreachable(Exception):
    """No daemon answers; the text says why."""


class Refused(Exception):
    """The daemon refused a request; the text says why."""


class Stopped(Exception):
    """The action or the export was stopped."""


class Link:
    """Queries the daemon and executes requests. ``is_stopped`` returns whether nobody waits for the answer any more;
    ``pause`` waits for seconds or until then."""

    def __init__(
        self,
        make_client: Callable[[], Client],
        is_stopped: Callable[[], bool],
        pause: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self._make_client = make_client
        self._is_ended = is_stopped
        self._pause = pause
        self._client: Client | None = None

    @property
    def stop_hooks(self) -> tuple[Callable[[], bool], Callable[[float], object]]:
        """``is_stopped`` and ``pause``."""
        return self._is_ended, self._pause

    def close(self) -> None:
        """Close the client."""
        if self._client:
            self._client.close()
            self._client = None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._make_client()
        return self._client

    # --- queries --------------------------------------------------------------------------------------------

    def ask(self, name: str, command: str, payload: Mapping[str, Any]) -> Answer | Failure:
        """The answer to a query. Of a list it has the first pages, and ``next`` if there are more."""
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
        client, timeout = self._connected(), timeout or QUERY_TIMEOUT_S
        return client.send(client.prepare(command, dict(payload), timeout), timeout, give_up=self._is_ended)

    # --- parts of actions ------------------------------------------------------------------------------------------

    def execute(self, command: str, payload: Mapping[str, Any], report_unsure: Callable[[], None]) -> dict[str, Any]:
        """Send a request of an action and return its answer. ``report_unsure`` is called each time none has come.

        The daemon executes a request once and repeats its answer, so that sending it again asks for its result. A
        request that was not executed within its time is refused (``DeadlineExpired``).
        """
        client = self._connected()
        request = client.prepare(command, dict(payload), ACTION_TIMEOUT_S)
        while True:
            try:
                return client.send(request, ACTION_TIMEOUT_S, give_up=self._is_ended)
            except (RequestRejected, RequestWithdrawn):
                raise
            except NoAnswer:
                if not request.sent:
                    raise
                report_unsure()
                self._pause(QUERY_TIMEOUT_S)
                if self._is_ended():
                    raise

    def pages(self, command: str, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """All pages of an answer."""
        asked = dict(payload)
        while True:
            answer = self._ask(command, asked, ACTION_TIMEOUT_S)
            yield answer
            if not answer.get("next"):
                return
            self.check_stopped()
            asked["after"] = answer["next"]

    def check_stopped(self, after_s: float = 0.0) -> None:
        """Wait for so long. Raises ``Stopped`` if the action was stopped."""
        if after_s:
            self._pause(after_s)
        if self._is_ended():
            raise Stopped
