"""The door for LMQ's MessagePack-RPC: requests of a connection are executed at the same time, and answered as they are
done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ...contract import Daemon, DaemonUnavailable, Peer, WaitEnded
from .answers import Pulled
from .msgpack_old import CHUNK_BYTES, Frames, Request, read_request
from .options import Options, read_options
from .queues import Queues
from .rpc_methods import EMPTY, PULLS, RpcError, answer, call, encode_pulled, refusal, thrown

#: Largest request, in bytes. The daemon's own limit is smaller; what exceeds it gets an error.
_FRAME_BYTES: Final = 1 << 24


class RpcDialect:
    """LMQ's MessagePack-RPC. Raises ``ConfigurationError`` for wrong options."""

    def __init__(self, daemon: Daemon, door: str, options: Mapping[str, Any]) -> None:
        self._daemon = daemon
        self._door = door
        self._options: Options = read_options(options)

    def connect(self, peer: Peer) -> RpcHandler:
        """A connection was made."""
        return RpcHandler(peer, Queues(self._daemon, peer.principal, self._door, self._options))


class RpcHandler:
    """One connection."""

    def __init__(self, peer: Peer, queues: Queues) -> None:
        self._peer = peer
        self._queues = queues
        self._frames = Frames(_FRAME_BYTES)

    def received(self, data: bytes) -> None:
        """Start what has arrived. Raises ``ValueError`` if it is not MessagePack-RPC, or too large."""
        for start in range(0, len(data), CHUNK_BYTES):
            self._frames.feed(data[start : start + CHUNK_BYTES])
            while (frame := self._frames.next()) is not None:
                request = read_request(frame)
                self._peer.expect(0)  # what follows it has its own time to be complete
                self._peer.start(self._respond(request), len(frame), is_waiting=request.method in PULLS)
        self._peer.expect(self._frames.pending_bytes)

    def stopping(self) -> None:
        """Nothing waits for the client."""

    def closing(self) -> None:
        """Nothing is said to the client."""

    def lost(self) -> None:
        """There is nothing to end."""

    async def _respond(self, request: Request) -> str:
        """Execute a request, and answer it unless it is a notification. Returns ``ok``, or the kind of error."""
        try:
            result = await self._result(request)
        except RpcError as error:
            if request.number is not None:
                self._peer.write(refusal(request.number, error))
            return error.kind
        if request.number is not None:
            self._peer.write(answer(request.number, result))
        return "ok"

    async def _result(self, request: Request) -> bytes:
        """The encoded result of a request. Raises ``RpcError``."""
        try:
            result = await call(self._queues, request)
            if not isinstance(result, Pulled):
                return result
            encoded = EMPTY if request.number is None else await self._encoded(result)
            if request.number is None or not self._peer.is_open:
                await self._queues.return_undelivered(result)
            return encoded
        except WaitEnded:
            return EMPTY
        except DaemonUnavailable:
            raise thrown("unavailable") from None

    async def _encoded(self, pulled: Pulled) -> bytes:
        try:
            return await encode_pulled(pulled)
        except asyncio.CancelledError:  # the peer has gone meanwhile
            await self._queues.return_undelivered(pulled)
            raise
