"""What to do about a file of the tables that cannot be read."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

#: What Spark, Hadoop and Parquet say of a damaged file. One that is gone was replaced by a run: that is another case.
_DAMAGED: Final = re.compile(r"\[FAILED_READ_FILE\.(?!FILE_NOT_EXIST)|Checksum error: |is not a Parquet file")
_FILE: Final = re.compile(r"(?:file:/+|[a-z0-9]+://[^/\s]*/|/)[^:]*?\.parquet")
_LOCAL: Final = re.compile(r"^file:/+")


def advice(text: str) -> str | None:
    """What to do, if an error of Spark says that a file of the tables is damaged; otherwise None.

    :param text: the error, by ``errors.one_line``.
    """
    from ..reports import BUILT

    named = _FILE.search(text)
    if named is None or not _DAMAGED.search(text):
        return None
    file = unquote(_LOCAL.sub("/", named[0]))
    parts = file.split("/")
    report = next((place for place in reversed(range(len(parts))) if parts[place] in BUILT), None)
    if report is None:
        return f"{file} is damaged: bring it back from a backup, or take all snapshots in again, into a new directory"
    return f"{file} is damaged: delete {'/'.join(parts[: report + 1])}, and the next ingest rebuilds that report"
