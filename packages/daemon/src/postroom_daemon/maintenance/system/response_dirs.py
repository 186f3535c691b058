"""The boxes of clients of other users: made for those who cannot do it themselves, and looked at."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from postroom_common.errors import PostroomError
from postroom_common.protocol import is_id

from ...config.config import Config
from ...platform.accounts import Accounts
from ...platform.files import DIRECTORY_FLAGS
from .layout import BOX_MODE, Finding, shown_group, shown_user


class BoxRefused(PostroomError):
    """A box cannot be made; the text says why."""


def add_box(config: Config, client_id: str, uid: int) -> bool:
    """Make the box of a client, or mend the modes of the one that it has. Whether it was made.

    It belongs to ``uid``, and the daemon writes into it as a member of its group. Only root can give it away.
    Raises ``BoxRefused``, ``OSError``.
    """
    if not is_id(client_id):
        raise BoxRefused(f"{client_id!r} cannot be a client id: letters, digits, . _ -, not first a sign, at most 128")
    registered = config.access.clients.get(client_id)
    if registered and registered.number(Accounts()) != uid:
        raise BoxRefused(f"client id {client_id} is registered for {registered.text} (clients in the configuration)")
    if os.geteuid() not in (0, uid):
        raise BoxRefused("only root can give a box to another user")
    path = config.settings.ipc_root / config.settings.ipc_responses_dir
    try:
        responses = os.open(path, DIRECTORY_FLAGS)
    except FileNotFoundError:
        raise BoxRefused(f"{path} is missing: make it, as postroomd check-permissions says") from None
    try:
        made = _make(responses, client_id)
        box = os.open(client_id, DIRECTORY_FLAGS, dir_fd=responses)
        try:
            # By descriptor: a name in there may be swapped by whoever owns it.
            found = os.fstat(box).st_uid
            if found != (os.geteuid() if made else uid):
                owner = shown_user(found)
                raise BoxRefused(
                    f"the box of {client_id} belongs to {owner}: remove {path / client_id} if it should not"
                )
            os.fchown(box, uid, os.fstat(responses).st_gid)
            os.fchmod(box, BOX_MODE)
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
            raise BoxRefused(f"there is something called {client_id} that is no directory: remove it") from None
        return False
    return True


def box_findings(config: Config, daemon_uid: int) -> Iterator[Finding]:
    """What is wrong with boxes: those that the daemon cannot write into, those that others can reach into, and those
    of a registered client id that belong to another user."""
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
            continue  # RACE: its client has removed it
        remove = _removal(responses, entry.name, found.st_ino)
        if not stat.S_ISDIR(found.st_mode):
            yield Finding("box", entry.path, f"is no directory; {shown_user(found.st_uid)} has made it", remove)
            continue
        if not is_id(entry.name):
            problem = f"is of no use: no client can be called so; {shown_user(found.st_uid)} has made it"
            yield Finding("box", entry.path, problem, remove)
            continue
        yield from _of_box(config, entry, found, daemon_uid, group)
        registered = config.access.clients.get(entry.name)
        if registered and registered.number(accounts) != found.st_uid:
            problem = f"is registered for {registered.text}, and belongs to {shown_user(found.st_uid)}"
            yield Finding("client", entry.path, problem, remove)


def _removal(responses: Path, name: str, inode: int) -> str:
    """The command that removes what a client has put there. It follows no link; and a name that could forge a line, or
    steer a terminal, is not said."""
    if name.isprintable():
        return f"rm -r {shlex.quote(str(responses / name))}"
    return f"find {shlex.quote(str(responses))} -maxdepth 1 -inum {inode} -exec rm -r {{}} +"


def _of_box(
    config: Config, entry: os.DirEntry[str], found: os.stat_result, daemon_uid: int, group: int
) -> Iterator[Finding]:
    mode, owner = stat.S_IMODE(found.st_mode), shown_user(found.st_uid)
    if found.st_uid == daemon_uid:
        writable = mode & 0o300 == 0o300
    else:
        writable = found.st_gid == group and mode & 0o030 == 0o030
    problems = []
    if not writable:
        problems.append("the daemon cannot put answers in")
    if mode & 0o007 or (mode & 0o070 and found.st_gid != group):
        problems.append(f"others than {owner} and the daemon reach its answers")
    if problems:
        known = f"belongs to {owner}:{shown_group(found.st_gid)} with the mode {mode:04o}"
        # Not chmod(1), given by root: the owner may have put a link there by then.
        mend = f"postroomd add-client {entry.name} --user {owner} --root {shlex.quote(str(config.root))}"
        yield Finding("box", entry.path, f"{known}: {', and '.join(problems)}", mend)
