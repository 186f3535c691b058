"""The files of a backup and its manifest. docs/backup.md describes the fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, Self

from postroom_common.errors import DamagedRecord, PostroomError
from postroom_common.events import Event, decode_line, encode_line

from ...observe.state import Head

BACKUP_FORMAT: Final = 1

MANIFEST_NAME: Final = "manifest.json"
STATE_NAME: Final = "state.jsonl"
#: A copy of the root's configuration file, for people: a restore does not use it.
CONFIG_NAME: Final = "config.json"
#: The directory of the events that led to the state.
JOURNAL_NAME: Final = "journal"
#: In a tar, all files are below a directory of this name.
TAR_FOLDER: Final = "postroom-backup"


#: Names of the manifest's fields in the file, where they differ.
_NAMES: Final = {
    "event_wall_ms": "eventWallMs",
    "event_crc": "eventCrc",
    "engine_ms": "engineMs",
    "wall_ms": "wallMs",
    "node": "nodeId",
    "bodies_lost": "bodiesLost",
}


class BackupError(PostroomError):
    """A backup cannot be made or used; the text says why, and where."""


class FileFacts(NamedTuple):
    """Length and SHA-256 (hex) of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which root a backup was made of, when, and its files.

    ``event`` is the last event that the state reflects, ``event_wall_ms`` its time. ``event_crc`` is its checksum, by
    which a journal that continues this backup is recognised; empty if the root no longer had that event.
    """

    root: str
    epoch: int
    event: int
    event_wall_ms: int
    event_crc: str
    engine_ms: int
    wall_ms: int
    backend: str
    node: str
    queues: int
    messages: int
    bodies_lost: int
    versions: dict[str, str]
    files: dict[str, FileFacts]

    @classmethod
    def of_state(
        cls,
        head: Head,
        queues: int,
        messages: int,
        bodies_lost: int,
        event: Event | None = None,
        node: str = "",
        versions: dict[str, str] | None = None,
        files: dict[str, FileFacts] | None = None,
    ) -> Self:
        """The manifest of a state. ``event`` is its last event, if the journal still has it."""
        event = event or {}
        return cls(
            head.root,
            head.epoch,
            head.event,
            event.get("wallMs", head.wall_ms),
            event.get("crc", ""),
            head.engine_ms,
            head.wall_ms,
            head.backend,
            node,
            queues,
            messages,
            bodies_lost,
            versions or {},
            files or {},
        )

    def encode(self) -> bytes:
        """The manifest as one line with a checksum."""
        values = {_NAMES.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        values["files"] = {name: {"bytes": facts.size, "sha256": facts.sha256} for name, facts in self.files.items()}
        return encode_line({"format": BACKUP_FORMAT, **values})

    @classmethod
    def decode(cls, data: bytes, name: str) -> Self:
        """Read what ``encode`` made; ``name`` is for error texts. Raises ``BackupError``."""
        try:
            line: dict[str, Any] = decode_line(data)
        except DamagedRecord as error:
            raise BackupError(f"{name} is damaged: {error}") from None
        if line["format"] > BACKUP_FORMAT:
            raise BackupError(f"{name} has format {line['format']}, which is newer than this postroomd: upgrade it")
        values = {one.name: line[_NAMES.get(one.name, one.name)] for one in fields(cls)}
        values["files"] = {name: FileFacts(facts["bytes"], facts["sha256"]) for name, facts in line["files"].items()}
        return cls(**values)
