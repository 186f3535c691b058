"""Whether a directory of snapshots has anything new, by a note beside the tables: known without Spark.

A run leaves the note when every file of the directory is settled. It is a short form of ``inventory``, valid for
exactly the files of that table that it names; the content of every file of the directory is hashed and compared.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
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

#: Hex digits of a digest, and of each of the numbers into which it is cut to be added up.
DIGEST: Final = 64
PART: Final = 16

#: Names and sizes of files.
Sizes = Iterable[tuple[str, int]]


def note_of(hashes: Sequence[int], names: Sequence[int], inventory: Sizes) -> str:
    """The text of the note.

    :param hashes: ``sums_of`` the hashes of all files that were read, each once.
    :param names: ``sums_of`` the hashes of the lengths and names of all files that are not read.
    :param inventory: the files of the table ``inventory``.
    """
    return json.dumps({"hashes": [*hashes], "names": [*names], "inventory": sorted([*map(list, inventory)])})


def sums_of(digests: Iterable[str]) -> list[int]:
    """Of SHA-256 digests, cut into four numbers each, the sum of the first ones, of the second ones, and so on.

    They do not depend on the order, so that executors can add up their parts: nothing is collected in one place.
    """
    sums = [0] * (DIGEST // PART)
    for digest in digests:
        for number, place in enumerate(range(0, DIGEST, PART)):
            sums[number] += int(digest[place : place + PART], 16)
    return sums


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
            names.append(hashlib.sha256(f"{size} {path.name}".encode()).hexdigest())
    inventory = [(one.name, one.stat().st_size) for one in (target / INVENTORY).iterdir() if not _is_hidden(one.name)]
    return note_of(sums_of(hashes), sums_of(names), inventory)


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


def _raise(error: OSError) -> None:
    raise error
