"""Whether this process may use the files of a root.

Looked at before anything is opened: what another user owns, as after a copy that root has made, is no damage, and must
not be set aside as if it were.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..config.config import Config
from ..journal.reserve import RESERVE_NAME
from ..journal.segments import list_segments
from ..platform.usable import CHANGE, first_unusable
from ..stores.backends import places
from .locks import LOCK_NAME as ROOT_LOCK


def hindrance(config: Config) -> str:
    """What keeps this process from the journal and the store, and what to do about it; "" where nothing does."""
    return first_unusable(_kept(config))


def _kept(config: Config) -> Iterator[tuple[Path, int]]:
    """Files and directories, those above first, and what must be possible with them."""
    settings = config.settings
    kept = places(settings) if settings.backend != "memory" else []
    for directory in dict.fromkeys((config.root, settings.journal_root, *(path.parent for path in kept))):
        yield directory, CHANGE
    inside = (config.root / ROOT_LOCK, settings.journal_root / ROOT_LOCK, settings.journal_root / RESERVE_NAME)
    yield from ((path, CHANGE) for path in inside)
    segments = [path for _, path in list_segments(settings.journal_root)] if settings.journal_root.is_dir() else []
    yield from ((path, os.R_OK) for path in segments[:-1])
    yield from ((path, CHANGE) for path in segments[-1:])
    yield from ((path, CHANGE) for path in kept)
    meta = settings.filesystem_root / settings.filesystem_meta_dir
    if settings.filesystem_root in kept and meta.is_dir():
        yield meta, CHANGE
        yield from ((path, os.R_OK) for path in sorted(meta.iterdir()))
