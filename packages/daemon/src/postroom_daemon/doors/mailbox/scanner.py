"""Scans ``requests/``: which files are read next, which are being worked on, and which are orphans.

In a mailbox of one user, requests are read in the order of their arrival. In one that several users share, each has its
turn (``user_queues``).
"""

from __future__ import annotations

import errno
import logging
import stat
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from postroom_common.protocol import REQUEST_SUFFIX

from .request_files import ARRIVAL, RequestFile, RequestFiles
from .spill import is_spilled
from .user_queues import MayHave, UserQueues, Working

log = logging.getLogger(__name__)

#: Orphans of one user that stay.
ORPHANS_OF_A_USER: Final = 1000
#: Orphans that are removed in one step, about ten milliseconds.
REMOVED_A_STEP: Final = 1500
#: Ignored files that may stay in ``requests/`` if several users share it.
IGNORED_HERE: Final = 200
#: Interval of the scans for files that came otherwise than by a rename, while others are renamed in all the time.
SCAN_EVERY_NS: Final = 100_000_000
#: Errors of open() that are the daemon's, not the file's.
_OUR_FAULT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR})


class Orphans:
    """Files in ``requests/`` that are not requests: unfinished ones, and whatever else somebody has put there.

    Every scan lists them, so a user who leaves many would slow down everybody. Of each user the newest ones stay; the
    rest is removed, oldest first. Links are not followed, and no directory is entered.
    """

    def __init__(self, requests: RequestFiles) -> None:
        self.removed = 0
        self._requests = requests
        self._surplus: deque[str] = deque()
        self._enough = ORPHANS_OF_A_USER
        self._removing = False

    @property
    def has_surplus(self) -> bool:
        """Whether some are still to be removed."""
        return bool(self._surplus)

    def trim(self, names: list[str]) -> None:
        """Remove some of the orphans ``names``, which a scan has listed, if they are too many."""
        if not self._surplus:
            if self._removing or len(names) <= ORPHANS_OF_A_USER:
                # Orphans that cannot be removed are not looked at again until there are more.
                self._enough = ORPHANS_OF_A_USER + (len(names) if self._removing else 0)
                self._removing = False
            elif len(names) > self._enough:
                self._surplus.extend(self._too_many(names))
                self._removing = True
        for _ in range(min(REMOVED_A_STEP, len(self._surplus))):
            self._remove(self._surplus.popleft())

    def _too_many(self, names: list[str]) -> list[str]:
        files, fd = self._requests.files, self._requests.fd
        by_user: dict[int, list[tuple[int, str]]] = {}
        for name in names:
            try:
                status = files.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # RACE: its writer has renamed it
            by_user.setdefault(status.st_uid, []).append((status.st_ctime_ns, name))
        surplus = []
        for uid, of_user in by_user.items():
            of_user.sort()
            surplus_of_user = of_user[: max(0, len(of_user) - ORPHANS_OF_A_USER)]
            if surplus_of_user:
                log.warning(
                    "requests/ has %d files of uid %d that are not requests: the oldest %d are removed",
                    len(of_user),
                    uid,
                    len(surplus_of_user),
                )
            surplus += [name for _, name in surplus_of_user]
        return surplus

    def _remove(self, name: str) -> None:
        files, fd = self._requests.files, self._requests.fd
        try:
            status = files.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                files.rmdir(name, dir_fd=fd)  # stays if it is not empty
            else:
                files.unlink(name, dir_fd=fd)
        except OSError:
            return  # RACE: its writer has renamed it
        self.removed += 1


class Scanner:
    """The requests in ``requests/``. See ``UserQueues`` for ``share``, ``turn`` and ``may_have``."""

    def __init__(self, requests: RequestFiles, share: int, turn: int, may_have: MayHave) -> None:
        self.requests = requests
        self.orphans = Orphans(requests)
        self._queues = UserQueues(requests, share, turn, may_have)
        self._may_have = may_have
        self._shared = requests.is_shared()
        self._backlog: deque[str] = deque()
        self._working = Working()
        self._by_name = self._working.by_name
        self.begin = self._working.add
        """A request is being worked on: scans pass over it until it is finished, rejected or postponed."""
        self._must_scan = True
        self._scanned_ns = 0

    @property
    def waiting(self) -> int:
        """Files that were listed and not read yet."""
        return len(self._backlog) + self._queues.waiting

    @property
    def has_work(self) -> bool:
        """Whether there is something to do without a scan."""
        return bool(self._backlog or self._queues or (self._shared and self.orphans.has_surplus))

    @property
    def looks_next(self) -> bool:
        """Whether the next ``take`` looks for files that have arrived."""
        return not self._backlog and not self._queues.is_busy

    def check(self) -> bool:
        """Whether ``requests/`` was replaced by another directory; that one is opened then. Raises ``OSError``."""
        replaced = self.requests.replaced()
        if replaced:
            self._backlog.clear()
            self._queues.forget_here()
        self._shared = self.requests.is_shared()
        return replaced

    def take(self, max_requests: int, max_bytes: int, arrived: list[str] | None = None) -> list[RequestFile]:
        """The next requests, at most so many and about so many bytes. ``arrived`` are the files that were renamed into
        the directory since the last ``take`` that looked for some; None: scan it. Raises ``OSError``."""
        if self.requests.ignores_some:
            self._must_scan = True
            self._queues.add_postponed(self.requests.take_due())
        if self._backlog or not (self._shared or self._queues):
            return self._take_in_order(max_requests, max_bytes, arrived)
        if not self._queues.is_busy:
            names = self._new_names(arrived)
            if not self._queues and len(names) <= max_requests and self._queues.is_a_turn(len(names)):
                taken = self._read_all(names, max_bytes)
                if taken is not None:
                    return self._checked(taken)
            self._queues.add(names)
        self._queues.step(self._working)
        return self._queues.take(max_requests, max_bytes, self._read)

    def _checked(self, taken: list[RequestFile]) -> list[RequestFile]:
        """Mark those requests, read without a user queue, that exceed their user's quota."""
        pending: dict[int, tuple[int, int]] = {}
        for one in taken:
            uid = one.uid
            self._queues.note(uid)
            requests, size = pending.get(uid) or self._working.of(uid)
            requests, size = pending[uid] = (requests + 1, size + one.size)
            one.over = not self._may_have(uid, requests, size)
        return taken

    # --- in the order of arrival ------------------------------------------------------------------------------

    def _take_in_order(self, max_requests: int, max_bytes: int, arrived: list[str] | None) -> list[RequestFile]:
        if not self._backlog:
            names = self._new_names(arrived)
            if len(names) <= max_requests:
                everything = self._read_all(names, max_bytes)
                if everything is not None:
                    return everything
            self._backlog.extend(self._in_order(names, arrived))
        taken: list[RequestFile] = []
        looks = size = 0
        while self._backlog and looks < max_requests and size < max_bytes:
            one = self._read(self._backlog[0])
            self._backlog.popleft()
            looks += 1
            if one:
                taken.append(one)
                size += one.size
        taken.sort(key=ARRIVAL)
        return taken

    def _read_all(self, names: list[str], max_bytes: int) -> list[RequestFile] | None:
        """All requests of some names, by arrival; None if they have more bytes."""
        taken: list[RequestFile] = []
        read, size = self.requests.read, 0
        for name in names:
            if size >= max_bytes:
                return None
            try:
                one = read(name)
            except OSError as error:
                self._not_read(name, error)
                continue
            if one:
                taken.append(one)
                size += one.size
        taken.sort(key=ARRIVAL)
        return taken

    def _read(self, name: str) -> RequestFile | None:
        """A request, or None. Raises ``OSError`` if the fault is the daemon's: then the name must be tried again."""
        try:
            return self.requests.read(name)
        except OSError as error:
            self._not_read(name, error)
            return None

    def _not_read(self, name: str, error: OSError) -> None:
        """Postpone a request that cannot be read; raise ``error`` again if the fault is the daemon's."""
        if error.errno in _OUR_FAULT:
            self._must_scan = True
            raise error
        log.error("request %r is postponed: %s", name[:100], error)
        self.requests.ignore(name, self.requests.inode(name) or 0)

    def _new_names(self, arrived: list[str] | None) -> list[str]:
        now_ns = time.monotonic_ns()
        is_due = now_ns - self._scanned_ns >= SCAN_EVERY_NS
        if arrived is None or is_due or self._must_scan or self.orphans.has_surplus:
            names = self._scan()
            self._scanned_ns, self._must_scan = now_ns, False
            return names
        working, waiting = self._by_name, self._queues.here
        return [
            name
            for name in dict.fromkeys(arrived)
            if name.endswith(REQUEST_SUFFIX) and name not in working and name not in waiting
        ]

    def _scan(self) -> list[str]:
        working, waiting = self._by_name, self._queues.here
        names, others = [], []
        for name in self.requests.files.listdir(self.requests.fd):
            if not name.endswith(REQUEST_SUFFIX):
                others.append(name)
            elif name not in working and name not in waiting:
                names.append(name)
        ignored = self.requests.ignored(names)
        if ignored:
            names = list(set(names).difference(ignored))
        if self._shared:
            self.orphans.trim(others)
            if len(ignored) > IGNORED_HERE:
                self.requests.spill_ignored(ignored)
                self._queues.add_unfit()
        return names

    def _in_order(self, names: list[str], arrived: list[str] | None) -> Iterable[str]:
        """Names in the order of their arrival; ``arrived`` are in it, the same perhaps twice."""
        if arrived:
            missing = set(names)
            in_order = dict.fromkeys(name for name in reversed(arrived) if name in missing)
            if len(in_order) == len(names):
                return reversed(in_order)
        return self._by_age(names)

    def _by_age(self, names: list[str]) -> list[str]:
        files, fd = self.requests.files, self.requests.fd
        ages = []
        for name in names:
            try:
                ages.append((files.stat(name, dir_fd=fd, follow_symlinks=False).st_ctime_ns, name))
            except OSError:
                continue  # RACE: taken back since the scan
        return [name for _, name in sorted(ages)]

    # --- requests that are being worked on --------------------------------------------------------------------

    def gone(self) -> list[str]:
        """Names of requests being worked on whose file has vanished or was replaced; they no longer are."""
        here = ((name, taken.inode) for name, taken in self._by_name.items() if not is_spilled(name))
        lost = [name for name, inode in here if self.requests.inode(name) != inode]
        for name in lost:
            self._working.remove(name)
        return lost

    def is_there(self, name: str) -> bool:
        """Whether the file of a request being worked on is still the one that was read. Raises ``OSError``."""
        taken = self._by_name.get(name)
        return taken is not None and self.requests.is_same(name, taken.inode)

    def open(self, name: str) -> int | None:
        """An fd of a request being worked on; None if its file is no longer the one that was read."""
        taken = self._by_name.get(name)
        return self.requests.open(name, taken.inode) if taken else None

    def finish(self, name: str) -> None:
        """The request is answered: remove its file, if it is still the one that was read. Raises ``OSError``."""
        taken = self._working.remove(name)
        if taken:
            try:
                self.requests.remove(name, taken.inode)
            except OSError:
                self.requests.ignore(name, taken.inode)  # it will be a repeat
                raise

    def reject(self, name: str, reason: str) -> None:
        """Move a request to ``dead/``."""
        self._working.remove(name)
        self.requests.reject(name, reason)

    def postpone(self, name: str, inode: int = 0) -> None:
        """Leave a request where it is, and read it again later. ``inode`` is needed if it was not begun."""
        taken = self._working.remove(name)
        self.requests.ignore(name, inode or (taken.inode if taken else 0))

    def resume(self, name: str) -> None:
        """The request is no longer worked on: read it again at the next turn."""
        self._working.remove(name)
        if is_spilled(name):
            self._queues.add_postponed([name])
        else:
            self._must_scan = True

    def is_unfinished(self, taken: RequestFile) -> bool:
        """Whether a file that does not parse may still be being written."""
        return self.requests.is_young(taken.ctime_ns)
