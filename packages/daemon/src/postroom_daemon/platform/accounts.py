"""The users and groups of the device, as its databases know them.

A database may be a service, and take seconds to answer. So what is known is looked up anew by a thread beside the loop;
the groups of a user who is new are as well, see ``Accounts.knows``.
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

#: Users whose groups are remembered.
USERS_LIMIT: Final = 1024
#: A look-up is waited for so long (s): the files of the device take a thousandth of it.
PATIENCE_S: Final = 0.02
#: Users that are looked up at a time, in a thread each.
ASKED_LIMIT: Final = 8
#: Groups of one user: Linux lets a process have so many.
_GROUPS_LIMIT: Final = 2 * 65536
_C: Final = ctypes.CDLL(None)


class _Found(NamedTuple):
    """What was looked up: ids by name, and the groups of users by uid."""

    user_ids: dict[str, int | None]
    group_ids: dict[str, int | None]
    groups: dict[int, frozenset[int] | None]


class Accounts:
    """What is not found is nobody: a name has no id, and a uid without an entry has no groups that are known. Names are
    those of a configuration, so there are not many; uids are anybody's.

    A name that was found once keeps a number, whatever becomes of it: a rule that keeps a user out goes on to do so.
    """

    def __init__(self) -> None:
        self._known = _Found({}, {}, {})
        self._news: SimpleQueue[_Found] = SimpleQueue()
        self._asked: set[int] = set()
        self._looking: threading.Thread | None = None

    def user_id(self, name: str) -> int | None:
        """The uid of a user. Looked up at once for the first time."""
        known = self._known.user_ids
        if name not in known:
            known[name] = _user_id(name)
        return known[name]

    def group_id(self, name: str) -> int | None:
        """The gid of a group. Looked up at once for the first time."""
        known = self._known.group_ids
        if name not in known:
            known[name] = _group_id(name)
        return known[name]

    def groups_of(self, uid: int) -> frozenset[int] | None:
        """The gids of all groups that a user is in, the primary one with them; None for a uid without an entry. Looked
        up at once where they are not known."""
        if uid not in self._known.groups:
            self._remember(uid, _groups(uid))
        return self._known.groups[uid]

    def knows(self, uid: int) -> bool:
        """Whether ``groups_of`` a user can be told at once. Else they are looked up from now on: ask again."""
        known = self._known.groups
        if uid in known:
            return True
        self.take_news()
        if uid not in known and uid not in self._asked and len(self._asked) < ASKED_LIMIT:
            self._asked.add(uid)
            thread = self._beside(lambda: _Found({}, {}, {uid: _groups(uid)}))
            if len(self._asked) == 1:  # while one does not come, the others are not waited for
                thread.join(PATIENCE_S)
                self.take_news()
        return uid in known

    def look_again(self) -> None:
        """Look all up anew that is known; ``take_news`` lets it count."""
        if self._looking and self._looking.is_alive():
            return
        known = self._known
        users, groups, uids = list(known.user_ids), list(known.group_ids), list(known.groups)

        def look() -> _Found:
            return _Found(
                {name: _user_id(name) for name in users},
                {name: _group_id(name) for name in groups},
                {uid: _groups(uid) for uid in uids},
            )

        self._looking = self._beside(look)
        self._looking.join(PATIENCE_S)

    def take_news(self) -> bool:
        """Let count what was looked up since. Whether anything is other than it was."""
        changed = False
        while not self._news.empty():
            news = self._news.get()
            for known, found in zip(self._known[:2], news[:2], strict=True):
                better = {name: number for name, number in found.items() if number is not None}
                changed |= not better.items() <= known.items()
                known.update(better)
            for uid, gids in news.groups.items():
                self._asked.discard(uid)
                changed |= uid not in self._known.groups or self._known.groups[uid] != gids
                self._remember(uid, gids)
        return changed

    def _remember(self, uid: int, gids: frozenset[int] | None) -> None:
        known = self._known.groups
        known[uid] = gids
        if len(known) > USERS_LIMIT:
            del known[next(iter(known))]

    def _beside(self, look: Callable[[], _Found]) -> threading.Thread:
        thread = threading.Thread(target=lambda: self._news.put(look()), name="accounts", daemon=True)
        thread.start()  # a daemon that ends does not wait for a service that does not answer
        return thread


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
    """getgrouplist(3). That of Python stops all threads as long as it lasts. Raises ``OSError``."""
    size = 64
    while size <= _GROUPS_LIMIT:
        found, count = (ctypes.c_uint * size)(), ctypes.c_int(size)
        if _C.getgrouplist(name, ctypes.c_uint(gid), found, ctypes.byref(count)) >= 0:
            return found[: count.value]
        size = max(2 * size, count.value)
    raise OSError(errno.E2BIG, "in more groups than there may be")
