"""Checkpoints of the filesystem store: the event that all files durably hold, and the queues and facts as of then.

``meta/checkpoint-<event id>.json``, one line with a checksum. The last two are kept: if the newer one is damaged, the
journal is folded from the older one on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line

from ..files import READ_FLAGS, Files
from ..records import QueueRecord
from .base import StoreError
from .fs_content import FORMAT

KEPT: Final = 2
_NAME: Final = re.compile(r"checkpoint-([0-9]{20})\.json")


@dataclass(slots=True)
class Checkpoint:
    """What stands besides the message files, as of event ``applied``."""

    applied: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    queues: list[QueueRecord] = field(default_factory=list)


class Checkpoints:
    """The directory that holds them."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory

    def read(self) -> tuple[Checkpoint, list[Path]]:
        """The newest that is intact (an empty one if there is none), and those that are damaged.

        Raises ``OSError``, and ``StoreError`` for one of a newer format.
        """
        damaged: list[Path] = []
        for name in reversed(self._names()):
            path = self._directory / name
            try:
                return _decode(path.read_bytes(), path), damaged
            except (DamagedRecord, KeyError, TypeError):
                damaged.append(path)
        return Checkpoint(), damaged

    def write(self, checkpoint: Checkpoint) -> None:
        """Make one durable, and remove those before the last two. Raises ``OSError``."""
        line = encode_line(
            {
                "id": checkpoint.applied,
                "format": FORMAT,
                "facts": checkpoint.facts,
                "queues": [record.to_json() for record in checkpoint.queues],
            }
        )
        name = f"checkpoint-{checkpoint.applied:020d}.json"
        directory = self._files.open_directory(self._directory)
        try:
            self._files.put(directory, name, line)
            fd = self._files.open(name, READ_FLAGS, dir_fd=directory)
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)
            self._files.fsync(directory)
            for old in self._names()[:-KEPT]:
                self._files.unlink(old, dir_fd=directory)
        finally:
            self._files.close(directory)

    def _names(self) -> list[str]:
        try:
            found = self._files.listdir(self._directory)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if _NAME.fullmatch(name))


def _decode(line: bytes, path: Path) -> Checkpoint:
    data = decode_line(line)
    if data["format"] > FORMAT:
        raise StoreError(
            f"{path}: format {data['format']} is newer than this version of postroomd knows ({FORMAT}):"
            " upgrade postroomd"
        )
    return Checkpoint(data["id"], data["facts"], [QueueRecord.from_json(queue) for queue in data["queues"]])
