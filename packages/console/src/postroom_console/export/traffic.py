"""Reads the traffic log in order, from the end of the last snapshot or from a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

#: A longer line is damage.
_LINE_BYTES_LIMIT: Final = 1024 * 1024
_NAME: Final = re.compile(r"(\d{20})\.jsonl")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class TrafficPosition(NamedTuple):
    """A position in the traffic log: the number of the file, byte offset, and wall clock of the line before it."""

    file: int = 0
    offset: int = 0
    wall_ms: int = 0


class TrafficReader:
    """The lines of the traffic log in a directory, up to its present end. ``position`` is behind the last line that was
    returned. ``problem`` says why nothing can be read; it is empty otherwise."""

    def __init__(self, root: Path, behind: TrafficPosition | None = None, from_wall_ms: int | None = None) -> None:
        self.root = root
        self.problem = ""
        self.position = behind or TrafficPosition()
        self._from_wall_ms = from_wall_ms

    def lines(self, last_engine_ms: int | None = None) -> Iterator[dict[str, Any]]:
        """The lines, oldest first; with ``last_engine_ms`` up to the first line of a later engine time."""
        try:
            yield from self._lines(last_engine_ms)
        except OSError as error:
            self.problem = f"{self.root}: {error.strerror}"

    def _lines(self, last_engine_ms: int | None) -> Iterator[dict[str, Any]]:
        for number, path, size in self._files():
            offset = self.position.offset if number == self.position.file else 0
            if number != self.position.file:
                self.position = TrafficPosition(number, 0, self.position.wall_ms)
            with os.fdopen(os.open(path, _FLAGS), "rb", 256 * 1024) as file:
                file.seek(offset)
                while offset < size and (line := file.readline(_LINE_BYTES_LIMIT)):
                    if not line.endswith(b"\n") and offset + len(line) >= size:
                        return  # it is being written
                    offset += len(line)
                    request = _read(line)
                    wall_ms = request.get("wallMs", 0)
                    if last_engine_ms is not None and request.get("engineMs", 0) > last_engine_ms:
                        return
                    self.position = TrafficPosition(number, offset, wall_ms or self.position.wall_ms)
                    if request and (self._from_wall_ms is None or wall_ms >= self._from_wall_ms):
                        yield request

    def _files(self) -> list[tuple[int, Path, int]]:
        """The files that may have lines behind the position, with their sizes."""
        with os.scandir(self.root) as entries:
            names = [(_NAME.fullmatch(entry.name), entry) for entry in entries]
            found = sorted(
                (int(match[1]), self.root / entry.name, entry.stat().st_size)
                for match, entry in names
                if match and entry.is_file(follow_symlinks=False)
            )
        newest = found[-1] if found else (0, self.root, 0)
        if self.position.file > newest[0] or (self.position.file == newest[0] and self.position.offset > newest[2]):
            self.position = TrafficPosition(0, 0, self.position.wall_ms)  # the log was started from scratch
        found = [one for one in found if one[0] >= self.position.file]
        if self._from_wall_ms is not None:
            while len(found) > 1 and self._begins(found[1][1]) < self._from_wall_ms:
                del found[0]
        return found

    def _begins(self, path: Path) -> int:
        with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
            return int(_read(file.readline(_LINE_BYTES_LIMIT)).get("wallMs", 0))


def _read(line: bytes) -> dict[str, Any]:
    """The fields of a line; none for anything but a line of the log."""
    try:
        request = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    if type(request) is not dict or any(type(request.get(name)) is not int for name in ("wallMs", "engineMs")):
        return {}
    return request
