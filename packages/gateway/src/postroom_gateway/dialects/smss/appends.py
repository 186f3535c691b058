"""Publishes of several connections to one topic that go to the daemon together, because another one is under way.

A publish costs the daemon a request and a share of a sync. While one is under way, those that come meanwhile gather,
and become one request. Each has its own outcome: the daemon takes all records of a request or none, and if it takes
none, each publish is asked for alone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from postroom_common.errors import CommandError
from postroom_common.protocol import BATCH_LIMIT, Command

from ...contract import Daemon, DaemonUnavailable, Principal

#: Requests about one topic that are under way at the same time.
_AT_ONCE: Final = 2
#: Bytes of records after which a request takes no further publish.
_ENOUGH_BYTES: Final = 1 << 20


class _Publish(NamedTuple):
    payload: bytes
    records: int
    outcome: asyncio.Future[None]


class _Flow:
    """The publishes of one principal to one topic."""

    __slots__ = ("gathered", "under_way")

    def __init__(self) -> None:
        self.gathered: list[_Publish] = []
        self.under_way = 0


class Appends:
    """The publishes of one door."""

    def __init__(self, daemon: Daemon, door: str) -> None:
        self._daemon = daemon
        self._door = door
        self._flows: dict[tuple[Principal, str], _Flow] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def append(self, principal: Principal, topic: str, payload: bytes, records: int) -> None:
        """Append a payload of so many records. Raises what ``Daemon.request`` raises. A publish that is cancelled may
        still take effect."""
        key = principal, topic
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow()
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.gathered.append(_Publish(payload, records, outcome))
        if flow.under_way < _AT_ONCE:
            self._send(key, flow)
        await outcome

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
        flow.under_way += 1
        task = asyncio.get_running_loop().create_task(self._deliver(key, flow, publishes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, key: tuple[Principal, str], flow: _Flow, publishes: list[_Publish]) -> None:
        try:
            error = await self._ask(key, publishes)
            if isinstance(error, CommandError) and len(publishes) > 1:
                for one in publishes:
                    _settle(one, await self._ask(key, [one]))
            else:
                for one in publishes:
                    _settle(one, error)
        finally:
            flow.under_way -= 1
            for one in publishes:
                one.outcome.cancel()  # those without an outcome: only if this task was cancelled
            if flow.gathered:
                self._send(key, flow)
            elif not flow.under_way and self._flows.get(key) is flow:
                del self._flows[key]

    async def _ask(self, key: tuple[Principal, str], publishes: list[_Publish]) -> Exception | None:
        """Append the records of publishes in one request; the error if that is refused."""
        principal, topic = key
        size = sum(len(one.payload) for one in publishes)
        request: dict[str, Any] = {"queue": topic, "encoding": "records", "bodyBytes": size}
        bodies = [one.payload for one in publishes]
        try:
            await self._daemon.request(principal, Command.APPEND, request, bodies, door=self._door)
        except (CommandError, DaemonUnavailable) as error:
            return error
        return None


def _settle(publish: _Publish, error: Exception | None) -> None:
    if publish.outcome.done():  # nobody waits for it any more
        return
    if error:
        publish.outcome.set_exception(error)
    else:
        publish.outcome.set_result(None)
