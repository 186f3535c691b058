"""Response directories of clients of other users: creates them for clients that cannot, and checks them."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from postroom_common.errors import PostroomError
from postroom_common.protocol import ID_RULE, is_id

from ...config.config import Config
from ...platform.accounts import Accounts
from ...platform.files import DIRECTORY_FLAGS
from ...platform.usable import add_client_command
from .layout import RESPONSE_DIR_MODE, PermissionFinding, shown_group, shown_user


class ResponseDirRefused(PostroomError):
    """A response directory cannot be created; the text says why."""


def add_response_dir(config: Config, client_id: str, uid: int) -> bool:
    """Create the response directory of a client, or correct an existing one. Returns whether it was created.

    It belongs to ``uid``, and the daemon writes into it as a member of its group. Only root can create it for others.
    Raises ``ResponseDirRefused``, ``OSError``.
    """
    if not is_id(client_id):
        raise ResponseDirRefused(f"{client_id!r} cannot be a client id, which has {ID_RULE}")
    registered = config.access.clients.get(client_id)
    if registered and registered.number(Accounts()) != uid:
        raise ResponseDirRefused(
            f"client id {client_id} is registered for {registered.text} (clients in the configuration)"
        )
    if os.geteuid() not in (0, uid):
        raise ResponseDirRefused("only root can create a response directory for another user")
    path = config.settings.ipc_root / config.settings.ipc_responses_dir
    try:
        responses = os.open(path, DIRECTORY_FLAGS)
    except FileNotFoundError:
        raise ResponseDirRefused(f"{path} is missing: create it, as postroomd check-permissions says") from None
    try:
        made = _make(responses, client_id)
        box = os.open(client_id, DIRECTORY_FLAGS, dir_fd=responses)
        try:
            # By descriptor: its owner may swap a name in there.
            found = os.fstat(box).st_uid
            if found != (os.geteuid() if made else uid):
                owner = shown_user(found)
                raise ResponseDirRefused(f"{path / client_id} belongs to {owner}: remove it if it should not")
            os.fchown(box, uid, os.fstat(responses).st_gid)
            os.fchmod(box, RESPONSE_DIR_MODE)
        finally:
            os.close(box)
    finally:
        os.close(responses)
    return made


def _make(responses: int, client_id: str) -> bool:
    try:
        os.mkdir(client_id, 0o700, dir_fd=responses)
    except FileExistsError:
        found = os.stat(client_id, dir_fd=responses, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise ResponseDirRefused(f"{client_id} exists, and is not a directory: remove it") from None
        return False
    return True


def response_dir_findings(config: Config, daemon_uid: int) -> Iterator[PermissionFinding]:
    """Problems with response directories: those into which the daemon cannot write, those that others can access, and
    those of a registered client id that belong to another user."""
    responses = config.settings.ipc_root / config.settings.ipc_responses_dir
    try:
        group = os.stat(responses).st_gid
        entries = sorted(os.scandir(responses), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    accounts = Accounts()
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # RACE: its client removed it
        remove = _removal(responses, entry.name, found.st_ino)
        if not stat.S_ISDIR(found.st_mode):
            yield PermissionFinding(
                "box", entry.path, f"is not a directory; {shown_user(found.st_uid)} created it", remove
            )
            continue
        if not is_id(entry.name):
            problem = f"is not a possible client id; {shown_user(found.st_uid)} created it"
            yield PermissionFinding("box", entry.path, problem, remove)
            continue
        yield from _of_response_dir(config, entry, found, daemon_uid, group)
        registered = config.access.clients.get(entry.name)
        if registered and registered.number(accounts) != found.st_uid:
            problem = f"is registered for {registered.text}, but belongs to {shown_user(found.st_uid)}"
            yield PermissionFinding("client", entry.path, problem, remove)


def _removal(responses: Path, name: str, inode: int) -> str:
    """The command that removes what a client created there. It follows no link, and does not contain a name that could
    forge a line or control a terminal."""
    if name.isprintable():
        return f"rm -r {shlex.quote(str(responses / name))}"
    return f"find {shlex.quote(str(responses))} -maxdepth 1 -inum {inode} -exec rm -r {{}} +"


def _of_response_dir(
    config: Config, entry: os.DirEntry[str], found: os.stat_result, daemon_uid: int, group: int
) -> Iterator[PermissionFinding]:
    mode, owner = stat.S_IMODE(found.st_mode), shown_user(found.st_uid)
    if found.st_uid == daemon_uid:
        writable = mode & 0o700 == 0o700
    else:
        writable = found.st_gid == group and mode & 0o070 == 0o070
    problems = []
    if not writable:
        problems.append("the daemon cannot write answers into it")
    if mode & 0o007 or (mode & 0o070 and found.st_gid != group):
        problems.append(f"users other than {owner} and the daemon can access its answers")
    if problems:
        known = f"belongs to {owner}:{shown_group(found.st_gid)} with the mode {mode:04o}"
        mend = add_client_command(entry.name, owner, config.root)
        yield PermissionFinding("box", entry.path, f"{known}: {', and '.join(problems)}", mend)
