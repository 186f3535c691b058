"""Restore a root: check the backup, prepare the new root beside the old one, then swap them by renames."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ...config.config import Config
from ...config.file import CONFIG_NAME, write_backend
from ...journal.end_mark import END_MARK_NAME
from ...journal.order import MOVED_SUFFIX
from ...journal.recent import RECENT_NAME, complete_segment, find_lacking
from ...journal.segments import is_segment_name
from ...observe.state import bodies_in
from ...platform.files import Files, remove_all
from ...platform.quarantine import Quarantine
from ...root.locks import lock_root, lock_store
from ...root.open_root import Sources
from ...root.swap import Swap, carry_out, read_swap, replaced_name
from ...stores.backends import beside, every_layout, every_place, layout_of
from ..backup import Backup, open_backup
from .staging import SUFFIX, RestoreSource, stage
from .target import RestoreError, RestorePoint, end_of, find_target


class AsideMove(NamedTuple):
    """A rename of something old into a ``replaced-TIME`` directory."""

    directory: Path
    source: Path
    target: Path


class RootLayout:
    """Where the files of a root are by its configuration, and where a restore puts old and new ones."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._settings = config.settings
        self._configuration = config.file or config.root / CONFIG_NAME

    def occupied(self) -> dict[Path, str]:
        """Existing segments and stores, each with its name in the ``replaced-TIME`` directory. Raises ``OSError``."""
        journal = self._settings.journal_root
        names = sorted(os.listdir(journal)) if journal.is_dir() else []
        found = {journal / name: f"journal/{name}" for name in names if _is_of_journal(name)}
        layout = every_layout(self._settings)
        called = {layout.bodies: "payloads", layout.messages: "filesystem", self._settings.logs_root: "logs"}
        for place in (*every_place(self._settings), self._settings.logs_root):
            empty = place.is_dir() and not any(place.iterdir())
            if os.path.lexists(place) and not empty:
                found[place] = called.get(place, place.name)
        return found

    def directories(self) -> tuple[Path, Path]:
        """The directories in which stores have files of messages; they may not exist."""
        return self._settings.filesystem_root, self._settings.hybrid_payload_root

    def check_movable(self) -> None:
        """Raise ``RestoreError`` for a directory that cannot be renamed."""
        for place in self.directories():
            if os.path.ismount(place):
                raise RestoreError(f"{place} is a mount point, which cannot be renamed: use a directory below it")

    def aside(self, wall_ms: int, with_configuration: bool) -> list[AsideMove]:
        """The renames of all that exists: into the root, or beside its place if that is on another file system."""
        there = self.occupied()
        if with_configuration and self._configuration.exists():
            there[self._configuration] = CONFIG_NAME
        root = self._config.root
        # The device of its directory: on an overlay, a file itself has another one.
        homes = {path: root if path.parent.stat().st_dev == root.stat().st_dev else path.parent for path in there}
        free = replaced_name(wall_ms, lambda name: any((home / name).exists() for home in homes.values()))
        return [AsideMove(homes[path] / free, path, homes[path] / free / called) for path, called in there.items()]

    def stage_configuration(self, files: Files) -> tuple[str, str]:
        """Prepare a configuration file that names the backend. Returns the rename to its place. Raises ``OSError``."""
        staged = self._configuration.with_name(self._configuration.name + SUFFIX)
        if self._configuration.exists():
            shutil.copy(self._configuration, staged)
        write_backend(staged, self._settings.backend, files)
        return str(staged), str(self._configuration)

    def clear(self) -> None:
        """Remove what an unfinished restore has prepared. Raises ``OSError``."""
        staged = beside(self._settings, SUFFIX)
        found = [*every_place(staged), staged.logs_root, self._config.root / ("backup" + SUFFIX)]
        found.append(self._configuration.with_name(self._configuration.name + SUFFIX))
        if self._settings.journal_root.is_dir():
            found += self._settings.journal_root.glob("*.jsonl" + SUFFIX)
        for path in found:
            remove_all(path)


#: The directory in the root where a tar is unpacked.
_UNPACKED: Final = "backup" + SUFFIX


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What to restore. ``journal`` and ``payloads`` are what to roll forward from, by default those of the root itself.
    ``replace``: even if the root is in use. ``write_backend``: name the backend in the configuration file.
    ``as_member``: it stays the same root, for another node of its cluster."""

    backup: Path
    point: RestorePoint
    journal: Path | None = None
    payloads: Path | None = None
    replace: bool = False
    write_backend: bool = False
    as_member: bool = False

    @property
    def text(self) -> str:
        """The request as ``restore.json`` names it: a format, which later versions must not change."""
        event, wall_ms, end = self.point
        return (
            f"Request(backup={self.backup!r}, wish=Wish(event={event!r}, wall_ms={wall_ms!r}, end={end!r}),"
            f" journal={self.journal!r}, payloads={self.payloads!r}, replace={self.replace!r},"
            f" write_backend={self.write_backend!r}{', as_member=True' if self.as_member else ''})"
        )


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored root: it continues as ``root`` with ``epoch`` behind ``event``, whose time was ``wall_ms``.

    ``history_from`` is the first earlier event in its journal; 0: none. ``lost`` are messages that were left out since
    their bodies are lost, ``replaced`` the directories with the old root.
    """

    backup: str
    event: int
    wall_ms: int
    root: str
    epoch: int
    backend: str
    queues: int
    messages: int
    history_from: int
    lost: list[str]
    replaced: list[str]


def restore(config: Config, request: RestoreRequest, sources: Sources) -> Restored:
    """Restore a root, or finish an interrupted restore.

    Raises ``RestoreError``, ``BackupError``, ``StateError``, ``RootBusy``, ``StoreError`` (``StoreBusy``: another
    root's daemon uses the store) and ``OSError``; the root is then as it was. Only if the last renames fail, nobody may
    open it until the same restore has finished them.
    """
    if not layout_of(config.settings).is_persistent:
        raise RestoreError("backend memory stores nothing: choose another one by --backend")
    if request.as_member and not config.settings.cluster_enabled:
        raise RestoreError("only a node of a cluster can go on as the same root: set cluster.enabled first")
    layout, files = RootLayout(config), sources.files
    with lock_root(config, files, unfinished=True), lock_store(files, *layout.directories()):
        swap = read_swap(config.root)
        if swap is None:
            swap = _prepare(config, layout, request, sources)
        carry_out(swap, config.root, files)
    if swap.asked != request.text:
        raise RestoreError(
            f"the restore from {swap.result['backup']} that was interrupted is finished now, up to event"
            f" {swap.result['event']}; nothing else was done"
        )
    return Restored(**swap.result)


def _prepare(config: Config, layout: RootLayout, request: RestoreRequest, sources: Sources) -> Swap:
    settings = config.settings
    layout.clear()
    there = layout.occupied()
    if there and not request.replace:
        raise RestoreError(f"{config.root} is in use: {next(iter(there))} exists; --replace moves it aside")
    layout.check_movable()
    with open_backup(request.backup, config.root / _UNPACKED) as backup:
        backup.check()
        source = _source(config, request, backup, sources.files)
        try:
            staged = stage(source, settings, Quarantine(config.quarantine_root, sources.files), sources)
            into_place = list(staged.renames)
            if request.write_backend:
                into_place.append(layout.stage_configuration(sources.files))
        except (Exception, KeyboardInterrupt):
            layout.clear()
            raise
    aside = layout.aside(sources.clock().now().wall, with_configuration=request.write_backend)
    result = Restored(
        backup=source.backup.name,
        event=source.target.event,
        wall_ms=source.target.wall_ms,
        root=staged.root,
        epoch=staged.epoch,
        backend=settings.backend,
        queues=staged.queues,
        messages=staged.messages,
        history_from=staged.history_from,
        lost=staged.lost,
        replaced=sorted({str(move.directory) for move in aside}),
    )
    return Swap(request.text, [(str(move.source), str(move.target)) for move in aside], into_place, asdict(result))


def _source(config: Config, request: RestoreRequest, backup: Backup, files: Files) -> RestoreSource:
    settings = config.settings
    journal = request.journal or settings.journal_root
    if journal == settings.journal_root:
        complete_segment(journal, files, Quarantine(config.quarantine_root, files))
    elif (found := find_lacking(journal)) and not found.out_of_date:
        raise RestoreError(
            f"{journal} lacks the events {found.first_id} to {found.last_id} since the power was cut, and its file"
            f" {RECENT_NAME} has them: start and stop the daemon of its root first"
        )
    target = find_target(backup.manifest, journal, request.point)
    ends = [end_of(directory) for directory in {journal, settings.journal_root}]
    epoch = max((end["epoch"] for end in ends if end), default=0)
    body = bodies_in(request.payloads or settings.hybrid_payload_root)
    return RestoreSource(backup, journal, body, target, epoch, request.as_member)


def _is_of_journal(name: str) -> bool:
    return name in (END_MARK_NAME, RECENT_NAME) or is_segment_name(name.removesuffix(MOVED_SUFFIX))
