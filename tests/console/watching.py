"""Watches a source of a running daemon, and fills a daemon for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom_client import Client
from postroom_console.data import link
from postroom_console.data.live import Live
from postroom_console.data.updates import Outcome, Update
from tests.wire.daemon import Daemon, receipt, wait_until


class Watch:
    """What has come from a source so far."""

    def __init__(self, source: Live) -> None:
        self.source = source
        self.updates: list[Update] = []

    def all(self) -> list[Update]:
        self.updates += [update for _, update in self.source.drain()]
        return self.updates

    def until(self, condition: Callable[[Update], Any], what: str) -> Update:
        """Wait for an update; it and everything before it are dropped."""

        def found() -> Update | None:
            return next((update for update in self.all() if condition(update)), None)

        update = wait_until(found, what)
        assert update
        del self.updates[: self.updates.index(update) + 1]
        return update

    def outcome(self, ticket: int) -> Outcome:
        update = self.until(
            lambda one: isinstance(one, Outcome) and one.ticket == ticket, f"action {ticket} is told of"
        )
        assert isinstance(update, Outcome)
        return update


@pytest.fixture
def source(daemon: Daemon) -> Iterator[Live]:
    """A started source, stopped in any case."""
    made = live_source(daemon, Client)
    made.start()
    yield made
    made.stop()


def live_source(daemon: Daemon, client: Callable[..., Client]) -> Live:
    make = lambda: client(str(daemon.ipc), client_id="console-1-1")  # noqa: E731
    return Live(make, daemon.root / "journal", daemon.root / "traffic")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts."""
    monkeypatch.setattr(link, "QUERY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(link, "ACTION_TIMEOUT_S", 0.3)


def dead_letters(daemon: Daemon, queue: str, count: int) -> list[str]:
    """Kill messages; returns their keys."""
    keys = [daemon.publish(queue, f"body {number}") for number in range(count)]
    for _ in keys:
        daemon.ask("nack", **receipt(daemon.consume(queue)), requeue=False)
    return keys


def is_alive() -> bool:
    return any(thread.name == "console" for thread in threading.enumerate())
