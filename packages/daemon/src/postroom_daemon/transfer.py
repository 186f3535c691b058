"""Export the messages of a root as lines of JSON, and import them into another.

The file is that of ``state/lines.py``. An import goes through the engine like every other change, in the order of
publishing, message by message: what is there already stays as it is.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from postroom_common.events import decode_line

from .config import Config
from .reach import has_journal, reach
from .state import Ask, Head, State, StateError, Totals, read_state, write_state

#: What one request imports: so many messages at most, and no further one behind so many bytes.
_BATCH: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
#: Queues of one request.
_QUEUES: Final = 1000


def export_state(config: Config, file: IO[bytes], queues: frozenset[str], workspace: Path) -> Totals:
    """Write a root's queues and messages, or those of some queues, to a file.

    Raises ``StateError`` for a queue that is not there, or where there is no journal; ``StartError``, ``NotReached``,
    ``OSError``.
    """
    if not has_journal(config):
        raise StateError(f"{config.root}: there is no journal, and so nothing to export")
    with reach(config) as reached, reached.state(config, workspace) as state:
        missing = queues - {record.name for record in state.queues}
        if missing:
            raise StateError(f"{config.root}: there is no queue {min(missing)!r}")
        return write_state(_of_queues(state, queues) if queues else state, file)


def _of_queues(state: State, queues: frozenset[str]) -> State:
    return replace(
        state,
        queues=[record for record in state.queues if record.name in queues],
        messages=(message for message in state.messages if message["queue"] in queues),
    )


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to. ``skipped`` queues and messages were there already, ``lost`` ones came without a body."""

    head: Head
    queues: int
    messages: int
    skipped: int
    lost: int


def import_state(config: Config, file: IO[bytes], name: str) -> Imported:
    """Import all that a file holds, which can be read from any place; ``name`` is for error texts.

    The whole file is checked before anything is changed. Raises ``StateError``, ``StartError``, ``NotReached``,
    ``CommandError``, ``OSError``; what was imported before stays, and is skipped when it is done again.
    """
    whole = _Whole(file, name)
    done: Counter[str] = Counter()
    with reach(config) as reached:
        for part in whole.parts():
            done.update(_send(reached.ask, whole.head, part))
    return Imported(whole.head, done["queues"], done["messages"], done["skipped"], whole.lost)


def _send(ask: Ask, head: Head, part: dict[str, Any]) -> dict[str, int]:
    answer: dict[str, int] = ask("import_state", {"engineMs": head.engine_ms, "wallMs": head.wall_ms, **part})
    return answer


class _Whole:
    """A file that was read to its end, and found good. It knows where each message is, in the order of publishing."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._lines = _Lines(file)
        state = read_state(self._lines, name)
        self.head = state.head
        self.lost = 0
        self._file = file
        self._queues = [record.to_json() for record in state.queues]
        published, self._places = array("q"), array("q")
        for message in state.messages:
            if "bodyLost" in message:
                self.lost += 1
            else:
                published.append(message["published"])
                self._places.append(self._lines.place)
        self._order = sorted(range(len(published)), key=published.__getitem__)

    def parts(self) -> Iterator[dict[str, Any]]:
        """What the requests of an import hold: queues, then messages."""
        for at in range(0, len(self._queues), _QUEUES):
            yield {"queues": self._queues[at : at + _QUEUES]}
        yield from ({"messages": batch} for batch in self._batches())

    def _batches(self) -> Iterable[list[dict[str, Any]]]:
        batch: list[dict[str, Any]] = []
        size = 0
        for index in self._order:
            self._file.seek(self._places[index])
            line = self._file.readline()
            message = decode_line(line)
            del message["kind"], message["crc"]
            batch.append(message)
            size += len(line)
            if len(batch) == _BATCH or size > _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


class _Lines:
    """The lines of a file. ``place`` is where the last one began."""

    def __init__(self, file: IO[bytes]) -> None:
        self.place = 0
        self._file = file
        self._next = file.tell()

    def readline(self) -> bytes:
        line = self._file.readline()
        self.place, self._next = self._next, self._next + len(line)
        return line
