"""How long a leader of a cluster waits for more requests: each of its groups takes a round trip to the others."""

from __future__ import annotations

from typing import Final

#: The longest wait (s), and as a part of the time that the last group took.
_LONGEST_S: Final = 0.01
_PART: Final = 0.5
#: If no request arrives within this time (s), no more are waited for.
_PAUSE_S: Final = 0.001


class FullerGroups:
    """Waits for the clients that were just answered: many send their next request at once. Without the wait, those that
    came during a group and those that it answers take turns, and each group has half of them."""

    def __init__(self) -> None:
        self._expected = 0
        self._until_s = 0.0

    def note_group(self, answered: int, pending: int, took_s: float, now_s: float) -> None:
        """A group of ``answered`` requests took ``took_s``; ``pending`` more arrived meanwhile."""
        self._expected = answered + pending
        self._until_s = now_s + min(_LONGEST_S, took_s * _PART)

    def wait_s(self, pending: int, now_s: float) -> float:
        """How long (s) to wait for one more request before a group of ``pending`` requests begins; 0: it begins now."""
        if not 0 < pending < self._expected:
            return 0.0
        return max(0.0, min(_PAUSE_S, self._until_s - now_s))
