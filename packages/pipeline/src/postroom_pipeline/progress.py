"""What is being done right now, for who waits at the terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_EVERY_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    """Tells of each stage on a stream: on a terminal one line that moves, and one that stays when the stage is done;
    elsewhere only the line that stays.
    """

    def __init__(self, session: SparkSession, stream: TextIO) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._stream = stream
        self._is_terminal = stream.isatty()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Tell of what the block does; a block that fails is left without its last line."""
        begun = time.monotonic()
        if not self._is_terminal:
            yield
        else:
            done = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(name, begun, done), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                done.set()
                watcher.join()
                self._write(_CLEAR_LINE)
        self.say(f"{name}: {time.monotonic() - begun:.1f} s")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{text}\n")

    def _watch(self, name: str, begun: float, done: threading.Event) -> None:
        while True:
            tasks, finished = self._tasks()
            share = f"  {finished:,} of {tasks:,} tasks" if tasks else ""
            self._write(f"{_CLEAR_LINE}{name}{share}  {time.monotonic() - begun:.0f} s")
            if done.wait(_LOOK_EVERY_S):
                return

    def _tasks(self) -> tuple[int, int]:
        """How many tasks the stages at work have, and how many of them are done."""
        stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numTasks for stage in known), sum(stage.numCompletedTasks for stage in known)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody looks any more; the work goes on
            self._is_terminal = False
