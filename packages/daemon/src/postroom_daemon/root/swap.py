"""A root put in place of another, as one change: a file in it lists every rename, and is there until all are done.

While it is there, the root is neither the old one nor the new one: nobody may open it, and whoever began goes on where
he was interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.errors import PostroomError

from ..platform.files import Files

MARKER_NAME: Final = "restore.json"


class SwapInterrupted(PostroomError):
    """The root is half of one and half of another."""


class SwapError(PostroomError):
    """It can neither be finished nor undone by the program: somebody has taken away a part of it."""


@dataclass(frozen=True, slots=True)
class Swap:
    """All renames, each from one path to another: what goes aside, then what comes into place.

    ``asked`` tells one restore from another, ``result`` is what to say when it is done.
    """

    asked: str
    aside: list[tuple[str, str]]
    into_place: list[tuple[str, str]]
    result: dict[str, Any]


def replaced_name(wall_ms: int, is_taken: Callable[[str], bool]) -> str:
    """A name, not taken yet, for what another takes the place of at this time: ``replaced-20261128T050000Z``."""
    name = f"replaced-{datetime.fromtimestamp(wall_ms // 1000, UTC):%Y%m%dT%H%M%SZ}"
    names = (f"{name}-{number}" if number else name for number in count())
    return next(free for free in names if not is_taken(free))


def check_no_swap(root: Path) -> None:
    """Raise ``SwapInterrupted`` for a root whose swap did not come to its end."""
    if (root / MARKER_NAME).exists():
        raise SwapInterrupted(
            f"{root}: its restore was interrupted: give the same postroomd restore again, which finishes it"
        )


def read_swap(root: Path) -> Swap | None:
    """The swap that was interrupted, if there is one. Raises ``OSError``; ``SwapError`` when it cannot be
    told what is to be done."""
    path = root / MARKER_NAME
    try:
        return Swap(**orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise SwapError(f"{path} is damaged, and with it the list of what a restore has to move: {error}") from None


def carry_out(swap: Swap, root: Path, files: Files) -> None:
    """Do it from the beginning, or from where it was interrupted; it is durable in the end.

    Raises ``OSError``, ``SwapError``: then it is to be done again.
    """
    directory = files.open_directory(root)
    try:
        if not (root / MARKER_NAME).exists():
            files.put(directory, MARKER_NAME, orjson.dumps(asdict(swap)), durable=True)
        # Where something is aside already, what is in its place now is new.
        _rename([(source, target) for source, target in swap.aside if not os.path.lexists(target)], files)
        _sync(swap.aside, files)
        _rename(swap.into_place, files)
        _sync(swap.into_place, files)
        files.unlink(MARKER_NAME, dir_fd=directory)
        files.fsync(directory)
    finally:
        files.close(directory)


def _rename(pairs: list[tuple[str, str]], files: Files) -> None:
    for source, target in pairs:
        if os.path.lexists(source):
            parent = Path(target).parent
            if not parent.is_dir():
                files.close(files.open_directory(parent))
            files.rename(source, target)
        elif not os.path.lexists(target):
            raise SwapError(f"neither {source} nor {target} is there: put back the one that you have moved")


def _sync(pairs: list[tuple[str, str]], files: Files) -> None:
    for parent in dict.fromkeys(os.path.dirname(path) for pair in pairs for path in pair):
        files.sync_directory(parent)
