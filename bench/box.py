"""A small box: a daemon with 128 MB of memory and half a core, as the kernel enforces it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEMORY_MB: Final = 128
_MEMORY_BYTES: Final = MEMORY_MB << 20
_PERIOD_US: Final = 100_000
_QUOTA_US: Final = _PERIOD_US // 2
_CGROUPS: Final = Path("/sys/fs/cgroup")
_TIMEOUT_S: Final = 30


class NoBox(Exception):
    """This machine has no means to limit a process; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Box:
    """How a process gets into the box: what stands before its command, and what it does before that is executed."""

    how: str
    prefix: Sequence[str] = ()
    enter: Callable[[], None] = lambda: None


NO_BOX: Final = Box("no limits")


@contextmanager
def small_box() -> Iterator[Box]:
    """A box for the length of a block: a scope of systemd; else a cgroup (version 2) of our own; else a cgroup
    (version 1) for the CPU, and for memory the limit of a process. Raises ``NoBox``."""
    if Path("/run/systemd/system").is_dir() and shutil.which("systemd-run"):
        yield _scope()
    elif os.geteuid():
        raise NoBox("without systemd, only root can make a cgroup")
    elif {"cpu", "memory"} <= set(_words(_CGROUPS / "cgroup.controllers")):
        with _group(
            _CGROUPS, {"memory.max": _MEMORY_BYTES, "memory.swap.max": 0, "cpu.max": f"{_QUOTA_US} {_PERIOD_US}"}
        ) as enter:
            yield Box("a cgroup", enter=enter)
    elif (_CGROUPS / "cpu" / "cpu.cfs_quota_us").exists():
        limits = {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": _QUOTA_US}
        with _group(_CGROUPS / "cpu", limits) as enter:
            # The memory controller of version 1 would take the process out of the group that it is in.
            yield Box(
                "a cgroup for the CPU, RLIMIT_DATA for memory: the cache of files is not limited", enter=_both(enter)
            )
    else:
        raise NoBox(f"{_CGROUPS} has no controllers for CPU and memory")


def _scope() -> Box:
    limits = (f"MemoryMax={MEMORY_MB}M", "MemorySwapMax=0", f"CPUQuota={100 * _QUOTA_US // _PERIOD_US}%")
    user = ["--user"] if os.geteuid() else []
    prefix = ["systemd-run", *user, "--scope", "--quiet", *(word for one in limits for word in ("-p", one)), "--"]
    tried = subprocess.run(
        [*prefix, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=_TIMEOUT_S
    )
    if tried.returncode:
        raise NoBox(f"systemd-run: {tried.stderr.strip()}")
    return Box("a scope of systemd", prefix)


@contextmanager
def _group(parent: Path, limits: Mapping[str, int | str]) -> Iterator[Callable[[], None]]:
    group = parent / f"postroom-bench-{os.getpid()}"
    try:
        if (parent / "cgroup.subtree_control").exists():
            (parent / "cgroup.subtree_control").write_text("+cpu +memory")
        group.mkdir()
    except OSError as error:
        raise NoBox(f"a cgroup cannot be made: {error}") from error
    try:
        for name, value in limits.items():
            (group / name).write_text(str(value))
        yield lambda: _join(group)
    finally:
        group.rmdir()


def _join(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


def _both(enter: Callable[[], None]) -> Callable[[], None]:
    def enter_and_limit() -> None:
        enter()
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))

    return enter_and_limit


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
