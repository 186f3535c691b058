"""Write a backup of a root, whose daemon works on meanwhile, or which is stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...config.config import Config
from ...observe.state import Head, Totals, write_state
from ...observe.state.model import Message
from ..connect import nothing_done, reach
from .form import CONFIG_NAME, JOURNAL_NAME, MANIFEST_NAME, STATE_NAME, BackupError, Manifest
from .history import content, event_at, segments_until
from .sink import STDOUT, Sink, check_apart, open_sink


def make_backup(config: Config, to: str, with_journal: bool, versions: dict[str, str]) -> Manifest:
    """Write all that a root holds at one event to ``to``: a new folder, a new tar by the ending of its name, or ``-``.

    ``versions`` are told in the manifest. Raises ``BackupError``, ``PlaceTaken``, ``StartError``, ``StateError``,
    ``OSError``, and ``NotReached`` when the daemon does not answer. There is then nothing new at ``to``.
    """
    journal = config.settings.journal_root
    if why := nothing_done(config):
        raise BackupError(f"{config.root}: nothing to back up: {why}")
    if to != STDOUT:
        check_apart(Path(to), config)
    with open_sink(to, config.root) as sink, reach(config) as reached:
        with reached.state(config, sink.workspace) as state:
            counted = _Counted()
            with sink.file(STATE_NAME) as file:
                totals = write_state(replace(state, messages=counted.through(state.messages)), file)
        manifest = _manifest(config, state.head, totals, counted.lost, versions)
        if with_journal:
            _add_journal(journal, state.head.event, sink)
        if config.file:
            with sink.file(CONFIG_NAME) as file:
                file.write(config.file.read_bytes())
        manifest = replace(manifest, files=dict(sink.files))
        with sink.file(MANIFEST_NAME) as file:  # last: who finds it finds all
            file.write(manifest.encode())
    return manifest


@dataclass(slots=True)
class _Counted:
    """Counts the messages whose bodies are lost."""

    lost: int = 0

    def through(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            self.lost += "bodyLost" in message
            yield message


def _manifest(config: Config, head: Head, totals: Totals, bodies_lost: int, versions: dict[str, str]) -> Manifest:
    event = event_at(config.settings.journal_root, head.event) or {}
    return Manifest(
        root=head.root,
        epoch=head.epoch,
        event=head.event,
        event_wall_ms=event.get("wallMs", head.wall_ms),
        event_crc=event.get("crc", ""),
        engine_ms=head.engine_ms,
        wall_ms=head.wall_ms,
        backend=head.backend,
        node=config.settings.node_id,
        queues=totals.queues,
        messages=totals.messages,
        bodies_lost=bodies_lost,
        versions=versions,
        files={},
    )


def _add_journal(journal: Path, event_id: int, sink: Sink) -> None:
    """The events up to ``event_id`` that the journal still has.

    The newest segments come first: the daemon removes the oldest ones meanwhile, and what is copied must have no hole.
    """
    segments = segments_until(journal, event_id)
    for index in reversed(range(len(segments))):
        chunks = content(segments, index, event_id)
        try:
            first = next(chunks, b"")
        except FileNotFoundError:
            return
        with sink.file(f"{JOURNAL_NAME}/{segments[index].name}") as file:
            file.write(first)
            file.writelines(chunks)
