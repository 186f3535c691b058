"""The directory of state files, and writing one of them in steps: it is complete, or does not exist."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line

from ...engine.verbs.state import read_page
from ...journal.journal import Journal
from ...platform.clock import Clock
from ...platform.files import CREATE_FLAGS, Files, remove_all
from ...stores.base import Store
from ...stores.errors import StoreError
from ..metrics.queues import reading
from ..state import Head, Totals, bodies_in
from ..state.capture import capture_in_steps
from ..state.file import write_in_steps
from ..state.model import Steps

log = logging.getLogger(__name__)

HOUR_MS: Final = 3600 * 1000
_FORM: Final = "%Y-%m-%d-%H.json"
_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}-\d{2}\.json")
#: Files that a killed daemon may have left.
_LEFT: Final = re.compile(rf"{_NAME.pattern}\.tmp|state-.*")
#: Longest first line (bytes); most of it are ranges of lost events.
_HEAD_BYTES: Final = 2**20


class StateFile(NamedTuple):
    """A state file, with the hour in its name (Unix ms) and its size (bytes)."""

    name: str
    hour_ms: int
    size: int


def name_of(wall_ms: int) -> str:
    """The name of the file of an hour, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime(_FORM)


class StateDirectory:
    """The directory of state files; other files in it are ignored. It is created when the first file is written."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self.files = files

    def list(self) -> list[StateFile]:
        """The state files, oldest hour first. Raises ``OSError``."""
        try:
            names = sorted(name for name in self.files.listdir(self.root) if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []
        return [one for name in names if (one := self._look(name))]

    def _look(self, name: str) -> StateFile | None:
        try:
            hour_ms = int(datetime.strptime(name, _FORM).replace(tzinfo=UTC).timestamp() * 1000)
            return StateFile(name, hour_ms, self.files.stat(self.root / name, follow_symlinks=False).st_size)
        except (ValueError, FileNotFoundError):  # there is no such hour; or RACE: somebody has removed it
            return None

    def head_of(self, name: str) -> Head | None:
        """The head of a file; None if it is damaged. Raises ``OSError``."""
        with (self.root / name).open("rb") as file:
            try:
                return Head.from_json(decode_line(file.readline(_HEAD_BYTES)))
            except (DamagedRecord, KeyError) as error:
                log.warning("snapshots: %s: %r", name, error)
                return None

    def free_bytes(self) -> int:
        """Free bytes of the file system. Raises ``OSError``."""
        figures = self.files.statvfs(self.root)
        return int(figures.f_bavail * figures.f_frsize)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the directory, creating it if needed, and remove what a killed daemon left. Raises ``OSError``."""
        directory = self.files.open_directory(self.root)
        try:
            for name in self.files.listdir(directory):
                if _LEFT.fullmatch(name):
                    remove_all(self.root / name)
            yield directory
        finally:
            self.files.close(directory)

    def clear(self, wall_ms: int, retention_ms: int, max_files: int, max_bytes: int) -> None:
        """Remove the oldest files beyond ``max_files`` and ``max_bytes``, and one file that is older than
        ``retention_ms``, so that a clock that is wrong for some hours removes only a few. The newest file stays.

        Raises ``OSError``.
        """
        kept = self.list()
        count, size = len(kept), sum(one.size for one in kept)
        for number, one in enumerate(kept[:-1]):
            old = number == 0 and wall_ms - one.hour_ms > retention_ms
            if not (old or count > max_files or size > max_bytes):
                break
            self.files.unlink(self.root / one.name)
            count -= 1
            size -= one.size
            log.info("snapshots: removed %s", self.root / one.name)


T = TypeVar("T")

#: Items, and bytes of bodies, that are read from the store at once: about a millisecond.
_PAGE: Final = 32
_PAGE_BYTES: Final = 64 * 1024
#: Bytes after which the kernel is asked to begin writing, so that the final sync is short.
_WRITE_BYTES: Final = 1024 * 1024
#: Steps between two checks of the free space.
_STEPS_A_LOOK: Final = 16
#: Time that a step waits for the sync (s).
_SYNC_WAIT_S: Final = 0.001


class StoreFailed(Exception):
    """The daemon's own store has failed with ``error``."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class Origin:
    """Reads the state of the daemon's own root."""

    def __init__(self, store: Store, journal: Journal, clock: Clock, bodies: Path) -> None:
        self.journal = journal
        self.body = bodies_in(bodies)
        self._store = store
        self._clock = clock

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """The store, within a transaction. Raises ``OSError`` if the disk does not answer, and ``StoreFailed``."""
        try:
            with reading(self._store):
                yield self._store
        except StoreError as error:
            raise StoreFailed(error) from error

    def ask(self, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A small page of ``read_state``. Raises as ``reading``."""
        part, after, limit = payload["part"], payload.get("after", ""), payload.get("limit", _PAGE)
        with self.reading() as store:
            page = read_page(store, part, after, min(limit, _PAGE), _PAGE_BYTES)
            if part == "facts":  # they are the store's own objects, which may change
                page = orjson.loads(orjson.dumps(page))
        now = self._clock.now()
        return page | {"engineMs": now.engine, "wallMs": now.wall}


class _Growing(BytesIO):
    """A file that is written piece by piece. ``check_room`` raises if there is not enough free space."""

    def __init__(self, fd: int, files: Files, most: int, check_room: Callable[[int], None]) -> None:
        super().__init__()
        self._fd = fd
        self._files = files
        self._left = most
        self._check_room = check_room

    def write(self, line: Any) -> int:
        """Raises ``OSError``, also for more than ``most`` bytes in total."""
        written = super().write(line)
        if self.tell() >= _WRITE_BYTES:
            self.flush()
        return written

    def flush(self) -> None:
        """Raises as ``write``."""
        piece = self.getvalue()
        self._left -= len(piece)
        if self._left < 0:
            raise OSError(errno.EFBIG, "it is larger than all of these files may be (snapshots.maxBytes)")
        self._check_room(0)
        self._files.write_all(self._fd, piece)
        self._files.start_writing(self._fd)
        self.seek(0)
        self.truncate()


def write_file(
    origin: Origin, state_files: StateDirectory, name: str, most: int, check_room: Callable[[int], None]
) -> Steps[tuple[Head, Totals]]:
    """Write the state to the file ``name``, durably, in steps. Returns its head and totals.

    The name appears when the file is complete. Raises ``StateError``, ``StoreError`` and ``OSError`` for the file, and
    ``StoreFailed``.
    """
    files, journal = state_files.files, origin.journal
    with ExitStack() as closing:
        directory = closing.enter_context(state_files.opened())
        captured = capture_in_steps(origin.ask, journal.root, origin.body, state_files.root, closing, journal.end)
        found = yield from _checked(captured, check_room)
        temporary = name + ".tmp"
        fd = files.open(temporary, CREATE_FLAGS, files.shared_mode(directory), dir_fd=directory)
        try:
            try:
                file = _Growing(fd, files, most, check_room)
                totals = yield from write_in_steps(found.head, found.queues, found.facts, found.messages, file)
                file.flush()
                yield from _sync(fd, files)
            finally:
                files.close(fd)
            files.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            files.discard(temporary, directory)
            raise
        files.fsync(directory)
    return found.head, totals


def _checked(steps: Steps[T], check_room: Callable[[int], None]) -> Steps[T]:
    """The same steps, with checks of the free space in between, since they fill temporary files."""
    number = 0
    while True:
        if number % _STEPS_A_LOOK == 0:
            check_room(0)
        number += 1
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        yield


def _sync(fd: int, files: Files) -> Steps[None]:
    """Sync a file in a thread: it may take long, and requests do not wait for it, even if it is abandoned."""
    own, ended = os.dup(fd), threading.Event()
    failed: list[BaseException] = []

    def sync() -> None:
        try:
            files.fsync(own)
        except BaseException as error:
            failed.append(error)
        finally:
            os.close(own)
            ended.set()

    try:
        threading.Thread(target=sync, name="snapshot", daemon=True).start()
    except RuntimeError as error:
        os.close(own)
        raise OSError(errno.EAGAIN, str(error)) from error
    while not ended.wait(_SYNC_WAIT_S):
        yield
    if failed:
        raise failed[0]
