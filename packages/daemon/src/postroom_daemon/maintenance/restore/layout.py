"""The places where a root lies: what is there now, what a restore prepares beside it, and where the old goes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from ...config.config import Config
from ...config.file import CONFIG_NAME, write_backend
from ...journal.order import MOVED_SUFFIX
from ...journal.segments import is_segment_name
from ...platform.files import Files, remove_all
from ...root.swap import replaced_name
from ...stores.backends import beside, every_layout, every_place
from .staging import SUFFIX
from .target import RestoreError


class Move(NamedTuple):
    """Something that goes aside, into a directory that says when it was replaced."""

    directory: Path
    source: Path
    target: Path


class Ground:
    """Those of one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._settings = config.settings
        self._configuration = config.file or config.root / CONFIG_NAME

    def occupied(self) -> dict[Path, str]:
        """The journal's files and what stores have left, each with the name that it gets aside. Raises ``OSError``."""
        journal = self._settings.journal_root
        names = sorted(os.listdir(journal)) if journal.is_dir() else []
        found = {
            journal / name: f"journal/{name}" for name in names if is_segment_name(name.removesuffix(MOVED_SUFFIX))
        }
        layout = every_layout(self._settings)
        called = {layout.bodies: "payloads", layout.messages: "filesystem"}
        for place in every_place(self._settings):
            empty = place.is_dir() and not any(place.iterdir())
            if os.path.lexists(place) and not empty:
                found[place] = called.get(place, place.name)
        return found

    def directories(self) -> tuple[Path, Path]:
        """Those in which messages lie as files, there or not."""
        return self._settings.filesystem_root, self._settings.hybrid_payload_root

    def check_movable(self) -> None:
        """Raise ``RestoreError`` for a directory that cannot be renamed."""
        for place in self.directories():
            if os.path.ismount(place):
                raise RestoreError(f"{place} is a mount point, which cannot be renamed: use a directory below it")

    def aside(self, wall_ms: int, with_configuration: bool) -> list[Move]:
        """Where everything goes: into the root, or beside its place, where that is on another file system."""
        there = self.occupied()
        if with_configuration and self._configuration.exists():
            there[self._configuration] = CONFIG_NAME
        root = self._config.root
        # Of the directory that a file lies in: on an overlay, the file itself shows another device.
        homes = {path: root if path.parent.stat().st_dev == root.stat().st_dev else path.parent for path in there}
        free = replaced_name(wall_ms, lambda name: any((home / name).exists() for home in homes.values()))
        return [Move(homes[path] / free, path, homes[path] / free / called) for path, called in there.items()]

    def stage_configuration(self, files: Files) -> tuple[str, str]:
        """Prepare a configuration file that names the backend: the rename that puts it in place. Raises ``OSError``."""
        staged = self._configuration.with_name(self._configuration.name + SUFFIX)
        if self._configuration.exists():
            shutil.copy(self._configuration, staged)
        write_backend(staged, self._settings.backend, files)
        return str(staged), str(self._configuration)

    def clear(self) -> None:
        """Remove what a restore has prepared that did not come to its end. Raises ``OSError``."""
        found = [*every_place(beside(self._settings, SUFFIX)), self._config.root / ("backup" + SUFFIX)]
        found.append(self._configuration.with_name(self._configuration.name + SUFFIX))
        if self._settings.journal_root.is_dir():
            found += self._settings.journal_root.glob("*.jsonl" + SUFFIX)
        for path in found:
            remove_all(path)
