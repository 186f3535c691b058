"""Unanswerable requests: the daemon cannot write into the response directory of their client, so they are not executed.

They stay where they are, in ``requests/`` or ``held/``, so that their client can withdraw them. Once the directory can
be written, they are read again and executed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from postroom_common.codec import Request as WireRequest

from .request_files import RequestFile
from .response_dirs import ResponseDirs
from .scanner import Scanner

log = logging.getLogger(__name__)

#: The reason in the answer to ``health``.
REASON: Final = "RESPONSE_DIRECTORY_NOT_WRITABLE"
#: Directories that are checked in one tick.
_CHECKED_A_TICK: Final = 250
#: Seconds between two log records about one client.
_LOG_EVERY_S: Final = 600.0


@dataclass(slots=True)
class _Client:
    """The unanswerable requests of one client: user and deadline (Unix ms, 0: none) by name."""

    problem: str
    logged_s: float
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)


class Unanswerable:
    """All unanswerable requests. Those of one user beyond ``share`` are read again every ``SETTLE_MS``.

    ``reject`` is called with name and reason of a request that cannot stay.
    """

    def __init__(
        self, dirs: ResponseDirs, scanner: Scanner, root: Path, share: int, reject: Callable[[str, str], None]
    ) -> None:
        self._dirs = dirs
        self._scanner = scanner
        self._root = root
        self._share = share
        self._reject = reject
        self._clients: dict[str, _Client] = {}
        self._of_user: Counter[int] = Counter()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._of_user.total()

    def add(self, taken: RequestFile, wire: WireRequest, problem: str) -> None:
        """Add a request that was read, and whose answer could not be written because of ``problem``."""
        if taken.over:
            reason = (
                f"not executed: its user has too many pending requests, and its answer could not be written: {problem}"
            )
            self._reject(taken.name, reason)
            return
        if self._of_user[taken.uid] >= self._share:  # each one costs a look in every tick
            self._scanner.postpone(taken.name, taken.inode)
            return
        self._scanner.begin(taken)
        client = self._clients.get(wire.client_id)
        if client is None:
            client = self._clients[wire.client_id] = _Client(problem, time.monotonic())
            log.warning(
                "requests of client %r are not executed: %s", wire.client_id, self._text(wire.client_id, problem)
            )
        client.requests[taken.name] = (taken.uid, wire.deadline_ms)
        self._of_user[taken.uid] += 1

    def forget(self, name: str) -> None:
        """A request has gone: its client has withdrawn it."""
        for client in self._clients.values():
            if name in client.requests:
                self._remove(client, name)
                return

    def tick(self, wall_ms: int) -> None:
        """Check the directories, about once a second: requests that can be answered now are read again, and those whose
        deadline has passed are rejected."""
        for client_id in self._dirs.failed():
            if client_id not in self._clients:  # it has sent nothing since: its next request need not wait
                self._dirs.check_again(client_id)
        for client_id in list(islice(self._clients, _CHECKED_A_TICK)):
            client = self._clients.pop(client_id)
            client.problem = self._dirs.check_again(client_id)
            if not client.problem:
                log.info("requests of client %r can be answered again: %d to execute", client_id, len(client.requests))
                for name in list(client.requests):
                    self._remove(client, name)
                    self._scanner.resume(name)
                continue
            self._expire(client, wall_ms)
            if client.requests:
                self._clients[client_id] = client  # the last one: the others are checked before it comes again
                self._log_again(client_id, client)

    def _expire(self, client: _Client, wall_ms: int) -> None:
        for name, (_, deadline_ms) in list(client.requests.items()):
            if 0 < deadline_ms < wall_ms:
                self._remove(client, name)
                self._reject(
                    name, f"deadline exceeded; not executed: its answer could not be written: {client.problem}"
                )

    def _remove(self, client: _Client, name: str) -> None:
        uid, _ = client.requests.pop(name)
        self._of_user[uid] -= 1
        if not self._of_user[uid]:
            del self._of_user[uid]

    def _log_again(self, client_id: str, client: _Client) -> None:
        now_s = time.monotonic()
        if now_s - client.logged_s >= _LOG_EVERY_S:
            client.logged_s = now_s
            log.warning(
                "requests of client %r (%d) are still not executed: %s",
                client_id,
                len(client.requests),
                self._text(client_id, client.problem),
            )

    def _text(self, client_id: str, problem: str) -> str:
        advice = self._dirs.advice(client_id, self._root)
        return f"{problem}; {advice}" if advice else problem

    def check(self) -> dict[str, Any]:
        """The check ``mailbox`` of ``health``."""
        if not self._clients:
            return {"ok": True}
        client_id, client = next(iter(self._clients.items()))
        others = len(self._clients) - 1
        beside = f" and {others} more" if others else ""
        return {
            "ok": False,
            "reason": REASON,
            "error": f"requests of client {client_id!r}{beside} are not executed, because the answers could not be"
            f" written: {self._text(client_id, client.problem)}",
            "requests": self.count,
            "clients": len(self._clients),
        }
