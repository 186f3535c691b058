"""The cost of a command and of all processes that it starts, in total and at each line of its output."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_LOOK_EVERY_S: Final = 0.1
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A command ended with another status than 0; the text is the end of what it said."""


@dataclass(slots=True)
class Told:
    """A line of the command's error output, and what all processes had taken when it came."""

    text: str
    seconds: float
    cpu_s: float


@dataclass(slots=True)
class Cost:
    """What a command took. ``rss_mb`` is the most that all processes had resident at one look, shared pages twice."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    output: str = ""
    told: list[Told] = field(default_factory=list)


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> Cost:
    """Run it to its end. What a process takes in its last tenth of a second is not seen. Raises ``Failed``."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
        start_new_session=True,
    )
    watch = _Watch(process.pid)
    cost = Cost()
    assert process.stdout and process.stderr
    output: list[str] = []
    reader = threading.Thread(target=output.extend, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        with watch:
            for line in process.stderr:
                cost.told.append(Told(line.rstrip(), time.monotonic() - begun, watch.look()))
            process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    cost.seconds = time.monotonic() - begun
    cost.cpu_s, cost.rss_mb = watch.cpu_s, watch.rss_mb
    reader.join()
    cost.output = "".join(output)
    if process.returncode:
        raise Failed("\n".join(told.text for told in cost.told[-5:]) or f"status {process.returncode}")
    return cost


class _Watch:
    """Looks at all processes of a session until it is left."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._cpu: dict[tuple[int, str], float] = {}
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.rss_mb = 0.0

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    def look(self) -> float:
        """Look now; CPU seconds until here."""
        with self._looking:
            resident = 0
            for place in Path("/proc").iterdir():
                words = _stat(place) if place.name.isdigit() else []
                if words and int(words[3]) == self._session:
                    key = (int(place.name), words[19])  # its start: numbers are used again
                    if key in self._cpu:  # a child on its way to another program still shows all of its parent's memory
                        resident += int(words[21])
                    self._cpu[key] = (int(words[11]) + int(words[12])) / _TICKS
            self.rss_mb = max(self.rss_mb, resident * os.sysconf("SC_PAGE_SIZE") / 1e6)
            return self.cpu_s

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            self.look()

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _stat(place: Path) -> list[str]:
    """The words of ``/proc/PID/stat`` behind the name, the state first; none where the process is gone."""
    try:
        return (place / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
