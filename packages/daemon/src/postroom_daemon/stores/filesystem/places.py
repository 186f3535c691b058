"""Where each message's file is, for a million of them in little memory.

A message id that is a UUID is stored as a number, and the place of a plainly ready message (which is what a backlog is
made of) as the few numbers that its name consists of. All others are stored as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import merge
from struct import Struct
from typing import Final

#: A message id as it is stored in memory.
Short = int | str

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER: Final = r"([1-9][0-9]{0,13})"
_PLAIN: Final = re.compile(
    r"(?:([0-9]{5})/)?p([0-9a-f]{8})-([0-9]{15})-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    rf"~v{_NUMBER}~w{_NUMBER}~b{_NUMBER}(?:~s([1-9][0-9]{{0,8}}))?\.json"
)
#: Shard (0: none), order, versions behind the seq; then seq, created_wall and created, of six bytes each, and size.
_PACKED: Final = Struct(">HIHHIHIHII")
_HALF: Final = 0xFFFFFFFF
_SIX_BYTES: Final = 2**48


class Places:
    """A mapping from message keys to places; ``folder`` is that of the ready ones."""

    def __init__(self, folder: str) -> None:
        self._folder = f"{folder}/"
        self._by_prefix: dict[str, dict[Short, bytes | str]] = {}
        self._shorts: dict[str, Short] = {}
        self._last = ("", "")  # the place that was asked for last, with its key

    def clear(self) -> None:
        """Forget everything."""
        self._by_prefix.clear()
        self._shorts.clear()
        self._last = ("", "")

    def short(self, id_: str) -> Short:
        """The short form of a message id: the same object, until ``end``."""
        short = self._shorts.get(id_)
        if short is None:
            short = self._shorts[id_] = int(id_.replace("-", ""), 16) if _UUID.fullmatch(id_) else id_
        return short

    def end(self) -> None:
        """The transaction that used the ids is over."""
        self._shorts.clear()

    def get(self, key: str) -> str | None:
        """The place of a message's file."""
        if self._last[0] == key:
            return self._last[1]
        prefix, _, id_ = key.rpartition(":")
        held = self._by_prefix.get(prefix, {}).get(self.short(id_))
        if held is None:
            return None
        place = held if isinstance(held, str) else self._unpacked(held, id_)
        self._last = (key, place)
        return place

    def __getitem__(self, key: str) -> str:
        place = self.get(key)
        if place is None:
            raise KeyError(key)
        return place

    def __contains__(self, key: str) -> bool:
        prefix, _, id_ = key.rpartition(":")
        return self.short(id_) in self._by_prefix.get(prefix, {})

    def __setitem__(self, key: str, place: str) -> None:
        self._last = (key, place)
        prefix, _, id_ = key.rpartition(":")
        held: bytes | str = place
        if place.startswith(self._folder):
            plain = _PLAIN.fullmatch(place, len(self._folder))
            if plain and plain[4] == id_:
                held = _packed(plain) or place
        self._by_prefix.setdefault(prefix, {})[self.short(id_)] = held

    def pop(self, key: str) -> None:
        """Forget a message."""
        self._last = ("", "")
        prefix, _, id_ = key.rpartition(":")
        self._by_prefix.get(prefix, {}).pop(self.short(id_), None)

    def listing(self) -> Listing:
        """The keys of all messages as of now."""
        return Listing(self._by_prefix)

    def take_plain(
        self, queue: str, shard: int, names: list[str]
    ) -> tuple[list[tuple[int, int, int, int, Short]], list[str]]:
        """Take the files of a folder that are plainly ready, and new: each with its order, seq, version and
        size. The names of the others."""
        places = self._by_prefix.setdefault(f"msg:{queue}", {})
        taken: list[tuple[int, int, int, int, Short]] = []
        others = []
        for name in names:
            plain = _PLAIN.fullmatch(name)
            if plain is not None and plain[1] is None:
                short = int(plain[4].replace("-", ""), 16)
                packed = None if short in places else _packed(plain, shard)
                if packed:
                    places[short] = packed
                    taken.append((int(plain[2], 16), int(plain[3]), int(plain[5]), int(plain[8] or 0), short))
                    continue
            others.append(name)
        return taken, others

    def _unpacked(self, held: bytes, id_: str) -> str:
        shard, order, behind, *parts, size = _PACKED.unpack(held)
        seq, wall, created = (parts[n] << 32 | parts[n + 1] for n in (0, 2, 4))
        folder = f"{self._folder}{shard:05d}/" if shard else self._folder
        sized = f"~s{size}" if size else ""
        return f"{folder}p{order:08x}-{seq:015d}-{id_}~v{seq + behind}~w{wall}~b{created}{sized}.json"


class Listing:
    """Keys as they stood when it was made; a page of them is found at once, wherever it begins."""

    def __init__(self, by_prefix: Mapping[str, Mapping[Short, bytes | str]]) -> None:
        self._streams: list[tuple[Callable[[Short], str], list[Short]]] = []
        for prefix, places in by_prefix.items():
            for kind in (int, str):
                shorts = sorted(short for short in places if type(short) is kind)
                self._streams.append((partial(key_of, prefix), shorts))

    def behind(self, after: str) -> Iterator[str]:
        """The keys behind one, in order."""
        return merge(*(_behind(after, key, shorts) for key, shorts in self._streams))


def _behind(after: str, key: Callable[[Short], str], shorts: list[Short]) -> Iterator[str]:
    at = bisect_right(shorts, after, key=key)
    return (key(shorts[index]) for index in range(at, len(shorts)))


def key_of(prefix: str, short: Short) -> str:
    """The key of the message with this short id; ``prefix`` is what precedes it, without the colon."""
    if type(short) is str:
        return f"{prefix}:{short}"
    digits = f"{short:032x}"
    return f"{prefix}:{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _packed(plain: re.Match[str], shard: int = 0) -> bytes | None:
    """The numbers of a plain name; None when one of them is out of the ordinary."""
    own, order, seq_, _, version, wall_, created_, size = plain.groups()
    seq, wall, created = int(seq_), int(wall_), int(created_)
    shard, behind = int(own or shard), int(version) - seq
    if shard > 0xFFFF or not 0 <= behind <= 0xFFFF or max(seq, wall, created) >= _SIX_BYTES:
        return None
    numbers = (part for number in (seq, wall, created) for part in (number >> 32, number & _HALF))
    return _PACKED.pack(shard, int(order, 16), behind, *numbers, int(size or 0))
