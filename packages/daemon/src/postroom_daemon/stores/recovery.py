"""The parts of a store's contract for starts and checks: what a start does with it, and what ``verify`` and ``repair``
ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from postroom_common.events import Event

from ..model.facts import Loss

#: Why a damaged checkpoint of a store goes to quarantine.
DAMAGED_CHECKPOINT: Final = "a checkpoint that cannot be read"


class Recovery:
    """What a start does with a store. This class is for stores whose messages are never further than ``applied``, and
    from whose damaged files nothing can be read."""

    #: Whether ``already_applied`` must be asked: only until ``finish_replay``.
    replaying: bool = False
    #: How many messages the store should have by what it has folded, and has not. Known after ``finish_replay``.
    missing: int = 0

    def salvage(self, first_id: int | None) -> None:
        """Before the files of a damaged store are set aside: save what can still be read, for the next ``open`` to
        begin with. ``first_id`` is the first event that the journal has; None: it has none."""

    def already_applied(self, event: Event) -> bool:
        """Whether the message of an event behind ``applied`` already shows it. Asked of every event that is about to be
        folded, while ``replaying``."""
        return False

    def finish_replay(self, clean: bool) -> list[str]:
        """The journal's end is folded. ``applied`` may rise, if the store had seen more than the journal still has.

        Returns the keys of dead letters that somebody has put back among the ready messages by hand; none unless
        ``clean``: the daemon had stopped in order, and the store was up to date.
        """
        return []

    def losses(self) -> list[Loss]:
        """What this start has found to be lost or uncertain, and neither the store nor the journal can replace: bytes
        that are missing, a file that does not parse, messages whose state is unknown.

        Asked once, after ``finish_replay``. Each becomes a ``damage_found`` event: it is durable before the first
        request, and health is degraded, over restarts, until an operator accepts the loss (``accept-loss``). What
        the next start would find again must not be reported again: evidence is moved to quarantine, or repaired. If
        the daemon is killed before that event is durable, the next start must find it again.
        """
        return []


class FileProblem(StrEnum):
    """What can be wrong with a file of a store."""

    #: No message refers to it.
    ORPHAN = "orphan"
    #: It lies in another directory than its message says.
    MISPLACED = "misplaced"
    #: It is not a file of the store.
    FOREIGN = "foreign"
    #: A directory that cannot be listed.
    UNREADABLE = "unreadable"
    #: A crash left it; the next start removes it.
    LEFT_OVER = "left over"
    #: A dead letter that somebody has moved among the ready messages by hand.
    MOVED_BY_HAND = "moved by hand"


class FileFinding(NamedTuple):
    """A problem with the file at ``path``, in words."""

    problem: FileProblem
    path: str
    text: str


class Folded(Protocol):
    """A store, as far as it is asked what was folded: ``applied`` is the id of the last event."""

    applied: int


class Audit:
    """What ``verify`` and ``repair`` ask. This class is for stores without files of their own for messages."""

    def __init__(self, store: Folded) -> None:
        self._folded = store

    def newest_event(self) -> int:
        """The last event that anything in the store shows. Before ``Recovery.finish_replay`` it may be above
        ``applied``."""
        return self._folded.applied

    def unfolded(self, last: int) -> list[list[int]]:
        """Ranges of events behind ``last`` of which nothing in the store shows what they changed, although later ones
        were folded: for a store whose messages may be further than ``applied``."""
        return []

    def file_of(self, key: str) -> Path | None:
        """The file of a message that exists, if its body should be in one."""
        return None

    def file_findings(self, last: int, clean: bool) -> Iterator[FileFinding]:
        """What is wrong with files, apart from the bodies in them. ``last`` is the journal's last event; ``clean``:
        after it the daemon stopped in order, with nothing left to be folded. Changes nothing."""
        return iter(())

    def foreign_files(self) -> list[Path]:
        """Files and directories among the store's own that are not the store's, for a store that ignores them."""
        return []

    def restore_misplaced(self) -> Iterator[str]:
        """Move files to where their messages look for them. Yields what was moved, in words."""
        return iter(())

    def set_orphans_aside(self) -> None:
        """Move files that belong to no message into quarantine."""
