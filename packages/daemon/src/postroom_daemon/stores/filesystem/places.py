"""Where each message's file is, for a million of them in little memory.

The place of a plainly ready message (which is what a backlog is made of) is stored as the few numbers that its name
consists of, in 50 bytes. All others are stored as they are.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import chain
from struct import Struct
from typing import Final

from .uuids import Halves, halves_of, id_of_halves

_NUMBER: Final = r"([1-9][0-9]{0,13})"
_PLAIN: Final = re.compile(
    r"(?:([0-9]{5})/)?p([0-9a-f]{8})-([0-9]{15})-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    rf"~v{_NUMBER}~w{_NUMBER}~b{_NUMBER}(?:~s([1-9][0-9]{{0,8}}))?\.json"
)
#: Shard (0: none), order, versions behind the seq; then seq, created_wall and created, of six bytes each, and size.
_ROW: Final = Struct(">HIHHIHIHII")
_GONE: Final = b"\xff" * _ROW.size
_HALF: Final = 0xFFFFFFFF
_SIX_BYTES: Final = 2**48
#: Rows of a block; and sequences of blocks, each in the order of ids: what fits into none of them is not packed.
_BLOCK_ROWS: Final = 4096
_RUNS_LIMIT: Final = 8
#: Rows of a block that are gone before it is rewritten, if they are half of it.
_GONE_LIMIT: Final = 64
#: Rows that are read together, and rows read so whose places are likely to be asked for.
_NEIGHBOURS: Final = 32
_AHEAD_LIMIT: Final = 512


PlainMessage = tuple[str, int, int, int, int, int]
"""Key, order, seq, created_wall, created and size of a message that is plainly ready."""


class _Block:
    """Rows in the order of their ids. Those that are gone stay until they are many."""

    __slots__ = ("highs", "live", "lows", "rows")

    def __init__(self) -> None:
        self.highs = array("Q")
        self.lows = array("Q")
        self.rows = bytearray()
        self.live = 0

    @property
    def last(self) -> Halves:
        return self.highs[-1], self.lows[-1]

    def find(self, high: int, low: int) -> int:
        """The number of a row, which may be gone; -1 if there is none."""
        highs, lows = self.highs, self.lows
        at = bisect_left(highs, high)
        while at < len(highs) and highs[at] == high:
            if lows[at] == low:
                return at
            at += 1
        return -1

    def row(self, at: int) -> bytes | None:
        row = bytes(self.rows[at * _ROW.size : (at + 1) * _ROW.size])
        return None if row == _GONE else row

    def put(self, at: int, row: bytes) -> None:
        self.rows[at * _ROW.size : (at + 1) * _ROW.size] = row

    def append(self, high: int, low: int, row: bytes) -> None:
        self.highs.append(high)
        self.lows.append(low)
        self.rows += row
        self.live += 1

    def trim(self) -> None:
        """Take no more memory than the rows need."""
        self.highs, self.lows, self.rows = self.highs[:], self.lows[:], self.rows[:]

    def without_gone(self) -> _Block:
        """A block of the rows that are not gone."""
        block = _Block()
        for at, (high, low) in enumerate(zip(self.highs, self.lows, strict=True)):
            row = self.row(at)
            if row:
                block.append(high, low, row)
        block.trim()
        return block


class _Table:
    """Rows by the halves of their ids, in runs of blocks. New ids are nearly always the highest, so that there are few
    runs; mostly one."""

    def __init__(self) -> None:
        self._runs: list[list[_Block]] = []

    def _find(self, high: int, low: int) -> tuple[list[_Block], int, int] | None:
        """The run, the number of the block, and the number of the row."""
        for run in self._runs:
            number = bisect_left(run, (high, low), key=_last_of)
            if number < len(run):
                at = run[number].find(high, low)
                if at >= 0:
                    return run, number, at
        return None

    def get(self, high: int, low: int) -> bytes | None:
        """A row; None if there is none."""
        found = self._find(high, low)
        return found[0][found[1]].row(found[2]) if found else None

    def rows_with(self, high: int, low: int) -> Iterator[tuple[int, int, bytes]]:
        """A row and its neighbours, each with the halves of its id. Every row has always the same neighbours, as long
        as its block is not rewritten."""
        found = self._find(high, low)
        if found:
            block, at = found[0][found[1]], found[2]
            first = at - at % _NEIGHBOURS
            for number in range(first, min(first + _NEIGHBOURS, len(block.highs))):
                row = block.row(number)
                if row:
                    yield block.highs[number], block.lows[number], row

    def put(self, high: int, low: int, row: bytes) -> bool:
        """Store a row. False if there is no space for it in the order of ids."""
        found = None if self.is_below(high, low) else self._find(high, low)
        if found:
            block, at = found[0][found[1]], found[2]
            block.live += block.row(at) is None
            block.put(at, row)
            return True
        run = next((run for run in self._runs if run[-1].last < (high, low)), None)
        if run is None:
            if len(self._runs) >= _RUNS_LIMIT:
                return False
            run = [_Block()]
            self._runs.append(run)
        elif len(run[-1].highs) >= _BLOCK_ROWS:
            run[-1].trim()
            run.append(_Block())
        run[-1].append(high, low, row)
        return True

    def remove(self, high: int, low: int) -> None:
        """Forget a row, if it is there."""
        found = self._find(high, low)
        if not found:
            return
        run, number, at = found
        block = run[number]
        if block.row(at) is None:
            return
        block.put(at, _GONE)
        block.live -= 1
        if not block.live:
            del run[number]
            if not run:
                self._runs.remove(run)
        elif block.live * 2 < len(block.highs) - _GONE_LIMIT:
            run[number] = block.without_gone()

    def extend(self, ids: list[Halves], rows: dict[Halves, bytes]) -> None:
        """Store rows, the ids of which are in order and above all others."""
        for first in range(0, len(ids), _BLOCK_ROWS):
            part = ids[first : first + _BLOCK_ROWS]
            block = _Block()
            block.highs.extend([high for high, _ in part])
            block.lows.extend([low for _, low in part])
            block.rows += b"".join([rows[one] for one in part])
            block.live = len(part)
            block.trim()
            if self._runs:
                self._runs[-1].append(block)
            else:
                self._runs.append([block])

    def is_below(self, high: int, low: int) -> bool:
        """Whether all ids are lower than this one."""
        return all(run[-1].last < (high, low) for run in self._runs)

    def ids(self) -> list[list[tuple[array[int], array[int], int]]]:
        """The ids as of now, some of which may be gone: for each run its blocks, with the halves and their number."""
        return [[(block.highs, block.lows, len(block.highs)) for block in run] for run in self._runs]


def _last_of(block: _Block) -> Halves:
    return block.last


class _Directory:
    """The places of the messages whose keys begin in the same way."""

    def __init__(self) -> None:
        self.table = _Table()
        self.others: dict[str, bytes | str] = {}

    def get(self, id_: str) -> bytes | str | None:
        halves = halves_of(id_)
        row = self.table.get(*halves) if halves else None
        return row or self.others.get(id_)

    def put(self, id_: str, row: bytes | None, place: str) -> None:
        halves = halves_of(id_)
        if row and halves and id_ not in self.others and self.table.put(*halves, row):
            return
        if halves:
            self.table.remove(*halves)
        self.others[id_] = row or place

    def pop(self, id_: str) -> None:
        if self.others.pop(id_, None) is None:
            halves = halves_of(id_)
            if halves:
                self.table.remove(*halves)


class Places:
    """A mapping from message keys to places; ``folder`` is that of the ready ones."""

    def __init__(self, folder: str) -> None:
        self._folder = f"{folder}/"
        self._by_prefix: dict[str, _Directory] = {}
        self._last: tuple[str, str | None] = ("", "")  # the place that was asked for last, with its key
        self._ahead: dict[str, bytes] = {}  # rows that ``neighbours`` has returned

    def clear(self) -> None:
        """Forget everything."""
        self._by_prefix.clear()
        self._last = ("", "")
        self._ahead.clear()

    def get(self, key: str) -> str | None:
        """The place of a message's file."""
        if self._last[0] == key:
            return self._last[1]
        prefix, _, id_ = key.rpartition(":")
        held: bytes | str | None = self._ahead.get(key)
        if held is None:
            directory = self._by_prefix.get(prefix)
            held = directory.get(id_) if directory else None
        place = held if held is None or isinstance(held, str) else self._unpacked(held, id_)
        self._last = (key, place)
        return place

    def neighbours(self, key: str) -> list[PlainMessage]:
        """A message that is plainly ready with some of those next to it in the order of ids, which is nearly that of
        publishing; without it if it is another one. Much cheaper than their places one by one."""
        prefix, _, id_ = key.rpartition(":")
        directory, halves = self._by_prefix.get(prefix), halves_of(id_)
        ahead, messages = self._ahead, list[PlainMessage]()
        if len(ahead) > _AHEAD_LIMIT:
            ahead.clear()
        if directory and halves:
            for high, low, row in directory.table.rows_with(*halves):
                one = f"{prefix}:{id_of_halves(high, low)}"
                ahead[one] = row
                _, order, _, seq1, seq2, wall1, wall2, created1, created2, size = _ROW.unpack(row)
                messages.append((one, order, seq1 << 32 | seq2, wall1 << 32 | wall2, created1 << 32 | created2, size))
        return messages

    def __getitem__(self, key: str) -> str:
        place = self.get(key)
        if place is None:
            raise KeyError(key)
        return place

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: str, place: str) -> None:
        self._last = (key, place)
        self._ahead.pop(key, None)
        prefix, _, id_ = key.rpartition(":")
        row = None
        if place.startswith(self._folder):
            plain = _PLAIN.fullmatch(place, len(self._folder))
            if plain and plain[4] == id_:
                row = _packed(plain)
        directory = self._by_prefix.get(prefix)
        if directory is None:
            directory = self._by_prefix[prefix] = _Directory()
        directory.put(id_, row, place)

    def pop(self, key: str) -> None:
        """Forget a message."""
        self._last = ("", "")
        self._ahead.pop(key, None)
        prefix, _, id_ = key.rpartition(":")
        directory = self._by_prefix.get(prefix)
        if directory:
            directory.pop(id_)

    def listing(self) -> Listing:
        """The keys of all messages as of now."""
        return Listing(self._by_prefix)

    def take_plain(
        self, queue: str, shard: int, names: list[str]
    ) -> tuple[list[tuple[int, int, int, int, Halves]], list[str]]:
        """Take the files of a folder that are plainly ready, and new: each with its order, seq, version, size, and the
        halves of its id. Returns them, and the names of the others."""
        directory = self._by_prefix.setdefault(f"msg:{queue}", _Directory())
        table, known = directory.table, directory.others
        rows: dict[Halves, bytes] = {}
        names_of: dict[Halves, str] = {}
        taken: dict[Halves, tuple[int, int, int, int, Halves]] = {}
        others = []
        for name in names:
            plain = _PLAIN.fullmatch(name)
            if plain is not None and plain[1] is None:
                row, id_ = _packed(plain, shard), plain[4]
                halves = (int(id_[:8] + id_[9:13] + id_[14:18], 16), int(id_[19:23] + id_[24:], 16))
                if row and halves not in rows and id_ not in known:
                    rows[halves], names_of[halves] = row, name
                    taken[halves] = (int(plain[2], 16), int(plain[3]), int(plain[5]), int(plain[8] or 0), halves)
                    continue
            others.append(name)
        self._last = ("", "")
        self._ahead.clear()
        ordered = sorted(rows)
        if ordered and table.is_below(*ordered[0]):
            table.extend(ordered, rows)
            return list(taken.values()), others
        for halves in ordered:
            if table.get(*halves) is not None:
                others.append(names_of[halves])
                del taken[halves]
            elif not table.put(*halves, rows[halves]):
                known[id_of_halves(*halves)] = rows[halves]
        return list(taken.values()), others

    def _unpacked(self, row: bytes, id_: str) -> str:
        shard, order, behind, seq1, seq2, wall1, wall2, created1, created2, size = _ROW.unpack(row)
        seq, wall, created = seq1 << 32 | seq2, wall1 << 32 | wall2, created1 << 32 | created2
        folder = f"{self._folder}{shard:05d}/" if shard else self._folder
        sized = f"~s{size}" if size else ""
        return f"{folder}p{order:08x}-{seq:015d}-{id_}~v{seq + behind}~w{wall}~b{created}{sized}.json"


class _IdsInOrder:
    """The ids of a run as they stood when it was made, as a sequence of keys."""

    def __init__(self, prefix: str, blocks: list[tuple[array[int], array[int], int]]) -> None:
        self._prefix = prefix
        self._blocks = blocks

    def behind(self, after: str) -> Iterator[str]:
        """The keys behind one, in order."""
        blocks, prefix = self._blocks, self._prefix
        number = bisect_right(range(len(blocks)), after, key=lambda n: self._key(n, blocks[n][2] - 1))
        for highs, lows, count in blocks[number:]:
            first = bisect_right(range(count), after, key=lambda at: f"{prefix}:{id_of_halves(highs[at], lows[at])}")
            for at in range(first, count):
                yield f"{prefix}:{id_of_halves(highs[at], lows[at])}"

    def _key(self, number: int, at: int) -> str:
        highs, lows, _ = self._blocks[number]
        return f"{self._prefix}:{id_of_halves(highs[at], lows[at])}"


class Listing:
    """Keys as they stood when it was made; a page of them is found at once, wherever it begins. Some of them may be
    gone."""

    def __init__(self, by_prefix: dict[str, _Directory]) -> None:
        self._runs: list[_IdsInOrder] = []
        self._others: list[tuple[str, list[str]]] = []
        for prefix, directory in by_prefix.items():
            self._runs += [_IdsInOrder(prefix, blocks) for blocks in directory.table.ids()]
            self._others.append((prefix, sorted(directory.others)))

    def behind(self, after: str, without_plain: bool = False) -> Iterator[str]:
        """The keys behind one, in order; or those of the messages that were not plainly ready."""
        runs = (run.behind(after) for run in ([] if without_plain else self._runs))
        others = (_keys_behind(after, prefix, ids) for prefix, ids in self._others)
        last = None
        for key in merge(*chain(runs, others)):
            if key != last:
                yield key
            last = key


def _keys_behind(after: str, prefix: str, ids: list[str]) -> Iterator[str]:
    at = bisect_right(ids, after, key=lambda id_: f"{prefix}:{id_}")
    return (f"{prefix}:{ids[index]}" for index in range(at, len(ids)))


def _packed(plain: re.Match[str], shard: int = 0) -> bytes | None:
    """The numbers of a plain name; None when one of them is out of the ordinary."""
    own, order, seq_, _, version, wall_, created_, size = plain.groups()
    seq, wall, created = int(seq_), int(wall_), int(created_)
    shard, behind = int(own or shard), int(version) - seq
    if shard >= 0xFFFF or not 0 <= behind <= 0xFFFF or max(seq, wall, created) >= _SIX_BYTES:
        return None
    return _ROW.pack(
        shard, int(order, 16), behind, seq >> 32, seq & _HALF, wall >> 32, wall & _HALF, created >> 32, created & _HALF,
        int(size or 0),
    )  # fmt: skip
