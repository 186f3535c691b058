"""The door for SimpleMQ's two protocols over TCP."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from postroom_common.errors import CommandError

from ...contract import Daemon, DaemonUnavailable, Peer
from .dispatch import Consumer, Dispatcher, Dispatchers
from .frames import DONE, FAILED, HANDSHAKE, Frame, FrameReader, encode_business
from .messages import Delivered, InvalidMessage, read_raw
from .options import TCP_NAMES, Options, read_options
from .strategies import priority_of
from .topics import Refused, Topics

log = logging.getLogger(__name__)

_ARROW: Final = "->"
_NAME_LIMIT: Final = 256


class SimpleMqTcp:
    """SimpleMQ over TCP. Raises ``ConfigurationError`` for wrong options."""

    def __init__(self, daemon: Daemon, door: str, options: Mapping[str, Any]) -> None:
        self._options = read_options(options, TCP_NAMES)
        self._topics = Topics(daemon, door, self._options)
        self._dispatchers = Dispatchers(self._topics)

    def connect(self, peer: Peer) -> Conversation:
        """A connection was made."""
        return Conversation(peer, self._topics, self._dispatchers, self._options)


class Conversation:
    """One connection."""

    def __init__(self, peer: Peer, topics: Topics, dispatchers: Dispatchers, options: Options) -> None:
        self._peer = peer
        self._topics = topics
        self._dispatchers = dispatchers
        self._options = options
        self._frames = FrameReader(options.websocket.message_bytes)
        self._target = ""
        self._route: Route | None = None
        self._is_busy = False

    # --- StreamHandler ------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """As ``StreamHandler.received``."""
        self._frames.feed(data)
        if self._is_busy:
            self._peer.pause()  # answers have no ids: one message after another
        else:
            self._advance()

    def stopping(self) -> None:
        """As ``StreamHandler.stopping``."""
        if self._route:
            self._route.end(has_failed=False)

    def closing(self) -> None:
        """Nothing is said to the client."""

    def lost(self) -> None:
        """As ``StreamHandler.lost``."""
        if self._route:
            self._route.end()

    # --- frames -------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start the next message, if it is complete. Raises ``ValueError`` for what is no frame."""
        frame = self._frames.next()
        if frame and not self._frames.is_old and not self._target:
            self._shake_hands(frame)
            frame = self._frames.next()
        if frame is None:
            self._peer.expect(self._frames.buffered_bytes)
            return
        if frame.kind == HANDSHAKE:
            raise ValueError("a second handshake")
        self._peer.expect(0)
        self._is_busy = True
        self._peer.start(self._publish(frame), frame.size)

    def _shake_hands(self, frame: Frame) -> None:
        client, arrow, target = frame.body.decode().partition(_ARROW)
        names = client.strip(), target.strip()
        if frame.kind != HANDSHAKE or not arrow or not all(map(_is_name, names)):
            raise ValueError("the first frame must be HATM with CLIENT->TARGET")
        name, self._target = names
        self._peer.write(encode_business(b"handshake ok"))
        dispatcher = self._dispatchers.of(name, self._options.strategy_of(name))
        self._route = Route(self._peer, dispatcher, name, self._options)

    async def _publish(self, frame: Frame) -> str:
        """Publish a message, and answer it."""
        is_old, outcome, text = self._frames.is_old, "ok", ""
        try:
            await self._topics.publish(self._peer.principal, read_raw(frame.topic or self._target, frame.body))
        except (InvalidMessage, Refused, CommandError) as error:
            outcome, text = "refused", str(error)
        except DaemonUnavailable as error:
            outcome, text = "unavailable", str(error)
        if is_old:
            if text:  # the answer has no place for it
                account = self._peer.principal.account
                log.info("a message of %s for topic %r was refused: %s", account, frame.topic, text)
            self._peer.write(FAILED if text else DONE)
        else:
            self._peer.write(encode_business(f"NACK {text}".encode() if text else b"ACK"))
        self._is_busy = False
        if self._peer.is_open:
            try:
                self._advance()
            except ValueError:
                self._peer.close()
            if not self._is_busy:
                self._peer.resume()
        return outcome


class Route:
    """The messages for one client of the newer protocol, which are those of the queue with its name. A message is
    acknowledged when the client's machine has confirmed its bytes."""

    def __init__(self, peer: Peer, dispatcher: Dispatcher, name: str, options: Options) -> None:
        self._peer = peer
        self._dispatcher = dispatcher
        priority = priority_of(name, 0, options.priority_hosts)
        self._consumer = Consumer(self, peer.principal, name, priority, options.capacity)
        dispatcher.enter(self._consumer)

    def end(self, has_failed: bool = True) -> None:
        """The connection ends. ``has_failed`` is as for ``Dispatcher.leave``."""
        self._dispatcher.leave(self._consumer, has_failed)

    def push(self, delivered: Delivered) -> None:
        """As ``Sink.push``."""
        self._peer.write(encode_business(delivered.body))
        self._dispatcher.run(self._ack_when_arrived(delivered))

    def timed_out(self, delivered: Delivered) -> None:
        """As ``Sink.timed_out``. The client's machine takes nothing more, and what follows would only wait behind the
        message."""
        self.end(has_failed=False)
        self._peer.abort()

    def dismiss(self, reason: str) -> None:
        """As ``Sink.dismiss``."""
        self._peer.write(encode_business(f"NACK {reason}".encode()))
        self._peer.close()

    async def _ack_when_arrived(self, delivered: Delivered) -> None:
        if await self._peer.confirmed() and self._dispatcher.give(self._consumer, delivered.lease_id):
            await self._dispatcher.topics.ack(self._consumer.principal, delivered)


def _is_name(text: str) -> bool:
    return text.isprintable() and 1 <= len(text.encode()) <= _NAME_LIMIT
