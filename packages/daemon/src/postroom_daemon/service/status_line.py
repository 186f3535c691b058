"""One line for `systemctl status`: how many messages there are in which state, and how fast they pass."""

from __future__ import annotations

from typing import Final

from postroom_common.protocol import State

from ..platform.notify import notify
from ..root.open_root import OpenRoot

#: Seconds between two lines, at the least.
EVERY_S: Final = 10.0


class StatusLine:
    """Says how an open root is doing, when that has changed."""

    def __init__(self, root: OpenRoot) -> None:
        self._root = root
        self._next_s = 0.0
        self._said = ""

    def tick(self, now_s: float) -> None:
        """To be called every second or so."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        line = self.text()
        if line != self._said:
            self._said = line
            notify(f"STATUS={line}")

    def text(self) -> str:
        """The line."""
        counts = self._root.broker.depths()
        depth = ", ".join(f"{counts[state]:,} {state}" for state in State if counts.get(state)) or "no messages"
        rates = self._root.vitals.rates(self._root.clock.now())
        return f"serving: {depth}; in a second: {', '.join(f'{rate:g} {name}' for name, rate in rates.items())}"
