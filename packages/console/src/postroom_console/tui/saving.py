"""Where messages are saved that are removed or wanted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from .desk import Desk


def save_path(console: Desk, queue: str, what: str) -> Path:
    """A file for messages that are removed or saved; its name tells the queue, what they are, and the time."""
    safe = "".join(character if character.isalnum() else "-" for character in queue)[:60]
    now = datetime.fromtimestamp(console.wall_ms() / 1000, UTC)
    return console.save_root / f"{safe}-{what}-{now:%Y%m%dT%H%M%SZ}.jsonl"
