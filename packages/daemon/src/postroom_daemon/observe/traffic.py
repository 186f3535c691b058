"""The traffic log: one line per request with principal, command and result. Bounded, sampled, never synced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.protocol import ErrorCode

from ..model.principal import Principal
from ..model.request import Answer, Request
from ..platform.files import Files
from ..platform.rotated import RotatedFiles

#: Period (engine ms) over which the refusals of an account are counted.
WINDOW_MS: Final = 60_000
#: Maximum number of accounts that are counted at the same time.
ACCOUNTS_LIMIT = 1024
#: Errors that depend on who sends the request.
_REFUSED: Final = frozenset({ErrorCode.FORBIDDEN, ErrorCode.QUOTA_EXCEEDED})
#: Parts of lines that are cached, and how long (bytes) they may be.
_PARTS_LIMIT: Final = 1024
_PART_BYTES: Final = 512

#: What such a part is made of: who, command, queue, error code, door.
_Key = tuple[Principal, str, str, str, str]


@dataclass(slots=True)
class _Window:
    began: int
    logged: int = 0
    suppressed: int = 0


class Refusals:
    """Limits how many refused requests of each account are logged to ``per_minute`` (0: no limit), so that an account
    that is refused again and again does not push the requests of others out of a bounded log."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.suppressed = 0
        """Number of refusals of all accounts that were not logged."""
        self._windows: dict[str, _Window] = {}

    def admit(self, account: str, now: int) -> int | None:
        """Count a refusal of an account at ``now`` (engine ms). Returns None if it must not be logged, else the number
        of its refusals that were suppressed since the last one that was logged."""
        window = self._windows.get(account)
        if window is None:
            self._drop_old(now)
            window = self._windows[account] = _Window(now)
        if now - window.began >= WINDOW_MS:
            window.began, window.logged = now, 0
        if self.per_minute and window.logged >= self.per_minute:
            window.suppressed += 1
            self.suppressed += 1
            return None
        window.logged += 1
        suppressed, window.suppressed = window.suppressed, 0
        return suppressed

    def _drop_old(self, now: int) -> None:
        if len(self._windows) >= ACCOUNTS_LIMIT:
            recent = {account: one for account, one in self._windows.items() if now - one.began < WINDOW_MS}
            self._windows = recent if len(recent) < ACCOUNTS_LIMIT else {}


class TrafficLog:
    """Writes the last ``keep_files`` files ``traffic/<number, 20 digits>.jsonl``.

    With ``sample_every`` n it writes every n-th request. Errors are always written, except refusals, of which it writes
    as many as ``refusals`` admits. ``lost`` counts lines that the disk did not accept.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        file_bytes: int,
        keep_files: int,
        sample_every: int,
        refusals: Refusals | None = None,
    ) -> None:
        self.lost = 0
        self.refusals = refusals or Refusals(0)
        self._out = RotatedFiles(root, files, file_bytes, keep_files)
        self.sample_every = sample_every
        self._requests = 0
        self._lines: list[bytes] = []
        self._parts: dict[_Key, bytes] = {}

    def add_all(self, answers: Sequence[tuple[Request, Answer]], now_ns: int, wall_ms: int) -> None:
        """Add the lines of requests that are answered at ``now_ns`` (monotonic) and ``wall_ms`` (Unix ms). The next
        ``flush`` writes them."""
        parts, lines, every = self._parts, self._lines, self.sample_every
        engine, times = -1, b""  # the same for nearly all
        for request, answer in answers:
            self._requests += 1
            code = answer.error.code if answer.error else ""
            wanted, suppressed = bool(code), None
            if request.refusals or code in _REFUSED:
                suppressed = self.refusals.admit(str(request.who.account), request.engine)
                if suppressed is None and code:
                    continue
                wanted = suppressed is not None
            if not wanted and self._requests % every:
                continue
            wire = request.wire
            door = request.gateway_door or request.door
            key = (request.who, request.command or wire.command[:80], request.queue, code, door)
            us, further = (now_ns - request.started_ns) // 1000, b""
            if suppressed or request.refusals or wire.traceparent:
                further = _further(request, code, suppressed)
            if request.engine != engine:
                engine = request.engine
                times = b'{"wallMs":%d,"engineMs":%d,' % (wall_ms, engine)
            lines.append(
                b'%b%b,"ms":%d.%03d,"bytes":%d,"request":%b%b}\n'
                % (
                    times,
                    parts.get(key) or self._part(key),
                    us // 1000,
                    us % 1000,
                    request.bytes,
                    orjson.dumps(wire.request_id),
                    further,
                )
            )

    def _part(self, key: _Key) -> bytes:
        """The middle of a line: a client's requests mostly have the same."""
        who, command, queue, code, door = key
        fields = {"client": who.client_id, who.field: who.account, "command": command, "queue": queue}
        fields["code"] = code or "OK"
        if door not in ("", "mailbox"):
            fields["door"] = door
        part = orjson.dumps(fields)[1:-1]
        if len(part) <= _PART_BYTES:
            if len(self._parts) >= _PARTS_LIMIT:
                self._parts.clear()
            self._parts[key] = part
        return part

    def flush(self) -> None:
        """Write the added lines with one write."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            self._out.write(b"".join(lines))
        except OSError:
            self.lost += len(lines)

    def close(self) -> None:
        """Flush, and close the file."""
        self.flush()
        self._out.close()


def _further(request: Request, code: str, suppressed: int | None) -> bytes:
    """The end of a line: the fields that few lines have."""
    line: dict[str, Any] = {}
    if request.wire.traceparent:
        line["traceparent"] = request.wire.traceparent
    if request.refusals and not code:
        line["refusals"] = request.refusals
    if suppressed:
        line["heldBack"] = suppressed
    return b"," + orjson.dumps(line)[1:-1] if line else b""
