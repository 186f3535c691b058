"""Snapshots by the console's own exporter, in this process: a program started for each would cost most of the time."""

from __future__ import annotations

import threading
from pathlib import Path

from postroom_console.export.making import Export
from postroom_console.export.request import Request
from postroom_console.places import find_places


def export(root: Path, out: Path) -> Path:
    """Write a snapshot of what a daemon serves into a folder, going on behind the last one there; its file.

    Raises as ``postroom_console.export.making.Export.run``.
    """
    made: list[Path | BaseException] = []

    def work() -> None:
        try:
            made.append(Export(find_places(root), Request(out), lambda: False, lambda seconds: None).run().path)
        except BaseException as error:
            made.append(error)

    # An exporter takes the lowest priority, for the whole of its thread.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]
