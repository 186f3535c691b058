"""Replace a root by another as one change: a marker file lists every rename, and exists until all are done.

While it exists, the root is partly the old and partly the new one: nobody may open it, and the command that began
continues where it was interrupted.
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
    """The swap of this root was interrupted; it must be finished first."""


class SwapError(PostroomError):
    """The swap can be neither finished nor undone: a part of it was removed."""


@dataclass(frozen=True, slots=True)
class Swap:
    """All renames, as pairs of source and target: first ``aside``, then ``into_place``.

    ``asked`` identifies the command that began it, ``result`` is its result once it is done.
    """

    asked: str
    aside: list[tuple[str, str]]
    into_place: list[tuple[str, str]]
    result: dict[str, Any]


def replaced_name(wall_ms: int, is_taken: Callable[[str], bool]) -> str:
    """A free name for what is replaced at this time, such as ``replaced-20261128T050000Z``."""
    name = f"replaced-{datetime.fromtimestamp(wall_ms // 1000, UTC):%Y%m%dT%H%M%SZ}"
    names = (f"{name}-{number}" if number else name for number in count())
    return next(free for free in names if not is_taken(free))


def check_no_swap(root: Path) -> None:
    """Raise ``SwapInterrupted`` for a root whose swap was interrupted."""
    if (root / MARKER_NAME).exists():
        raise SwapInterrupted(
            f"{root}: its restore was interrupted: run the same postroomd restore again, which finishes it"
        )


def read_swap(root: Path) -> Swap | None:
    """The interrupted swap, or None. Raises ``OSError``; ``SwapError`` if its marker file is damaged."""
    path = root / MARKER_NAME
    try:
        return Swap(**orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise SwapError(f"{path} is damaged, and with it the list of what a restore has to move: {error}") from None


def carry_out(swap: Swap, root: Path, files: Files) -> None:
    """Do all renames that are not done yet, durably. Raises ``OSError``, ``SwapError``; call it again then."""
    directory = files.open_directory(root)
    try:
        if not (root / MARKER_NAME).exists():
            files.put(directory, MARKER_NAME, orjson.dumps(asdict(swap)), durable=True)
        # If a target exists already, its source is the new one.
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
            raise SwapError(f"neither {source} nor {target} exists: put back the one that was moved")


def _sync(pairs: list[tuple[str, str]], files: Files) -> None:
    for parent in dict.fromkeys(os.path.dirname(path) for pair in pairs for path in pair):
        files.sync_directory(parent)
