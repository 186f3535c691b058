"""The order in which the methods of one connection take effect: that of their arrival, wherever it matters."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NamedTuple


class Scope(NamedTuple):
    """What a method reads or changes: one message, a whole queue, or everything (None). A message that does not exist
    yet is an object of its own."""

    queue: object = None
    message: object = None

    def meets(self, other: Scope) -> bool:
        """Whether the order of two methods can be noticed."""
        if self.queue is None or other.queue is None:
            return True
        if self.queue != other.queue:
            return False
        return self.message is None or other.message is None or self.message == other.message


class Turns:
    """The methods of a connection that have begun and not ended. A method waits for those before it whose scope meets
    its own; others are executed at the same time, so that one connection can have many callers."""

    def __init__(self) -> None:
        self._running: dict[Turn, None] = {}

    def take(self, scope: Scope) -> Turn:
        """A turn, behind all that were taken before. Enter it to wait until it has come."""
        before = [turn for turn in self._running if turn.scope.meets(scope)]
        turn = Turn(self._running, scope, before)
        self._running[turn] = None
        return turn


class Turn:
    """The turn of one method. It ends when it is left, or before that by ``end``."""

    __slots__ = ("_before", "_ended", "_running", "scope")

    def __init__(self, running: dict[Turn, None], scope: Scope, before: list[Turn]) -> None:
        self.scope = scope
        self._running = running
        self._before = before
        self._ended: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Turn:
        try:
            for turn in self._before:
                await turn.ended()
        except asyncio.CancelledError:
            self.end()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        self.end()

    async def ended(self) -> None:
        """Wait until the turn has ended."""
        if self in self._running:
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._ended)

    def end(self) -> None:
        """Let those behind it begin."""
        self._running.pop(self, None)
        self._before = []
        if self._ended and not self._ended.done():
            self._ended.set_result(None)
