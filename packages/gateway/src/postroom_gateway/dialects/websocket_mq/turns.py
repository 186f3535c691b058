"""The order in which the methods of one connection take effect: that of their arrival, wherever it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import NamedTuple


class Scope(NamedTuple):
    """What a method reads or changes: one message, a whole queue, or everything (None). A message that does not exist
    yet is an object of its own."""

    queue: object = None
    message: object = None


class _Line:
    """The turns of one queue that have not ended: the last one for the whole queue, and the last one behind it for each
    message. Those before them need not be known, because these wait for them."""

    __slots__ = ("messages", "whole")

    def __init__(self) -> None:
        self.whole: Turn | None = None
        self.messages: dict[object, Turn] = {}

    def last(self) -> list[Turn]:
        """The turns that end last."""
        return [*self.messages.values()] or ([self.whole] if self.whole else [])


class Turns:
    """The methods of a connection that have begun and not ended. A method waits for those before it whose scope meets
    its own; others are executed at the same time, so that one connection can have many callers."""

    def __init__(self) -> None:
        self._everything: Turn | None = None
        self._lines: dict[object, _Line] = {}

    def take(self, scope: Scope) -> Turn:
        """A turn, behind all that were taken before. Enter it to wait until it has come."""
        if scope.queue is None:
            before = [turn for line in self._lines.values() for turn in line.last()]
            turn = self._everything = Turn(self, scope, before or self._behind(self._everything))
            self._lines.clear()
            return turn
        line = self._lines.get(scope.queue)
        if line is None:
            line = self._lines[scope.queue] = _Line()
        if scope.message is None:
            turn = Turn(self, scope, line.last() or self._behind(self._everything))
            line.whole = turn
            line.messages.clear()
        else:
            last = line.messages.get(scope.message) or line.whole or self._everything
            turn = line.messages[scope.message] = Turn(self, scope, [last] if last else [])
        return turn

    @staticmethod
    def _behind(turn: Turn | None) -> list[Turn]:
        return [turn] if turn else []

    def forget(self, turn: Turn) -> None:
        """A turn has ended."""
        if turn is self._everything:
            self._everything = None
        line = self._lines.get(turn.scope.queue)
        if line is None:
            return
        if turn is line.whole:
            line.whole = None
        elif line.messages.get(turn.scope.message) is turn:
            del line.messages[turn.scope.message]
        if not line.whole and not line.messages:
            del self._lines[turn.scope.queue]


class Turn:
    """The turn of one method. It ends when it is left, or before that by ``end``."""

    __slots__ = ("_behind", "_has_ended", "_missing", "_then", "_turns", "scope")

    def __init__(self, turns: Turns, scope: Scope, before: list[Turn]) -> None:
        self.scope = scope
        self._turns = turns
        #: How many turns before it have not ended, and those that wait for this one.
        self._missing = len(before)
        self._behind: list[Turn] = []
        self._then: Callable[[], object] | None = None
        self._has_ended = False
        for turn in before:
            turn._behind.append(self)

    def when_come(self, then: Callable[[], object]) -> None:
        """Call ``then`` once the turn has come, which may be at once."""
        if self._missing:
            self._then = then
        else:
            then()

    async def __aenter__(self) -> Turn:
        if self._missing:
            come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._then = partial(_set, come)
            try:
                await come
            except asyncio.CancelledError:
                self.end()
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Let those behind it begin, soon."""
        if self._has_ended:
            return
        self._has_ended = True
        self._turns.forget(self)
        for turn in self._behind:
            turn._missing -= 1
            if turn._then and not turn._missing:
                asyncio.get_running_loop().call_soon(turn._then)
        self._behind = []


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
