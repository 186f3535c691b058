"""A machine to install things on: this system's files under an overlay, with systemd as PID 1 in namespaces of its own.

What is done inside is gone with it. Only root can start one; nothing outside is changed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

SYSTEMD: Final = Path("/lib/systemd/systemd")
TOOLS: Final = ("unshare", "nsenter", "pivot_root", "mount", "setpriv")
#: Longest wait for anything that a machine does (s).
PATIENCE_S: Final = 60.0
#: Parts of a usual system that need hardware, take time, or would reach out.
MASKED: Final = (
    "avahi-daemon.socket",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "postgresql.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-modules-load.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-timesyncd.service",
    "systemd-udev-settle.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "timers.target",
)
TARGET: Final = """\
[Unit]
Description=All that a machine for tests needs
Requires=basic.target
After=basic.target
AllowIsolate=yes
"""
#: Runs in a mount namespace of its own, and goes on in a group of processes of its own.
OUTER: Final = """\
set -eu
mount --make-rprivate /
mkdir -p "$place/cgroup" "$place/root" "$place/work"
mount -t cgroup2 none "$place/cgroup"
group=$place/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/$name
mkdir "$group"
echo $$ >"$group/cgroup.procs"
exec unshare --pid --fork --kill-child --mount --ipc --uts --net --cgroup bash -c "$inner"
"""
#: Runs as PID 1 of the machine until systemd takes its place.
INNER: Final = """\
set -eu
root=$place/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$root"
for bound in $binds; do
    mkdir -p "$root${bound#*:}"
    mount --bind -o ro "${bound%%:*}" "$root${bound#*:}"
done
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
hostname machine
cd "$root"
mkdir -p .before
pivot_root . .before
umount -l /.before
exec env -i container=machine PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=machine.target --show-status=no --log-target=journal
"""


class MachineError(Exception):
    """The machine did not do what it was asked; the text shows what it said."""


def lacking() -> str:
    """What this system lacks to start a machine; empty where it can."""
    if os.geteuid() != 0:
        return "only root can make namespaces with an overlay"
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if not SYSTEMD.exists():
        missing.append(str(SYSTEMD))
    return f"not installed: {', '.join(missing)}" if missing else ""


class Machine:
    """One machine. ``root`` is where its files are put before it is started; nothing of the system below is changed.

    Used as a context manager: it is started by ``start``, and ended and removed with the block.
    """

    def __init__(self, binds: Mapping[Path, Path] | None = None) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="machine-"))
        self._place.chmod(0o755)
        self._binds = dict(binds or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.root = self._place / "upper"
        self.root.mkdir(mode=0o755)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file into the machine, before or after its start."""
        if self._process:
            self.run("install", "-D", f"--mode={mode:o}", "/dev/stdin", path, given=text)
            return
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def start(self) -> None:
        """Start it, and wait until systemd has started all that it should. Raises ``MachineError``."""
        units = self.root / "etc/systemd/system"
        units.mkdir(parents=True, exist_ok=True)
        for name in MASKED:
            (units / name).symlink_to("/dev/null")
        (units / "machine.target").write_text(TARGET)
        (self.root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        environment = {
            "PATH": os.environ["PATH"],
            "place": str(self._place),
            "name": self._place.name,
            "binds": " ".join(f"{source}:{target}" for source, target in self._binds.items()),
            "inner": INNER,
        }
        with (self._place / "console").open("wb") as console:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "bash", "-c", OUTER],  # it ends with its test
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
            )
        self.until(self._is_up, "the machine has started")

    def _is_up(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            raise MachineError(f"the machine has ended:\n{self.console()}")
        if not self._pid:
            own = f"/proc/{self._process.pid}/task/{self._process.pid}/children"
            try:
                child = Path(own).read_text().split()[0]
                if Path(f"/proc/{child}/comm").read_text() != "systemd\n":
                    return False
            except (FileNotFoundError, IndexError):
                return False  # it is on its way
            self._pid = int(child)
        return self.ask("systemctl", "is-active", "machine.target").returncode == 0

    def ask(self, *command: str, user: str = "root", given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command inside, as ``user``, and wait for its end, whatever its exit code; ``given`` is its input."""
        return subprocess.run(
            [*self.entering(user), *command], input=given, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def run(self, *command: str, user: str = "root", given: str = "") -> str:
        """As ``ask``; what it printed. Raises ``MachineError`` for an exit code that is not 0."""
        ended = self.ask(*command, user=user, given=given)
        if ended.returncode:
            raise MachineError(f"{shlex.join(command)}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def spawn(self, *command: str, user: str = "root") -> subprocess.Popen[str]:
        """Start a command inside, as ``user``, and do not wait for it."""
        return subprocess.Popen(
            [*self.entering(user), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def entering(self, user: str) -> Sequence[str]:
        """What stands before a command to run it inside."""
        inside = ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--ipc", "--uts", "--net", "--cgroup"]
        inside += ["--root", "--wdns=/", "env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        if user == "root":
            return inside
        return [*inside, "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait until something has happened. Raises ``MachineError`` when it takes too long."""
        end = time.monotonic() + PATIENCE_S
        while not happened():
            if time.monotonic() > end:
                raise MachineError(f"not within {PATIENCE_S:.0f} s: {what}\n{self.console()}")
            time.sleep(0.02)

    def console(self) -> str:
        """What was said last: by the start of the machine, or in its journal."""
        said = (self._place / "console").read_text(errors="replace")
        if self._pid:
            said += self.ask("journalctl", "--no-pager", "--lines=100").stdout
        return said

    def close(self) -> None:
        """End it, and remove all that was in it."""
        if self._process:
            self._process.kill()  # the kernel ends all that runs in it, by --kill-child
            self._process.wait()
            self._remove_group()
        shutil.rmtree(self._place)

    def _remove_group(self) -> None:
        script = (
            'mount -t cgroup2 none "$place/cgroup" && cd "$place/cgroup" && '
            'find . -depth -type d -path "*/$name*" -exec rmdir {} +'
        )
        environment = {"PATH": os.environ["PATH"], "place": str(self._place), "name": self._place.name}
        remove = ["unshare", "--mount", "bash", "-c", script]
        end = time.monotonic() + PATIENCE_S
        while subprocess.run(remove, env=environment, capture_output=True).returncode and time.monotonic() < end:
            time.sleep(0.02)  # the last processes are still going
