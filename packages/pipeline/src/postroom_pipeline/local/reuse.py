"""A report that was made of the same tables with the same arguments, and is still as it was written, is not made again.

That is known by a note in the report's directory, without Spark: files of tables never change, and have new names when
they are replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ..files import local_path

#: The note.
NOTE: Final = ".made-of.json"
#: Directories beside the tables from which no report is made.
_NO_GROUND: Final = ("bronze", "unknown", "runs")


def ground_of(tables: str, arguments: Mapping[str, object]) -> str | None:
    """A digest of all from which a report is made; None if the tables are not on this machine."""
    place = local_path(tables)
    if place is None or not place.is_dir():
        return None
    files = []
    for directory, below, names in os.walk(place):
        if Path(directory) == place:
            below[:] = [name for name in below if not name.startswith(("_", ".")) and name not in _NO_GROUND]
            continue
        files += [os.path.relpath(os.path.join(directory, name), place) for name in names if name.endswith(".parquet")]
    ground = [version("postroom-pipeline"), str(place.absolute()), sorted(files), dict(arguments)]
    return hashlib.sha256(json.dumps(ground, sort_keys=True, default=str).encode()).hexdigest()


def made_of(target: str, ground: str) -> str | None:
    """The path to open of a report that was made of this ground; None if there is none, or any of its files was changed
    or deleted."""
    place = local_path(target)
    try:
        note = json.loads((place / NOTE).read_text()) if place else {}
        is_made = place is not None and note.get("ground") == ground and note["files"].items() <= _files(place).items()
        return str(note["opens"]) if is_made else None
    except (OSError, ValueError, AttributeError, KeyError):
        return None


def note_made(target: str, ground: str, opens: str) -> None:
    """Note of what a report was made."""
    place = local_path(target)
    if place is not None and place.is_dir():
        note = {"ground": ground, "opens": opens, "files": _files(place)}
        (place / NOTE).write_text(json.dumps(note))


def _files(place: Path) -> dict[str, Any]:
    """Size and time of every file of a directory, by its path."""
    files: dict[str, Any] = {}
    for directory, _, names in os.walk(place):
        for name in names:
            if not name.startswith("."):
                path = os.path.join(directory, name)
                status = os.stat(path)
                files[os.path.relpath(path, place)] = f"{status.st_size} {status.st_mtime_ns}"
    return files
