"""Messages in files: an entry and its body as a file's name and content, each change of them as one file operation.

This module deals with files only; what an open transaction has changed is in ``store``.
"""

from __future__ import annotations

import errno
import logging
from typing import Any, Final

from postroom_common.protocol import State

from ...model.records import Entry
from ...platform.files import DISK_ERRNOS, LOST_ERRNOS
from ...platform.quarantine import Quarantine
from ..errors import BodyLost, BodyUnread
from . import content as fs_content
from .names import (
    DONE,
    HIGHEST_PRIORITY,
    LETTERS,
    FileName,
    done_name,
    id_of,
    queue_directory,
    queue_of_directory,
    queue_of_key,
    read_entry,
    read_name,
    write_name,
)
from .places import Places
from .tree import Tree

log = logging.getLogger(__name__)

#: Characters of a name in quarantine, which adds to it.
ASIDE_LIMIT: Final = 200
#: Errors of writing to what is no file of ours: a directory, a link, a pipe, another user's, nothing at all.
_NO_FILE_ERRNOS: Final = LOST_ERRNOS | {errno.EACCES, errno.EPERM}


_Facts = tuple[int, dict[str, Any]]  # the line inside a file, by its event, and what it holds


class MessageFiles:
    """``durable`` is the event up to which the checkpoint that was written last, or is being written, knows messages;
    ``done`` the files of messages that have ended since. Calls may raise ``OSError``."""

    def __init__(self, tree: Tree, places: Places, quarantine: Quarantine, meta: str) -> None:
        self.durable = 0
        self.done: list[tuple[str, str]] = []
        self.directories: dict[str, str] = {}
        self.queues_by_key: dict[str, str] = {}  # queues of the messages whose key does not contain it
        self._tree = tree
        self._places = places
        self._quarantine = quarantine
        self._meta = meta
        self._read = ("", b"")  # the file that was read last: its message and content
        self._unread = ""  # why the disk has not given it
        self._envelope: tuple[bytes, bytes | None] = (b"", None)  # the content that was checked last, and its message
        self._parts: tuple[bytes, dict[int, bytes]] = (b"", {})  # the content whose parts were read last, and these
        self._names: dict[str, tuple[str, FileName]] = {}  # by message, with the place that contains it
        self._inside: dict[str, _Facts] = {}

    def end(self) -> None:
        """Forget what was read: the transaction is over."""
        self._read = ("", b"")
        self._envelope = (b"", None)
        self._parts = (b"", {})
        self._names.clear()
        self._inside.clear()

    # --- reading ----------------------------------------------------------------------------------------------

    def neighbours(self, key: str) -> list[Entry]:
        """The entries of a message that is plainly ready and of some that are likely to be delivered with it; without
        its own if it is another one, or has no file."""
        messages, queue = self._places.neighbours(key), queue_of_key(key)
        return [
            Entry(one, queue, State.READY, HIGHEST_PRIORITY - order, seq, wall, created, size=size)
            for one, order, seq, wall, created, size in messages
        ]

    def entry(self, key: str) -> Entry:
        """The entry of a message that has a file, as read from it."""
        name = self._name(key, self._places[key])
        entry = read_entry(name, key, self.queue_of(key), self._facts(key, name)[1])
        entry.queue = self.queue_of(key)  # whatever the file says: it lies where it is
        return entry

    def _name(self, key: str, place: str) -> FileName:
        """The name of a message's file, taken apart once in a transaction."""
        known = self._names.get(key)
        if known and known[0] == place:
            return known[1]
        name = read_name(place.rpartition("/")[2])
        assert name is not None  # it was read at the start, or written by us
        self._names[key] = (place, name)
        return name

    def history(self, key: str) -> list[Any] | None:
        """The failed attempts that a message's file contains."""
        place = self._places.get(key)
        history: list[Any] | None = self._facts(key, self._name(key, place))[1].get("history") if place else None
        return history

    def parts(self, key: str) -> dict[int, bytes]:
        """The parts in a message's file that were appended to its body, as they are stored, by their numbers."""
        if key not in self._places:
            return {}
        content = self.content(key)
        if self._parts[0] is not content:
            self._parts = (content, fs_content.parts_of(content))
        return self._parts[1]

    def _facts(self, key: str, name: FileName) -> _Facts:
        """What the line inside a file holds, read once in a transaction."""
        if not name.inside:
            return 0, {}
        inside = self._inside.get(key)
        if inside is None:
            content = self.content(key)
            line, facts = fs_content.facts_of(content, name.inside)
            inside = self._inside[key] = (line, fs_content.facts_for_name(name, content, line, facts))
        return inside

    def envelope(self, key: str) -> bytes:
        """The body of a message that has a file. Raises ``BodyLost`` and ``BodyUnread``."""
        envelope = self._checked(key)
        if envelope is None and self._unread:
            self._tree.check()
            raise BodyUnread(key, f"{self.path(key)}: {self._unread}")
        if envelope is None:
            raise BodyLost(key, f"{self.path(key)} is missing, damaged or another message's")
        return envelope

    def _checked(self, key: str) -> bytes | None:
        """The message in the content of its file, which is checked once in a transaction; None when it is not there."""
        content = self.content(key)
        if self._envelope[0] is not content:
            self._envelope = (content, fs_content.envelope_of(content, key))
        return self._envelope[1]

    def content(self, key: str) -> bytes:
        """What a message's file holds; nothing when it cannot be read."""
        if self._read[0] != key:
            directory, place = self.directory_of(key), self._places[key]
            self._unread = ""
            try:
                self._read = (key, self._tree.read(directory, place))
            except OSError as error:
                if error.errno not in LOST_ERRNOS:
                    raise
                log.error("%s: %s", self._tree.path(directory, place), error.strerror)
                self._read = (key, b"")
                if error.errno in DISK_ERRNOS:
                    self._unread = error.strerror or str(error)
        return self._read[1]

    def path(self, key: str) -> str:
        """Where a message's file is, to be shown."""
        return str(self._tree.path(self.directory_of(key), self._places[key]))

    # --- writing ----------------------------------------------------------------------------------------------

    def write(
        self, entry: Entry, event: int, history: list[Any] | None, body: bytes | None, parts: dict[int, bytes]
    ) -> None:
        """Bring a message's file to its entry. ``event`` is the last one that it shows; ``body`` is given for a new
        message, and for one that is to be rewritten; ``parts`` are to be added."""
        key, directory, letter = entry.key, self.directory(entry.queue), LETTERS[entry.state]
        place = self._places.get(key)
        old = self._name(key, place) if place else None
        moves = old is not None and self.queue_of(key) != entry.queue
        moved = (moves or (old is not None and old.is_moved)) and id_of(key, entry.queue)[0] == "+"
        version = max(event, old.version if old else entry.seq)
        line, facts_before = self._facts(key, old) if old else (0, {})
        name, facts = write_name(entry, version, line, history, moved)
        added = b""
        if facts and facts != facts_before:
            line = version
            name, facts = write_name(entry, version, line, history, moved)
            added = fs_content.fact_line(line, facts)
        if not entry.parts:
            parts = {}
        if body is None and place:
            is_worn = added and facts_before and self._is_worn(key)
            if is_worn or (parts and entry.state is not State.GATHERING and self._is_set_again(key, parts)):
                body = self.envelope(key)
        if body is not None:
            data = fs_content.first_line(entry, body) + (fs_content.fact_line(line, facts) if facts else b"")
            if entry.parts and place:
                parts = self.parts(key) | parts
            data += b"".join(
                fs_content.part_line(number, part) for number, part in parts.items() if number <= entry.parts
            )
            if place is None:
                place = self._tree.create(directory, letter, name, data)
            else:
                place = self._replace(self.directory_of(key), place, directory, letter, name, data)
        else:
            assert place is not None
            added += b"".join(fs_content.part_line(number, part) for number, part in parts.items())
            place = self._change(key, place, directory, letter, name, added)
        self._places[key] = place
        if moves or old is None:
            self.queues_by_key.pop(key, None)
            if id_of(key, entry.queue)[0] == "+":  # the key does not contain the queue
                self.queues_by_key[key] = entry.queue

    def _replace(self, old: str, place: str, directory: str, letter: str, name: str, data: bytes) -> str:
        try:
            return self._tree.replace(old, place, directory, letter, name, data)
        except (IsADirectoryError, PermissionError) as error:
            self._make_room(old, place, error)
            return self._tree.create(directory, letter, name, data)

    def _change(self, key: str, place: str, directory: str, letter: str, name: str, added: bytes) -> str:
        """Rename a file, with a line added. One that nothing can be added to is rewritten."""
        old = self.directory_of(key)
        try:
            if added:  # a directory whose name does not contain its queue needs the line, even after a power cut
                unclear = old != directory and queue_of_directory(directory) is None
                self._tree.append(old, place, added, durable=unclear)
        except OSError as error:
            if error.errno not in _NO_FILE_ERRNOS:
                raise
            return self._write_anew(key, place, directory, letter, name, added, error)
        return self._tree.rename(old, place, directory, letter, name)

    def _write_anew(
        self, key: str, place: str, directory: str, letter: str, name: str, added: bytes, error: OSError
    ) -> str:
        """A new file with the message of one that nothing can be added to. Where that has none, the message is lost,
        but not what became of it."""
        old = self.directory_of(key)
        log.error("%s: %s: it is rewritten", self._tree.path(old, place), error.strerror)
        content = self.content(key)
        if self._checked(key) is None:
            target = self._tree.create(directory, letter, name, b"\n" + added)
            self.set_aside(old, place, "where a message's file was")
            return target
        parts = b"".join(fs_content.part_line(number, part) for number, part in self.parts(key).items())
        return self._replace(old, place, directory, letter, name, content[: content.index(b"\n") + 1] + parts + added)

    def _make_room(self, directory: str, place: str, error: OSError) -> None:
        log.error("%s: %s", self._tree.path(directory, place), error.strerror)
        self.set_aside(directory, place, "where a message's file was")

    def _is_worn(self, key: str) -> bool:
        """Whether a file has so many lines of facts that it should be rewritten; not without its message."""
        return fs_content.fact_bytes(self.content(key)) > fs_content.FACT_BYTES_LIMIT and bool(self._checked(key))

    def _is_set_again(self, key: str, parts: dict[int, bytes]) -> bool:
        """Whether a file has one of these parts already, so that it should be rewritten; not without its message."""
        return not parts.keys().isdisjoint(self.parts(key)) and bool(self._checked(key))

    def finish(self, key: str, applied: int) -> None:
        """The end of a message. A file that is not in the last checkpoint can be removed: the journal has all of its
        events. Any other must be marked as done, until a checkpoint has its end."""
        place = self._places.get(key)
        if place is None:
            return
        name = self._name(key, place)
        directory = self.directory_of(key)
        if name.seq > self.durable:
            try:
                self._tree.remove(directory, place)
            except (IsADirectoryError, PermissionError) as error:
                self._make_room(directory, place, error)
        else:
            done = done_name(name, max(applied, name.version))
            self.done.append((directory, self._tree.rename(directory, place, directory, DONE, done)))
        self._places.pop(key)
        self.queues_by_key.pop(key, None)

    def set_aside(self, directory: str, place: str, reason: str) -> None:
        """Move something that is not, or no longer, a message's file into quarantine."""
        path = self._tree.path(directory, place)
        self._quarantine.move_in(path, reason, path.name[:ASIDE_LIMIT])
        self._tree.forget(directory, place)

    # --- where ------------------------------------------------------------------------------------------------

    def directory(self, queue: str) -> str:
        """The directory of a queue."""
        directory = self.directories.get(queue)
        if directory is None:
            directory = self.directories[queue] = queue_directory(queue, self._meta)
        return directory

    def queue_of(self, key: str) -> str:
        """The queue of a message."""
        return self.queues_by_key.get(key) or queue_of_key(key)

    def directory_of(self, key: str) -> str:
        """The directory of a message's queue."""
        return self.directory(self.queue_of(key))
