"""Users and groups of a root that serves several users, and the owner, group and mode of each of its directories."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from postroom_common.errors import PostroomError
from postroom_common.logs.records import escaped

from ...config.config import Config
from ...platform.accounts import Accounts, group_name, user_name

#: The user that the daemon runs as, and its group.
DAEMON: Final = "postroom"
#: The group whose members may use the mailbox.
CLIENTS: Final = "postroom-clients"
#: The group whose members may read journal and traffic.
TECHNICIANS: Final = "postroom-ops"

#: Clients create files or directories, which get the directory's group, and cannot list or remove those of others.
DROP_MODE: Final = 0o3733
#: A client's response directory: the daemon writes into it as a member of its group.
RESPONSE_DIR_MODE: Final = 0o770


class NoAccount(PostroomError):
    """There is no user or group with this name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory: the name of its ``group``, its mode, and the reason for them."""

    path: Path
    group: str
    mode: int
    why: str


def places(config: Config) -> list[Place]:
    """The directories of a root that serves several users, parents first. All belong to the daemon."""
    settings = config.settings
    ipc = settings.ipc_root
    stores = [settings.sqlite_db_path.parent, settings.filesystem_root, settings.hybrid_payload_root]
    private = [*stores, settings.snapshots_root]
    # The store's directories are created when they are used; most are inside one another.
    apart = [path for path in dict.fromkeys(private) if path != config.root and (path == private[0] or path.exists())]
    logs = [Path(settings.paths_log_root)] if settings.paths_log_root else []
    data = "only the daemon may read messages"
    return [
        Place(config.root, DAEMON, 0o711, "clients pass through it to the mailbox, and cannot list it"),
        *(Place(path, DAEMON, 0o700, data) for path in apart),
        Place(settings.journal_root, TECHNICIANS, 0o2750, "technicians read it; its files take its group"),
        Place(settings.traffic_root, TECHNICIANS, 0o2750, "technicians read it; its files take its group"),
        *(Place(path, TECHNICIANS, 0o2750, "technicians read it; its files take its group") for path in logs),
        Place(ipc, CLIENTS, 0o710, "only members of the group reach the mailbox"),
        Place(
            ipc / settings.ipc_requests_dir, DAEMON, DROP_MODE, "clients write requests, and cannot see those of others"
        ),
        Place(ipc / settings.ipc_responses_dir, DAEMON, DROP_MODE, "clients create their response directories in it"),
        Place(ipc / settings.ipc_dead_dir, DAEMON, 0o700, "only the daemon may read rejected requests"),
        Place(ipc / settings.ipc_held_dir, DAEMON, 0o700, "only the daemon may read spilled requests"),
    ]


def user_id(name: str) -> int:
    """The uid of a user, given by name or number. Raises ``NoAccount``."""
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
    """The name of a user; the number if there is none."""
    return user_name(uid) or str(uid)


def shown_group(gid: int) -> str:
    """The name of a group; the number if there is none."""
    return group_name(gid) or str(gid)


def above(paths: list[Path]) -> Iterator[Path]:
    """The parent directories of some paths, each once, from / downwards."""
    yield from sorted({parent for path in paths for parent in Path(os.path.abspath(path)).parents}, key=str)


@dataclass(frozen=True, slots=True)
class PermissionFinding:
    """One problem. ``path`` is the file or directory (for an account: its name), ``mend`` what root does about it: a
    shell command, if one line is enough."""

    kind: str
    path: str
    problem: str
    mend: str

    def to_json(self) -> dict[str, str]:
        """The finding as ``--json`` prints it."""
        return asdict(self)

    @property
    def text(self) -> str:
        """Two lines of text. Names are escaped, because users choose them."""
        return f"{escaped(self.path)}: {escaped(self.problem)}\n    {escaped(self.mend)}"


#: Where systemd finds the units of packages.
PACKAGED_UNITS: Final = ("/usr/lib/systemd/system", "/lib/systemd/system")
_RELOAD: Final = " && systemctl daemon-reload"
#: Files of ``init --system``, the places of those of packages, and what follows the removal.
_HIDING: Final = (
    ("/etc/systemd/system/postroomd.service", PACKAGED_UNITS, _RELOAD),
    ("/etc/tmpfiles.d/postroom.conf", ("/usr/lib/tmpfiles.d",), ""),
    ("/etc/sysusers.d/postroom.conf", ("/usr/lib/sysusers.d",), ""),
)


def unit_findings() -> Iterator[PermissionFinding]:
    """Files in /etc that hide those of a package from systemd. A link there is the administrator's, such as that of a
    masked unit."""
    for own, places, then in _HIDING:
        packaged = [path for place in places if os.path.exists(path := f"{place}/{os.path.basename(own)}")]
        if packaged and _is_file(own):
            problem = f"hides {packaged[0]}, which a package installed: its upgrades have no effect"
            yield PermissionFinding("unit", own, problem, f"rm {shlex.quote(own)}{then}")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
