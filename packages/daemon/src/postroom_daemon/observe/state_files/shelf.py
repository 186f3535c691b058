"""The directory of the hourly state files: what is in it, and what of it has had its time."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line

from ...platform.files import Files, remove_all
from ..state import Head

log = logging.getLogger(__name__)

HOUR_MS: Final = 3600 * 1000
_FORM: Final = "%Y-%m-%d-%H.json"
_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}-\d{2}\.json")
#: What a daemon that was killed may leave here: a file that is being written, a directory that is gone at once.
_LEFT: Final = re.compile(rf"{_NAME.pattern}\.tmp|state-.*")
#: The first line is shorter: most of it are ranges of lost events.
_HEAD_BYTES: Final = 2**20


class Kept(NamedTuple):
    """A file, with the hour in its name (Unix ms) and its size."""

    name: str
    hour_ms: int
    size: int


def name_of(wall_ms: int) -> str:
    """The name of the file of an hour, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime(_FORM)


class Shelf:
    """The directory; other files in it are left alone. It is made when something is first written."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self.files = files

    def kept(self) -> list[Kept]:
        """The files, the oldest hour first. Raises ``OSError``."""
        try:
            names = sorted(name for name in self.files.listdir(self.root) if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []
        return [one for name in names if (one := self._look(name))]

    def _look(self, name: str) -> Kept | None:
        try:
            hour_ms = int(datetime.strptime(name, _FORM).replace(tzinfo=UTC).timestamp() * 1000)
            return Kept(name, hour_ms, self.files.stat(self.root / name, follow_symlinks=False).st_size)
        except (ValueError, FileNotFoundError):  # no such hour; or RACE: somebody has removed it
            return None

    def head_of(self, name: str) -> Head | None:
        """What a file says of itself; None where that is damaged. Raises ``OSError``."""
        with (self.root / name).open("rb") as file:
            try:
                return Head.from_json(decode_line(file.readline(_HEAD_BYTES)))
            except (DamagedRecord, KeyError) as error:
                log.warning("snapshots: %s: %r", name, error)
                return None

    def free_bytes(self) -> int:
        """What the file system has left for more. Raises ``OSError``."""
        figures = self.files.statvfs(self.root)
        return int(figures.f_bavail * figures.f_frsize)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The directory, made where it is missing, without what a killed daemon has left. Raises ``OSError``."""
        directory = self.files.open_directory(self.root)
        try:
            for name in self.files.listdir(directory):
                if _LEFT.fullmatch(name):
                    remove_all(self.root / name)
            yield directory
        finally:
            self.files.close(directory)

    def clear(self, wall_ms: int, retention_ms: int, max_files: int, max_bytes: int) -> None:
        """Remove the oldest files that are too many, or too large together; and of those that are older than
        ``retention_ms`` one: so a clock that is wrong for some hours takes no more than a few. The newest stays.

        Raises ``OSError``.
        """
        kept = self.kept()
        count, size = len(kept), sum(one.size for one in kept)
        for number, one in enumerate(kept[:-1]):
            old = number == 0 and wall_ms - one.hour_ms > retention_ms
            if not (old or count > max_files or size > max_bytes):
                break
            self.files.unlink(self.root / one.name)
            count -= 1
            size -= one.size
            log.info("snapshots: removed %s", self.root / one.name)
