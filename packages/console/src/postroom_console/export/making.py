"""One export, from the first question to the file's name."""

from __future__ import annotations

import errno
import os
import threading
import uuid
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from postroom_common.snapshot import Kind
from postroom_common.snapshot_writer import LineEncoder, SnapshotWriter, file_name

from ..places import Places
from ..plain import Refused
from .folder import Folder
from .headers import Source, gaps_of, header_of
from .journal import Journal, JournalUnreadable, Place
from .lines import Fields, of_traffic
from .memory import START
from .questions import Questions
from .reading import PAGE, State
from .redaction import Redactor
from .request import Request
from .slices import EventSlice
from .spool import Drafts, Spool
from .traffic import Traffic

#: Seconds that the journal has to show what an answer has named.
_JOURNAL_S: Final = 10.0
#: Bytes of a file beside its lines of state, events and traffic; and which part of the rest the traffic may have.
_FRAME_BYTES: Final = 4096
_TRAFFIC_PART: Final = 3
_NICE: Final = 19


class Made(NamedTuple):
    """A snapshot that was made: its file, its bytes, the events in it, and up to which event they go; the event that
    its state is as of. ``warnings`` are sentences for people."""

    path: Path
    file_bytes: int
    events: int
    last_event: int
    as_of: int
    warnings: tuple[str, ...]


class Export:
    """Makes one snapshot. ``pause`` waits for so many seconds or until ``is_ended``; ``progress`` is told what is being
    done, and how many of it are. ``page`` is as of ``State``."""

    def __init__(
        self,
        places: Places,
        request: Request,
        is_ended: Callable[[], bool],
        pause: Callable[[float], object],
        progress: Callable[[str, int], None] = lambda what, count: None,
        page: int = PAGE,
    ) -> None:
        self._places = places
        self._request = request
        self._is_ended = is_ended
        self._pause = pause
        self._progress = progress
        self._page = page
        self._warnings: list[str] = []
        self._journal = Journal(places.journal or places.ipc.parent / "journal")

    def run(self) -> Made:
        """Make it. Raises ``Unreachable``, ``Refused``, ``Stopped`` and ``OSError``; then nothing of it is left."""
        be_nice()
        folder = self._request.folder
        try:
            with ExitStack() as stack:
                kept = stack.enter_context(Folder(folder))
                client = self._places.make_client()
                stack.callback(client.close)
                questions = Questions(client, self._is_ended, self._pause)
                spools = [stack.enter_context(Spool(folder)) for _ in range(5)]
                return self._make(kept, questions, *spools)
        except JournalUnreadable as error:
            raise Refused(str(error)) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                text = f"{folder}: no space is left, so there is no new snapshot: make room, or use another --out"
                raise Refused(text) from error
            raise

    def _make(
        self, kept: Folder, questions: Questions, leases: Spool, letters: Spool, told: Spool, events: Spool, log: Spool
    ) -> Made:
        request, journal = self._request, self._journal
        if kept.problem:
            self._warnings.append(kept.problem)
        redactor = Redactor(request.redaction, request.hidden)
        state = State(questions, redactor, leases, letters, self._page)
        self._progress("state", 0)
        owner = self._owner()
        state.ask(self._progress)
        if owner and self._owner() != owner:
            raise Refused("the data directory was replaced by another one meanwhile: export again")
        source = self._source(questions, state, kept)
        encoder = LineEncoder(source.device, source.snapshot)
        state_lines, event_lines, traffic_lines = (Drafts(spool, encoder) for spool in (told, events, log))
        if source.is_readable:
            state.fold(journal)
        state.put(state_lines)
        rows = state.queues(journal)
        left = (
            None if request.max_bytes is None else request.max_bytes - _FRAME_BYTES - _packed(rows) - told.bytes_taken
        )
        traffic = self._read_traffic(source, traffic_lines, state, left)
        piece = EventSlice(event_lines, redactor, source.root)
        if source.is_readable:
            self._progress("events", 0)
            limit = None if left is None else left - log.bytes_taken
            piece.read(journal, source.behind, state.as_of, request.since, limit, source.is_first, questions.go_on)
            self._warnings += gaps_of(source, state, piece)
        for row in rows:
            held = sum(row[name] for name in ("ready", "inflight", "delayed", "held", "dead"))
            state_lines.put(Kind.QUEUE, {**row, "opening": held - piece.net[row["queue"]]} if source.is_first else row)
        self._progress("file", 0)
        last = source.reached(piece, traffic.mark)
        last_event = piece.last["id"] if piece.is_cut and piece.last else state.as_of
        name = file_name(source.device, source.root or "unknown", last_event, state.wall_ms)
        first_id = piece.first["id"] if piece.first else None
        last_id = piece.last["id"] if piece.last else None
        with SnapshotWriter(kept.path, name, source.device, source.snapshot) as writer:
            writer.put(Kind.HEADER, header_of(source, state, piece, request))
            for kind, lines in chain(state_lines.blocks(), event_lines.blocks(piece.count), traffic_lines.blocks()):
                questions.go_on()
                writer.put_encoded(kind, lines)
            note = (lambda: kept.note(source.root, last, name)) if source.is_kept else (lambda: None)
            try:
                path = writer.finish(first_id, last_id, note)
            except BaseException:
                if source.is_kept and not writer.path.exists():
                    try:
                        kept.forget()
                    except OSError:  # the note stays, and would count without the part
                        writer.leave()
                raise
        if source.is_kept:
            with suppress(OSError):  # the note counts as well, now that the snapshot has its name
                kept.keep(source.root, last)
        size = path.stat().st_size
        if request.max_bytes is not None and size > request.max_bytes:
            self._warnings.append(f"the file has {size} bytes, more than --max-size: its state is always whole")
        return Made(path, size, piece.count, last_event, state.as_of, tuple(self._warnings))

    def _owner(self) -> str:
        """Whose the journal is; empty where it cannot be read."""
        try:
            return self._journal.owner()
        except JournalUnreadable:
            return ""

    def _source(self, questions: Questions, state: State, kept: Folder) -> Source:
        """Whose snapshot it is, and where its slice begins."""
        since = self._request.since
        device = self._request.device or str(state.health.get("nodeId") or "") or self._places.name
        snapshot = uuid.uuid4().hex
        try:
            epoch = self._journal.wait_for(state.as_of, questions.pause, _JOURNAL_S)
            root = self._journal.owner()
        except JournalUnreadable as error:
            self._warnings.append(f"{error}: no events, and the state is not of one event")
            head = {}
            with suppress(Refused):  # only the daemon's user may ask
                head = questions.ask("read_state", {"part": "head"})
            return Source(device, snapshot, str(head.get("root", "")), int(head.get("epoch", 0)), since, False)
        last = kept.last(root) if since.is_last else None
        trusted = last.trusted(self._journal) if last else START
        behind = trusted.place if trusted.event else Place(None, 0)
        if since.event is not None:
            behind = Place(None, max(since.event - 1, 0))
        elif since.wall_ms is not None:
            behind = self._journal.place_of_time(since.wall_ms)
        source = Source(device, snapshot, root, epoch, since, True, last, trusted, behind)
        if last and source.is_put_back:
            self._warnings.append(
                f"{self._journal.root} no longer has event {last.point.event} as it was exported: it was put back to "
                f"an earlier state, or is damaged; so the events begin behind {trusted.event} again, and some may be "
                "other ones of the same numbers"
            )
        return source

    def _read_traffic(self, source: Source, drafts: Drafts, state: State, left: int | None) -> Traffic:
        """The slice of the traffic log; at most a part of the bytes that are ``left``."""
        root = self._places.traffic or self._places.ipc.parent / "traffic"
        from_ms = source.since.wall_ms
        if source.since.event is not None and source.is_readable:
            first = next(self._journal.events(source.behind, state.as_of), None)
            from_ms = first["wallMs"] if first else state.wall_ms
        traffic = Traffic(root, source.trusted.traffic if source.last else None, from_ms)
        limit = None if left is None else left // _TRAFFIC_PART
        for told in traffic.lines():
            line = of_traffic(told, source.root)
            if line:
                drafts.put(Kind.TRAFFIC, line)
                if limit is not None and not drafts.spool.fits(limit):
                    break
        if traffic.problem:
            self._warnings.append(f"{traffic.problem}: no lines of the traffic log")
        return traffic


def _packed(rows: list[Fields]) -> int:
    """Bytes that lines will take, at most."""
    return sum(len(zlib.compress(orjson.dumps(row), 1)) for row in rows)


def be_nice() -> None:
    """Let everything else on the device go first: of the calling thread alone."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
