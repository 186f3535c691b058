"""Writes the files of the C++ system's filesystem and hybrid backends as it does, and what its crashes leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: The directory of each state.
FOLDERS = {"ready": "inbox", "inflight": "processing", "delayed": "delayed", "dlq": "dlq", "acked": "archive"}


def guid(number: int) -> str:
    """An id as the C++ system generates it: five groups of four upper-case hex digits."""
    return f"{number:04X}-1E7B-A5A5-9613-3357"


class CppDirectory:
    """A directory of the filesystem backend; ``now`` is the wall time (Unix ms) of its daemon."""

    def __init__(self, root: Path, now: int) -> None:
        self.root = root
        self.now = now
        (root / "meta/leases").mkdir(parents=True)
        (root / "meta/delayed").mkdir()

    def path(self, number: int, state: str, queue: str = "telemetry") -> Path:
        """The file of a message."""
        return self.root / queue / FOLDERS[state] / f"{guid(number)}.json"

    def message(self, number: int, state: str = "ready", queue: str = "telemetry", **fields: Any) -> str:
        """Write a message as ``enqueue`` and the moves after it do. Its key. ``until`` is the end of its lease, whose
        file ``lease=False`` leaves out."""
        key = f"msg:{queue}:{guid(number)}"
        until, has_lease = fields.pop("until", self.now + 30_000), fields.pop("lease", True)
        message = {
            "key": key,
            "messageId": guid(number),
            "queue": queue,
            "payload": f'{{"n": {number}}}',
            "attributes": "{}",
            "priority": 0,
            "attempt": 0,
            "createdAt": self.now,
            "availableAt": self.now,
            "targetConsumerId": "",
            **fields,
        }
        path = self.path(number, state, queue)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(message))
        if state == "inflight" and has_lease:
            lease = {"messageKey": key, "consumerId": "w1", "leaseId": guid(number + 0x1000), "leaseUntil": until,
                     "attempt": message["attempt"], "queue": queue}  # fmt: skip
            self.fact("leases", key, lease)
        if state == "delayed":
            names = ("availableAt", "attempt")
            self.fact("delayed", key, {"messageKey": key, "queue": queue, **{name: message[name] for name in names}})
        return key

    def fact(self, kind: str, key: str, fields: dict[str, Any]) -> None:
        """Write the file of a lease or delay."""
        (self.root / "meta" / kind / f"{key.replace(':', '_')}.json").write_text(json.dumps(fields))

    def policy(self, queue: str, **policy: Any) -> None:
        """Write the policy of a queue."""
        (self.root / f"meta/policy_{queue}.json").write_text(json.dumps(policy))


def write_body(data: Path, name: str, payload: str, queue: str = "telemetry", folder: str = "active") -> str:
    """Write the file of a body as the hybrid backend does, below the directory ``data``. The value of its message in
    the database."""
    path = data / "payloads" / queue / folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"payload": payload, "attributes": "{}"}))
    shown = f"./data/payloads/{queue}/active/{name}.json"
    return json.dumps({"messageId": name, "queue": queue, "payloadPath": shown, "priority": 0, "attempt": 0})
