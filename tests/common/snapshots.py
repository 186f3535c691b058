"""Snapshots for tests: the golden ones, and files with whatever fault."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from postroom_common.snapshot_reader import Member, check

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "snapshot"
Line = dict[str, Any]


def golden(major: int) -> bytes:
    """The text of the golden snapshot of a version."""
    return (VECTORS / f"v{major}.jsonl").read_bytes()


def lines_of(text: bytes) -> list[Line]:
    return [json.loads(line) for line in text.splitlines()]


def text_of(lines: list[Line]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def sealed(lines: list[Line], **changes: Any) -> bytes:
    """The text of lines under a trailer that fits them, but for its ``changes``."""
    text = text_of(lines)
    trailer = {
        "device": lines[0]["device"],
        "snapshot": lines[0]["snapshot"],
        "kind": "trailer",
        "lines": len(lines),
        "counts": dict(Counter(line["kind"] for line in lines)),
        "lineCrc": sum(zlib.crc32(line) for line in text.splitlines()),
        "digest": hashlib.sha256(text).hexdigest(),
    }
    return text + text_of([{**trailer, **changes}])


def judged(data: bytes) -> list[Member]:
    """What the reader says of a file."""
    return list(check(io.BytesIO(data)))


def packed(text: bytes) -> bytes:
    return gzip.compress(text, 6, mtime=0)
