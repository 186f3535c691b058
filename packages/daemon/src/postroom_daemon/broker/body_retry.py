"""Messages whose bodies the disk did not return. It may do so the next time: such a message stays where it is and is
tried again, but not for ever, since nothing behind it in its queue is delivered meanwhile."""

from __future__ import annotations

from typing import Final

#: A message is given up after so many failed reads in a row,
READS: Final = 5
#: over so many milliseconds of engine time.
READS_MS: Final = 5000
#: Messages that are remembered; the oldest one is forgotten first.
_KEYS_LIMIT: Final = 1000


class BodyRetry:
    """The failed reads by message. A restart forgets them."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[int, int]] = {}  # how many, and when the first was

    def note_failure(self, key: str, now: int) -> bool:
        """A read failed at ``now`` (engine ms). Whether the message is to be given up; it is then forgotten, so that a
        message that is brought back starts from nothing."""
        reads, since = self._failed.pop(key, (0, now))
        reads += 1
        if reads >= READS and now - since >= READS_MS:
            return True
        if len(self._failed) >= _KEYS_LIMIT:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = (reads, since)
        return False

    def forget(self, key: str) -> None:
        """The body of a message was read."""
        self._failed.pop(key, None)
