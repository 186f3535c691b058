"""Checks that owners, groups and modes of a root let everybody use it who should, and nobody else.

The checks follow no link and change nothing. Modes in commands have five digits: with fewer, chmod(1) does not clear a
directory's setgid bit.
"""

from __future__ import annotations

import grp
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...config.config import Config
from ...doors.mailbox.directories import LOCK_NAME as LIVENESS_LOCK
from ...platform.accounts import primary_group
from ...root.locks import LOCK_NAME as ROOT_LOCK
from ...root.swap import MARKER_NAME
from .layout import (
    CLIENTS,
    DAEMON,
    TECHNICIANS,
    NoAccount,
    PermissionFinding,
    above,
    group_id,
    places,
    shown_group,
    shown_user,
    unit_findings,
)
from .response_dirs import response_dir_findings

__all__ = ["PermissionFinding", "Permissions", "permission_warnings"]

#: Places that the systemd unit hides from the daemon, or replaces by private ones.
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    stat: os.stat_result

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.stat.st_mode)


class Permissions:
    """One check of a root. ``several_users``: whether it serves clients of other users; None: by its modes."""

    def __init__(self, config: Config, several_users: bool | None = None) -> None:
        self._config = config
        found = config.root.stat()
        self._uid, self._gid = found.st_uid, found.st_gid
        self.several_users = self._looks_shared() if several_users is None else several_users

    def _looks_shared(self) -> bool:
        if shown_user(self._uid) == DAEMON:
            return True
        settings = self._config.settings
        ipc = _look(settings.ipc_root)
        if ipc is None or not ipc.mode & 0o077:
            return False
        places = (ipc, *(_look(ipc.path / name) for name in (settings.ipc_requests_dir, settings.ipc_responses_dir)))
        return any(place is not None and self._is_for_others(place) for place in places)

    def _is_for_others(self, found: _Found) -> bool:
        """Whether a directory is for other users: they may write into it, or it has a group of its own. The modes of a
        usual umask only let them read."""
        by_group = found.mode & 0o020 and found.stat.st_gid != primary_group(found.stat.st_uid)
        return bool(found.mode & 0o002 or by_group or found.stat.st_gid != self._gid)

    def findings(self) -> Iterator[PermissionFinding]:
        """Every problem."""
        yield from self.of_directories()
        yield from self._of_single_files()
        yield from self._of_files()
        if self.several_users:
            yield from response_dir_findings(self._config, self._uid)

    def of_directories(self) -> Iterator[PermissionFinding]:
        """Problems with accounts, directories and configuration. Fast, however many messages and clients there are."""
        if self.several_users:
            yield from self._of_accounts()
            yield from self._of_places()
            yield from unit_findings()
        else:
            yield from self._of_private_root()
        yield from self._of_parents()
        yield from self._of_configuration()

    def _of_accounts(self) -> Iterator[PermissionFinding]:
        for name in (DAEMON, CLIENTS, TECHNICIANS):
            try:
                group_id(name)
            except NoAccount as error:
                yield PermissionFinding("account", name, str(error), f"groupadd --system {name}")
        if self._uid == 0:
            yield PermissionFinding(
                "owner",
                str(self._config.root),
                "belongs to root, and the daemon should never run as root",
                f"chown {DAEMON}:{DAEMON} {shlex.quote(str(self._config.root))}",
            )
        try:
            others = [name for name in grp.getgrnam(DAEMON).gr_mem if name != DAEMON]
        except KeyError:
            others = []
        for name in others:
            problem = f"{name} is a member, and so can read the requests and answers of all clients"
            yield PermissionFinding("account", DAEMON, problem, f"gpasswd --delete {shlex.quote(name)} {DAEMON}")

    def _of_places(self) -> Iterator[PermissionFinding]:
        for place in places(self._config):
            found, quoted = _look(place.path), shlex.quote(str(place.path))
            owner = shown_user(self._uid)
            if found is None:
                make = f"install -d -o {owner} -g {place.group} -m {place.mode:04o} {quoted}"
                yield PermissionFinding("missing", str(place.path), f"is missing: {place.why}", make)
                continue
            if not stat.S_ISDIR(found.stat.st_mode):
                yield PermissionFinding("kind", str(place.path), "is not a directory", f"mv {quoted} {quoted}.aside")
                continue
            if found.stat.st_uid != self._uid:
                problem = f"belongs to {shown_user(found.stat.st_uid)}, not to {owner}"
                yield PermissionFinding("owner", str(place.path), problem, f"chown {owner} {quoted}")
            group = shown_group(found.stat.st_gid)
            if group != place.group:
                problem = f"has the group {group}, not {place.group}: {place.why}"
                yield PermissionFinding("group", str(place.path), problem, f"chgrp {place.group} {quoted}")
            if found.mode != place.mode:
                problem = f"has the mode {found.mode:04o}, not {place.mode:04o}: {place.why}"
                yield PermissionFinding("mode", str(place.path), problem, f"chmod {place.mode:05o} {quoted}")

    def _of_private_root(self) -> Iterator[PermissionFinding]:
        root = self._config.root
        found = _look(root)
        if found and found.mode & 0o077:
            problem = f"has the mode {found.mode:04o}: other users can access its content"
            yield PermissionFinding("mode", str(root), problem, f"chmod 00700 {shlex.quote(str(root))}")

    def _of_parents(self) -> Iterator[PermissionFinding]:
        settings = self._config.settings
        roots = [self._config.root, settings.ipc_root, settings.journal_root, settings.traffic_root]
        configured = [Path(os.path.realpath(self._config.file))] if self._config.file else []
        own = {place.path for place in places(self._config)}
        for path in above([*roots, *configured]):
            found = None if path in own else _look(path)
            if found is None:
                continue
            quoted = shlex.quote(str(path))
            if found.stat.st_uid not in (0, self._uid):
                problem = f"belongs to {shown_user(found.stat.st_uid)}, who can replace the root"
                yield PermissionFinding("parent", str(path), problem, f"chown root {quoted}")
            if self._others_write(found) and not found.mode & stat.S_ISVTX:
                problem = f"has the mode {found.mode:04o}: others can replace the root"
                yield PermissionFinding("parent", str(path), problem, f"chmod go-w {quoted}")
            if self.several_users and not found.mode & 0o001:
                problem = f"has the mode {found.mode:04o}: neither the daemon nor its clients can enter it"
                yield PermissionFinding("parent", str(path), problem, f"chmod o+x {quoted}")
        if self.several_users:
            yield from self._of_hidden_places(roots)

    def _others_write(self, found: _Found) -> bool:
        """Whether anybody but root and the daemon may write there."""
        by_group = found.mode & 0o020 and found.stat.st_gid not in (0, self._gid)
        return bool(found.mode & 0o002 or by_group)

    def _of_hidden_places(self, roots: list[Path]) -> Iterator[PermissionFinding]:
        for path in dict.fromkeys(roots):
            hidden = next((place for place in HIDDEN if path.is_relative_to(place)), None)
            if hidden:
                problem = f"is in {hidden}, which the daemon does not see under systemd"
                yield PermissionFinding("place", str(path), problem, "move it, such as to /var/lib/postroom")

    def _of_configuration(self) -> Iterator[PermissionFinding]:
        if self._config.file is None:
            return
        path = Path(os.path.realpath(self._config.file))
        for problem in self._config.access.open_denials(self._config.accounts):
            yield PermissionFinding(
                "access", str(path), problem, f"postroomd check-config --root {shlex.quote(str(self._config.root))}"
            )
        found = _look(path)
        if found is None:
            return
        quoted = shlex.quote(str(path))
        if found.stat.st_uid not in (0, self._uid):
            problem = f"belongs to {shown_user(found.stat.st_uid)}, who can change what the daemon does"
            yield PermissionFinding("configuration", str(path), problem, f"chown root {quoted}")
        if self._others_write(found):
            problem = f"has the mode {found.mode:04o}: others can change what the daemon does"
            yield PermissionFinding("configuration", str(path), problem, f"chmod go-w {quoted}")
        if found.stat.st_uid != self._uid and not found.mode & 0o004:
            yield PermissionFinding("configuration", str(path), "cannot be read by the daemon", f"chmod a+r {quoted}")

    def _of_single_files(self) -> Iterator[PermissionFinding]:
        root = self._config.root
        for path in (root / ROOT_LOCK, root / MARKER_NAME, self._config.settings.ipc_root / LIVENESS_LOCK):
            found = _look(path)
            if found and found.stat.st_uid != self._uid:
                problem = f"belongs to {shown_user(found.stat.st_uid)}: the daemon cannot change it"
                mend = f"chown --no-dereference {shown_user(self._uid)} {shlex.quote(str(path))}"
                yield PermissionFinding("owner", str(path), problem, mend)

    def _of_files(self) -> Iterator[PermissionFinding]:
        """Files of other users, which the daemon cannot change or remove; files that technicians cannot read, or that
        they can change."""
        settings, owner = self._config.settings, shown_user(self._uid)
        shown = {settings.journal_root, settings.traffic_root} if self.several_users else set()
        data = [settings.sqlite_db_path.parent, settings.filesystem_root, settings.hybrid_payload_root]
        inside = [*shown, settings.journal_root, settings.traffic_root, *data, self._config.quarantine_root]
        for top in dict.fromkeys(inside):
            strangers = unreadable = loose = 0
            if top == self._config.root or any(top != other and top.is_relative_to(other) for other in inside):
                continue
            for found in _below(top):
                strangers += found.stat.st_uid != self._uid
                readable = shown_group(found.stat.st_gid) == TECHNICIANS and found.mode & 0o040
                unreadable += top in shown and found.path.suffix == ".jsonl" and not readable
                loose += top in shown and not stat.S_ISLNK(found.stat.st_mode) and bool(found.mode & 0o022)
            quoted = shlex.quote(str(top))
            if strangers:
                mend = f"find {quoted} ! -user {owner} -exec chown --no-dereference {owner} {{}} +"
                problem = f"{strangers} files in it belong to other users: the daemon cannot change them"
                yield PermissionFinding("owner", str(top), problem, mend)
            if unreadable:
                mend = (
                    f"find {quoted} -name '*.jsonl' -exec chgrp {TECHNICIANS} {{}} +"
                    f" && find {quoted} -name '*.jsonl' -exec chmod g+r {{}} +"
                )
                yield PermissionFinding(
                    "group", str(top), f"{unreadable} files in it cannot be read by {TECHNICIANS}", mend
                )
            if loose:
                problem = f"{loose} files in it can be changed by {TECHNICIANS}, who should only read them"
                yield PermissionFinding(
                    "mode", str(top), problem, f"find {quoted} -perm /022 ! -type l -exec chmod go-w {{}} +"
                )


def permission_warnings(config: Config) -> list[str]:
    """Problems with the directories of a root that serves several users, as lines of the daemon's log."""
    permissions = Permissions(config)
    findings = permissions.of_directories() if permissions.several_users else ()
    return [f"{one.path}: {one.problem}; to correct it: {one.mend}" for one in findings]


def _look(path: Path) -> _Found | None:
    try:
        return _Found(path, os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _below(top: Path) -> Iterator[_Found]:
    """Everything below a directory; no link is followed."""
    waiting = [top]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            try:
                found = _Found(Path(entry.path), entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue  # RACE: the daemon works
            if stat.S_ISDIR(found.stat.st_mode):
                waiting.append(found.path)
            yield found
