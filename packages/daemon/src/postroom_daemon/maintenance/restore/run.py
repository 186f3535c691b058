"""Restore: everything is looked through first, then prepared beside what is there, then put in its place by renames."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ...config.config import Config
from ...observe.state import bodies_in
from ...platform.quarantine import Quarantine
from ...root.locks import lock_root, lock_store
from ...root.open_root import Sources
from ...root.swap import Changeover, carry_out, read_changeover
from ...stores.backends import layout_of
from ..backup import Backup, open_backup
from .layout import Ground
from .staging import SUFFIX, Source, stage
from .target import RestoreError, Wish, end_of, find_target

#: Where a tar is unpacked, in the root.
_UNPACKED: Final = "backup" + SUFFIX


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be restored. ``journal`` and ``payloads`` are where to roll forward from: by default those of the root
    itself. ``replace`` allows it where there is something already. ``write_backend``: the configuration file is to name
    the backend."""

    backup: Path
    wish: Wish
    journal: Path | None = None
    payloads: Path | None = None
    replace: bool = False
    write_backend: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a root: it goes on under ``root`` and ``epoch`` behind ``event``, whose time was ``wall_ms``.

    ``history_from`` is the first event of the past that its journal has; 0: none. ``lost`` are the messages that were
    left out since their bodies are lost, ``replaced`` the directories with what was there before.
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


def restore(config: Config, request: Request, sources: Sources) -> Restored:
    """Restore a root, or finish what an interrupted restore has begun.

    Raises ``RestoreError``, ``BackupError``, ``StateError``, ``RootBusy``, ``StoreError`` (``StoreBusy``: another
    root's daemon works on the store) and ``OSError``; the root is then as it was. Only when the last renames fail,
    nobody may open it until they are done.
    """
    if not layout_of(config.settings).is_persistent:
        raise RestoreError("backend memory keeps nothing: choose another one by --backend")
    ground, files = Ground(config), sources.files
    with lock_root(config, files, unfinished=True), lock_store(files, *ground.directories()):
        changeover = read_changeover(config.root)
        if changeover is None:
            changeover = _prepare(config, ground, request, sources)
        carry_out(changeover, config.root, files)
    if changeover.asked != repr(request):
        raise RestoreError(
            f"the restore from {changeover.result['backup']} that was interrupted is finished now, up to event"
            f" {changeover.result['event']}; nothing else was done"
        )
    return Restored(**changeover.result)


def _prepare(config: Config, ground: Ground, request: Request, sources: Sources) -> Changeover:
    settings = config.settings
    ground.clear()
    there = ground.occupied()
    if there and not request.replace:
        raise RestoreError(f"{config.root} is in use: {next(iter(there))} is there; --replace moves it aside")
    ground.check_movable()
    with open_backup(request.backup, config.root / _UNPACKED) as backup:
        backup.check()
        source = _source(config, request, backup)
        try:
            staged = stage(source, settings, Quarantine(config.quarantine_root, sources.files), sources)
            into_place = list(staged.renames)
            if request.write_backend:
                into_place.append(ground.stage_configuration(sources.files))
        except (Exception, KeyboardInterrupt):
            ground.clear()
            raise
    aside = ground.aside(sources.clock().now().wall, with_configuration=request.write_backend)
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
    return Changeover(
        repr(request), [(str(move.source), str(move.target)) for move in aside], into_place, asdict(result)
    )


def _source(config: Config, request: Request, backup: Backup) -> Source:
    settings = config.settings
    journal = request.journal or settings.journal_root
    target = find_target(backup.manifest, journal, request.wish)
    ends = [end_of(directory) for directory in {journal, settings.journal_root}]
    epoch = max((end["epoch"] for end in ends if end), default=0)
    body = bodies_in(request.payloads or settings.hybrid_payload_root)
    return Source(backup, journal, body, target, epoch)
