"""Read a journal that its daemon writes to, and the bodies to which its events refer (hybrid)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from postroom_common.events import Event

from ...journal.segments import Start, list_segments, place_of, read_requests
from ...model.records import BodyReference, Entry
from ...platform.files import LOST_ERRNOS, READ_FLAGS
from ...stores.hybrid.payloads import payload_path
from .model import StateError

Body = Callable[[Entry, BodyReference], bytes | None]
"""Reads the body of a message from its file; None if it is lost."""


def bodies_in(root: Path) -> Body:
    """A reader of the hybrid store's bodies below ``root``. It raises ``OSError`` for a fault that is not the file's:
    such a body is not lost."""

    def read(entry: Entry, reference: BodyReference) -> bytes | None:
        path = root / payload_path(entry.seq, reference.queue or entry.queue, entry.key)
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, READ_FLAGS)) as file:
                body = file.read(reference.length + 1) or b""
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            return None
        return body if reference.fits(body) else None

    return read


class Events:
    """The events from ``first`` on. ``end`` is the present end of the journal, if the caller has it."""

    def __init__(self, journal: Path, first: int, end: Start | None) -> None:
        self._journal = journal
        self._first = first
        self._begin = self._newest = end
        #: The last one that ``newer`` returned, and its engine and wall time.
        self.last = first - 1
        self.engine_ms = self.wall_ms = 0

    def newer(self, until: int | None = None) -> Iterator[Event]:
        """The events behind the last one, as far as the journal has them by now; with ``until``, up to that one. Read
        them to the end."""
        request = None
        for request in read_requests(self._journal, self.last + 1, lambda damage: None, self._newest):
            for event in request.events:
                if event["id"] == self.last + 1 and (until is None or event["id"] <= until):
                    self.last, self.engine_ms, self.wall_ms = event["id"], event["engineMs"], event["wallMs"]
                    yield event
            if until is not None and self.last >= until:
                break
        if request:
            first = request.events[0]["id"]
            segment = [path for begins, path in list_segments(self._journal) if begins <= first][-1:]
            self._newest = Start(segment[0], request.place - place_of(first, 0)) if segment else self._newest

    def __iter__(self) -> Iterator[Event]:
        """Those that ``newer`` has returned, read once more. Raises ``StateError`` if the journal lacks one of them."""
        reader = Events(self._journal, self._first, self._begin)
        yield from reader.newer(self.last)
        reader.check(self.last)

    def check(self, last: int) -> None:
        """Raise ``StateError`` unless all up to this one were read."""
        if self.last < last:
            raise StateError(
                f"{self._journal}: events {self._first} to {last} are incomplete, the first missing one is"
                f" {self.last + 1}; verify the root, then try again"
            )
