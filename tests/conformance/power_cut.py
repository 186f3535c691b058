"""A disk whose power is cut: of what was not synced it has all, nothing, some of the pages, or NULs in their place."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from postroom_daemon.platform.files import Files

_PAGE_BYTES: Final = 4096


class Disk:
    """What a disk has of the files of a directory: ``watch`` notes their content at each sync, ``cut`` gives it back.

    Names are durable at once, and a file itself with its first sync: one that was never synced is gone.
    ``segment_syncs`` counts syncs of segments.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.segment_syncs = 0
        self._synced: dict[int, bytes] = {}

    def watch(self, files: Files) -> None:
        """From now on. What is there is on the disk."""
        for path in self._paths():
            self._synced[path.stat().st_ino] = path.read_bytes()
        files.fsync, files.fdatasync = self._noting(files.fsync), self._noting(files.fdatasync)

    def _paths(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.is_file()] if self.root.exists() else []

    def _noting(self, sync: Callable[[int], Any]) -> Callable[[int], Any]:
        def synced(fd: int) -> None:
            sync(fd)
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if path.is_file() and self.root in path.parents:
                self._synced[path.stat().st_ino] = path.read_bytes()
                self.segment_syncs += path.suffix == ".jsonl"

        return synced

    def cut(self, chance: random.Random | None = None) -> None:
        """Cut the power. Without ``chance`` the disk has exactly what was synced."""
        for path in self._paths():
            synced, newest = self._synced.get(path.stat().st_ino), path.read_bytes()
            if synced is None and chance is None:
                path.unlink()
            elif synced != newest:
                path.write_bytes(_mixture(synced or b"", newest, chance) if chance else synced or b"")


def _mixture(synced: bytes, newest: bytes, chance: random.Random) -> bytes:
    """Page by page the synced bytes or the newest ones. A page that was never synced may have NULs."""
    size = chance.choice([len(synced), len(newest), chance.randint(*sorted([len(synced), len(newest)]))])
    pages = []
    for begin in range(0, size, _PAGE_BYTES):
        end = min(size, begin + _PAGE_BYTES)
        old, new = synced[begin:end].ljust(end - begin, b"\0"), newest[begin:end].ljust(end - begin, b"\0")
        pages.append(chance.choice([old, new]))
    return b"".join(pages)
