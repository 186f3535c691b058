"""One line for `systemctl status`: how many messages there are in which state, and how fast they pass."""

from __future__ import annotations

from typing import Final

from postroom_common.notify import notify
from postroom_common.protocol import State

from ..root.open_root import OpenRoot

#: The least number of seconds between two lines.
EVERY_S: Final = 10.0


class StatusLine:
    """Reports the state of an open root to the service manager when it has changed."""

    def __init__(self, root: OpenRoot) -> None:
        self._root = root
        self._next_s = 0.0
        self._latest = ""

    def tick(self, now_s: float) -> None:
        """Report, if it is time. Call this about once a second."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        line = self.text()
        if line != self._latest:
            self._latest = line
            notify(f"STATUS={line}")

    def text(self) -> str:
        """The line."""
        counts = self._root.broker.depths()
        depth = ", ".join(f"{counts[state]:,} {state}" for state in State if counts.get(state)) or "no messages"
        rates = self._root.vitals.rates(self._root.clock.now())
        return f"serving: {depth}; per second: {', '.join(f'{rate:g} {name}' for name, rate in rates.items())}"
