"""Files of snapshots: which names are read, and the reasons for which a file or a snapshot is not taken in.

The reasons that are about the lines of one snapshot are ``postroom_common.snapshot_reader.Reason``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Files of lines, by the end of their names.
GZIP: Final = ".jsonl.gz"
PLAIN: Final = ".jsonl"
ZSTD: Final = ".jsonl.zst"
FINISHED: Final = (GZIP, PLAIN, ZSTD)
#: Archives of files. A reader of lines would silently lose the first line of each member.
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip", ".7z", ".rar")
#: Files that are being copied, or were left behind by a copy: they get another name, or never become complete.
STAGED: Final = (".part", ".tmp", ".partial", ".filepart", ".crdownload", "._COPYING_")
#: The first bytes of every gzip member that Postroom writes: no name, no time, level 6, no system.
GZIP_MEMBER: Final = bytes.fromhex("1f8b08000000000000ff")

# Reasons about a file.
ARCHIVE: Final = "archive"
UNKNOWN_NAME: Final = "unknown_name"
EMPTY: Final = "empty"
TOO_LARGE: Final = "too_large"
UNREADABLE: Final = "unreadable"
VANISHED: Final = "vanished"
CHANGED: Final = "changed"

# Reasons about a complete snapshot.
#: A snapshot with this id and this content is already there.
DUPLICATE: Final = "duplicate"
#: A snapshot with this id and other content is already there.
OTHER_CONTENT: Final = "other_content"
#: A bundle lists it and does not contain it.
MISSING: Final = "missing"

_LOCAL: Final = "file:"


def local_path(place: str) -> Path | None:
    """The path of a place on this machine, with or without the scheme; None for another file system."""
    path = place.removeprefix(_LOCAL)
    if ":" in path.partition("/")[0]:
        return None
    return Path(path if place == path else "/" + path.lstrip("/"))
