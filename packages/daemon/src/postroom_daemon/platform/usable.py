"""Whether this process may use a file, and advice for its owner if it may not."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .accounts import user_name

#: The access mode of a file that must be readable and writable.
CHANGE: Final = os.R_OK | os.W_OK


def first_unusable(needed: Iterable[tuple[Path, int]]) -> str:
    """The reason why this process may not use one of the paths with its access mode, and the command that fixes it; ""
    if it may use all of those that exist."""
    for path, mode in needed:
        full_mode = mode | os.X_OK if path.is_dir() else mode
        if os.path.exists(path) and not os.access(path, full_mode, effective_ids=True):
            return _advice(path, full_mode)
    return ""


def response_dir_advice(client_id: str, uid: int, path: Path, root: Path) -> str:
    """The command that lets the daemon of ``root`` write into the response directory ``path`` of a client, which
    belongs to ``uid``."""
    if uid == os.geteuid():
        return f"run: chmod u+rwx {shlex.quote(str(path))}"
    # Not chmod(1) by root: its owner may have put a link there by then.
    return f"run as root: {add_client_command(client_id, str(uid), root)}"


def add_client_command(client_id: str, user: str, root: Path) -> str:
    """The command that creates or corrects the response directory of a client."""
    options = f"--user {user} --root {shlex.quote(str(root))}"
    if client_id.startswith("-"):
        return f"postroomd add-client {options} -- {shlex.quote(client_id)}"
    return f"postroomd add-client {shlex.quote(client_id)} {options}"


def _advice(path: Path, mode: int) -> str:
    writes, uid, owner = mode & os.W_OK, os.geteuid(), os.lstat(path).st_uid
    if writes and os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path}: the file system is mounted read-only, but the daemon must write to it"
    quoted, me, wanted = shlex.quote(str(path)), user_name(uid) or str(uid), "change" if writes else "read"
    if owner == uid:
        return f"{path}: its mode denies access to its owner {me}: chmod u+rw{'x' * bool(mode & os.X_OK)} {quoted}"
    return (
        f"{path} belongs to the user {user_name(owner) or owner}, and {me} may not {wanted} it: run as root:"
        f" chown {me} {quoted}; postroomd check-permissions lists all such files"
    )
