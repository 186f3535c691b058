"""The users and groups of the device, as its databases know them: looked up once, then remembered for a while."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Final

#: Users whose groups are remembered.
USERS_LIMIT: Final = 1024


class Accounts:
    """What is not found is nobody: a name has no id, and a uid without an entry is in no group. Names are those of a
    configuration, so there are not many; uids are anybody's."""

    def __init__(self) -> None:
        self._user_ids: dict[str, int | None] = {}
        self._group_ids: dict[str, int | None] = {}
        self._groups: dict[int, frozenset[int]] = {}

    def user_id(self, name: str) -> int | None:
        """The uid of a user."""
        if name not in self._user_ids:
            try:
                self._user_ids[name] = pwd.getpwnam(name).pw_uid
            except KeyError:
                self._user_ids[name] = None
        return self._user_ids[name]

    def group_id(self, name: str) -> int | None:
        """The gid of a group."""
        if name not in self._group_ids:
            try:
                self._group_ids[name] = grp.getgrnam(name).gr_gid
            except KeyError:
                self._group_ids[name] = None
        return self._group_ids[name]

    def groups_of(self, uid: int) -> frozenset[int]:
        """The gids of all groups that a user is in, the primary one with them."""
        known = self._groups.get(uid)
        if known is None:
            if len(self._groups) >= USERS_LIMIT:
                self._groups.clear()
            known = self._groups[uid] = _groups(uid)
        return known

    def forget(self) -> None:
        """Look everything up anew."""
        self._user_ids.clear()
        self._group_ids.clear()
        self._groups.clear()


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


def _groups(uid: int) -> frozenset[int]:
    try:
        entry = pwd.getpwuid(uid)
        return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError, OverflowError):
        return frozenset()
