"""Publishes of several connections to one topic that go to the daemon together, because another one is under way.

A publish costs the daemon a request and a share of a sync. While one is under way, those that come meanwhile gather,
and become one request. Each has its own outcome: the daemon takes all records of a request or none, and if it takes
none, each publish is asked for alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from postroom_common.errors import CommandError, PostroomError
from postroom_common.protocol import BATCH_LIMIT, Command

from ...contract import Answer, Daemon, Principal

log = logging.getLogger(__name__)

#: Requests about one topic that are under way at the same time.
_AT_ONCE: Final = 2
#: Bytes of records after which a request takes no further publish.
_ENOUGH_BYTES: Final = 1 << 20

#: Gets the outcome of a publish: None, or what ``Daemon.request`` raises.
Settle = Callable[[PostroomError | None], None]


class _Publish(NamedTuple):
    payload: bytes
    records: int
    settle: Settle


class _Flow:
    """The publishes of one principal to one topic: those that gather, the number of requests that are under way with
    how many publishes, and whether the next one is about to be sent."""

    __slots__ = ("gathered", "is_due", "sent", "under_way")

    def __init__(self) -> None:
        self.gathered: list[_Publish] = []
        self.under_way = self.sent = 0
        self.is_due = False


class Appends:
    """The publishes of one door."""

    def __init__(self, daemon: Daemon, door: str) -> None:
        self._daemon = daemon
        self._door = door
        self._flows: dict[tuple[Principal, str], _Flow] = {}

    def append(self, principal: Principal, topic: str, payload: bytes, records: int, settle: Settle) -> None:
        """Append a payload of so many records, and call ``settle`` later."""
        key = principal, topic
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow()
        flow.gathered.append(_Publish(payload, records, settle))
        self._send_soon(key, flow)

    def _send_soon(self, key: tuple[Principal, str], flow: _Flow) -> None:
        """Send what has gathered, with what arrives in the same turn of the loop, unless enough is under way. Beside
        another request, it goes once it is as large: else those who have just got their answers would go one by one."""
        if flow.is_due or flow.under_way >= _AT_ONCE:
            return
        if not flow.under_way or len(flow.gathered) >= flow.sent:
            flow.is_due = True
            asyncio.get_running_loop().call_soon(self._send, key, flow)

    def _send(self, key: tuple[Principal, str], flow: _Flow) -> None:
        """Send what has gathered, as far as it fits into one request."""
        records = size = taken = 0
        for one in flow.gathered:
            if taken and (records + one.records > BATCH_LIMIT or size + len(one.payload) > _ENOUGH_BYTES):
                break
            taken += 1
            records += one.records
            size += len(one.payload)
        publishes, flow.gathered = flow.gathered[:taken], flow.gathered[taken:]
        flow.is_due = False
        self._ask(key, flow, publishes)
        if flow.gathered:
            self._send_soon(key, flow)

    def _ask(self, key: tuple[Principal, str], flow: _Flow, publishes: Sequence[_Publish]) -> None:
        """Append the records of publishes in one request."""
        principal, topic = key
        flow.under_way += 1
        flow.sent += len(publishes)
        bodies = [one.payload for one in publishes]
        request: dict[str, Any] = {"queue": topic, "encoding": "records", "bodyBytes": sum(map(len, bodies))}
        then = partial(self._answered, key, flow, publishes)
        self._daemon.ask(principal, Command.APPEND, request, bodies, then, door=self._door)

    def _answered(
        self, key: tuple[Principal, str], flow: _Flow, publishes: Sequence[_Publish], outcome: Answer | PostroomError
    ) -> None:
        flow.under_way -= 1
        flow.sent -= len(publishes)
        if isinstance(outcome, CommandError) and len(publishes) > 1:
            for one in publishes:
                self._ask(key, flow, [one])
            return
        error = None if isinstance(outcome, Answer) else outcome
        for one in publishes:
            try:
                one.settle(error)
            except Exception:  # the others get their answers all the same
                log.exception("the answer to a publish cannot be given")
        if flow.gathered:
            self._send_soon(key, flow)
        elif not flow.under_way and self._flows.get(key) is flow:
            del self._flows[key]
