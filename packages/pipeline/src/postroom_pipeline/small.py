"""Whether a run has so little to do that Spark should do it at once, instead of preparing for much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .config import SMALL_INPUT_BYTES

_LOCAL: Final = "file:"


def is_small(place: str) -> bool:
    """Whether a directory on this machine, of snapshots or of tables, holds few bytes, all that lies below it counted.

    Snapshots that were taken in before lie there too as a rule, so tables that are made of them are small as well.
    False where it cannot be told without Spark.
    """
    path = place.removeprefix(_LOCAL)
    if ":" in path.partition("/")[0]:
        return False
    if place != path:
        path = "/" + path.lstrip("/")
    left = SMALL_INPUT_BYTES
    for size in _sizes(Path(path)):
        left -= size
        if left < 0:
            return False
    return os.path.isdir(path)


def _sizes(place: Path) -> Iterator[int]:
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                yield os.stat(os.path.join(directory, name)).st_size
            except OSError:  # gone meanwhile, or a link to nothing
                continue
