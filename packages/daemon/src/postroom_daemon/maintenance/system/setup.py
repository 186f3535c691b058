"""``postroomd init --system``: sets up a system for which there is no package, as a package would."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from postroom_common.errors import PostroomError

from ...config.config import Config, load
from ...config.file import CONFIG_NAME
from ...platform.files import DIRECTORY_FLAGS
from .layout import CLIENTS, DAEMON, PACKAGED_UNITS, TECHNICIANS, NoAccount, group_id, places, user_id
from .permissions import HIDDEN, Permissions

Say = Callable[[str], None]

SHARE: Final = Path(__file__).with_name("share")
CONFIGURATION: Final = Path("/etc/postroom") / CONFIG_NAME
#: The program and the root that the files in ``share`` name.
_PROGRAM: Final = "/usr/bin/postroomd"
_ROOT: Final = "/var/lib/postroom"


class SetUpFailed(PostroomError):
    """The system cannot be set up; the text says why. What was done so far stays."""


def set_up(root: Path, configuration: str, say: Say) -> None:
    """Create users, groups, directories, a configuration file with the text ``configuration``, and what starts the
    daemon. Existing files stay as they are; owners and modes of directories are corrected.

    Raises ``SetUpFailed``, ``OSError``.
    """
    if os.geteuid() != 0:
        raise SetUpFailed("only root can set up a system")
    root = Path(os.path.abspath(root))
    program = service_program()
    _make_accounts(root, say)
    _make_configuration(root / CONFIG_NAME, configuration, say)
    _make_directories(root, say)
    start = _install_starters(root, program, say)
    left = list(Permissions(_config(root), several_users=True).findings())
    for finding in left:
        say(finding.text)
    if start:
        say(f"once you have corrected that, {start}" if left else start)
    say(f"clients: usermod --append --groups {CLIENTS} USER; technicians: --groups {CLIENTS},{TECHNICIANS}")


def _config(root: Path) -> Config:
    return load(root, None, {}, {})


def service_program() -> str:
    """The path of the command that the service starts. Raises ``SetUpFailed``."""
    started = os.path.abspath(sys.argv[0]) if os.sep in sys.argv[0] else ""
    named = [started, shutil.which("postroomd"), str(Path(sys.executable).with_name("postroomd"))]
    for path in named:
        if path and os.path.basename(path) == "postroomd" and os.access(path, os.X_OK):
            break
    else:
        raise SetUpFailed("there is no command postroomd: install it, or call it by its full path")
    for one in (path, sys.executable or path):  # an environment in /opt may use a Python in /root
        found = os.path.realpath(one)
        for place in HIDDEN:
            if found.startswith(place + os.sep):
                text = f"{found} is in {place}, which a service does not see"
                raise SetUpFailed(f"{text}: install it elsewhere, such as in /opt, with a Python that is elsewhere too")
    return path


def _make_accounts(root: Path, say: Say) -> None:
    if _accounts_are_there():
        return
    if shutil.which("systemd-sysusers"):
        _install("postroom.sysusers.conf", Path("/etc/sysusers.d/postroom.conf"), say)
        _run("systemd-sysusers", "/etc/sysusers.d/postroom.conf")
    elif shutil.which("useradd"):
        for group in (DAEMON, CLIENTS, TECHNICIANS):
            _run("groupadd", "--force", "--system", group)
        if not _is_there(user_id, DAEMON):
            shell = "/usr/sbin/nologin" if os.path.exists("/usr/sbin/nologin") else "/sbin/nologin"
            home = ("--no-create-home", "--home-dir", str(root), "--shell", shell)
            _run("useradd", "--system", "--gid", DAEMON, *home, DAEMON)
    elif shutil.which("adduser"):  # busybox
        for group in (DAEMON, CLIENTS, TECHNICIANS):
            if not _is_there(group_id, group):
                _run("addgroup", "-S", group)
        if not _is_there(user_id, DAEMON):
            _run("adduser", "-S", "-D", "-H", "-h", str(root), "-G", DAEMON, "-s", "/sbin/nologin", DAEMON)
    if not _accounts_are_there():
        raise SetUpFailed(
            f"create the user {DAEMON} and the groups {DAEMON}, {CLIENTS} and {TECHNICIANS}, and try again"
        )
    say(f"user {DAEMON}, groups {DAEMON}, {CLIENTS} and {TECHNICIANS}: created")


def _accounts_are_there() -> bool:
    return _is_there(user_id, DAEMON) and all(_is_there(group_id, name) for name in (DAEMON, CLIENTS, TECHNICIANS))


def _is_there(find: Callable[[str], int], name: str) -> bool:
    try:
        find(name)
    except NoAccount:
        return False
    return True


def _make_configuration(used: Path, text: str, say: Say) -> None:
    CONFIGURATION.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _own(CONFIGURATION.parent, 0, group_id(DAEMON), 0o775)  # migrate and restore change the backend in it
    if used.exists() and not used.is_symlink():  # the root served one user before
        say(f"{used}: exists, and is the one that applies: {CONFIGURATION} is not created")
        return
    try:
        fd = os.open(CONFIGURATION, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        say(f"{CONFIGURATION}: exists")
        return
    with os.fdopen(fd, "w") as file:
        file.write(text)
    say(f"{CONFIGURATION}: created")


def _make_directories(root: Path, say: Say) -> None:
    root.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    done = "corrected" if os.path.lexists(root) else "created"
    changed = _make_place(root, root, DAEMON, 0o711)
    link = root / CONFIG_NAME
    if not os.path.lexists(link):
        link.symlink_to(CONFIGURATION)
    for place in places(_config(root)):
        if place.path.is_relative_to(root):
            changed |= _make_place(root, place.path, place.group, place.mode)
        elif not os.path.lexists(place.path):
            say(f"{place.path}: is outside of {root}: create it yourself")
    say(f"{root} with its directories: {done if changed else 'exist'}")


def _make_place(root: Path, path: Path, group: str, mode: int) -> bool:
    """Create or correct a directory at or below ``root``, whose owner may be anybody: no link is followed on the way.
    Returns whether anything was changed."""
    fd = os.open(root.parent, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    try:
        for name in path.relative_to(root.parent).parts:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
            except FileExistsError:
                pass
            inner = os.open(name, DIRECTORY_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = inner
        found, wanted = os.fstat(fd), (user_id(DAEMON), group_id(group), mode)
        if (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == wanted:
            return False
        os.fchown(fd, *wanted[:2])
        os.fchmod(fd, mode)
        return True
    finally:
        os.close(fd)


def _own(path: Path, uid: int, gid: int, mode: int) -> None:
    fd = os.open(path, DIRECTORY_FLAGS)
    try:
        os.fchown(fd, uid, gid)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _install_starters(root: Path, program: str, say: Say) -> str:
    """Install what starts the daemon. Returns how to start it; "" if a package has installed it already."""
    if shutil.which("systemctl"):
        if any(os.path.exists(f"{directory}/postroomd.service") for directory in PACKAGED_UNITS):
            say("postroomd.service: exists, from a package")
            return ""
        _install("postroom.tmpfiles.conf", Path("/etc/tmpfiles.d/postroom.conf"), say, root)
        _install("postroomd.service", Path("/etc/systemd/system/postroomd.service"), say, root, program)
        if os.path.isdir("/run/systemd/system"):
            _run("systemctl", "daemon-reload")
        return "start it with: systemctl enable --now postroomd"
    if shutil.which("openrc-run"):
        _install("postroomd.openrc", Path("/etc/init.d/postroomd"), say, root, program, 0o755)
        return "start it with: rc-update add postroomd && rc-service postroomd start"
    if shutil.which("runsvdir"):
        _install("postroomd.runit", Path("/etc/sv/postroomd/run"), say, root, program, 0o755)
        _install("postroomd.runit-log", Path("/etc/sv/postroomd/log/run"), say, root, program, 0o755)
        return "start it with: ln -s /etc/sv/postroomd /etc/service/"
    return f"start it as the user {DAEMON}: {program} run --root {root}"


def _install(
    name: str, target: Path, say: Say, root: Path = Path(_ROOT), program: str = _PROGRAM, mode: int = 0o644
) -> None:
    """Install a file of ``share`` for this root and this program; an existing one stays."""
    text = (SHARE / name).read_text().replace(_PROGRAM, program).replace(_ROOT, str(root))
    if os.path.lexists(target):
        same = stat.S_ISREG(target.lstat().st_mode) and target.read_text() == text
        differs = (
            ""
            if same
            else ", and differs from the one that would be created: to replace it, remove it and run this again"
        )
        say(f"{target}: exists{differs}")
        return
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w") as file:
        file.write(text)
    say(f"{target}: created")


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode:
        raise SetUpFailed(f"{' '.join(command)} failed: {(ended.stderr or ended.stdout).strip()}")
