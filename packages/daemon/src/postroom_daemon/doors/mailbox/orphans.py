"""What is in ``requests/`` and is no request: unfinished files, and whatever else somebody has put there.

Every look at the requests lists it as well, so a user who leaves very much of it would slow down everybody. Of each
user the newest files stay; what is beyond is removed, oldest first. Nothing is followed, and no directory is entered.
"""

from __future__ import annotations

import logging
import stat
from collections import deque
from typing import Final

from .request_files import RequestFiles

log = logging.getLogger(__name__)

#: Files of one user that stay.
STRAYS_OF_A_USER: Final = 1000
#: Files that are removed in one step: some ten milliseconds.
REMOVED_A_STEP: Final = 1500


class Strays:
    """The files that are none."""

    def __init__(self, requests: RequestFiles) -> None:
        self.removed = 0
        self._requests = requests
        self._surplus: deque[str] = deque()
        self._enough = STRAYS_OF_A_USER
        self._removing = False

    @property
    def left(self) -> bool:
        """Whether something is still to be removed."""
        return bool(self._surplus)

    def see(self, names: list[str]) -> None:
        """These are there. Some of what is too much is removed."""
        if not self._surplus:
            if self._removing or len(names) <= STRAYS_OF_A_USER:
                # What stays, such as directories that are not empty, is not looked at again until there is more.
                self._enough = STRAYS_OF_A_USER + (len(names) if self._removing else 0)
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
                found = files.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # RACE: its writer has renamed it
            by_user.setdefault(found.st_uid, []).append((found.st_ctime_ns, name))
        surplus = []
        for uid, found_of_it in by_user.items():
            found_of_it.sort()
            too_many = found_of_it[: max(0, len(found_of_it) - STRAYS_OF_A_USER)]
            if too_many:
                log.warning(
                    "requests/ has %d files of uid %d that are no requests: the oldest %d are removed",
                    len(found_of_it),
                    uid,
                    len(too_many),
                )
            surplus += [name for _, name in too_many]
        return surplus

    def _remove(self, name: str) -> None:
        files, fd = self._requests.files, self._requests.fd
        try:
            found = files.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                files.rmdir(name, dir_fd=fd)  # one that is not empty stays
            else:
                files.unlink(name, dir_fd=fd)
        except OSError:
            return  # RACE: its writer has renamed it
        self.removed += 1
