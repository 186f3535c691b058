"""The machine of a measurement, and its state."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: The kernel counts in sectors of this size, whatever the device has.
_SECTOR_BYTES = 512


def describe(directory: Path) -> dict[str, Any]:
    """The machine and its state now; ``directory`` is where the data will lie."""
    kind, mount, options = file_system(directory)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memoryMb": _memory_kb() // 1024,
        "kernel": platform.release(),
        "fileSystem": kind,
        "mount": mount,
        "mountOptions": options,
        "loadAverage": load_average(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "orjson": version("orjson"),
        "postroomDaemon": version("postroom-daemon"),
        "compiled": _is_compiled(),
    }


def _is_compiled() -> bool:
    """Whether the daemon that is imported here, and that every process started from here runs, is machine code."""
    spec = find_spec("postroom_daemon.broker.transaction")
    return bool(spec and spec.origin and spec.origin.endswith(".so"))


def text(found: dict[str, Any]) -> str:
    """The description for people."""
    return (
        f"{found['date']}\n"
        f"machine   {found['cpu']}, {found['cores']} cores, {found['memoryMb']:,} MB, Linux {found['kernel']}\n"
        f"data      {found['fileSystem']} on {found['mount']} ({found['mountOptions']})\n"
        f"software  Python {found['python']}, SQLite {found['sqlite']}, orjson {found['orjson']},"
        f" postroom-daemon {found['postroomDaemon']} ({'compiled' if found['compiled'] else 'interpreted'})\n"
        f"load      {found['loadAverage']} (averages over 1, 5, 15 minutes, at the start)"
    )


def text_at_end(found: dict[str, Any]) -> str:
    """The description at the end of a measurement, for people."""
    return (
        f"took {found['seconds']} s, load {found['loadAverageAtEnd']} at the end;"
        f" other guests of the host took {found['stolenPercent']:.1f} % of this machine's CPU time meanwhile"
    )


def cpu_times() -> list[int]:
    """All cores' ticks since the boot, by kind, as the kernel counts them."""
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]


def stolen_percent(before: list[int], after: list[int]) -> float:
    """The share of CPU time between two ``cpu_times`` that a hypervisor gave to others."""
    spent = [late - early for early, late in zip(before, after, strict=True)][:8]
    return 100 * spent[7] / max(1, sum(spent))


def load_average() -> str:
    """The three load averages."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def file_system(directory: Path) -> tuple[str, str, str]:
    """Kind, mount point and options of the file system of a directory."""
    best = ("unknown", "/", "")
    real = directory.resolve()
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options = line.split()[:4]
        place = Path(mount.replace("\\040", " "))
        if real.is_relative_to(place) and len(str(place)) >= len(best[1]):
            best = (kind, str(place), options)
    return best


def cautions(directory: Path, kind: str) -> list[str]:
    """Reasons to doubt figures from this file system."""
    if kind in ("tmpfs", "ramfs"):
        return ["this file system lies in memory: nothing here says anything about durable work"]
    if kind == "ext4":
        number = directory.stat().st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        if not list(Path("/proc/fs/jbd2").glob(f"{device}-*")):
            return ["ext4 without a journal makes files slowly after many were deleted; see docs/performance.md"]
    return []


def device_written_bytes(directory: Path) -> int | None:
    """Bytes that the block device below a directory has been given to write, by anybody; None if there is none. What
    waits in memory is written first. (A process's own ``write_bytes`` counts a large folio for each byte in it.)"""
    os.sync()
    device = directory.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except OSError:
        return None
    return int(fields[6]) * _SECTOR_BYTES


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _memory_kb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
