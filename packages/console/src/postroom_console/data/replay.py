"""A recording as a source of updates: played, paused, stepped through, and started from any moment."""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from ..i18n import tr, trn
from .model import TREND_POINTS
from .recording import LINE_BYTES, PREFIX, RecordingError, decode_header, decode_update, open_recording
from .text import age
from .times import date_and_time
from .updates import Restart, Steps, Update

SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
#: Bytes of updates that one drain returns; faster play slows down.
_LOOK_BYTES: Final = 4 * 1024 * 1024
#: Bytes of the tail that a jump restores.
_TAIL_BYTES: Final = 4 * 1024 * 1024
_LINES: Final = b"lines"
_FAILURE: Final = b"failure"


class _Index:
    """Where the updates of a recording are, with their times and kinds."""

    def __init__(self, file: BinaryIO) -> None:
        self.ms = array("q")
        self.begins = array("q")
        self.ends = array("q")
        self.kinds = array("l")
        self.names: list[bytes] = []
        self.damaged = 0
        numbers: dict[bytes, int] = {}
        end = file.tell()
        last_ms = 0
        while line := file.readline(LINE_BYTES):
            begin, end = end, end + len(line)
            found = PREFIX.match(line)
            if not found or not line.endswith(b"\n"):
                self.damaged += 1
                continue
            last_ms = max(last_ms, int(found[1]))
            name = b"answer:" + (found[3] or b"") if found[2] == b"answer" else found[2]
            if name not in numbers:
                numbers[name] = len(self.names)
                self.names.append(name)
            self.ms.append(last_ms)
            self.begins.append(begin)
            self.ends.append(end)
            self.kinds.append(numbers[name])

    def __len__(self) -> int:
        return len(self.ms)

    def size(self, number: int) -> int:
        return self.ends[number] - self.begins[number]

    def needed_at(self, end: int) -> list[int]:
        """The updates before ``end`` that restore the state there: the last answers, those that trends need, the end of
        the tail, and the last failure if no answer came since."""
        wanted = dict.fromkeys(range(len(self.names)), 1)
        for name, text in enumerate(self.names):
            if text == b"answer:queues":
                wanted[name] = TREND_POINTS + 1
        tail_bytes = _TAIL_BYTES
        found = []
        has_answer = False
        for number in range(end - 1, -1, -1):
            name = self.kinds[number]
            text = self.names[name]
            if text == _LINES:
                tail_bytes -= self.size(number)
                is_needed = tail_bytes >= 0
            else:
                is_needed = wanted[name] > 0 and not (text == _FAILURE and has_answer)
                wanted[name] -= 1
                has_answer = has_answer or text != _FAILURE
            if is_needed:
                found.append(number)
        return found[::-1]


class Replay:
    """Plays the recording at ``path``; see ``Source``. ``clock`` returns monotonic seconds. ``device`` and ``wall_ms``
    are the recording's own.

    The constructor raises ``RecordingError`` and ``OSError``.
    """

    is_live = False

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file = os.fdopen(open_recording(path), "rb")
        try:
            header = decode_header(self._file.readline(LINE_BYTES))
            self._index = _Index(self._file)
        except RecordingError as error:
            self._file.close()
            raise RecordingError(f"{path}: {error}") from None
        except OSError:
            self._file.close()
            raise
        self.device: str = header["device"]
        self.wall_ms: int = header["wallMs"]
        self.is_paused = False
        self.speed = 1.0
        self._next = 0  # the next update to be returned
        self._at_ms = 0.0
        self._looked_s = clock()
        self._jumped: list[int] | None = None

    @property
    def length_ms(self) -> int:
        """The length of the recording."""
        return self._index.ms[-1] if len(self._index) else 0

    @property
    def damaged(self) -> int:
        """The number of damaged lines."""
        return self._index.damaged

    def now_ms(self) -> int:
        """The current moment, in milliseconds since the start of the recording."""
        return round(self._at_ms)

    # --- as a source ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._looked_s = self._clock()

    def stop(self) -> None:
        self._file.close()

    def drain(self) -> list[tuple[int, Update]]:
        self._go_on()
        if self._jumped is not None:
            numbers, self._jumped = self._jumped, None
            return [(self.now_ms(), Restart()), *self._updates(numbers)]
        end = bisect_right(self._index.ms, self.now_ms(), self._next)
        begin, room = self._next, _LOOK_BYTES
        while self._next < end and room > 0:
            room -= self._index.size(self._next)
            self._next += 1
        if self._next < end:
            self._at_ms = float(self._index.ms[self._next - 1])
        return list(self._updates(range(begin, self._next)))

    def subscribe(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        """No effect: a recording has the queries of its time."""

    def unsubscribe(self, name: str) -> None:
        """No effect."""

    def refresh(self) -> None:
        """No effect."""

    def execute(self, steps: Steps, rate: float | None = None) -> int:
        """No effect: the past cannot be changed."""
        return 0

    def cancel(self, ticket: int) -> None:
        """No effect."""

    def status_text(self) -> str:
        now_ms = self.now_ms()
        words = [tr("REPLAY"), date_and_time(self.wall_ms + now_ms), f"{age(now_ms)}/{age(self.length_ms)}"]
        if self.speed != 1.0:
            words.append(f"x{self.speed:g}")
        if self._next >= len(self._index):
            words.append(tr("END"))
        elif self.is_paused:
            words.append(tr("PAUSED"))
        if self.damaged:
            words.append(trn("{n} damaged line", "{n} damaged lines", self.damaged))
        return " ".join(words)

    # --- for who looks ----------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause or continue."""
        self._go_on()
        self.is_paused = not self.is_paused

    def step(self) -> None:
        """Go to the next update and pause."""
        self._go_on()
        self.is_paused = True
        number = max(self._next, bisect_right(self._index.ms, self.now_ms()))
        if number < len(self._index):
            self._at_ms = float(self._index.ms[number])

    def seek(self, by_ms: int) -> None:
        """Jump forward, or backward if negative."""
        self._go_on()
        self._at_ms = float(max(0, min(self.length_ms, self.now_ms() + by_ms)))
        self._next = bisect_right(self._index.ms, self.now_ms())
        self._jumped = self._index.needed_at(self._next)

    def change_speed(self, step: int) -> None:
        """Play faster (1) or slower (-1)."""
        self._go_on()
        at = bisect_left(SPEEDS, self.speed) + step
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]

    def _go_on(self) -> None:
        now_s = self._clock()
        if not self.is_paused:
            self._at_ms = min(self._at_ms + (now_s - self._looked_s) * 1000 * self.speed, float(self.length_ms))
        self._looked_s = now_s

    def _updates(self, numbers: list[int] | range) -> Iterator[tuple[int, Update]]:
        for number in numbers:
            self._file.seek(self._index.begins[number])
            yield self._index.ms[number], decode_update(self._file.read(self._index.size(number)))
