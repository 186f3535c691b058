"""A plain refreshing table of a daemon's queues and its last events: watch.py --root DIR

Looks through the public client and the journal's files, and changes nothing. Ends with Ctrl-C; with no terminal it
prints one table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import unicodedata
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from postroom_client import Client, PostroomError
from postroom_common.errors import DamagedRecord
from postroom_common.events import Event, decode_event

_FIRST_LOOK_BYTES = 64 * 1024
#: Cells of each column of figures, in their order.
_CELLS = {"READY": 8, "INFLIGHT": 10, "DELAYED": 9, "DEAD": 7, "OLDEST": 12}
#: Columns that go first where the terminal is narrow.
_SPARED = ("OLDEST", "DELAYED")
#: Cells that a name has before a column is spared for it.
_NAME_CELLS = 28


class Journal:
    """Follows the journal's files from their last lines on.

    ``last`` are events that have happened for good: all up to the last one that ends its group. What stands behind it
    is read again with the next look, since it may be cut back, and its ids used for other events.
    """

    def __init__(self, directory: Path, keep: int = 200) -> None:
        self.last: deque[Event] = deque(maxlen=keep)
        self._directory = directory
        self._segment: Path | None = None
        self._offset = 0  # where the last group that was taken in ends

    def read(self) -> None:
        """Take in the groups that were finished since the last call; raises ``OSError`` when the journal may not be
        read."""
        segments = sorted(self._directory.glob("*.jsonl"))
        if self._segment is None and segments:
            self._segment = segments[-1]
            self._offset = self._line_start(self._segment)
        held: list[Event] = []
        for segment in segments:
            if self._segment is None or segment < self._segment:
                continue
            offset = self._offset if segment == self._segment else 0
            with segment.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n"):  # still being written
                        break
                    offset += len(line)
                    event = _event_of(line)
                    held.append(event)
                    if event["id"] == event["grp"]:
                        self.last.extend(held)
                        held = []
                        self._segment, self._offset = segment, offset

    @staticmethod
    def _line_start(segment: Path) -> int:
        start = max(0, segment.stat().st_size - _FIRST_LOOK_BYTES)
        if start == 0:
            return 0
        with segment.open("rb") as file:
            file.seek(start)
            return start + len(file.readline())


def _event_of(line: bytes) -> Event:
    try:
        return decode_event(line)
    except DamagedRecord:
        return {"id": 0, "grp": -1, "type": "(damaged line)"}


def queue_table(queues: Iterable[dict[str, Any]], columns: int) -> list[str]:
    """The table of queues, as lines. What does not fit into ``columns`` cells is spared, and then names are cut."""
    rows = [(printable(queue["queue"]), _figures(queue)) for queue in queues]
    longest = max((cells_of(name) for name, _ in rows), default=0)
    cells = dict(_CELLS)
    for spared in _SPARED:
        if min(longest, _NAME_CELLS) + sum(cells.values()) > columns:
            del cells[spared]
    wide = max(len("QUEUE"), min(longest, columns - sum(cells.values())))

    def line(name: str, figures: dict[str, str]) -> str:
        return padded(cut(name, wide), wide) + "".join(f"{figures[key]:>{cells[key]}}" for key in cells)

    return [line("QUEUE", {key: key for key in cells}), *(line(name, figures) for name, figures in rows)]


def _figures(queue: dict[str, Any]) -> dict[str, str]:
    age = queue.get("oldestReadyAgeMs")
    return {
        "READY": str(queue["ready"]),
        "INFLIGHT": str(queue["inflight"]),
        "DELAYED": str(queue["delayed"]),
        "DEAD": str(queue["dlq"]),
        "OLDEST": f"{age / 1000:.1f} s" if age is not None else "-",
    }


def event_line(event: Event) -> str:
    """One event on one line: when, number, what, where, and its most telling field."""
    when = time.strftime("%H:%M:%S", time.localtime(event.get("wallMs", 0) / 1000))
    failure = event.get("failure")
    reason = event.get("reasonMessage") or (failure.get("reasonMessage") if isinstance(failure, dict) else None)
    detail = reason or str(event.get("key", ""))[-12:]
    queue = cut(printable(event.get("queue", "")), 20)
    return printable(f"{when} {event.get('id') or '':>8} {event['type']:<14} {queue:<20} {detail}")


def screen(
    title: list[str],
    queues: list[dict[str, Any]],
    events: Iterable[Event],
    columns: int,
    rows: int,
    below: Iterable[str] = (),
) -> list[str]:
    """At most ``rows`` lines of at most ``columns`` cells: title, queues, what stands below them, and as many last
    events as fit."""
    table = queue_table(queues, columns)
    room = max(2, rows - len(title) - 8)  # some events are shown however many queues there are
    if len(table) > room:
        table[room - 1 :] = [f"... and {len(table) - room + 1} more"]
    lines = [*title, "", *table]
    lines += list(below)[: max(0, rows - len(lines) - 5)]
    lines += ["", "LAST EVENTS"]
    room = rows - len(lines)
    if room > 0:
        lines += [event_line(event) for event in list(events)[-room:]]
    return [cut(line, columns) for line in lines[:rows]]


def draw(lines: list[str]) -> None:
    """Put the lines on the terminal, from its top left, over what stood there."""
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines[:-1]) + f"{lines[-1]}\x1b[K\x1b[J")
    sys.stdout.flush()


def printable(text: str) -> str:
    """``text`` with control, format and other invisible characters shown as escapes."""
    return "".join(
        char if char == " " or unicodedata.category(char)[0] not in "CZ" else ascii(char)[1:-1] for char in text
    )


def cut(text: str, cells: int) -> str:
    """``text``, ended with … where it is wider than ``cells`` terminal cells."""
    if cells_of(text) <= cells:
        return text
    kept, used = "", 0
    for char in text:
        used += _width(char)
        if used > cells - 1:
            break
        kept += char
    return kept + "…"


def cells_of(text: str) -> int:
    """Terminal cells that ``text`` takes."""
    return sum(_width(char) for char in text)


def padded(text: str, cells: int) -> str:
    """``text`` with blanks up to so many cells."""
    return text + " " * (cells - cells_of(text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def look(client: Client, journal: Journal, root: Path, hint: str, below: Iterable[str] = ()) -> list[str]:
    """One look at the daemon: the lines for a terminal of the present size. ``below`` stands under the queues."""
    journal.read()
    size = shutil.get_terminal_size()
    metrics = client.metrics()
    queues = client.list_queues()["queues"]
    rates = metrics.get("rates", {})
    flow = "in the last minute: " + ", ".join(f"{rate:.1f} {name}/s" for name, rate in rates.items())
    title = [f"Postroom on {root}, up {metrics['uptimeMs'] // 1000} s    {hint}", flow]
    return screen(title, queues, journal.last, size.columns, size.lines, below)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="the daemon's root directory")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="pause between two looks (1)")
    options = parser.parse_args()
    journal = Journal(options.root / "journal")
    try:
        with Client(str(options.root / "ipc"), client_id=f"watch-{os.getpid()}", timeout=5) as client:
            if not sys.stdout.isatty():
                print("\n".join(look(client, journal, options.root, "")))
                return
            while True:
                draw(look(client, journal, options.root, "Ctrl-C ends this"))
                time.sleep(options.every)
    except KeyboardInterrupt:
        print()
    except (PostroomError, OSError) as error:
        sys.exit(f"watch: {error}")


if __name__ == "__main__":
    main()
