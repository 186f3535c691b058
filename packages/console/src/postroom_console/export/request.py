"""What an export is asked for: the options, parsed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from .redaction import Redaction

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN: Final = re.compile(r"(\d{1,9})([smhd])")
_SIZE: Final = re.compile(r"(\d{1,12})([kMG]?)B?")
_SIZES: Final = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3}
#: The least size limit: a snapshot always has its state and some events.
SIZE_LEAST: Final = 10_000
#: A hundred years. Clocks and timers fail beyond it.
SPAN_MOST_S: Final = 36_500 * 86_400


class Since(NamedTuple):
    """Where the events begin: behind the last snapshot of the folder, at an event, or at a time (Unix milliseconds).
    ``text`` is the option as it was given."""

    text: str
    event: int | None = None
    wall_ms: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether the events continue behind the last snapshot."""
        return self.event is None and self.wall_ms is None


LAST: Final = Since("last")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """One export. An empty ``device`` means the daemon's own name, or its cluster's; ``max_bytes`` None: no limit."""

    folder: Path
    device: str = ""
    since: Since = LAST
    redaction: Redaction = Redaction.PAYLOAD
    hidden: tuple[str, ...] = ()
    max_bytes: int | None = None


def read_since(text: str) -> Since:
    """Parse ``last``, an event id, a time in ISO 8601, or a span such as ``2h`` before now. Raises ``ValueError``."""
    if text == LAST.text:
        return LAST
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Since(text, event=int(text))
    if _SPAN.fullmatch(text):
        return Since(text, wall_ms=time.time_ns() // 1_000_000 - read_span(text) * 1000)
    try:
        return Since(text, wall_ms=int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not an event id, a time such as 2026-11-28T10:15, a span such as 2h, or last"
        ) from None


def read_span(text: str) -> int:
    """Parse a span such as ``90s``, ``30m``, ``1h`` or ``7d`` to seconds. Raises ``ValueError``."""
    match = _SPAN.fullmatch(text)
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 0 < seconds <= SPAN_MOST_S:
        raise ValueError(f"{text!r} is not a span such as 90s, 30m, 1h or 7d (at most 36500d)")
    return seconds


def read_text(text: str) -> str:
    """Check that a text is valid UTF-8. Raises ``ValueError``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not valid UTF-8") from None
    return text


def read_size(text: str) -> int:
    """Parse a size such as ``500k``, ``64M`` or ``2G`` to bytes, in units of 1,000. Raises ``ValueError``."""
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _SIZES[match[2]] if match else 0
    if size < SIZE_LEAST:
        raise ValueError(f"{text!r} is not a size such as 500k, 64M or 2G (at least 10k)")
    return size
