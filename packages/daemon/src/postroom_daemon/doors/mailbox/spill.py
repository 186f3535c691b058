"""``held/``: spilled requests, which are beyond their user's share and wait here for their turn.

::

    held/<user>/<batch>/<place>-<arrived>-<bytes>-<name>

Each user has a directory with its requests in the order of their arrival: batches by number, files in them by place. So
no directory is large, and only the names of one batch are in memory. A file is renamed into place, and its order and
arrival are in its name: after a crash everything goes on from what is there. Only the daemon may enter.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections import Counter, deque
from pathlib import Path
from typing import Final, NamedTuple

from ...platform.files import DIRECTORY_FLAGS, Files

log = logging.getLogger(__name__)

#: Files in one batch.
BATCH: Final = 1000
#: Bytes of a file's first name that remain: with its prefix, a name may have 255.
_NAME_BYTES: Final = 180
_DIR_NAME: Final = re.compile(r"\d+(\.over)?|unfit")
#: The directory of files that cannot be requests, whoever has put them there.
UNFIT: Final = "unfit"


def dir_of(uid: int, over: bool = False) -> str:
    """The name of a user's directory; with ``over``, of the one for requests beyond its quota."""
    return f"{uid}.over" if over else str(uid)


class Note(NamedTuple):
    """What the name of a spilled file contains: when it got its first name (``ctime_ns``), its bytes, and that name,
    which may be cut."""

    ctime_ns: int
    size: int
    name: str


def is_spilled(name: str) -> bool:
    """Whether a request's name is that of a spilled file."""
    return "/" in name


def note_of(name: str) -> Note | None:
    """The parts of a spilled file's name; None for a name that was not made here."""
    place, _, rest = name.rpartition("/")[2].partition("-")
    arrived, _, rest = rest.partition("-")
    size, _, first = rest.partition("-")
    if not (place.isdecimal() and arrived.isdecimal() and size.isdecimal() and first):
        return None
    return Note(int(arrived), int(size), first)


class SpillDir:
    """The spilled files of one user, oldest first. ``count`` and ``bytes`` do not include files that were taken."""

    def __init__(self, fd: int, name: str, files: Files) -> None:
        self.count = 0
        self.bytes = 0
        self._fd = fd
        self._name = name
        self._files = files
        self._unread: deque[int] = deque()  # batches, oldest first
        self._names: deque[str] = deque()  # the rest of the batch that is being read
        self._reading = self._writing = self._last = self._place = 0
        self._out: Counter[int] = Counter()  # by batch: files that were taken and still exist

    def load(self) -> None:
        """List what an earlier run has left. Raises ``OSError``."""
        numbers = sorted(int(name) for name in self._names_in(self._name) if name.isdecimal())
        for number in numbers:
            notes = self._listed(number)
            if not notes:
                self._remove(number)
                continue
            self._unread.append(number)
            self.count += len(notes)
            self.bytes += sum(note.size for _, note in notes)
        self._last = max(numbers, default=0)

    def add(self, directory: int, name: str, ctime_ns: int, size: int) -> None:
        """Move a file here from the directory of an fd. Raises ``OSError``."""
        if not self._writing or self._place >= BATCH:
            self._begin()
        first = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
        target = f"{self._batch(self._writing)}/{self._place:04d}-{max(0, ctime_ns):020d}-{size}-{first}"
        self._files.rename(name, target, src_dir_fd=directory, dst_dir_fd=self._fd)
        self._place += 1
        if self._writing == self._reading:
            self._names.append(target)
        self.count += 1
        self.bytes += size

    def first(self) -> str | None:
        """The name of the oldest file. Raises ``OSError``."""
        while not self._names:
            if not self._unread:
                self.count = self.bytes = 0  # also if somebody has removed some
                return None
            names = deque(name for name, _ in self._listed(self._unread[0]))
            done, self._reading, self._names = self._reading, self._unread.popleft(), names
            self._remove_if_done(done)
        return self._names[0]

    def take_first(self) -> None:
        """Take the oldest file; it stays here until it is ``gone``."""
        name = self._names.popleft()
        note = note_of(name)
        self.count -= 1
        self.bytes -= note.size if note else 0
        self._out[_number(name)] += 1

    def gone(self, name: str) -> None:
        """A file that was taken is no longer here."""
        number = _number(name)
        self._out[number] -= 1
        self._remove_if_done(number)

    def _begin(self) -> None:
        """Begin a new batch."""
        number = self._last + 1
        try:
            self._files.mkdir(self._batch(number), 0o700, dir_fd=self._fd)
        except FileNotFoundError:
            self._files.mkdir(self._name, 0o700, dir_fd=self._fd)
            self._files.mkdir(self._batch(number), 0o700, dir_fd=self._fd)
        before, self._last, self._writing, self._place = self._writing, number, number, 0
        self._unread.append(number)
        self._remove_if_done(before)

    def _listed(self, number: int) -> list[tuple[str, Note]]:
        """The files of a batch, oldest first. Other files are ignored."""
        directory = self._batch(number)
        notes = [(f"{directory}/{name}", note_of(name)) for name in sorted(self._names_in(directory))]
        return [(name, note) for name, note in notes if note]

    def _names_in(self, directory: str) -> list[str]:
        try:
            fd = self._files.open(directory, DIRECTORY_FLAGS, dir_fd=self._fd)
        except (FileNotFoundError, NotADirectoryError) as error:
            log.warning("held/%s: %s", directory, error)
            return []
        try:
            return list(self._files.listdir(fd))
        finally:
            self._files.close(fd)

    def _remove_if_done(self, number: int) -> None:
        """Remove a batch that was read, if all of its files are gone."""
        needed = number in (0, self._reading, self._writing) or number in self._unread
        if not needed and self._out[number] <= 0:
            del self._out[number]
            self._remove(number)

    def _remove(self, number: int) -> None:
        try:
            self._files.rmdir(self._batch(number), dir_fd=self._fd)
        except OSError as error:
            log.warning("held/%s is left: %s", self._batch(number), error)

    def _batch(self, number: int) -> str:
        return f"{self._name}/{number:010d}"


def _number(name: str) -> int:
    return int(name.split("/")[1])


class Spill:
    """The directory ``held/``, open. Raises ``OSError``."""

    def __init__(self, path: Path, files: Files) -> None:
        self.fd = files.open_directory(path, 0o700)
        self._files = files
        self.dirs: dict[str, SpillDir] = {}
        """By name."""
        try:
            if stat.S_IMODE(files.fstat(self.fd).st_mode) != 0o700:
                os.fchmod(self.fd, 0o700)  # whoever made it
            for name in files.listdir(self.fd):
                if _DIR_NAME.fullmatch(name):
                    self.directory(name).load()
        except OSError:
            files.close(self.fd)
            raise

    @property
    def count(self) -> int:
        """Spilled files that were not taken."""
        return sum(directory.count for directory in self.dirs.values())

    def directory(self, name: str) -> SpillDir:
        """The directory of a name, which is made when a file is added."""
        spilled = self.dirs.get(name)
        if spilled is None:
            spilled = self.dirs[name] = SpillDir(self.fd, name, self._files)
        return spilled

    def gone(self, name: str) -> None:
        """A spilled file that was taken is no longer here."""
        self.dirs[name.partition("/")[0]].gone(name)
