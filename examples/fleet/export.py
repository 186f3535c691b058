"""Snapshots by the console's own exporter, in this process: a program started for each would cost most of the time."""

from __future__ import annotations

import threading
from pathlib import Path

from postroom_console.export.exporter import Exporter
from postroom_console.export.request import ExportRequest
from postroom_console.paths import find_paths


def export(root: Path, out: Path) -> Path:
    """Write a snapshot of what a daemon serves into a folder, going on behind the last one there; its file.

    Raises as ``postroom_console.export.exporter.Exporter.run``.
    """
    made: list[Path | BaseException] = []

    def work() -> None:
        try:
            made.append(Exporter(find_paths(root), ExportRequest(out), lambda: False, lambda seconds: None).run().path)
        except BaseException as error:
            made.append(error)

    # An exporter takes the lowest priority, for the whole of its thread.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]
