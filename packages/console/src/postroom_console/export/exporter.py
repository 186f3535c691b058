"""One export, from the first query to the file under its name."""

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

from ..data.link import Refused
from ..data.text import figure, size
from ..i18n import tr
from ..paths import DaemonPaths
from .event_slice import EventSlice
from .folder import START, ExportFolder
from .headers import SnapshotOrigin, gaps_of, header_of
from .journal import Journal, JournalPosition, JournalUnreadable
from .lines import Fields, of_traffic
from .queries import Queries
from .redaction import Redactor
from .request import ExportRequest
from .spool import Drafts, Spool
from .state import PAGE, DeviceState
from .traffic import TrafficReader

#: Seconds that the journal has to show the event of an answer.
_JOURNAL_TIMEOUT_S: Final = 10.0
#: Bytes of a file besides its state, events and traffic.
_FRAME_BYTES: Final = 4096
#: The traffic gets this part of the bytes that the state leaves, the events the rest.
_TRAFFIC_PART: Final = 3
_NICE: Final = 19
_NO_SPACE_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Made(NamedTuple):
    """A finished snapshot: its file, its bytes, its number of events, the last of them, and the event that its state is
    as of. ``warnings`` are sentences for people."""

    path: Path
    file_bytes: int
    events: int
    last_event: int
    as_of: int
    warnings: tuple[str, ...]

    def summary(self) -> str:
        """One line about it."""
        words = tr("{n} events up to event {last}").format(n=figure(self.events), last=self.last_event)
        return f"{self.path}: {words}, {size(self.file_bytes)}"


class _Content(NamedTuple):
    """What goes into the file: the drafts of its lines, and what the header says of them."""

    origin: SnapshotOrigin
    state: DeviceState
    events: EventSlice
    traffic: TrafficReader
    state_lines: Drafts
    traffic_lines: Drafts

    @property
    def last_event(self) -> int:
        """The event up to which the snapshot goes."""
        events = self.events
        return int(events.last["id"]) if events.is_cut and events.last else self.state.as_of


class Exporter:
    """Makes one snapshot. ``pause`` waits for seconds or until ``is_stopped`` is true; ``progress`` gets the name of
    the stage and a count. ``page`` is the number of entries per page, see ``DeviceState``."""

    def __init__(
        self,
        paths: DaemonPaths,
        request: ExportRequest,
        is_stopped: Callable[[], bool],
        pause: Callable[[float], object],
        progress: Callable[[str, int], None] = lambda stage, count: None,
        page: int = PAGE,
    ) -> None:
        self._paths = paths
        self._request = request
        self._is_stopped = is_stopped
        self._pause = pause
        self._progress = progress
        self._page = page
        self._warnings: list[str] = []
        self._journal = Journal(paths.journal or paths.ipc.parent / "journal")

    def run(self) -> Made:
        """Make the snapshot. Raises ``Unreachable``, ``Refused``, ``Stopped`` and ``OSError``, and leaves nothing of it
        then."""
        be_nice()
        path = self._request.folder
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(ExportFolder(path))
                if folder.problem:
                    self._warnings.append(folder.problem)
                client = self._paths.make_client()
                stack.callback(client.close)
                queries = Queries(client, self._is_stopped, self._pause)
                leases, letters, *drafts = [stack.enter_context(Spool(path)) for _ in range(5)]
                content = self._read(folder, queries, leases, letters, *drafts)
                return self._write(folder, queries, content)
        except JournalUnreadable as error:
            raise Refused(str(error)) from error
        except OSError as error:
            if error.errno in _NO_SPACE_ERRNOS:
                text = f"{path}: no space left, so there is no new snapshot: free some, or use another --out"
                raise Refused(text) from error
            raise

    # --- reading ----------------------------------------------------------------------------------------------

    def _read(
        self,
        folder: ExportFolder,
        queries: Queries,
        leases: Spool,
        letters: Spool,
        state_spool: Spool,
        event_spool: Spool,
        traffic_spool: Spool,
    ) -> _Content:
        """Read the state, the traffic and the events, within the size of the request."""
        request = self._request
        redactor = Redactor(request.redaction, request.hidden)
        state = self._read_state(queries, DeviceState(queries, redactor, leases, letters, self._page))
        origin = self._origin_of(queries, state, folder)
        encoder = LineEncoder(origin.device, origin.snapshot)
        content = _Content(
            origin,
            state,
            EventSlice(Drafts(event_spool, encoder), redactor, origin.root),
            self._traffic_reader(origin, state),
            Drafts(state_spool, encoder),
            Drafts(traffic_spool, encoder),
        )
        if origin.is_readable:
            state.fold(self._journal)
        state.put(content.state_lines)
        queues = state.queues(self._journal)
        left = None
        if request.max_bytes is not None:
            left = request.max_bytes - _FRAME_BYTES - _packed_bytes(queues) - state_spool.bytes_taken
        self._read_traffic(content, left)
        if origin.is_readable:
            self._progress("events", 0)
            limit = None if left is None else left - traffic_spool.bytes_taken
            content.events.read(
                self._journal, origin.behind, state.as_of, request.since, limit, origin.is_first, queries.check_stopped
            )
            self._warnings += gaps_of(origin, state, content.events)
        self._put_queues(content, queues)
        return content

    def _read_state(self, queries: Queries, state: DeviceState) -> DeviceState:
        self._progress("state", 0)
        owner = self._journal_owner()
        state.ask(self._progress)
        if owner and self._journal_owner() != owner:
            raise Refused("the data directory was replaced during the export: export again")
        return state

    def _journal_owner(self) -> str:
        """The id of the root that the journal belongs to; empty where the journal cannot be read."""
        try:
            return self._journal.owner()
        except JournalUnreadable:
            return ""

    def _origin_of(self, queries: Queries, state: DeviceState, folder: ExportFolder) -> SnapshotOrigin:
        """Which root the snapshot is of, and where its events begin."""
        since = self._request.since
        device, node = self._device_of(state)
        snapshot = uuid.uuid4().hex
        try:
            epoch = self._journal.wait_for(state.as_of, queries.pause, _JOURNAL_TIMEOUT_S)
            root = self._journal.owner()
        except JournalUnreadable as error:
            self._warnings.append(f"{error}: the snapshot has no events, and its state is not of one event")
            head = {}
            with suppress(Refused):  # only the daemon's user may ask
                head = queries.ask("read_state", {"part": "head"})
            root, epoch = str(head.get("root", "")), int(head.get("epoch", 0))
            return SnapshotOrigin(device, node, snapshot, root, epoch, since, False)
        last = folder.last(root) if since.is_last else None
        trusted = last.trusted(self._journal) if last else START
        behind = trusted.position if trusted.event else JournalPosition(None, 0)
        if since.event is not None:
            behind = JournalPosition(None, max(since.event - 1, 0))
        elif since.wall_ms is not None:
            behind = self._journal.position_of_time(since.wall_ms)
        origin = SnapshotOrigin(device, node, snapshot, root, epoch, since, True, last, trusted, behind)
        if last and origin.was_restored:
            self._warnings.append(
                f"{self._journal.root} no longer has event {last.point.event} as it was exported: it was restored to "
                f"an earlier state, or is damaged. The events begin after {trusted.event} again, and some may be "
                "different events with the same ids"
            )
        return origin

    def _device_of(self, state: DeviceState) -> tuple[str, str]:
        """The names of the device and of the node. The nodes of a cluster have one journal: they are one device."""
        node = str(state.health.get("nodeId") or "")
        if state.member is None:
            return self._request.device or node or self._paths.name, ""
        device = self._request.device or state.member.cluster
        if not device:
            raise Refused("the daemon does not know the name of its cluster: start postroom-cluster, or use --device")
        return device, node

    def _traffic_reader(self, origin: SnapshotOrigin, state: DeviceState) -> TrafficReader:
        root = self._paths.traffic or self._paths.ipc.parent / "traffic"
        from_ms = origin.since.wall_ms
        if origin.since.event is not None and origin.is_readable:
            first = next(self._journal.events(origin.behind, state.as_of), None)
            from_ms = first["wallMs"] if first else state.wall_ms
        return TrafficReader(root, origin.trusted.traffic if origin.last else None, from_ms)

    def _read_traffic(self, content: _Content, left: int | None) -> None:
        """Draft the lines of the traffic log; at most a part of the bytes that are ``left``."""
        limit = None if left is None else left // _TRAFFIC_PART
        drafts = content.traffic_lines
        for request in content.traffic.lines():
            line = of_traffic(request, content.origin.root)
            if line:
                drafts.put(Kind.TRAFFIC, line)
                if limit is not None and not drafts.spool.fits(limit):
                    break
        if content.traffic.problem:
            self._warnings.append(f"{content.traffic.problem}: the snapshot has no requests")

    def _put_queues(self, content: _Content, queues: list[Fields]) -> None:
        """Draft the lines of the queues; in the first snapshot of a folder with the content before its events."""
        for row in queues:
            if content.origin.is_first:
                count = sum(row[name] for name in ("ready", "inflight", "delayed", "held", "dead"))
                row = {**row, "opening": count - content.events.net[row["queue"]]}
            content.state_lines.put(Kind.QUEUE, row)

    # --- writing ----------------------------------------------------------------------------------------------

    def _write(self, folder: ExportFolder, queries: Queries, content: _Content) -> Made:
        """Write the file, and remember in the folder how far it goes."""
        self._progress("file", 0)
        origin, events, state = content.origin, content.events, content.state
        whose = f"{origin.device}-{origin.node}" if origin.node else origin.device
        name = file_name(whose, origin.root or "unknown", content.last_event, state.wall_ms)
        with SnapshotWriter(folder.path, name, origin.device, origin.snapshot) as writer:
            writer.put(Kind.HEADER, header_of(origin, state, events, self._request))
            for kind, lines in chain(
                content.state_lines.blocks(), events.drafts.blocks(events.count), content.traffic_lines.blocks()
            ):
                queries.check_stopped()
                writer.put_encoded(kind, lines)
            path = self._finish(folder, writer, content, name)
        file_bytes, limit = path.stat().st_size, self._request.max_bytes
        if limit is not None and file_bytes > limit:
            self._warnings.append(
                f"the file has {file_bytes} bytes, more than --max-size: the state is always complete"
            )
        return Made(path, file_bytes, events.count, content.last_event, state.as_of, tuple(self._warnings))

    def _finish(self, folder: ExportFolder, writer: SnapshotWriter, content: _Content, name: str) -> Path:
        """Give the file its name; the folder knows beforehand what it will amount to."""
        origin, events = content.origin, content.events
        first, last = (event["id"] if event else None for event in (events.first, events.last))
        if not origin.is_remembered:
            return writer.finish(first, last, lambda: None)
        progress = origin.progress(events, content.traffic.position)
        try:
            path = writer.finish(first, last, lambda: folder.announce(origin.root, progress, name))
        except BaseException:
            if not writer.path.exists():
                try:
                    folder.withdraw()
                except OSError:  # the announcement stays, and would count without the part
                    writer.leave()
            raise
        with suppress(OSError):  # the announcement counts as well, now that the file has its name
            folder.commit(origin.root, progress)
        return path


def _packed_bytes(rows: list[Fields]) -> int:
    """Bytes that lines will take, at most."""
    return sum(len(zlib.compress(orjson.dumps(row), 1)) for row in rows)


def be_nice() -> None:
    """Give the calling thread the lowest priority."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
