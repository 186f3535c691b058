"""The mailbox and the broker of the daemon in this process, on real files, in groups of an exact size."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import Sources, open_root

from .lean import Call, payload_text, put_request
from .load import MESSAGE

COMMANDS: Final = ("publish", "consume", "ack")
#: Clients that share the requests of a group.
_CLIENTS: Final = 8
_QUEUE: Final = "inside"

#: What is around the work on a group of one of ``COMMANDS``.
Around = Callable[[str], AbstractContextManager[object]]


class Inside:
    """A new root at ``place``, whose groups have ``size`` requests. It is removed at the end."""

    def __init__(self, place: Path, size: int) -> None:
        config = load(place, None, {}, {"limits.groupRequests": str(size)})
        self._size = size
        self._place = place
        self._root = open_root(config, Sources())
        self._mailbox = Mailbox(config.settings, Files(), self._root.vitals.count_unanswered)
        self._ipc = config.settings.ipc_root
        self._clients = itertools.cycle(f"inside-{number}" for number in range(_CLIENTS))
        self._numbers = itertools.count()

    def __enter__(self) -> Inside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mailbox.close()
        self._root.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def cycle(self, around: Around) -> None:
        """Publish, consume and acknowledge as many messages as a group has requests."""
        publish = payload_text({"queue": _QUEUE, "message": MESSAGE})
        self._group([("publish", publish)] * self._size, around("publish"))
        consume = payload_text({"queue": _QUEUE})
        taken = self._group([("consume_next", consume)] * self._size, around("consume"))
        leases = [data["lease"] for data in taken]
        acks = [payload_text({"messageKey": one["messageKey"], "leaseId": one["leaseId"]}) for one in leases]
        self._group([("ack", payload) for payload in acks], around("ack"))

    def _group(self, calls: Sequence[Call], around: AbstractContextManager[object]) -> list[dict[str, Any]]:
        ids = [(next(self._clients), f"r{next(self._numbers)}") for _ in calls]
        for (client_id, request_id), call in zip(ids, calls, strict=True):
            put_request(os.fspath(self._ipc / "requests"), client_id, request_id, call)
        with around:
            self._serve()
        data = []
        for client_id, request_id in ids:
            response = self._ipc / "responses" / client_id / f"{request_id}.json"
            answer = json.loads(response.read_bytes())
            response.unlink()
            if not answer["ok"]:
                raise RuntimeError(f"refused: {answer}")
            data.append(answer["data"])
        return data

    def _serve(self) -> None:
        self._root.broker.submit(*self._mailbox.collect())
        self._root.broker.run_group()
        if self._root.traffic:
            self._root.traffic.flush()
