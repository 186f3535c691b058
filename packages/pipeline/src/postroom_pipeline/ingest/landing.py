"""What the names in a landing directory mean. Spark itself passes over names that begin with a dot or ``_``."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

#: Whole files of lines.
FINISHED: Final = (".jsonl.gz", ".jsonl", ".jsonl.zst")
#: The same as Spark takes it.
GLOB: Final = "*{" + ",".join(FINISHED) + "}"
#: Files of files: a reader of lines would lose the first line of each member, without a word.
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip", ".7z", ".rar")
#: Why a file with such a name is not looked into, by all else.
EMPTY: Final = "empty"
UNREADABLE: Final = "unreadable"
VANISHED: Final = "vanished"
TOO_LARGE: Final = "too_large"
#: Option of Spark's readers: false for a path that is a name, whatever is in it, and no pattern for names.
IS_PATTERN: Final = "__globPaths__"
#: Being copied, or left over from it: they get another name, or they never become anything.
STAGED: Final = (".part", ".tmp", ".partial", ".filepart", ".crdownload", "._COPYING_")


def is_finished(name: Column) -> Column:
    """Whether a file is one to be read."""
    return _ends_with(name, FINISHED)


def refusal(name: Column) -> Column:
    """Why a file is not read because of its name; null for those that are, and for those that are being copied."""
    return F.when(_ends_with(F.lower(name), ARCHIVES), "archive").when(
        ~is_finished(name) & ~_ends_with(name, STAGED), "unknown_name"
    )


def advice(reason: Column) -> Column:
    """What to do about a refusal."""
    return F.when(
        reason == "archive",
        "an archive is not read: unpack it (tar -xf FILE, unzip FILE) and put the .jsonl.gz files here",
    ).otherwise("only names that end in .jsonl.gz, .jsonl or .jsonl.zst are read: rename it if it is one of these")


def _ends_with(name: Column, endings: tuple[str, ...]) -> Column:
    found = F.endswith(name, F.lit(endings[0]))
    for ending in endings[1:]:
        found = found | F.endswith(name, F.lit(ending))
    return found
