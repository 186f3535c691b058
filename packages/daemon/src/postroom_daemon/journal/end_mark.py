"""The mark of the journal's end: a file beside the segments that contains the last synced event.

The journal cannot say by itself that its end is missing: its last group may have been torn by a crash, and then nobody
was answered. The mark is written after each sync, and is not synced itself: it costs no access to the disk. A killed
daemon leaves it up to date; after a power cut it may be old, but it is never ahead of what was synced. If the journal
ends before it, the events in between are lost.

The line is repeated in every sector of a page, so that it survives damage to a part of it.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line

from ..platform.files import FULL_ERRNOS, Files
from ..platform.quarantine import Quarantine

log = logging.getLogger(__name__)

END_MARK_NAME: Final = "end"
_SECTOR_BYTES: Final = 512
_SECTORS: Final = 8
_LINE: Final = re.compile(rb'\{"root":[^{}]*\}')
_OPEN_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class EndMark(NamedTuple):
    """The last event that was synced of a root's journal in an epoch."""

    root: str
    epoch: int
    event: int


class EndMarkFile:
    """The file in ``directory``; ``root`` is the root of the journal there, "" until ``open``.

    A failed write is logged once: without the mark, a lost end may stay unnoticed, and nothing else changes.
    """

    def __init__(self, directory: Path, files: Files, quarantine: Quarantine) -> None:
        self._path = directory / END_MARK_NAME
        self._files = files
        self._quarantine = quarantine
        self._fd = -1
        self.root = ""
        self._before = b""  # the line up to the event

    def open(self, root: str, epoch: int, event: int) -> None:
        """Write marks of this root and epoch from now on, first that of ``event``. A damaged file goes to quarantine.
        Raises ``OSError`` if space is lacking."""
        self.root = root
        self._before = orjson.dumps({"root": root, "epoch": epoch})[:-1]
        try:
            old = read_end_mark(self._path.parent)
        except DamagedRecord as damage:
            self._quarantine.move_in(self._path, str(damage))
            old = None
        try:
            if old is None:
                self._create(event)
            self._fd = self._files.open(self._path, _OPEN_FLAGS)
        except OSError as error:
            if error.errno in FULL_ERRNOS:
                raise
            log.error("%s: %s", self._path, error)
        self.write(event)

    def _create(self, event: int) -> None:
        directory = self._files.open_directory(self._path.parent)
        try:
            mode = self._files.shared_mode(directory)
            self._files.put(directory, END_MARK_NAME, self._page(event), mode, durable=True)
        finally:
            self._files.close(directory)

    def write(self, event: int) -> None:
        """The journal is synced up to ``event``."""
        if self._fd >= 0:
            try:
                self._files.pwrite(self._fd, self._page(event), 0)
            except OSError as error:
                log.error("%s: %s", self._path, error)
                self.close()

    def lower(self, event: int) -> None:
        """Before ``open``: the journal is about to be cut behind ``event``, so replace a mark of a later one, durably.
        Raises ``OSError``."""
        try:
            mark = read_end_mark(self._path.parent)
        except DamagedRecord:
            return
        if mark and mark.event > event:
            self._before = orjson.dumps({"root": mark.root, "epoch": mark.epoch})[:-1]
            self._create(event)

    def _page(self, event: int) -> bytes:
        body = b'%b,"event":%d' % (self._before, event)
        line = b'%b,"crc":"%08x"}\n' % (body, crc32(body))
        return line.rjust(_SECTOR_BYTES) * _SECTORS

    def close(self) -> None:
        """Close the file; it stays as it is."""
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = -1


def read_end_mark(directory: Path) -> EndMark | None:
    """The mark of the journal in ``directory``; None if it has none. Raises ``DamagedRecord`` if no line is intact."""
    path = directory / END_MARK_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedRecord(str(error)) from error
    found = []
    for line in _LINE.findall(data):
        try:
            tree = decode_line(line)
            found.append(EndMark(tree["root"], tree["epoch"], tree["event"]))
        except (DamagedRecord, KeyError):
            continue
    if not found:
        raise DamagedRecord(f"{path}: no line of it is intact")
    return max(found, key=lambda mark: (mark.epoch, mark.event))
