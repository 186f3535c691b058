"""How many refused requests of one account are logged: whoever is refused over and over must not fill a bounded log
and so push out what others did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Engine milliseconds over which the refusals of an account are counted.
WINDOW_MS: Final = 60_000
#: Accounts that are counted at a time.
ACCOUNTS_LIMIT: Final = 1024


@dataclass(slots=True)
class _Window:
    began: int
    logged: int = 0
    suppressed: int = 0


class Refusals:
    """Counts by account; ``per_minute`` of each are logged, 0 means all."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.suppressed = 0
        """Refusals of all accounts that were not logged."""
        self._windows: dict[str, _Window] = {}

    def admit(self, account: str, now: int) -> int | None:
        """An account was refused at ``now`` (engine ms). None if that is not to be logged, else how many of its
        refusals were suppressed since the last one that was."""
        window = self._windows.get(account)
        if window is None:
            self._forget_some(now)
            window = self._windows[account] = _Window(now)
        if now - window.began >= WINDOW_MS:
            window.began, window.logged = now, 0
        if self.per_minute and window.logged >= self.per_minute:
            window.suppressed += 1
            self.suppressed += 1
            return None
        window.logged += 1
        suppressed, window.suppressed = window.suppressed, 0
        return suppressed

    def _forget_some(self, now: int) -> None:
        if len(self._windows) >= ACCOUNTS_LIMIT:
            recent = {account: one for account, one in self._windows.items() if now - one.began < WINDOW_MS}
            self._windows = recent if len(recent) < ACCOUNTS_LIMIT else {}
