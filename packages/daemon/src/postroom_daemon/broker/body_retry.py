"""Messages whose bodies the disk did not give. It may do so the next time: such a message stays where it is and is
looked at again, but not for ever, since nothing behind it in its queue is delivered meanwhile."""

from __future__ import annotations

from typing import Final

#: A message is given up that was looked at in vain so often in a row,
LOOKS: Final = 5
#: over so many milliseconds of engine time.
LOOKS_MS: Final = 5000
#: Messages that are remembered; the one that was first is forgotten first.
_KEYS_LIMIT: Final = 1000


class Unread:
    """The looks in vain, by message. They are not kept over a start of the daemon."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[int, int]] = {}  # how many, and when the first was

    def note(self, key: str, now: int) -> bool:
        """A look in vain, at the engine time ``now`` (ms). Whether the message is to be given up; it is then forgotten,
        so that one that is brought back is looked at anew."""
        looks, since = self._looks.pop(key, (0, now))
        looks += 1
        if looks >= LOOKS and now - since >= LOOKS_MS:
            return True
        if len(self._looks) >= _KEYS_LIMIT:
            del self._looks[next(iter(self._looks))]
        self._looks[key] = (looks, since)
        return False

    def forget(self, key: str) -> None:
        """The body of a message was read."""
        self._looks.pop(key, None)
