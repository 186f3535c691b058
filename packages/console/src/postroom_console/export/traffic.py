"""Reading the traffic log in order: from where the last snapshot ended, or from a time of day."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

#: A line beyond this is none.
_LINE_BYTES_LIMIT: Final = 1024 * 1024
_NAME: Final = re.compile(r"(\d{20})\.jsonl")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Mark(NamedTuple):
    """A place in the traffic log: number of the file, bytes of it, and the wall clock of the line before it."""

    file: int = 0
    offset: int = 0
    wall_ms: int = 0


class Traffic:
    """The lines of the traffic log in a directory, up to what stands there now. ``mark`` is behind the last line that
    was given out. What cannot be read gives no lines, and ``problem`` says why."""

    def __init__(self, root: Path, behind: Mark | None = None, from_wall_ms: int | None = None) -> None:
        self.root = root
        self.problem = ""
        self.mark = behind or Mark()
        self._from_wall_ms = from_wall_ms

    def lines(self, last_engine_ms: int | None = None) -> Iterator[dict[str, Any]]:
        """The lines, oldest first; with ``last_engine_ms`` up to the first that was decided later."""
        try:
            yield from self._lines(last_engine_ms)
        except OSError as error:
            self.problem = f"{self.root}: {error.strerror}"

    def _lines(self, last_engine_ms: int | None) -> Iterator[dict[str, Any]]:
        for number, path, size in self._files():
            offset = self.mark.offset if number == self.mark.file else 0
            if number != self.mark.file:
                self.mark = Mark(number, 0, self.mark.wall_ms)
            with os.fdopen(os.open(path, _FLAGS), "rb", 256 * 1024) as file:
                file.seek(offset)
                while offset < size and (line := file.readline(_LINE_BYTES_LIMIT)):
                    if not line.endswith(b"\n") and offset + len(line) >= size:
                        return  # it is being written
                    offset += len(line)
                    told = _read(line)
                    wall_ms = told.get("wallMs", 0)
                    if last_engine_ms is not None and told.get("engineMs", 0) > last_engine_ms:
                        return
                    self.mark = Mark(number, offset, wall_ms or self.mark.wall_ms)
                    if told and (self._from_wall_ms is None or wall_ms >= self._from_wall_ms):
                        yield told

    def _files(self) -> list[tuple[int, Path, int]]:
        """The files that may have lines behind the mark, and their sizes now."""
        with os.scandir(self.root) as entries:
            names = [(_NAME.fullmatch(entry.name), entry) for entry in entries]
            found = sorted(
                (int(match[1]), self.root / entry.name, entry.stat().st_size)
                for match, entry in names
                if match and entry.is_file(follow_symlinks=False)
            )
        newest = found[-1] if found else (0, self.root, 0)
        if self.mark.file > newest[0] or (self.mark.file == newest[0] and self.mark.offset > newest[2]):
            self.mark = Mark(0, 0, self.mark.wall_ms)  # the log was begun anew
        found = [one for one in found if one[0] >= self.mark.file]
        if self._from_wall_ms is not None:
            while len(found) > 1 and self._begins(found[1][1]) < self._from_wall_ms:
                del found[0]
        return found

    def _begins(self, path: Path) -> int:
        with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
            return int(_read(file.readline(_LINE_BYTES_LIMIT)).get("wallMs", 0))


def _read(line: bytes) -> dict[str, Any]:
    """A line's fields; none for what is no line of the log."""
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    if type(told) is not dict or any(type(told.get(name)) is not int for name in ("wallMs", "engineMs")):
        return {}
    return told
