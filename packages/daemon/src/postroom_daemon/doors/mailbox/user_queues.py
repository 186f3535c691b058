"""Whose requests are read next in a mailbox that several users share: each user has a queue, and its turn.

Every scan lists all files in ``requests/``, so there may be only so many: requests beyond a user's share are spilled to
``held/``, oldest first, and read from there before newer ones. All of this is done in slices: however many files
somebody has sent, they must not stop the daemon.
"""

from __future__ import annotations

import logging
import stat
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...broker.fair_scheduler import BYTES_OF_A_TURN, Budget, in_turns
from .request_files import RequestFile, RequestFiles
from .spill import UNFIT, SpillDir, dir_of, is_spilled

log = logging.getLogger(__name__)

#: Files whose owners are looked up in one step, and files that are spilled in one: about ten milliseconds each.
SORTED_A_STEP: Final = 4000
MOVED_A_STEP: Final = 1500
#: Files that may still have to be spilled at the next scan, which lists them again.
_UNMOVED: Final = 500
#: Milliseconds until spilling is tried again after it has failed; meanwhile requests are read from where they are.
_PAUSE_MS: Final = 1000
#: Requests of a user that are refused in a turn, as a fraction of those that are executed.
_REFUSED_OF_A_TURN: Final = 0.25
_NONE: Final = (0, 0)
#: Stands for the owner of anything but a plain file with one link.
_NOBODY: Final = -1
#: Turns are longer, by these factors, if for a second requests have come from one user alone, and if those of
#: different users have followed each other fewer than so many times.
_ALONE: Final = 16
_NEARLY_ALONE: Final = 4
_FEW: Final = 20
_SECOND_NS: Final = 1_000_000_000

MayHave = Callable[[int, int, int], bool]
"""Whether a user may have so many requests, of so many bytes, pending."""


class Seen(NamedTuple):
    """A file in ``requests/``; sorts by arrival."""

    ctime_ns: int
    name: str
    size: int


@dataclass(slots=True)
class Working:
    """Requests that are being worked on: by name; and their number and bytes by user."""

    by_name: dict[str, RequestFile] = field(default_factory=dict)
    _of_user: dict[int, tuple[int, int]] = field(default_factory=dict)

    def of(self, uid: int) -> tuple[int, int]:
        """How many requests of a user, and how many bytes."""
        return self._of_user.get(uid, _NONE)

    def add(self, taken: RequestFile) -> None:
        """Add a request."""
        uid = taken.uid
        requests, bytes_ = self._of_user.get(uid, _NONE)
        self._of_user[uid] = (requests + 1, bytes_ + taken.size)
        self.by_name[taken.name] = taken
        taken.data = b""  # it is parsed

    def remove(self, name: str) -> RequestFile | None:
        """Remove a request. Returns it, if it was here."""
        taken = self.by_name.pop(name, None)
        if taken:
            uid = taken.uid
            requests, bytes_ = self._of_user.pop(uid)
            if requests > 1:
                self._of_user[uid] = (requests - 1, bytes_ - taken.size)
        return taken


@dataclass(slots=True)
class UserQueue:
    """The pending requests of one user: ``postponed`` are to be read again, ``spilled`` are older than those that are
    ``here``. ``over`` are beyond the user's quota, and spilled to ``refused``."""

    spilled: SpillDir
    refused: SpillDir
    here: deque[Seen] = field(default_factory=deque)
    over: deque[Seen] = field(default_factory=deque)
    postponed: deque[str] = field(default_factory=deque)

    def __len__(self) -> int:
        """How many are pending."""
        return self.spilled.count + self.refused.count + len(self.here) + len(self.over) + len(self.postponed)

    def next(self, refused: bool) -> str | None:
        """Take the name of the next request, or of the next that is to be refused; None if there is none."""
        if not refused and self.postponed:
            return self.postponed.popleft()
        directory, here = (self.refused, self.over) if refused else (self.spilled, self.here)
        name = directory.first()
        if name is not None:
            directory.take_first()
            return name
        return here.popleft().name if here else None


class Turns:
    """How many requests of one user a group takes: ``least``, and more while few others send any."""

    def __init__(self, least: int) -> None:
        self.least = least
        self._latest: int | None = None
        self._changes: deque[int] = deque(maxlen=_FEW)  # when a request of another user than before was taken

    @property
    def length(self) -> int:
        """Requests of one user that a group takes now."""
        changes, since = self._changes, time.monotonic_ns() - _SECOND_NS
        if not changes or changes[-1] < since:
            return self.least * _ALONE
        return self.least * (_NEARLY_ALONE if len(changes) < _FEW or changes[0] < since else 1)

    def note(self, uid: int) -> None:
        """A request of a user is taken."""
        if uid != self._latest:
            self._latest = uid
            self._changes.append(time.monotonic_ns())


class UserQueues:
    """The queues of all users. A user may have ``share`` files in ``requests/``, and ``turn`` requests in one group."""

    def __init__(self, requests: RequestFiles, share: int, turn: int, may_have: MayHave) -> None:
        self._turns = Turns(turn)
        self._requests = requests
        self._share = share
        self._may_have = may_have
        self._queues: dict[int, UserQueue] = {}
        self._order: deque[int] = deque()  # users with a queue, in the order of their turns
        self._unsorted: list[str] = []
        self._sorted: dict[int, list[Seen]] = {}
        self.here: set[str] = set()
        """Names in ``requests/`` that are in a queue, or about to be."""
        self._paused_until = 0
        for name, directory in requests.spill.dirs.copy().items():
            if directory.count:
                self._queue_of(name)

    def is_a_turn(self, requests: int) -> bool:
        """Whether a group may now have so many requests of one user."""
        return requests <= self._turns.least or requests <= self._turns.length

    @property
    def waiting(self) -> int:
        """Files that were listed and not read."""
        return (
            sum(len(queue) for queue in self._queues.values())
            + len(self._unsorted)
            + sum(map(len, self._sorted.values()))
        )

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._queues or self._unsorted)

    @property
    def is_busy(self) -> bool:
        """Whether so many files are still to be sorted or spilled that another scan would be of no use."""
        if not self._queues:
            return bool(self._unsorted)
        most = self._share + _UNMOVED
        return bool(self._unsorted) or any(len(queue.over) + len(queue.here) > most for queue in self._queues.values())

    def forget_here(self) -> None:
        """``requests/`` was replaced: forget its files."""
        self._unsorted, self._sorted, self.here = [], {}, set()
        for queue in self._queues.values():
            queue.here.clear()
            queue.over.clear()

    def add(self, names: list[str]) -> None:
        """Add files that the scan has listed and that are in no queue yet."""
        self._unsorted = names
        self.here.update(names)

    def add_unfit(self) -> None:
        """A file was spilled that cannot be a request: give its queue a turn."""
        self._queue(_NOBODY)

    def add_postponed(self, names: list[str]) -> None:
        """Add spilled files that were postponed and are due again."""
        for name in names:
            self._queue_of(name.partition("/")[0]).postponed.append(name)

    def step(self, working: Working) -> None:
        """Queue up some of the listed files, and spill some of those that are too many."""
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
                status = files.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                self.here.discard(name)
                continue  # RACE: taken back since the scan
            if stat.S_ISDIR(status.st_mode):
                self._step_over(name)
                continue
            # A second link to another user's file must not be queued as that user's.
            plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            seen = Seen(status.st_ctime_ns, name, status.st_size)
            self._sorted.setdefault(status.st_uid if plain else _NOBODY, []).append(seen)

    def _step_over(self, name: str) -> None:
        self.here.discard(name)
        try:
            self._requests.step_over(name)
        except OSError as error:
            log.error("request %r is postponed: %s", name[:100], error)
            self._requests.ignore(name, self._requests.inode(name) or 0)

    def _queue_up(self, working: Working) -> None:
        for uid, seen in self._sorted.items():
            queue = self._queue(uid)
            count, size = working.of(uid)
            count += queue.spilled.count + len(queue.here) + len(queue.postponed)
            size += queue.spilled.bytes + sum(one.size for one in queue.here)
            for one in sorted(seen):
                if uid == _NOBODY or self._may_have(uid, count + 1, size + one.size):
                    queue.here.append(one)
                    count, size = count + 1, size + one.size
                else:
                    queue.over.append(one)
        self._sorted = {}

    def _move(self) -> None:
        """Spill the files that are too many. Spilled requests are read before those that are here, so the oldest are
        spilled."""
        left = MOVED_A_STEP
        for queue in self._queues.values():
            for seen, keep, directory in ((queue.over, 0, queue.refused), (queue.here, self._share, queue.spilled)):
                while left and len(seen) > keep:
                    left -= 1
                    one = seen[0]
                    if not self._spill(one, directory):
                        return
                    seen.popleft()
                    self.here.discard(one.name)

    def _spill(self, one: Seen, directory: SpillDir) -> bool:
        """Spill a file, or see that it is in nobody's way. False if none can be spilled now."""
        try:
            directory.add(self._requests.fd, one.name, one.ctime_ns, one.size)
        except OSError as error:
            if self._requests.inode(one.name) is None:
                return True  # RACE: taken back since it was seen
            if self._requests.is_directory(one.name):
                self._step_over(one.name)  # RACE: a directory has taken its name
                return True
            log.error("held/: %s; requests of one user may keep others waiting", error)
            self._paused_until = time.monotonic_ns() + _PAUSE_MS * 1_000_000
            return False
        return True

    def _queue(self, uid: int) -> UserQueue:
        queue = self._queues.get(uid)
        if queue is None:
            spill = self._requests.spill
            name = UNFIT if uid == _NOBODY else dir_of(uid)
            queue = self._queues[uid] = UserQueue(spill.directory(name), spill.directory(dir_of(uid, over=True)))
            self._order.append(uid)
        return queue

    def _queue_of(self, directory: str) -> UserQueue:
        return self._queue(_NOBODY if directory == UNFIT else int(directory.partition(".")[0]))

    def note(self, uid: int) -> None:
        """A request of a user is taken."""
        self._turns.note(uid)

    # --- turns ------------------------------------------------------------------------------------------------

    def take(self, max_requests: int, max_bytes: int, read: Callable[[str], RequestFile | None]) -> list[RequestFile]:
        """The next requests, at most so many and about so many bytes: of each user a turn, in the order of its queue;
        those of several users by arrival. Raises ``OSError``, as ``read`` does, when there is nothing else."""
        taken: list[tuple[int, RequestFile]] = []
        budget, length = Budget(max_requests, max_bytes), self._turns.length

        def turn(queue: UserQueue) -> None:
            for refused, part in ((False, 1.0), (True, _REFUSED_OF_A_TURN)):
                of_turn = Budget(min(budget.requests, max(1, int(length * part))), int(max_bytes * BYTES_OF_A_TURN))
                self._take_turn(queue, refused, of_turn, budget, read, taken)

        try:
            in_turns(self._order, self._queues, budget, turn)
        except OSError:
            if not taken:
                raise
            # What was taken is no longer in its queue; the error comes again, or has passed.
        taken.sort(key=lambda one: one[0])
        return [one for _, one in taken]

    def _take_turn(
        self,
        queue: UserQueue,
        refused: bool,
        turn: Budget,
        budget: Budget,
        read: Callable[[str], RequestFile | None],
        taken: list[tuple[int, RequestFile]],
    ) -> None:
        latest = 0
        while not (turn.is_used_up or budget.is_used_up):
            name = queue.next(refused)
            if name is None:
                return
            self.here.discard(name)
            try:
                one = read(name)
            except OSError:
                queue.postponed.appendleft(name)  # it stays the first
                if not is_spilled(name):
                    self.here.add(name)
                raise
            size = one.size if one else 0
            turn.use(size)
            budget.use(size)
            if one:
                self.note(one.uid)
                latest = max(latest, one.ctime_ns)  # the clock may have been set back
                one.over = refused
                taken.append((latest, one))
