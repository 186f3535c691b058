"""How a follower reads the stream: it asks for all that has come, and asks again a little later.

Groups that are sent one by one cost the servers, this process and the daemon as much for each as many groups together.
A follower may be late: an answer of the leader does not wait for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext, api

from .errors import StreamUnavailable

log = logging.getLogger(__name__)

#: How long (s) the servers wait for the first message of a batch, and how long an answer may take.
_EXPIRES_S: Final = 1.0
_PATIENCE_S: Final = 3.0
#: Most messages of a batch; and bytes, if a message may be so large.
_MESSAGES: Final = 64
_BYTES: Final = 16 * 2**20
#: Bytes of a message beside its body.
_HEADER_BYTES: Final = 64 * 1024
#: Bytes that have arrived and were not read.
_PENDING_BYTES: Final = 4 * (_BYTES + _HEADER_BYTES)
#: Time (s) for the servers to delete the consumer.
_DELETE_S: Final = 1.0
#: What ends a batch, by its status; all else ends the consumer.
_NO_MORE: Final = frozenset({"404", "408"})
_HEARTBEAT: Final = "100"
_TOO_LARGE: Final = "Message Size Exceeds MaxBytes"


class Batches:
    """A consumer of the stream ``name``, which ``domain`` has. Errors are those of the library."""

    def __init__(self, connection: Client, jetstream: JetStreamContext, name: str, domain: str) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = name
        self._subject = f"$JS.{domain}.API" if domain else "$JS.API"
        self._inbox = connection.new_inbox()
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._messages: list[Msg] = []
        self._end: asyncio.Future[str] | None = None
        size = max(_BYTES, connection.max_payload + _HEADER_BYTES)
        fields = {"batch": _MESSAGES, "max_bytes": size, "expires": int(_EXPIRES_S * 1e9), "no_wait": True}
        self._question = json.dumps(fields).encode()

    async def begin(self, after: int) -> None:
        """Begin behind a place."""
        self._subscription = await self._connection.subscribe(
            self._inbox, cb=self._take, pending_bytes_limit=max(_PENDING_BYTES, 4 * self._connection.max_payload)
        )
        made = await self._jetstream.add_consumer(
            self._stream,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=after + 1,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=30.0,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        self._consumer = str(made.name)
        self._subject += f".CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"

    async def next(self) -> list[Msg]:
        """All that has come since the last batch; none if nothing came for a while. Raises ``StreamUnavailable`` if the
        servers are silent, or the consumer has ended."""
        self._messages = []
        self._end = asyncio.get_running_loop().create_future()
        await self._connection.publish(self._subject, self._question, reply=self._inbox)
        async with asyncio.timeout(_PATIENCE_S):
            problem = await self._end
        if problem:
            raise StreamUnavailable(f"the stream is not sent any more: {problem}")
        return self._messages

    async def _take(self, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get(api.Header.STATUS)
        if status is None:
            self._messages.append(message)
            if len(self._messages) == _MESSAGES:
                self._note_end("")
        elif status != _HEARTBEAT:
            text = headers.get(api.Header.DESCRIPTION) or status
            self._note_end("" if status in _NO_MORE or text == _TOO_LARGE else text)

    def _note_end(self, problem: str) -> None:
        if self._end and not self._end.done():
            self._end.set_result(problem)

    async def end(self) -> None:
        """Delete the consumer, if the servers are there; they do it by themselves after a while."""
        try:
            if self._subscription:
                await self._subscription.unsubscribe()
            if self._consumer and self._connection.is_connected:
                async with asyncio.timeout(_DELETE_S):
                    await self._jetstream.delete_consumer(self._stream, self._consumer)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.debug("consumer %s was not deleted: %s", self._consumer, error)
