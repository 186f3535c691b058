"""What imports from other systems have in common: a refusal, the times of messages, and rows that cannot be used."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from postroom_common.errors import PostroomError

from ..config.config import Config
from ..platform.clock import Clock, Now
from ..platform.quarantine import Quarantine
from ..stores.backends import layout_of

#: Longest age of a message (ms); a clock that was never set says more.
_LONGEST_AGE_MS: Final = 366 * 24 * 3600 * 1000
#: Size from which on rows that are set aside go to another file (bytes).
_FILE_BYTES: Final = 1024 * 1024


class ImportRefused(PostroomError):
    """The data cannot be imported, and nothing was changed; the text says why and what to do."""


def check_backend(config: Config) -> None:
    """Raise ``ImportRefused`` if the backend of a root stores nothing."""
    if not layout_of(config.settings).is_persistent:
        raise ImportRefused("backend memory stores nothing: choose another one by --backend")


@contextmanager
def copied_database(path: Path, workspace: Path) -> Iterator[Path]:
    """A copy of an SQLite database with the log or journal that a killed program has left beside it: to open it is to
    change it. Raises ``OSError``."""
    with TemporaryDirectory(prefix="postroom-import-", dir=workspace) as directory:
        copy = Path(directory) / path.name
        for suffix in ("", "-wal", "-journal"):
            source = path.with_name(path.name + suffix)
            if suffix == "" or source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        yield copy


# --- times ------------------------------------------------------------------------------------------------------------


def begin_time(clock: Clock, oldest: int | None) -> None:
    """Let engine time begin early enough for every message to keep its age; ``oldest`` is when the oldest was published
    (Unix ms), None if there is none."""
    wall = clock.now().wall
    clock.resume(None, Now(clamped(wall - (wall if oldest is None else oldest), _LONGEST_AGE_MS), wall))


def at_wall(now: Now, wall: int) -> dict[str, int]:
    """The engine and wall time of an event at a wall time."""
    return {"engineMs": now.engine - clamped(now.wall - wall, min(now.engine, _LONGEST_AGE_MS)), "wallMs": wall}


def clamped(value: int, high: int) -> int:
    """A value, or the next one from 0 to ``high``."""
    return min(max(value, 0), high)


# --- what cannot be used ----------------------------------------------------------------------------------------------


class Unusable(Exception):
    """Why a row or file cannot be used."""


@dataclass(frozen=True, slots=True)
class UnusableRow:
    """A row or file that cannot be used: why, and its content as JSON bytes. ``is_message``: a message is lost by it,
    unless it is repaired."""

    reason: str
    row: bytes
    is_message: bool = True


def text_of(value: Any, name: str) -> str:
    """A text. Raises ``Unusable``."""
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    if type(value) is str:
        return value
    raise Unusable(f"{name} is no text")


def shown_row(names: Iterable[Any], row: Iterable[Any]) -> bytes:
    """A row as JSON; bytes that are not UTF-8 in hex."""
    shown: dict[str, Any] = {}
    for name, value in zip(names, row, strict=True):
        if type(value) is bytes:
            try:
                shown[name] = value.decode()
            except UnicodeDecodeError:
                shown[name] = {"hex": value.hex()}
        else:
            shown[name] = value
    return json.dumps(shown, ensure_ascii=True).encode()


def set_aside(unusable: Sequence[UnusableRow], quarantine: Quarantine, name: str, system: str) -> None:
    """Put rows into quarantine, each with the reason. Raises ``OSError``."""
    lines, size = [], 0
    for row in unusable:
        lines.append(b'{"reason":%b,"row":%b}\n' % (orjson.dumps(row.reason), row.row))
        size += len(lines[-1])
        if size > _FILE_BYTES or row is unusable[-1]:
            quarantine.add(f"{name}.rows", b"".join(lines), f"data of {system} that cannot be used")
            lines, size = [], 0


class Taken:
    """What an import has made of another system's data so far: ``counts`` has the numbers of what was taken by name,
    those of messages by their old state, and ``unusable`` the rows from which nothing could be made."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.unusable: list[UnusableRow] = []

    def check_losses(self, source: Path, accept_loss: bool, advice: str) -> None:
        """Raise ``ImportRefused`` if most messages would be lost; ``advice`` says what to do about it."""
        lost = [row for row in self.unusable if row.is_message]
        messages = sum(count for name, count in self.counts.items() if name.startswith("messages "))
        if not self.counts and self.unusable:
            what = f"none of its {len(self.unusable)} rows can be used (the first: {self.unusable[0].reason})"
        elif len(lost) > messages and not accept_loss:
            total = messages + len(lost)
            what = f"{len(lost)} of {total} messages cannot be used (the first: {lost[0].reason})"
        else:
            return
        rest = ", or import the rest with --accept-loss" if self.counts else ""
        raise ImportRefused(f"{source}: {what}: nothing was imported or changed{advice}{rest}")
