"""Topics as dated files of JSON that a person can read: ``messages/YYYY-MM-DD/messages.json``."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.protocol import Command, State

from ...contract import Daemon, Principal

#: SimpleMQ's words for the states of a message, in which they are listed.
_STATUSES: Final[Mapping[str, str]] = {
    State.READY: "PENDING",
    State.DELAYED: "PENDING",
    State.HELD: "PENDING",
    State.INFLIGHT: "PROCESSING",
    State.DONE: "COMPLETED",
    State.DEAD: "FAILED",
}
_PAGE: Final = 1000
_NAME: Final = "messages.json"


class DatedFiles:
    """The files of the days, in a directory. Each gets its name when it is complete."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "messages"
        #: By day: how many messages its file has.
        self.days: dict[str, int] = {}

    def add(self, day: str, message: Mapping[str, Any]) -> None:
        """Append a message to the file of a day."""
        number = self.days.get(day, 0)
        path = self._directory / day
        if not number:
            path.mkdir(parents=True, exist_ok=True)
        with (path / f"{_NAME}.tmp").open("ab" if number else "wb") as file:
            file.write(b",\n" if number else b'{"messages": [\n')
            file.write(orjson.dumps(message, option=orjson.OPT_INDENT_2))
        self.days[day] = number + 1

    def complete(self) -> None:
        """Give all files their names."""
        for day in self.days:
            temporary = self._directory / day / f"{_NAME}.tmp"
            with temporary.open("ab") as file:
                file.write(b"\n]}\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(temporary.with_name(_NAME))


async def export(daemon: Daemon, principal: Principal, door: str, topics: Sequence[str], directory: Path) -> DatedFiles:
    """Write the messages of some topics, or of all, by the day (UTC) on which they were published. A message whose
    state changes meanwhile may be there twice, or not at all. Raises ``CommandError``, ``DaemonUnavailable``,
    ``OSError``."""
    files = DatedFiles(directory)

    async def pages(command: Command, payload: dict[str, Any]) -> AsyncIterator[tuple[dict[str, Any], Sequence[bytes]]]:
        after = ""
        while True:
            answer = await daemon.request(principal, command, {**payload, "limit": _PAGE, "after": after}, door=door)
            yield answer.data, answer.bodies
            after = answer.data["next"]
            if not after:
                return

    names = list(topics)
    if not names:
        async for data, _ in pages(Command.LIST_QUEUES, {}):
            names += [row["queue"] for row in data["queues"] if row.get("kind", "queue") == "queue"]
    for name in names:
        for state, status in _STATUSES.items():
            async for data, bodies in pages(Command.BROWSE, {"queue": name, "state": state, "fullBodies": True}):
                rest = iter(bodies)
                for row in data["messages"]:
                    body = b"".join(next(rest, b"") for _ in row.get("parts") or (row,))
                    day = datetime.fromtimestamp(row["createdAt"] / 1000, UTC)
                    files.add(day.date().isoformat(), _shown(name, status, day, row, body))
    files.complete()
    return files


def _shown(topic: str, status: str, made: datetime, row: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """A message as SimpleMQ's files have it; the body is readable if it is text."""
    try:
        readable = {"payload": body.decode()}
    except UnicodeDecodeError:
        readable = {"body": base64.b64encode(body).decode()}
    time = made.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "messageId": row.get("deduplicationKey") or row["messageId"],
        "topic": topic,
        "timestamp": time,
        "status": status,
        "state": row["state"],
        "attempt": row.get("attempt", 0),
        "header": {"priority": row.get("priority") or 0, "contentType": row.get("contentType") or None},
        **readable,
        "attributes": _object(row.get("attributes")),
        **({"reason": row["reason"]} if row.get("reason") else {}),
    }


def _object(attributes: Any) -> Any:
    """Attributes as an object; a text that is none as it is."""
    try:
        return orjson.loads(attributes) if isinstance(attributes, str) else attributes
    except ValueError:
        return attributes
