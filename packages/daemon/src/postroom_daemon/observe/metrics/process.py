"""What the daemon's process uses."""

from __future__ import annotations

import os
import resource

from . import table
from .exposition import Exposition


def add_process(out: Exposition) -> None:
    """Add CPU, memory and open files; what the system does not tell is left out."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    out.add(table.CPU_SECONDS, used.ru_utime + used.ru_stime)
    out.add(table.MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        with open("/proc/self/statm", "rb") as file:
            out.add(table.MEMORY, int(file.read().split()[1]) * resource.getpagesize())
        out.add(table.OPEN_FDS, len(os.listdir("/proc/self/fd")))
    except OSError:  # no /proc: not Linux
        pass
