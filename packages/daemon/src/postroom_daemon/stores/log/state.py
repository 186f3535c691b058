"""What the files of logs do not say by themselves, as of a checkpoint: ``logs/state.json``, one line with a
checksum."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line

from ...platform.files import Files
from ..errors import StoreError
from .segments import Segment

STATE_NAME: Final = "state.json"
_FORMAT: Final = 1


@dataclass(slots=True)
class LogState:
    """A log: its name, the lowest position that is not trimmed, the last position that it ever had, its segments."""

    name: str
    before: int = 0
    last: int = 0
    segments: list[Segment] = field(default_factory=list)

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(segment.records - segment.trimmed_records for segment in self.segments)

    @property
    def bytes(self) -> int:
        """Their bytes on disk."""
        return sum(segment.size - segment.trimmed_bytes for segment in self.segments)


@dataclass(slots=True)
class LogsState:
    """All logs as of event ``applied``; ``deleted`` are those whose files are to go."""

    applied: int = 0
    logs: dict[int, LogState] = field(default_factory=dict)
    deleted: list[int] = field(default_factory=list)

    def encode(self) -> bytes:
        """As the file has it."""
        logs = {
            str(number): [one.name, one.before, one.last, [segment.to_json() for segment in one.segments]]
            for number, one in self.logs.items()
        }
        return encode_line({"format": _FORMAT, "applied": self.applied, "logs": logs, "deleted": self.deleted})

    @classmethod
    def read(cls, root: Path) -> LogsState | None:
        """The state in a directory; None if there is none. Raises ``DamagedRecord``, ``StoreError`` for one of a newer
        version, ``OSError``."""
        path = root / STATE_NAME
        try:
            data = decode_line(path.read_bytes())
        except FileNotFoundError:
            return None
        if data.get("format") != _FORMAT:
            raise StoreError(f"{path} was written by a newer version of postroomd: upgrade it")
        try:
            return cls(
                data["applied"], {int(number): _log(one) for number, one in data["logs"].items()}, data["deleted"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedRecord(f"{path}: {error!r}") from error

    def write(self, root: Path, files: Files) -> None:
        """Put it into a directory, durably. Raises ``OSError``."""
        directory = files.open_directory(root)
        try:
            files.put(directory, STATE_NAME, self.encode(), durable=True)
        finally:
            files.close(directory)


def _log(data: list[Any]) -> LogState:
    name, before, last, segments = data
    return LogState(name, before, last, [Segment.from_json(one) for one in segments])
