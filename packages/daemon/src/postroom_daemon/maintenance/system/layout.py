"""Who works with a root that serves several users, and what each of its directories has to be for that."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from postroom_common.errors import PostroomError

from ...config.config import Config
from ...platform.accounts import Accounts, group_name, user_name
from ...platform.logs.records import escaped

#: The user that the daemon runs as, and its group.
DAEMON: Final = "postroom"
#: The group whose members may use the mailbox.
CLIENTS: Final = "postroom-clients"
#: The group whose members may read journal and traffic.
TECHNICIANS: Final = "postroom-ops"

#: A client puts files or boxes in, which take the directory's group, and cannot list or remove what others have put in.
DROP_MODE: Final = 0o3733
#: A client's box: the daemon writes into it as a member of its group.
BOX_MODE: Final = 0o770


class NoAccount(PostroomError):
    """There is no user or group of a name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory: ``group`` by its name, and why it is as it is."""

    path: Path
    group: str
    mode: int
    why: str


def places(config: Config) -> list[Place]:
    """The directories of a root that serves several users, each behind those that it lies in. All are the daemon's."""
    settings = config.settings
    ipc = settings.ipc_root
    stores = [settings.sqlite_db_path.parent, settings.filesystem_root, settings.hybrid_payload_root]
    private = [*stores, settings.snapshots_root]
    # The store's directories are made when they are used; most lie in one another.
    apart = [path for path in dict.fromkeys(private) if path != config.root and (path == private[0] or path.exists())]
    logs = [Path(settings.paths_log_root)] if settings.paths_log_root else []
    data = "messages are the daemon's alone"
    return [
        Place(config.root, DAEMON, 0o711, "the way to the mailbox, of which nobody sees what else is there"),
        *(Place(path, DAEMON, 0o700, data) for path in apart),
        Place(settings.journal_root, TECHNICIANS, 0o2750, "technicians read it; its files take its group"),
        Place(settings.traffic_root, TECHNICIANS, 0o2750, "technicians read it; its files take its group"),
        *(Place(path, TECHNICIANS, 0o2750, "technicians read it; its files take its group") for path in logs),
        Place(ipc, CLIENTS, 0o710, "only members of the group reach the mailbox"),
        Place(ipc / settings.ipc_requests_dir, DAEMON, DROP_MODE, "clients put requests in, and do not see others'"),
        Place(ipc / settings.ipc_responses_dir, DAEMON, DROP_MODE, "clients make their boxes in it"),
        Place(ipc / settings.ipc_dead_dir, DAEMON, 0o700, "requests that were set aside are the daemon's alone"),
        Place(ipc / settings.ipc_held_dir, DAEMON, 0o700, "requests that wait for their turn are the daemon's alone"),
    ]


def user_id(name: str) -> int:
    """The uid of a user, who may be given by a number, too. Raises ``NoAccount``."""
    found = Accounts().user_id(name)
    if found is None:
        if name.isdecimal():
            return int(name)
        raise NoAccount(f"there is no user {name}")
    return found


def group_id(name: str) -> int:
    """The gid of a group. Raises ``NoAccount``."""
    found = Accounts().group_id(name)
    if found is None:
        raise NoAccount(f"there is no group {name}")
    return found


def shown_user(uid: int) -> str:
    """The name of a user; the number where there is none."""
    return user_name(uid) or str(uid)


def shown_group(gid: int) -> str:
    """The name of a group; the number where there is none."""
    return group_name(gid) or str(gid)


def above(paths: list[Path]) -> Iterator[Path]:
    """The directories above some, each once, from / downwards."""
    yield from sorted({parent for path in paths for parent in Path(os.path.abspath(path)).parents}, key=str)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. ``path`` is what it is about (of an account: its name), ``mend`` what to
    do, as root: a command of a shell, where one line is enough."""

    kind: str
    path: str
    problem: str
    mend: str

    def to_json(self) -> dict[str, str]:
        """The finding as ``--json`` prints it."""
        return asdict(self)

    @property
    def text(self) -> str:
        """For people, in two lines: names in it may be anybody's."""
        return f"{escaped(self.path)}: {escaped(self.problem)}\n    {escaped(self.mend)}"


#: Where systemd looks for units of packages.
PACKAGED_UNITS: Final = ("/usr/lib/systemd/system", "/lib/systemd/system")
_RELOAD: Final = " && systemctl daemon-reload"
#: Files of ours, the places of those of packages, and what follows the removal.
_HIDING: Final = (
    ("/etc/systemd/system/postroomd.service", PACKAGED_UNITS, _RELOAD),
    ("/etc/tmpfiles.d/postroom.conf", ("/usr/lib/tmpfiles.d",), ""),
    ("/etc/sysusers.d/postroom.conf", ("/usr/lib/sysusers.d",), ""),
)


def unit_findings() -> Iterator[Finding]:
    """Files in /etc that systemd reads in place of those of a package. A link there is an administrator's, such as of a
    unit that is masked."""
    for own, places, then in _HIDING:
        packaged = [path for place in places if os.path.exists(path := f"{place}/{os.path.basename(own)}")]
        if packaged and _is_file(own):
            problem = f"hides {packaged[0]}, which a package has brought: upgrades of that have no effect"
            yield Finding("unit", own, problem, f"rm {shlex.quote(own)}{then}")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
