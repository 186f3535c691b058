"""Groups that a member of a cluster has in its journal and the others do not: they are set aside, one file each.

A leader waits for the others with each group before its store has it: so only the last group can be unconfirmed, the
store has nothing to undo, and a group of which it shows anything is confirmed. Each file has the lines of one group,
under the name ``<epoch>-<first event id>.jsonl``.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from postroom_common.events import EventType, decode_event

from ..broker.idempotency import key_of_event
from ..journal.journal import Journal
from ..journal.order import Owner
from ..platform.files import Files
from ..stores.base import Store

log = logging.getLogger(__name__)

#: Exists since the root was first opened as a member: what its journal had before was answered without the others.
_MEMBER: Final = "member"
_NAME: Final = re.compile(r"\d{10}-\d{20}\.jsonl")
#: Events that nobody has asked for: a group of nothing else is a lost race for an epoch.
_OF_A_START: Final = frozenset({EventType.EPOCH_STARTED, EventType.CLOCK_MARKED})


class Divergent:
    """The directory beside a journal, whose name ends in ``.divergent``. It is created when it is first needed."""

    def __init__(self, journal_root: Path, files: Files) -> None:
        self.root = journal_root.with_name(journal_root.name + ".divergent")
        self._files = files

    def set_last_group_aside(self, journal: Journal, store: Store, owner: Owner | None) -> None:
        """After ``open`` of both, and before anything is folded: if the store shows nothing of the last group, take it
        off the journal. If the others have it after all, it comes back. Raises ``OSError``."""
        shown = max(store.audit.newest_event(), store.logs.newest())
        if journal.last_id <= shown or not (self.root / _MEMBER).exists():
            return
        if journal.last_id + 1 in map(_first_of, self.names()):  # a start before this one has cut it here
            return
        offset, lines = journal.last_group()
        if not lines:
            return
        event, last_id = decode_event(lines[0]), journal.last_id
        first: int = event["id"]
        if first <= shown:
            return
        self._put(f"{event['epoch']:010d}-{first:020d}.jsonl", b"".join(lines))
        log.warning("events %d to %d may be unconfirmed: they are in %s", first, last_id, self.root)
        journal.cut(offset, first - 1)
        journal.open(owner)

    def note_member(self, store: Store) -> None:
        """After recovery: from now on the last group may be unconfirmed. What is there by then is durable in the store
        before that. Raises ``OSError``, ``StoreError``."""
        if not (self.root / _MEMBER).exists():
            store.disk.checkpoint()
            self._put(_MEMBER, b"")

    def _put(self, name: str, data: bytes) -> None:
        directory = self._files.open_directory(self.root)
        try:
            self._files.put(directory, name, data, self._files.shared_mode(directory), durable=True)
        finally:
            self._files.close(directory)

    def names(self) -> list[str]:
        """The names of the files, in order."""
        names = self._files.listdir(self.root) if self.root.is_dir() else []
        return sorted(filter(_NAME.fullmatch, names))

    def lines(self, name: str) -> list[bytes]:
        """The lines of a file. Raises ``OSError``."""
        return (self.root / name).read_bytes().splitlines(keepends=True)

    def requests_behind(self, last_id: int) -> frozenset[bytes]:
        """The idempotency keys of requests that were set aside from behind an event: whether the others have them is
        unknown. Raises ``OSError``."""
        lines = (line for name in self.names() if _first_of(name) == last_id + 1 for line in self.lines(name))
        return frozenset(key for line in lines if (key := key_of_event(decode_event(line))))

    def drop(self, name: str) -> None:
        """Delete a file. Raises ``OSError``."""
        self._files.unlink(self.root / name)

    def forget(self, lines: list[bytes]) -> None:
        """A group of the leader is in the journal: if it was set aside, the others had it; and what was nothing but an
        attempt to lead is over. Raises ``OSError``."""
        first = decode_event(lines[0])["id"]
        for name in [name for name in self.names() if _first_of(name) == first]:
            aside = self.lines(name)
            if lines[: len(aside)] == aside or all(decode_event(line)["type"] in _OF_A_START for line in aside):
                self.drop(name)
                log.info("%s: nothing of it is missing here: it is removed", name)


def _first_of(name: str) -> int:
    return int(name[11:31])
