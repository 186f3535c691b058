"""Whether this process may use a file, and what its owner does about it where it may not."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .accounts import user_name

#: The access mode of a file that is to be read and changed.
CHANGE: Final = os.R_OK | os.W_OK


def first_unusable(needed: Iterable[tuple[Path, int]]) -> str:
    """The first of the paths that exists and may not be used as its access mode demands: the reason and the command
    that mends it; "" when all may be used."""
    for path, mode in needed:
        whole = mode | os.X_OK if path.is_dir() else mode
        if os.path.exists(path) and not os.access(path, whole, effective_ids=True):
            return _advice(path, whole)
    return ""


def _advice(path: Path, mode: int) -> str:
    writes, uid, owner = mode & os.W_OK, os.geteuid(), os.lstat(path).st_uid
    if writes and os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path}: the file system is mounted read-only, and the daemon must write there"
    quoted, me, wanted = shlex.quote(str(path)), user_name(uid) or str(uid), "change" if writes else "read"
    if owner == uid:
        return f"{path}: its mode keeps its own user {me} from it: chmod u+rw{'x' * bool(mode & os.X_OK)} {quoted}"
    return (
        f"{path} belongs to the user {user_name(owner) or owner}, and {me} may not {wanted} it: give it back, as root,"
        f" with chown {me} {quoted}; postroomd check-permissions finds all such files"
    )
