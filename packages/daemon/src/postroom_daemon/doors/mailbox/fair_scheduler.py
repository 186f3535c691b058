"""Whose turn it is in a mailbox that several users share: their requests wait in one line each, and are taken in turn.

What waits in ``requests/`` is listed at every look, so there may be only so much of it: what a user has there beyond a
share is moved into ``held/``, oldest first, and taken from there before what is newer. All of this is done in slices,
so that nobody's files, however many, stop the daemon.
"""

from __future__ import annotations

import logging
import stat
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ...broker.fair_scheduler import BYTES_OF_A_TURN, Budget, in_turns
from .request_files import RequestFiles, Taken
from .spill import UNFIT, Shelf, is_held, shelf_of
from .user_queue import Line, Seen, Working

log = logging.getLogger(__name__)

#: Files whose owners are looked up in one step, and files that are moved in one: some ten milliseconds.
SORTED_A_STEP: Final = 4000
MOVED_A_STEP: Final = 1500
#: Files that may still be to be moved at the next look, which lists them once more.
_UNMOVED: Final = 500
#: After files could not be moved, milliseconds until it is tried again; they are taken from where they are meanwhile.
_PAUSE_MS: Final = 1000
#: Requests of a user that are refused in a turn, as a part of those that are executed.
_REFUSED_OF_A_TURN: Final = 0.25
#: Stands for the owner of what is no plain file with one name: whoever has put it there.
_NOBODY: Final = -1


MayHave = Callable[[int, int, int], bool]
"""Whether a user may have so many requests, of so many bytes, waiting."""


#: Turns are longer, by these factors, if for a second requests have come from one account alone, and if those of
#: different accounts have followed each other fewer than so many times.
_ALONE: Final = 16
_NEARLY_ALONE: Final = 4
_FEW: Final = 20
_SECOND_NS: Final = 1_000_000_000


class Turns:
    """How many requests of one user a group takes: ``requests``, and more while few others send any."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._latest: int | None = None
        self._changes: deque[int] = deque(maxlen=_FEW)  # when a request of another user than before was taken

    @property
    def length(self) -> int:
        """Requests of one user that a group takes now."""
        changes, since = self._changes, time.monotonic_ns() - _SECOND_NS
        if not changes or changes[-1] < since:
            return self._requests * _ALONE
        return self._requests * (_NEARLY_ALONE if len(changes) < _FEW or changes[0] < since else 1)

    def note(self, uid: int) -> None:
        """A request of a user is taken."""
        if uid != self._latest:
            self._latest = uid
            self._changes.append(time.monotonic_ns())


class Lines:
    """The lines of all users. A user may have ``share`` files in ``requests/``, and ``turn`` requests in one group."""

    def __init__(self, requests: RequestFiles, share: int, turn: int, may_have: MayHave) -> None:
        self._turns = Turns(turn)
        self._requests = requests
        self._share = share
        self._may_have = may_have
        self._lines: dict[int, Line] = {}
        self._order: deque[int] = deque()  # users with a line, whose turn is next first
        self._unsorted: list[str] = []
        self._sorted: dict[int, list[Seen]] = {}
        self.here: set[str] = set()
        """Names in ``requests/`` that are in a line, or about to be."""
        self._paused_until = 0
        for name, shelf in requests.held.shelves.copy().items():
            if shelf.count:
                self._line_of(name)

    @property
    def turn(self) -> int:
        """Requests of one user that a group may have now."""
        return self._turns.length

    @property
    def waiting(self) -> int:
        """Files that were seen and not taken."""
        return (
            sum(len(line) for line in self._lines.values()) + len(self._unsorted) + sum(map(len, self._sorted.values()))
        )

    @property
    def is_busy(self) -> bool:
        """Whether so much of what was seen is still to be sorted or moved that a further look would be of no use."""
        most = self._share + _UNMOVED
        return bool(self._unsorted) or any(len(line.over) + len(line.here) > most for line in self._lines.values())

    def forget_here(self) -> None:
        """``requests/`` was replaced: nothing is known of it."""
        self._unsorted, self._sorted, self.here = [], {}, set()
        for line in self._lines.values():
            line.here.clear()
            line.over.clear()

    def see(self, names: list[str]) -> None:
        """Files were found in ``requests/`` that are in no line yet."""
        self._unsorted = names
        self.here.update(names)

    def see_unfit(self) -> None:
        """Something was put on the shelf of what is no request."""
        self._line(_NOBODY)

    def see_again(self, names: list[str]) -> None:
        """Held files were left for a while, and are to be looked at again."""
        for name in names:
            self._line_of(name.partition("/")[0]).again.append(name)

    def step(self, working: Working) -> None:
        """Bring what was seen into its lines, and what is too much out of the way, some of it at a time."""
        if self._unsorted:
            self._sort(self._unsorted[-SORTED_A_STEP:])
            del self._unsorted[-SORTED_A_STEP:]
            if not self._unsorted:
                self._queue_up(working)
        if not self._unsorted and time.monotonic_ns() >= self._paused_until:
            self._move()

    def _sort(self, names: list[str]) -> None:
        files, fd = self._requests.files, self._requests.fd
        for name in names:
            try:
                found = files.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                self.here.discard(name)
                continue  # RACE: taken back since the look
            if stat.S_ISDIR(found.st_mode):
                self._step_over(name)
                continue
            # Who makes a second name for another user's file does not stand in that one's line.
            plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            seen = Seen(found.st_ctime_ns, name, found.st_size)
            self._sorted.setdefault(found.st_uid if plain else _NOBODY, []).append(seen)

    def _step_over(self, name: str) -> None:
        self.here.discard(name)
        try:
            self._requests.step_over(name)
        except OSError as error:
            log.error("request %r is put off: %s", name[:100], error)
            self._requests.leave(name, self._requests.inode(name) or 0)

    def _queue_up(self, working: Working) -> None:
        for uid, seen in self._sorted.items():
            line = self._line(uid)
            count = working.requests[uid] + line.shelf.count + len(line.here) + len(line.again)
            size = working.bytes[uid] + line.shelf.bytes + sum(one.size for one in line.here)
            for one in sorted(seen):
                if uid == _NOBODY or self._may_have(uid, count + 1, size + one.size):
                    line.here.append(one)
                    count, size = count + 1, size + one.size
                else:
                    line.over.append(one)
        self._sorted = {}

    def _move(self) -> None:
        """Move what is too much; what is held comes before what is here, so it is the oldest that goes."""
        left = MOVED_A_STEP
        for line in self._lines.values():
            for seen, keep, shelf in ((line.over, 0, line.refused), (line.here, self._share, line.shelf)):
                while left and len(seen) > keep:
                    left -= 1
                    one = seen[0]
                    if not self._hold(one, shelf):
                        return
                    seen.popleft()
                    self.here.discard(one.name)

    def _hold(self, one: Seen, shelf: Shelf) -> bool:
        """Move a file into ``held/``, or see that it is in nobody's way. False where none can be moved now."""
        try:
            shelf.add(self._requests.fd, one.name, one.ctime_ns, one.size)
        except OSError as error:
            if self._requests.inode(one.name) is None:
                return True  # RACE: taken back since it was seen
            if self._requests.is_directory(one.name):
                self._step_over(one.name)  # RACE: a directory has got its name
                return True
            log.error("held/: %s; requests of one user may keep others waiting", error)
            self._paused_until = time.monotonic_ns() + _PAUSE_MS * 1_000_000
            return False
        return True

    def _line(self, uid: int) -> Line:
        line = self._lines.get(uid)
        if line is None:
            held = self._requests.held
            name = UNFIT if uid == _NOBODY else shelf_of(uid)
            line = self._lines[uid] = Line(held.shelf(name), held.shelf(shelf_of(uid, over=True)))
            self._order.append(uid)
        return line

    def _line_of(self, shelf: str) -> Line:
        return self._line(_NOBODY if shelf == UNFIT else int(shelf.partition(".")[0]))

    def note(self, uid: int) -> None:
        """A request of a user is taken."""
        self._turns.note(uid)

    # --- turns ------------------------------------------------------------------------------------------------

    def take(self, max_requests: int, max_bytes: int, read: Callable[[str], Taken | None]) -> list[Taken]:
        """The next requests, at most so many and about so many bytes: of each user a turn, in the order of its queue;
        those of several users by arrival. Raises ``OSError``, as ``read`` does, when there is nothing else."""
        taken: list[tuple[int, Taken]] = []
        budget, length = Budget(max_requests, max_bytes), self._turns.length

        def turn(line: Line) -> None:
            for refused, part in ((False, 1.0), (True, _REFUSED_OF_A_TURN)):
                of_turn = Budget(min(budget.requests, max(1, int(length * part))), int(max_bytes * BYTES_OF_A_TURN))
                self._take_turn(line, refused, of_turn, budget, read, taken)

        try:
            in_turns(self._order, self._lines, budget, turn)
        except OSError:
            if not taken:
                raise
            # What was taken is no longer in its queue; the error comes again, or has passed.
        taken.sort(key=lambda one: one[0])
        return [one for _, one in taken]

    def _take_turn(
        self,
        line: Line,
        refused: bool,
        turn: Budget,
        budget: Budget,
        read: Callable[[str], Taken | None],
        taken: list[tuple[int, Taken]],
    ) -> None:
        latest = 0
        while not (turn.is_used_up or budget.is_used_up):
            name = line.next(refused)
            if name is None:
                return
            self.here.discard(name)
            try:
                one = read(name)
            except OSError:
                line.again.appendleft(name)  # it stays the first
                if not is_held(name):
                    self.here.add(name)
                raise
            size = len(one.data) if one else 0
            turn.use(size)
            budget.use(size)
            if one:
                self.note(one.uid)
                latest = max(latest, one.ctime_ns)  # the clock may have been set back
                taken.append((latest, one._replace(over=True) if refused else one))
