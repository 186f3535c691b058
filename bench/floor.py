"""The C floor: compiled where there is a compiler, run beside the daemon on the same directory's file system."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("floor.c")
GROUP = 32
#: Sizes of what the daemon reads and writes for one publish of the load.
EVENT_BYTES = 470
RESPONSE_BYTES = 190
REQUEST_BYTES = 330
_TIMEOUT_S = 120


@dataclass(slots=True)
class Floor:
    """The compiled program and a directory for it to work in."""

    program: Path
    directory: Path

    def requests(
        self,
        count: int,
        group: int = GROUP,
        event: int = EVENT_BYTES,
        response: int = RESPONSE_BYTES,
        request: int = REQUEST_BYTES,
    ) -> tuple[float, float]:
        """CPU microseconds per request, and requests per second; in groups of so many, with so many bytes of each."""
        cpu_us, per_second = self._run("requests", str(count), group, event, response, request)
        return cpu_us, per_second

    def syncs(self, milliseconds: int) -> tuple[float, float]:
        """Appends of one event, each with an fdatasync: how many per second, and the median of one in microseconds."""
        per_second, median_us = self._run("sync", milliseconds, EVENT_BYTES)
        return per_second, median_us

    def _run(self, what: str, *arguments: object) -> list[float]:
        # What it made stays until the end: on some file systems, files are made slowly after many were deleted.
        place = tempfile.mkdtemp(dir=self.directory)
        done = subprocess.run(
            [self.program, what, place, *map(str, arguments)], check=True, stdout=subprocess.PIPE, timeout=_TIMEOUT_S
        )
        return [float(word) for word in done.stdout.split()]


def build(directory: Path) -> Floor | None:
    """Compile the floor into ``directory``; None where there is no C compiler. Raises ``CalledProcessError``."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    program = directory / "floor"
    subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True, timeout=_TIMEOUT_S)
    return Floor(program, directory)
