"""The directories of the filesystem store: ``<queue>/<folder>/[<shard>/]<file>``, and every file call that it makes.

Only one descriptor stays open, the root's; all paths are relative to it. A folder keeps up to ``FOLDER_LIMIT`` files
itself, further ones go to numbered directories in it. A *place* is a file's path inside its queue's directory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...platform.files import DIRECTORY_FLAGS, LOST_ERRNOS, READ_FLAGS, Files, retry_after_eio
from ..directory_lock import lock_directory
from .names import READY, TEMPORARY_SUFFIX

FOLDER_LIMIT: Final = 10_000
#: Bytes of a file that are read at once; most have no more.
FIRST_READ: Final = 16384
_SHARD_DIGITS: Final = 5
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Tree:
    """``folders`` names the folder of each letter. Every call may raise ``OSError``."""

    def __init__(self, files: Files, root: Path, folders: Mapping[str, str]) -> None:
        self.root = root
        self._files = files
        self._folders = dict(folders)
        self._fd = -1
        self._known: set[str] = set()  # directories that exist
        self._filled: dict[str, dict[str, int]] = {}  # by folder: files in each shard, "" the folder itself

    def open(self, make: bool = True) -> None:
        """Open the root, for this process alone. ``make`` it if it is missing. Raises ``StoreBusy``."""
        self._fd = self._files.open_directory(self.root) if make else self._files.open(self.root, DIRECTORY_FLAGS)
        lock_directory(self._files, self._fd, self.root)
        self._known.clear()
        self._filled.clear()

    def close(self) -> None:
        """Let go of the root."""
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = -1

    def probe(self) -> None:
        """Check that the root is still the directory of its name, and that it can be read."""
        named, held = self._files.stat(self.root), self._files.fstat(self._fd)
        if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            raise OSError(f"{self.root} was replaced")
        self._files.listdir(self.root)

    def check(self) -> None:
        """See that the disk takes a sync of the root. Where all of it is gone, no single file is unreadable."""
        self._files.fsync(self._fd)

    def sync(self) -> None:
        """Make everything durable that was done so far. May run in a thread, at the same time as other calls."""
        self._files.syncfs(self._fd)

    def unlink(self, directory: str, place: str) -> None:
        """Remove a file that nothing else needs; one that is gone already is no error. May run in a thread, as
        ``sync``: what was removed is to be counted by ``forget``."""
        try:
            self._files.unlink(f"{directory}/{place}", dir_fd=self._fd)
        except FileNotFoundError:
            pass

    # --- looking ----------------------------------------------------------------------------------------------

    def inside(self, directory: str = ".") -> list[tuple[str, bool]]:
        """What lies in a directory, in order, and whether each is a directory; by default in the root."""
        prefix = "" if directory == "." else f"{directory}/"
        return [(name, self._is_directory(prefix + name)) for name in sorted(self._list(directory))]

    def is_folder(self, name: str) -> bool:
        """Whether a queue's directory has a folder of this name."""
        return name in self._folders.values()

    def names(self, directory: str, letter: str) -> Iterator[tuple[int, str, list[str] | None]]:
        """The names in the folder of a letter, in order: of each shard, then of the folder itself, with the shard's
        number (0: none) and the place that precedes them. They are taken for message files, until ``forget``
        says otherwise. None for what is no directory, or so damaged that it cannot be listed."""
        folder = self._folders[letter]
        path = f"{directory}/{folder}"
        try:
            found = self._list(path)
        except FileNotFoundError:
            return
        except OSError as error:
            _raise_unless_lost(error)
            yield 0, f"{folder}/", None
            return
        shards = {name for name in found if _is_shard(name) and self._is_directory(f"{path}/{name}")}
        own = sorted(name for name in found if name not in shards)
        filled = self._filled[path] = {"": len(own)}
        for name in filter(_is_shard, own):
            filled[name] = FOLDER_LIMIT  # something else has the name of a shard: nothing goes there
        self._known.update((directory, path))
        for shard in sorted(shards):
            filled[shard] = FOLDER_LIMIT
            try:
                inside = sorted(self._list(f"{path}/{shard}"))
            except OSError as error:
                _raise_unless_lost(error)
                yield int(shard), f"{folder}/{shard}/", None
                continue
            filled[shard] = len(inside)
            self._known.add(f"{path}/{shard}")
            yield int(shard), f"{folder}/{shard}/", inside
        yield 0, f"{folder}/", own

    def _list(self, path: str) -> list[str]:
        return retry_after_eio(lambda: self._list_once(path))

    def _list_once(self, path: str) -> list[str]:
        fd = self._files.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            names: list[str] = self._files.listdir(fd)
        finally:
            self._files.close(fd)
        return names

    def _is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(self._files.stat(path, dir_fd=self._fd, follow_symlinks=False).st_mode)

    def read(self, directory: str, place: str) -> bytes:
        """All of a file."""
        return retry_after_eio(lambda: self._read_once(f"{directory}/{place}"))

    def _read_once(self, path: str) -> bytes:
        try:
            fd = self._files.open(path, READ_FLAGS, dir_fd=self._fd)
        except PermissionError as error:
            # A directory that must not be searched is the machine's fault; a file that must not be read is the file's.
            self._files.stat(path, dir_fd=self._fd, follow_symlinks=False)
            raise OSError(errno.EIO, f"must not be read: {error.strerror}") from error
        try:
            data: bytes = self._files.read(fd, FIRST_READ)
            if len(data) == FIRST_READ:
                chunks = [data]
                while chunk := self._files.read(fd, FIRST_READ * 16):
                    chunks.append(chunk)
                data = b"".join(chunks)
        finally:
            self._files.close(fd)
        return data

    def letter_of(self, place: str) -> str | None:
        """The letter of the folder that a place lies in."""
        folder = place.partition("/")[0]
        return next((letter for letter, name in self._folders.items() if name == folder), None)

    def path(self, directory: str, place: str) -> Path:
        """The full path of a file, to be shown or moved by others."""
        return self.root / directory / place

    # --- changing ---------------------------------------------------------------------------------------------

    def create(self, directory: str, letter: str, name: str, data: bytes) -> str:
        """Write a new file, which may be incomplete after a crash: the journal has its message. Returns its place."""
        place = self._choose(directory, letter, name)
        self._write(f"{directory}/{place}", data)
        self._count(directory, place, 1)
        return place

    def replace(self, old: str, place: str, directory: str, letter: str, name: str, data: bytes) -> str:
        """Rewrite a file, which lies in the directory ``old``, under a new name in ``directory``: complete before the
        name exists, the old one removed last. Returns its place."""
        target = self._choose(directory, letter, name)
        temporary = f"{directory}/{target}{TEMPORARY_SUFFIX}"
        self._write(temporary, data)
        self._files.rename(temporary, f"{directory}/{target}", src_dir_fd=self._fd, dst_dir_fd=self._fd)
        if (directory, target) != (old, place):
            self._count(directory, target, 1)
            self.remove(old, place)
        return target

    def append(self, directory: str, place: str, data: bytes, durable: bool = False) -> None:
        """Add lines to a file. They begin with a line's end: what an earlier call has written in part ends there."""
        fd = self._files.open(f"{directory}/{place}", _APPEND_FLAGS, dir_fd=self._fd)
        try:
            self._files.write_all(fd, b"\n" + data)
            if durable:
                self._files.fsync(fd)
        finally:
            self._files.close(fd)

    def rename(self, old: str, place: str, directory: str, letter: str, name: str) -> str:
        """Give a file, which lies in the directory ``old``, a new name in ``directory``, in the folder of ``letter``.
        Its place."""
        folder = place.rpartition("/")[0]
        stays = old == directory and folder.partition("/")[0] == self._folders[letter]
        target = f"{folder}/{name}" if stays else self._choose(directory, letter, name)
        if (directory, target) != (old, place):
            self._files.rename(f"{old}/{place}", f"{directory}/{target}", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            self._count(old, place, -1)
            self._count(directory, target, 1)
        return target

    def move(self, directory: str, place: str, to: str, letter: str) -> bool:
        """Give a file to another queue's directory, under its name. False, and nothing, if there is such a file."""
        target = self._choose(to, letter, place.rpartition("/")[2])
        try:
            self._files.stat(f"{to}/{target}", dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            self._files.rename(f"{directory}/{place}", f"{to}/{target}", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            return True
        return False

    def remove(self, directory: str, place: str) -> None:
        """Remove a file; one that is gone already is no error."""
        self.unlink(directory, place)
        self._count(directory, place, -1)

    def remove_directory(self, name: str) -> bool:
        """Remove the directory of a queue that has no files any more. False if something is left in it."""
        for path in [path for path in self._filled if path.startswith(f"{name}/")]:
            for shard in [shard for shard in self._filled[path] if shard]:
                self._remove_empty(f"{path}/{shard}")
            self._remove_empty(path)
            del self._filled[path]
        for folder in self._folders.values():
            self._remove_empty(f"{name}/{folder}")
        self._known = {path for path in self._known if path != name and not path.startswith(f"{name}/")}
        return self._remove_empty(name)

    def _remove_empty(self, path: str) -> bool:
        try:
            self._files.rmdir(path, dir_fd=self._fd)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def rename_directory(self, name: str, target: str) -> None:
        """Give a queue's directory another name; before anything in it was listed."""
        self._files.rename(name, target, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def forget(self, directory: str, place: str) -> None:
        """A name that was listed is no message file, or was taken away by others."""
        self._count(directory, place, -1)

    def tidy(self) -> None:
        """Remove the shards that have become empty."""
        for path, filled in self._filled.items():
            for shard in [name for name, count in filled.items() if name and count <= 0]:
                try:
                    self._files.rmdir(f"{path}/{shard}", dir_fd=self._fd)
                except OSError:  # something that is not ours lies there
                    continue
                del filled[shard]
                self._known.discard(f"{path}/{shard}")

    def _write(self, path: str, data: bytes) -> None:
        fd = self._files.open(path, _WRITE_FLAGS, 0o600, dir_fd=self._fd)
        try:
            self._files.write_all(fd, data)
        except OSError:
            with suppress(OSError):  # the next attempt may write to another name
                self._files.unlink(path, dir_fd=self._fd)
            raise
        finally:
            self._files.close(fd)

    def _choose(self, directory: str, letter: str, name: str) -> str:
        """Where a file with this name goes: its directory is made if it is missing."""
        folder = self._folders[letter]
        path = f"{directory}/{folder}"
        filled = self._filled.setdefault(path, {})
        if filled.get("", 0) < FOLDER_LIMIT:
            self._make(directory, path)
            return f"{folder}/{name}"
        shard = max(filled)
        if not shard or filled[shard] >= FOLDER_LIMIT:
            shard = f"{int(shard or '0') + 1:0{_SHARD_DIGITS}d}"
        self._make(directory, path, f"{path}/{shard}")
        return f"{folder}/{shard}/{name}"

    def _make(self, directory: str, *paths: str) -> None:
        if paths[-1] in self._known:
            return
        ready = f"{directory}/{self._folders[READY]}"  # a hand may move something there
        for path in (directory, ready, *paths):
            try:
                self._files.mkdir(path, 0o700, dir_fd=self._fd)
            except FileExistsError:
                pass
            self._known.add(path)

    def _count(self, directory: str, place: str, change: int) -> None:
        folder, _, rest = place.partition("/")
        shard = rest.partition("/")[0] if "/" in rest else ""
        filled: dict[str, Any] = self._filled.setdefault(f"{directory}/{folder}", {})
        filled[shard] = filled.get(shard, 0) + change


def _raise_unless_lost(error: OSError) -> None:
    if error.errno not in LOST_ERRNOS:
        raise error


def _is_shard(name: str) -> bool:
    return len(name) >= _SHARD_DIGITS and name.isascii() and name.isdigit()
