"""Writes data directories as the server of smss (822e6a1) does: its binlog, its topics, and what a crash leaves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

HOUR = 3_600_000


def block(body: bytes, headers: dict[bytes, bytes] | None = None) -> bytes:
    """A message as it is published and stored."""
    pairs = [struct.pack("<I", len(text)) + text for pair in (headers or {}).items() for text in pair]
    content = b"".join(pairs) + body
    return struct.pack("<II", len(content), len(headers or {})) + content


def fnv(text: str) -> int:
    """FNV-1a with 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class SmssStore:
    """A data directory that is being written; ``now`` is the wall time (Unix ms) of its server, and ``event_id`` the
    last one that it gave."""

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        self.now = now
        self.event_id = 0
        self.file = 0
        (path / "binlog").mkdir(parents=True)
        (path / "topic").mkdir()

    def directory(self, topic: str) -> Path:
        buckets = (fnv(topic + end) % 10 for end in ("talk is cheap, show me your code", "The world is beautiful"))
        return self.path / "topic" / "/".join(map(str, buckets)) / topic

    def binlog(self, op: int, topic: str, payload: bytes, count: int = 1) -> tuple[int, int]:
        """Write an entry of the binlog. Returns its event id and its place."""
        self.event_id += count
        first = self.event_id - count + 1
        payload += b"\n" if payload else b""
        line = f"{self.now}\t{op}\t{first}\t{self.now}\t{topic}\t{len(payload)}\n".encode()
        with (self.path / "binlog" / f"{self.file}.log").open("ab") as file:
            place = file.tell()
            file.write(struct.pack("<I", len(line)) + line + payload)
        return first, place

    def create(self, topic: str, expire: int = 0) -> int:
        self.directory(topic).mkdir(parents=True)
        return self.binlog(2, topic, struct.pack("<q", expire))[0]

    def delete(self, topic: str) -> None:
        self.binlog(3, topic, b"")
        for path in self.directory(topic).iterdir():
            path.unlink()
        self.directory(topic).rmdir()

    def publish(self, topic: str, *blocks: bytes) -> list[int]:
        first, place = self.binlog(1, topic, b"".join(blocks), len(blocks))
        return list(self._store(topic, first, place, blocks))

    def delay(self, topic: str, due: int, *blocks: bytes) -> int:
        payload = struct.pack("<qq", due, self.event_id + 1) + b"".join(blocks)
        return self.binlog(16, topic, payload)[0]

    def apply(self, topic: str, request: int, *blocks: bytes) -> list[int]:
        """The time of a delay is over."""
        payload = struct.pack("<qq", self.now, request) + b"".join(blocks)
        first, place = self.binlog(101, topic, payload, len(blocks))
        return list(self._store(topic, first, place, blocks))

    def _store(self, topic: str, first: int, place: int, blocks: tuple[bytes, ...]) -> Iterator[int]:
        with self.last_file(topic).open("ab") as file:
            for index, one in enumerate(blocks):
                fields = (self.now, first + index, self.now, len(one) + 1, index, self.file, place)
                line = "\t".join(map(str, fields)).encode() + b"\n"
                file.write(struct.pack("<I", len(line)) + line + one + b"\n")
                yield first + index

    def last_file(self, topic: str) -> Path:
        return self.directory(topic) / f"{self.file}.log"

    def content(self) -> dict[str, bytes]:
        """Everything in it."""
        return {str(path): path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
