"""How many refused requests of a user are told of: one who is refused again and again must not fill a log that is
bounded, and so push out what others did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Engine milliseconds over which the refusals of a user are counted.
WINDOW_MS: Final = 60_000
#: Users that are counted at a time.
USERS_LIMIT: Final = 1024


@dataclass(slots=True)
class _Window:
    began: int
    told: int = 0
    held_back: int = 0


class Refusals:
    """Counts by user; ``per_minute`` of each are told, 0: all."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.held_back = 0
        """Refusals that were not told, of all users."""
        self._windows: dict[int, _Window] = {}

    def admit(self, uid: int, now: int) -> int | None:
        """A user was refused: None when that is not told, else how many of his were not since the last one that was."""
        window = self._windows.get(uid)
        if window is None:
            self._make_room(now)
            window = self._windows[uid] = _Window(now)
        if now - window.began >= WINDOW_MS:
            window.began, window.told = now, 0
        if self.per_minute and window.told >= self.per_minute:
            window.held_back += 1
            self.held_back += 1
            return None
        window.told += 1
        held_back, window.held_back = window.held_back, 0
        return held_back

    def _make_room(self, now: int) -> None:
        if len(self._windows) >= USERS_LIMIT:
            kept = {uid: one for uid, one in self._windows.items() if now - one.began < WINDOW_MS}
            self._windows = kept if len(kept) < USERS_LIMIT else {}
