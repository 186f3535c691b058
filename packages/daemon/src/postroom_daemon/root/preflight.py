"""What keeps this process from opening a root, checked before anything is opened or changed.

A file that another user owns, for example after root copied it, is not damaged and must not be set aside as if it were.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..config.config import Config
from ..journal.end_mark import END_MARK_NAME
from ..journal.recent import RECENT_NAME
from ..journal.reserve import RESERVE_NAME
from ..journal.segments import list_segments
from ..platform.usable import CHANGE, first_unusable
from ..stores.backends import places_with_logs
from .locks import LOCK_NAME as ROOT_LOCK


def hindrance(config: Config) -> str:
    """Why this process may not use the journal or the store, and what to do about it; "" if it may."""
    return first_unusable(_needed(config))


def _needed(config: Config) -> Iterator[tuple[Path, int]]:
    """Files and directories, parents first, and the access mode that each needs."""
    settings = config.settings
    stores = places_with_logs(settings)
    for directory in dict.fromkeys((config.root, settings.journal_root, *(path.parent for path in stores))):
        yield directory, CHANGE
    yield config.root / ROOT_LOCK, CHANGE
    names = (ROOT_LOCK, RESERVE_NAME, END_MARK_NAME, RECENT_NAME)
    yield from ((settings.journal_root / name, CHANGE) for name in names)
    segments = [path for _, path in list_segments(settings.journal_root)] if settings.journal_root.is_dir() else []
    yield from ((path, os.R_OK) for path in segments[:-1])
    yield from ((path, CHANGE) for path in segments[-1:])
    yield from ((path, CHANGE) for path in stores)
    meta = settings.filesystem_root / settings.filesystem_meta_dir
    if settings.filesystem_root in stores and meta.is_dir():
        yield meta, CHANGE
        yield from ((path, os.R_OK) for path in sorted(meta.iterdir()))
