"""The files of a backup and its manifest. docs/backup.md describes the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from postroom_common.errors import DamagedRecord, PostroomError
from postroom_common.events import decode_line, encode_line

BACKUP_FORMAT: Final = 1

MANIFEST_NAME: Final = "manifest.json"
STATE_NAME: Final = "state.jsonl"
#: A copy of the root's configuration file, for people: a restore does not use it.
CONFIG_NAME: Final = "config.json"
#: The directory of the events that led to the state.
JOURNAL_NAME: Final = "journal"
#: In a tar, all files are below a directory of this name.
TAR_FOLDER: Final = "postroom-backup"


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

    def encode(self) -> bytes:
        """The manifest as one line with a checksum."""
        return encode_line(
            {
                "format": BACKUP_FORMAT,
                "root": self.root,
                "epoch": self.epoch,
                "event": self.event,
                "eventWallMs": self.event_wall_ms,
                "eventCrc": self.event_crc,
                "engineMs": self.engine_ms,
                "wallMs": self.wall_ms,
                "backend": self.backend,
                "nodeId": self.node,
                "queues": self.queues,
                "messages": self.messages,
                "bodiesLost": self.bodies_lost,
                "versions": self.versions,
                "files": {name: {"bytes": facts.size, "sha256": facts.sha256} for name, facts in self.files.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes, name: str) -> Self:
        """Read what ``encode`` made; ``name`` is for error texts. Raises ``BackupError``."""
        try:
            fields: dict[str, Any] = decode_line(data)
        except DamagedRecord as error:
            raise BackupError(f"{name} is damaged: {error}") from None
        if fields["format"] > BACKUP_FORMAT:
            raise BackupError(f"{name} has format {fields['format']}, which is newer than this postroomd: upgrade it")
        return cls(
            root=fields["root"],
            epoch=fields["epoch"],
            event=fields["event"],
            event_wall_ms=fields["eventWallMs"],
            event_crc=fields["eventCrc"],
            engine_ms=fields["engineMs"],
            wall_ms=fields["wallMs"],
            backend=fields["backend"],
            node=fields["nodeId"],
            queues=fields["queues"],
            messages=fields["messages"],
            bodies_lost=fields["bodiesLost"],
            versions=fields["versions"],
            files={name: FileFacts(facts["bytes"], facts["sha256"]) for name, facts in fields["files"].items()},
        )
