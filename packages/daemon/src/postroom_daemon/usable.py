"""Whether this process may use the files of a root.

Looked at before anything is opened: what another user owns, as after a copy that root has made, is no damage, and must
not be set aside as if it were.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .accounts import user_name
from .backends import places
from .config import Config
from .locks import LOCK_NAME as ROOT_LOCK
from .mailbox.sign import LOCK_NAME as SIGN_NAME
from .reserve import RESERVE_NAME
from .segments import list_segments
from .settings import Settings

_CHANGE: Final = os.R_OK | os.W_OK


def hindrance(config: Config) -> str:
    """What keeps this process from the journal and the store, and what to do about it; "" where nothing does."""
    return _first_of(_kept(config))


def mailbox_hindrance(settings: Settings) -> str:
    """As ``hindrance``, of the mailbox."""
    ipc = settings.ipc_root
    names = (settings.ipc_requests_dir, settings.ipc_responses_dir, settings.ipc_dead_dir, settings.ipc_held_dir)
    return _first_of((path, _CHANGE) for path in (ipc, *(ipc / name for name in (*names, SIGN_NAME))))


def _first_of(needed: Iterator[tuple[Path, int]]) -> str:
    for path, mode in needed:
        whole = mode | os.X_OK if path.is_dir() else mode
        if os.path.exists(path) and not os.access(path, whole, effective_ids=True):
            return _told(path, whole)
    return ""


def _kept(config: Config) -> Iterator[tuple[Path, int]]:
    """Files and directories, those above first, and what must be possible with them."""
    settings = config.settings
    kept = places(settings) if settings.backend != "memory" else []
    for directory in dict.fromkeys((config.root, settings.journal_root, *(path.parent for path in kept))):
        yield directory, _CHANGE
    inside = (config.root / ROOT_LOCK, settings.journal_root / ROOT_LOCK, settings.journal_root / RESERVE_NAME)
    yield from ((path, _CHANGE) for path in inside)
    segments = [path for _, path in list_segments(settings.journal_root)] if settings.journal_root.is_dir() else []
    yield from ((path, os.R_OK) for path in segments[:-1])
    yield from ((path, _CHANGE) for path in segments[-1:])
    yield from ((path, _CHANGE) for path in kept)
    meta = settings.filesystem_root / settings.filesystem_meta_dir
    if settings.filesystem_root in kept and meta.is_dir():
        yield meta, _CHANGE
        yield from ((path, os.R_OK) for path in sorted(meta.iterdir()))


def _told(path: Path, mode: int) -> str:
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
