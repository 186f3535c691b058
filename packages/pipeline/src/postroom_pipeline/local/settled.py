"""Whether a directory of snapshots has anything new, by a note beside the tables: known without Spark.

A run leaves the note when every file of the directory is settled. It is a short form of ``inventory``, valid for
exactly the files of that table that it names; the content of every file of the directory is hashed and compared.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ..files import ARCHIVE, EMPTY, FINISHED, STAGED, UNKNOWN_NAME, local_path
from ..spark.warehouse import LOCK, STAGING, locked_locally

#: The note.
NOTE: Final = "_settled.json"
#: A file that exists while tables have rows that the reports do not cover.
BEHIND: Final = "_reports_are_behind"
INVENTORY: Final = "inventory"
#: Reasons for which a file is not read, and will never be as long as it has this name and length.
FOR_GOOD: Final = (ARCHIVE, UNKNOWN_NAME, EMPTY)

#: Names and sizes of files.
Sizes = Iterable[tuple[str, int]]


def note_of(hashes: str, names: str, inventory: Sizes) -> str:
    """The text of the note.

    :param hashes: the SHA-256 of the hashes of all files that were read, each once, sorted and joined.
    :param names: the SHA-256 of the lengths and names of all files that are not read, sorted and joined by newlines.
    :param inventory: the files of the table ``inventory``.
    """
    return json.dumps({"hashes": hashes, "names": names, "inventory": sorted([*map(list, inventory)])})


def is_settled(landing: str, tables: str, who: str, *, reports: bool) -> bool:
    """Whether a run would find nothing to do. False if that is not known without Spark.

    :param reports: whether the run would build reports that are behind.
    :raises Occupied: another run is writing the tables.
    """
    source, target = local_path(landing), local_path(tables)
    if source is None or target is None or not (target / NOTE).is_file() or not source.is_dir():
        return False
    with locked_locally(target / LOCK, who):
        if reports and (target / BEHIND).exists():
            return False
        try:
            if (target / STAGING).is_dir() and any((target / STAGING).iterdir()):  # a run was killed
                return False
            return _found(source, target) == (target / NOTE).read_text()
        except (OSError, UnicodeError, ValueError):  # what it is, the run itself will say
            return False


def _found(source: Path, target: Path) -> str:
    """The note as it would be now.

    :raises ValueError: the directory has a link to another one, which may have anything.
    """
    hashes: set[str] = set()
    names: list[str] = []
    for path, size in _files(source):
        if size and path.name.endswith(FINISHED):
            with path.open("rb") as file:
                hashes.add(hashlib.file_digest(file, "sha256").hexdigest())
        else:
            names.append(f"{size} {path.name}")
    inventory = [(one.name, one.stat().st_size) for one in (target / INVENTORY).iterdir() if not _is_hidden(one.name)]
    return note_of(_digest("".join(sorted(hashes))), _digest("\n".join(sorted(names))), inventory)


def _files(source: Path) -> Iterator[tuple[Path, int]]:
    """The files that Spark lists, with their sizes; those that are being copied are left out."""
    for directory, below, names in os.walk(source, onerror=_raise):
        below[:] = [name for name in below if not _is_hidden(name)]
        if any(os.path.islink(os.path.join(directory, name)) for name in below):
            raise ValueError(directory)
        for name in names:
            if not _is_hidden(name) and not name.endswith(STAGED):
                path = Path(directory, name)
                yield path, path.stat().st_size


def _is_hidden(name: str) -> bool:
    """Whether Spark leaves out a file or directory of this name."""
    is_metadata = name.startswith(("_common_metadata", "_metadata"))
    return name.startswith(".") or (name.startswith("_") and "=" not in name and not is_metadata)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _raise(error: OSError) -> None:
    raise error
