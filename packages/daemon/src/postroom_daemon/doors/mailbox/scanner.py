"""Requests as files: which ones are taken next, and which ones are being worked on.

In a mailbox of one user they are taken in the order in which they came. In one that users share, each has its turn
(``lines``).
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from typing import Final

from postroom_common.protocol import REQUEST_SUFFIX

from .fair_scheduler import Lines, MayHave
from .orphans import Strays
from .request_files import RequestFiles, Taken
from .spill import is_held
from .user_queue import Working

log = logging.getLogger(__name__)

#: Files that are left for a while and may be in ``requests/`` meanwhile, where several users share it.
LEFT_HERE: Final = 200
#: Errors of open() that concern the daemon, not the file.
_OUR_FAULT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR})


class Intake:
    """What comes in ``requests/``. See ``Lines`` for ``share``, ``turn`` and ``may_have``."""

    def __init__(self, requests: RequestFiles, share: int, turn: int, may_have: MayHave) -> None:
        self.requests = requests
        self.strays = Strays(requests)
        self._lines = Lines(requests, share, turn, may_have)
        self._may_have = may_have
        self._shared = requests.is_shared()
        self._backlog: deque[str] = deque()
        self._working: dict[str, tuple[int, int, int]] = {}  # by name: inode, uid, bytes
        self._by_user = Working()

    @property
    def waiting(self) -> int:
        """Files that were seen and not taken yet."""
        return len(self._backlog) + self._lines.waiting

    @property
    def has_work(self) -> bool:
        """Whether there is something to do without a look at what is new."""
        return bool(self._backlog or self._lines.waiting or (self._shared and self.strays.left))

    @property
    def looks(self) -> bool:
        """Whether the next ``take`` looks at what is new."""
        return not self._backlog and not self._lines.is_busy

    def check(self) -> bool:
        """Whether ``requests/`` was replaced by another directory, which is opened then. Raises ``OSError``."""
        replaced = self.requests.replaced()
        if replaced:
            self._backlog.clear()
            self._lines.forget_here()
        self._shared = self.requests.is_shared()
        return replaced

    def take(self, max_requests: int, max_bytes: int) -> list[Taken]:
        """The next requests, at most so many and about so many bytes. Raises ``OSError``."""
        self._lines.see_again(self.requests.left_long_enough())
        if self._backlog or not (self._shared or self._lines.waiting):
            return self._take_in_order(max_requests, max_bytes)
        if not self._lines.is_busy:
            names = self._scan()
            if len(names) <= min(self._lines.turn, max_requests) and not self._lines.waiting:
                return self._checked(self._read_all(names))
            self._lines.see(names)
        self._lines.step(self._by_user)
        return self._lines.take(max_requests, max_bytes, self._read)

    def _checked(self, taken: list[Taken]) -> list[Taken]:
        """Requests that have stood in no line: what they are too much for their users is marked."""
        by_user = Working()
        for number, one in enumerate(taken):
            by_user.add(one.uid, len(one.data))
            self._lines.note(one.uid)
            requests = self._by_user.requests[one.uid] + by_user.requests[one.uid]
            size = self._by_user.bytes[one.uid] + by_user.bytes[one.uid]
            if not self._may_have(one.uid, requests, size):
                taken[number] = one._replace(over=True)
        return taken

    # --- in the order in which they came ----------------------------------------------------------------------

    def _take_in_order(self, max_requests: int, max_bytes: int) -> list[Taken]:
        names = [] if self._backlog else self._scan()
        if len(names) > max_requests:
            names = self._by_age(names)
        self._backlog.extend(names)
        taken = self._read_next(max_requests, max_bytes)
        if self._backlog and 1 < len(names) <= max_requests:
            # The bytes of a group were used up before all of a short scan was read, in no order: now in that of age.
            self._backlog = deque(self._by_age(names))
            taken = self._read_next(max_requests, max_bytes)
        taken.sort(key=lambda t: (t.ctime_ns, t.name))
        return taken

    def _read_next(self, max_requests: int, max_bytes: int) -> list[Taken]:
        taken: list[Taken] = []
        looks = size = 0
        while self._backlog and looks < max_requests and size < max_bytes:
            one = self._read(self._backlog[0])
            self._backlog.popleft()
            looks += 1
            if one:
                taken.append(one)
                size += len(one.data)
        return taken

    def _read_all(self, names: list[str]) -> list[Taken]:
        found = [one for one in map(self._read, names) if one]
        found.sort(key=lambda t: (t.ctime_ns, t.name))
        return found

    def _read(self, name: str) -> Taken | None:
        """A request, or None. Raises ``OSError`` where the daemon is at fault; the name is then to be kept."""
        try:
            return self.requests.read(name)
        except OSError as error:
            if error.errno in _OUR_FAULT:
                raise
            log.error("request %r is put off: %s", name[:100], error)
            self.requests.leave(name, self.requests.inode(name) or 0)
            return None

    def _scan(self) -> list[str]:
        working, waiting = self._working, self._lines.here
        names, others = [], []
        for name in self.requests.files.listdir(self.requests.fd):
            if not name.endswith(REQUEST_SUFFIX):
                others.append(name)
            elif name not in working and name not in waiting:
                names.append(name)
        left = self.requests.are_left(names)
        if left:
            names = list(set(names).difference(left))
        if self._shared:
            self.strays.see(others)
            if len(left) > LEFT_HERE:
                self.requests.put_away(left)
                self._lines.see_unfit()
        return names

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

    def hold(self, taken: Taken) -> None:
        """The request is being worked on: looks pass over it until it is finished, set aside or postponed."""
        size = len(taken.data)
        self._working[taken.name] = (taken.inode, taken.uid, size)
        self._by_user.add(taken.uid, size)

    def _release(self, name: str) -> int:
        """The request is not worked on any more; its inode, 0 if it was not."""
        known = self._working.pop(name, None)
        if known is None:
            return 0
        inode, uid, size = known
        self._by_user.remove(uid, size)
        return inode

    def gone(self) -> list[str]:
        """Names of requests that are worked on whose file has vanished or was replaced; they are no longer."""
        here = ((name, inode) for name, (inode, _, _) in self._working.items() if not is_held(name))
        lost = [name for name, inode in here if self.requests.inode(name) != inode]
        for name in lost:
            self._release(name)
        return lost

    def open(self, name: str) -> int | None:
        """An fd of a request that is worked on, or None when its file is no longer the one that was read."""
        known = self._working.get(name)
        return self.requests.open(name, known[0]) if known else None

    def finish(self, name: str) -> None:
        """The request is answered: remove its file, if it is still the one that was read. Raises ``OSError``."""
        inode = self._release(name)
        if inode:
            try:
                self.requests.remove(name, inode)
            except OSError:
                self.requests.leave(name, inode)  # it is a repeat then
                raise

    def set_aside(self, name: str, reason: str) -> None:
        """Move a request that cannot be used to ``dead/``."""
        self._release(name)
        self.requests.set_aside(name, reason)

    def settles(self, taken: Taken) -> bool:
        """Whether a file that does not parse may still be under its writer's hands: it is then left for a while."""
        if not self.requests.is_young(taken.ctime_ns):
            return False
        self.postpone(taken)
        return True

    def put_off(self, name: str) -> None:
        """As ``postpone``, for a request that is worked on."""
        self.requests.leave(name, self._release(name))

    def postpone(self, taken: Taken) -> None:
        """Leave a request where it is and look at it again in a while."""
        self._release(taken.name)
        self.requests.leave(taken.name, taken.inode)
