"""Read a directory of the C++ system's filesystem backend: a file for each message, and for each lease and delay.

The directory of a message's file is its state. A crash may have left a message in two directories, a lease of a message
that is not in flight, or a message in flight without its lease, which no consumer has got.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...config.settings import Settings
from ...platform.files import LOST_ERRNOS
from ...root.cpp_data import DELAYS_DIR, LEASES_DIR, POLICY_PREFIX, message_files
from ...stores.errors import StoreBusy
from ..foreign_data import Unusable, UnusableRow, text_of
from .rows import (
    CppMessage,
    body_of,
    headers_of,
    number_of,
    object_of,
    reason_of,
    shown_file,
)

#: States by how late a message that is in two of their directories has reached them, the last first.
_LATEST_FIRST: Final = ("ready", "delayed", "dlq", "inflight")
#: The program of the C++ daemon.
_DAEMON: Final = "MainMQ"


class CppFiles:
    """A directory of message files, which is only read. ``unfinished`` is the number of files that were being written
    when the C++ daemon ended: nobody was answered that those messages were stored."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = settings.filesystem_root
        self._meta = self._root / settings.filesystem_meta_dir
        self.unfinished = 0

    def open(self) -> None:
        """List the messages. Raises ``OSError``; ``StoreBusy`` if the C++ daemon can be seen to run here."""
        if _daemon_runs_above(self._root):
            raise StoreBusy(f"{self._root}: {_DAEMON} runs")
        self._files: list[tuple[int, Path, str]] = []
        best: dict[str, tuple[int, Path]] = {}
        for path, state in message_files(self._settings):
            if state == "archive":
                continue
            if path.suffix != ".json":
                self.unfinished += 1
                continue
            try:
                tree = object_of(_content(path))
            except (Unusable, OSError):
                tree = {}
            created, key = tree.get("createdAt"), tree.get("key")
            self._files.append((created if type(created) is int else 0, path, state))
            if type(key) is str:
                best[key] = min(best.get(key, (len(_LATEST_FIRST), path)), (_LATEST_FIRST.index(state), path))
        self._files.sort()
        self._best = {path for _, path in best.values()}

    def close(self) -> None:
        """Nothing is open."""

    def oldest(self) -> int | None:
        """When the oldest message was published (Unix ms)."""
        return next((created for created, _, _ in self._files if created), None)

    def policies(self) -> Iterator[tuple[str, dict[str, Any]] | UnusableRow]:
        """The policies by queue, as JSON objects."""
        for path in sorted(self._meta.glob(f"{POLICY_PREFIX}*.json")):
            try:
                content = _content(path)
                yield path.name[len(POLICY_PREFIX) : -len(".json")], object_of(content)
            except Unusable as problem:
                yield UnusableRow(str(problem), shown_file(path, content), is_message=False)

    def messages(self) -> Iterator[CppMessage | UnusableRow]:
        """All messages in the order of publishing; those of one millisecond in the order of their names."""
        for _, path, state in self._files:
            content = b""
            try:
                content = _content(path)
                tree = object_of(content)
                if type(tree.get("key")) is str and path not in self._best:
                    reason = "another file of the same message comes before it"
                    yield UnusableRow(reason, shown_file(path, content), is_message=False)
                    continue
                yield self._message(path, state, tree, content)
            except Unusable as problem:
                yield UnusableRow(str(problem), shown_file(path, content))
            except OSError as error:
                if error.errno not in LOST_ERRNOS:
                    raise
                yield UnusableRow(f"it cannot be read: {error.strerror}", shown_file(path, b""))

    def _message(self, path: Path, state: str, tree: dict[str, Any], content: bytes) -> CppMessage:
        key = text_of(tree.get("key"), "key")
        if not key.startswith("msg:"):
            raise Unusable("the key of a message must begin with msg:")
        payload, attributes = body_of(tree, content)
        attempt, available_at = number_of(tree.get("attempt"), "attempt"), 0
        lease: dict[str, Any] = {}
        if state == "inflight":
            lease = self._facts(LEASES_DIR, key)
            state = "inflight" if lease else "ready"
        elif state == "delayed":
            delay = self._facts(DELAYS_DIR, key)
            available_at = delay.get("availableAt") or number_of(tree.get("availableAt"), "availableAt")
        return CppMessage(
            key=key,
            queue=text_of(tree.get("queue"), "queue"),
            state=state,
            priority=number_of(tree.get("priority"), "priority"),
            available_at=available_at,
            lease_until=lease.get("leaseUntil", 0),
            attempt=max(0, attempt, lease.get("attempt", 0)),
            dlq_reason=reason_of(tree.get("dlqReason")),
            dlq_at=number_of(tree.get("dlqAt"), "dlqAt") or path.stat().st_mtime_ns // 1_000_000,
            target=text_of(tree.get("targetConsumerId", ""), "targetConsumerId"),
            created_at=number_of(tree.get("createdAt"), "createdAt"),
            payload=payload,
            attributes=attributes,
            lease_id=lease.get("leaseId", ""),
            consumer=lease.get("consumerId", ""),
            headers=headers_of(tree),
        )

    def _facts(self, directory: str, key: str) -> dict[str, Any]:
        """What the lease or the delay of a message says; nothing if there is none, or it was being written."""
        path = self._meta / directory / f"{key.replace(':', '_')}.json"
        try:
            facts = object_of(_content(path))
        except (Unusable, OSError):
            return {}
        kinds = {"leaseUntil": int, "availableAt": int, "attempt": int, "leaseId": str, "consumerId": str}
        return {name: facts[name] for name, kind in kinds.items() if type(facts.get(name)) is kind}


def _content(path: Path) -> bytes:
    return path.read_bytes()


def _daemon_runs_above(root: Path) -> bool:
    """Whether a C++ daemon works in a directory above ``root``, as far as this user may see: it locks nothing."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_daemon = (process / "comm").read_text().strip() == _DAEMON
            if is_daemon and root.is_relative_to(os.path.realpath(process / "cwd", strict=True)):
                return True
        except OSError:
            continue  # it has ended, or is another user's
    return False
