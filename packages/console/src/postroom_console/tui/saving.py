"""Where messages are saved that are removed or wanted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from .desk import Desk

#: Bytes of a file's name that the queue may have; a directory takes 255.
_NAME_BYTES: Final = 180


def save_path(console: Desk, queue: str, what: str) -> Path:
    """A file for messages that are removed or saved; its name tells the queue, what they are, and the time."""
    safe = "".join(character if character.isalnum() else "-" for character in queue)
    safe = safe.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(console.wall_ms() / 1000))
    return console.save_root / f"{safe}-{what}-{now}.jsonl"
