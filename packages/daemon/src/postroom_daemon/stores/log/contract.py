"""The contract of ``Store.logs``: the records of logs, each log under its number (``LogRecord.created``).

Records are appended, read by many, and trimmed at the beginning; none is ever changed. Their files are a fold of the
journal beside that of the store, with an ``applied`` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

from ..errors import StoreError

#: The size at which a segment is full, unless a log has another one (bytes).
SEGMENT_BYTES: Final = 64 * 1024 * 1024


class LogDamaged(StoreError):
    """A record cannot be read. The next start puts it back from the journal, or reports it as lost."""


class Page(NamedTuple):
    """Records one after the other, as they are on disk (``records.py``): how many, and the position of the last."""

    raw: bytes
    records: int
    last: int


NO_PAGE: Final = Page(b"", 0, 0)


class Trimmable(NamedTuple):
    """What a log can be trimmed of: the records before position ``before``, the last of which is at ``last``; how many
    they are, and their bytes."""

    before: int
    last: int
    records: int
    bytes: int


class LogFacts(NamedTuple):
    """A log by its files."""

    name: str
    last: int
    records: int
    bytes: int


class LostRange(NamedTuple):
    """Records of a log that are not there: they should be between the positions ``after`` and ``before``."""

    log: int
    after: int
    before: int


Records = dict[int, tuple[int, bytes]]
"""Wall time (ms) and block of records, by their positions."""


class Logs:
    """The records of all logs. This class is for stores that have none, such as one that only helps to compare.

    What is changed is seen by readers after ``commit``. Every method may raise ``StoreError``.
    """

    #: The last event folded into what was on disk when it was opened. An append of it or an earlier event changes
    #: nothing.
    applied: int = 2**63
    #: Whether it stores anything.
    keeps: ClassVar[bool] = False
    #: Whether there has never been a log.
    is_new: bool = True
    #: Whether it was known, when it was opened, which logs there are; if not, those that were found are there.
    had_state: bool = False

    def open(self) -> None:
        """Make it usable."""

    def close(self) -> None:
        """Release everything, and forget what was not committed."""

    # --- changes --------------------------------------------------------------------------------------------------

    def create(self, log: int, name: str) -> None:
        """Add a log; does nothing if it is there."""

    def delete(self, log: int) -> None:
        """Remove a log; does nothing if it is not there. Its space is returned later, in ``tidy``."""

    def append(self, log: int, position: int, wall_ms: int, block: bytes) -> None:
        """Append a record; does nothing if the log has one at this position or a later one."""

    def trim(self, log: int, before: int, records: int, size: int) -> None:
        """Remove the records before a position: so many, of ``size`` bytes together. Their space is returned later."""

    def commit(self) -> None:
        """Write what was changed since the last one, so that it survives the process."""

    def rollback(self) -> None:
        """Undo what was changed since the last ``commit``."""

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, log: int, after: int, limit: int, limit_bytes: int) -> Page:
        """The next records behind a position: at most ``limit``, and of ``limit_bytes`` together, but at least one if
        there is one. A page may be shorter although there are more. Each record is checked. Raises ``LogDamaged``."""
        return NO_PAGE

    def has(self, log: int, position: int) -> bool:
        """Whether there is a record at a position. Raises ``LogDamaged``."""
        return False

    def before_time(self, log: int, wall_ms: int) -> int:
        """The position of the last record before the first one that was appended at a wall time or later; 0: none.
        Raises ``LogDamaged``."""
        return 0

    def trimmable(
        self, log: int, older_than_ms: int = 0, keep_bytes: int = 0, below: int | None = None
    ) -> Trimmable | None:
        """What retention may remove, by whole segments: those whose records were all appended before a wall time (0:
        for no such reason), and the oldest as long as more than ``keep_bytes`` are there (0: likewise). With ``below``,
        only records up to this position. None: nothing."""
        return None

    def use_segment_bytes(self, log: int, size: int) -> None:
        """The size at which a segment of a log is full, until the logs are closed."""

    # --- disk -----------------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Read from the disk for real. Raises ``StoreError`` if it does not answer."""

    def space_needed(self) -> int:
        """Bytes that the next ``commit`` needs: an upper estimate."""
        return 0

    def checkpoint(self, applied: int) -> None:
        """Make everything committed survive a power cut: the fold of all events up to ``applied``."""

    def checkpointed(self) -> None:
        """The store, too, has survived up to the last ``checkpoint``: what was removed before may be erased."""

    def tidy(self) -> None:
        """Take one small step towards returning the space of what was removed."""

    # --- starts and checks ----------------------------------------------------------------------------------------

    def facts(self) -> dict[int, LogFacts]:
        """All logs by their files."""
        return {}

    def newest(self) -> int:
        """The highest position of all logs, and ``applied``; 0 if there are no logs."""
        return 0

    def lost(self) -> Iterator[LostRange]:
        """The records that the files should have, and that cannot be read. Call it once, before the journal is
        replayed, and put each back, or let it go, with ``heal``."""
        return iter(())

    def heal(self, lost: LostRange, records: Records) -> None:
        """Write again what is intact of the segments of a range, together with ``records``; the damaged bytes go to
        quarantine. The rest of the range is gone."""


NO_LOGS: Final = Logs()
