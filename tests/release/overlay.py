"""This machine as it is, and as it would be after changes: a layer over its root directory that is thrown away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from release.packages import ROOT

#: What of the machine must not be there: the checkout, and the environment that runs the tests.
HIDDEN = (ROOT, Path(sys.prefix))
PATIENCE_S = 300

_ENTER = """
set -e
root=$1; upper=$2; work=$3; hidden=$4; shift 4
mount -t overlay overlay -o "lowerdir=/,upperdir=$upper,workdir=$work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp" -o mode=1777
for directory in $hidden; do
    [ ! -d "$root$directory" ] || mount -t tmpfs tmpfs "$root$directory"
done
mkdir "$root/tmp/in"
mount --bind "$upper/../in" "$root/tmp/in"
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
"""
_AS_USER = 'user=$1; shift; exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"'


class Overlay:
    """A copy of this machine below ``directory``, which must not be on an overlay itself. Needs root.

    What a command changes is there for the next one. Its processes end with it, and it has no service manager.
    ``incoming`` is ``/tmp/in`` in there.
    """

    def __init__(self, directory: Path) -> None:
        self.upper, self.incoming = directory / "upper", directory / "in"
        self._root, self._work = directory / "root", directory / "work"
        for path in (self.upper, self.incoming, self._root, self._work):
            path.mkdir(parents=True)

    def try_run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in there as root."""
        hidden = " ".join(map(str, HIDDEN))
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh"]
        places = [self._root, self.upper, self._work, hidden]
        return subprocess.run(
            [*enter, *map(str, places), *map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def run(self, *command: str | Path) -> str:
        """As ``try_run``; it must succeed. Its output."""
        done = self.try_run(*command)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, script: str, *arguments: str, user: str = "") -> str:
        """Run a shell script in there, which must succeed; as another user where one is named. Its output."""
        change = ["sh", "-euc", _AS_USER, "sh", user] if user else []
        return self.run(*change, "sh", "-euc", script, "sh", *arguments)

    def changed(self) -> set[str]:
        """Paths of files, links and directories without anything in them that are not as on this machine."""
        found = set()
        for directory, names, files in os.walk(self.upper):
            inside = Path("/") / Path(directory).relative_to(self.upper)
            found |= {str(inside / name) for name in files}
            if not names and not files and not inside.is_dir():
                found.add(str(inside))
        return found

    def exists(self, path: str) -> bool:
        """Whether there is something in there at a path that is not on this machine."""
        return os.path.lexists(self.upper / path.lstrip("/")) and not _is_whiteout(self.upper / path.lstrip("/"))


def _is_whiteout(path: Path) -> bool:
    """Whether the layer says that something of the machine is gone: a device without a number."""
    status = os.lstat(path)
    return os.major(status.st_rdev) == os.minor(status.st_rdev) == 0 and (status.st_mode & 0o170000) == 0o020000


def outside_of(paths: Iterable[str], *prefixes: str) -> list[str]:
    """Those that are not below any of the prefixes."""
    return sorted(path for path in paths if not path.startswith(prefixes))
