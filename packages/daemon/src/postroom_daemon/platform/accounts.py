"""The users and groups of the device, from its databases (files, LDAP, SSSD, ...).

A database may be a network service that takes seconds to answer. So threads beside the loop refresh the cached entries
and look up the groups of new users, see ``Accounts.has_groups``.
"""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import pwd
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

#: Maximum number of users whose groups are cached.
USERS_LIMIT: Final = 1024
#: Longest wait of the loop for a lookup (s); one in /etc/passwd takes a thousandth of it.
LOOKUP_WAIT_S: Final = 0.02
#: Maximum number of users that are looked up at the same time, each by a thread.
LOOKUPS_LIMIT: Final = 8
#: Maximum number of groups of one user: twice what Linux lets a process have.
_GROUPS_LIMIT: Final = 2 * 65536
_C: Final = ctypes.CDLL(None)


class _Entries(NamedTuple):
    """Results of lookups: ids by name, and the groups of users by uid."""

    user_ids: dict[str, int | None]
    group_ids: dict[str, int | None]
    groups: dict[int, frozenset[int] | None]


class Accounts:
    """A cache of the databases. A name without an entry has no id, and a uid without an entry has no groups. Names come
    from the configuration, so there are few; uids may be anybody's.

    A name that once had a number keeps it, even if its entry disappears: a rule that keeps a user out stays in force.
    """

    def __init__(self) -> None:
        self._cached = _Entries({}, {}, {})
        self._results: SimpleQueue[_Entries] = SimpleQueue()
        self._pending_uids: set[int] = set()
        self._refreshing: threading.Thread | None = None

    def user_id(self, name: str) -> int | None:
        """The uid of a user. Blocks for a lookup the first time."""
        user_ids = self._cached.user_ids
        if name not in user_ids:
            user_ids[name] = _user_id(name)
        return user_ids[name]

    def group_id(self, name: str) -> int | None:
        """The gid of a group. Blocks for a lookup the first time."""
        group_ids = self._cached.group_ids
        if name not in group_ids:
            group_ids[name] = _group_id(name)
        return group_ids[name]

    def groups_of(self, uid: int) -> frozenset[int] | None:
        """The gids of all groups of a user, including the primary one; None for a uid without an entry. Blocks for a
        lookup unless they are cached."""
        if uid not in self._cached.groups:
            self._remember(uid, _groups(uid))
        return self._cached.groups[uid]

    def has_groups(self, uid: int) -> bool:
        """Whether ``groups_of`` a user would answer without a lookup. If not, this starts one: ask again later."""
        groups = self._cached.groups
        if uid in groups:
            return True
        self.apply_refresh()
        if uid not in groups and uid not in self._pending_uids and len(self._pending_uids) < LOOKUPS_LIMIT:
            self._pending_uids.add(uid)
            thread = self._start(lambda: _Entries({}, {}, {uid: _groups(uid)}))
            if len(self._pending_uids) == 1:  # once one lookup is late, do not wait for further ones
                thread.join(LOOKUP_WAIT_S)
                self.apply_refresh()
        return uid in groups

    def refresh(self) -> None:
        """Start to look up all cached entries again; ``apply_refresh`` takes over the results."""
        if self._refreshing and self._refreshing.is_alive():
            return
        cached = self._cached
        users, groups, uids = list(cached.user_ids), list(cached.group_ids), list(cached.groups)

        def look() -> _Entries:
            return _Entries(
                {name: _user_id(name) for name in users},
                {name: _group_id(name) for name in groups},
                {uid: _groups(uid) for uid in uids},
            )

        self._refreshing = self._start(look)
        self._refreshing.join(LOOKUP_WAIT_S)

    def apply_refresh(self) -> bool:
        """Take over the results of lookups that have ended. Returns whether any entry changed."""
        changed = False
        while not self._results.empty():
            result = self._results.get()
            for cached, fresh in zip(self._cached[:2], result[:2], strict=True):
                numbers = {name: number for name, number in fresh.items() if number is not None}
                changed |= not numbers.items() <= cached.items()
                cached.update(numbers)
            for uid, gids in result.groups.items():
                self._pending_uids.discard(uid)
                changed |= uid not in self._cached.groups or self._cached.groups[uid] != gids
                self._remember(uid, gids)
        return changed

    def _remember(self, uid: int, gids: frozenset[int] | None) -> None:
        groups = self._cached.groups
        groups[uid] = gids
        if len(groups) > USERS_LIMIT:
            del groups[next(iter(groups))]

    def _start(self, look: Callable[[], _Entries]) -> threading.Thread:
        thread = threading.Thread(target=lambda: self._results.put(look()), name="accounts", daemon=True)
        thread.start()  # a daemon thread: the process can exit although a service does not answer
        return thread


def primary_group(uid: int) -> int | None:
    """The gid of a user's primary group; None if there is no such user."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return None


def user_name(uid: int) -> str:
    """The name of a uid, "" for one without an entry."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def group_name(gid: int) -> str:
    """The name of a gid, "" for one without an entry."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return ""


def _user_id(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _group_id(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _groups(uid: int) -> frozenset[int] | None:
    try:
        entry = pwd.getpwuid(uid)
        return frozenset(_group_list(os.fsencode(entry.pw_name), entry.pw_gid))
    except (KeyError, OSError, OverflowError):
        return None


def _group_list(name: bytes, gid: int) -> list[int]:
    """Call getgrouplist(3). Python's own holds the GIL meanwhile, and so stops all threads. Raises ``OSError``."""
    size = 64
    while size <= _GROUPS_LIMIT:
        gids, count = (ctypes.c_uint * size)(), ctypes.c_int(size)
        if _C.getgrouplist(name, ctypes.c_uint(gid), gids, ctypes.byref(count)) >= 0:
            return gids[: count.value]
        size = max(2 * size, count.value)
    raise OSError(errno.E2BIG, "too many groups")
