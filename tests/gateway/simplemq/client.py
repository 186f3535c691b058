"""A client of SimpleMQ: requests over HTTP, and WebSocket connections of consumers and producers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from tests.gateway.frames import BINARY, PING, PONG, TEXT, Frame, WebSocketPeer
from tests.gateway.gateway import Answer, Gateway

#: So many pings, with nothing between them, are waited through.
_PINGS = 12
JSON = {"Content-Type": "application/json"}


class Client:
    """A client of one door."""

    def __init__(self, gateway: Gateway, door: str = "simplemq") -> None:
        self.gateway = gateway
        self.door = door
        self._sessions: list[Session] = []

    def close(self) -> None:
        """Close all connections."""
        for session in self._sessions:
            session.socket.close()

    def post(self, path: str, body: Any, headers: dict[str, str] = JSON) -> Answer:
        """A request; a body that is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.gateway.ask("POST", path, data, headers, self.door)

    def publish(self, topic: str, body: bytes, **headers: str) -> str:
        """Publish bytes; the id of the message."""
        fields = {"Content-Type": "application/octet-stream", "X-Topic": topic, **headers}
        answer = self.post("/api/message/publish", body, fields)
        assert (answer.status, answer.body) == (200, b""), answer
        return answer.header("x-message-id") or ""

    def subscribe(self, topic: str, consumer: str = "consumer-1a", **fields: Any) -> dict[str, Any]:
        """What a subscriber gets."""
        answer = self.post(f"/api/message/subscribe/{topic}", {"consumerId": consumer, "topic": topic, **fields})
        assert answer.status == 200, answer
        return dict(json.loads(answer.body))

    def connect(self, token: str, **headers: str) -> Session:
        """A WebSocket connection with a token."""
        self._sessions.append(Session(self.gateway, self.door, f"/ws/message?token={token}", headers))
        return self._sessions[-1]

    def consume(self, topic: str, consumer: str = "consumer-1a", **fields: Any) -> Session:
        """A connection that gets bare messages."""
        return self.connect(self.subscribe(topic, consumer, **fields)["token"])

    def settle(self, topic: str, consumer: str = "consumer-1a", **fields: Any) -> Session:
        """A connection that settles deliveries itself."""
        return self.consume(topic, consumer, ackMode="CLIENT", **fields)

    def produce(self) -> Session:
        """A producer's connection."""
        answer = self.post("/api/message/register/producer", {"producerId": "p", "producerName": "press"})
        registered = json.loads(answer.body)
        assert registered["role"] == "producer"
        assert urlsplit(registered["websocketUrl"]).path == "/ws/message"
        return self.connect(registered["token"])


class Session(WebSocketPeer):
    """A WebSocket connection that answers pings only if it is asked to read on."""

    def __init__(self, gateway: Gateway, door: str, path: str, headers: dict[str, str]) -> None:
        super().__init__(gateway, door, path, headers)

    def frame(self) -> Frame:
        """The next frame that is no ping; pings are answered."""
        for _ in range(_PINGS):
            frame = self.receive()
            if frame.opcode != PING:
                return frame
            self.send(frame.payload, PONG)
        raise AssertionError("nothing but pings has come")

    def body(self) -> bytes:
        """The next bare message."""
        frame = self.frame()
        assert frame.opcode == BINARY, frame
        return frame.payload

    def bodies(self, number: int) -> list[bytes]:
        """The next bare messages, the last of which is confirmed."""
        found = [self.body() for _ in range(number)]
        self.confirm()
        return found

    def confirm(self) -> None:
        """Answer the next ping."""
        frame = self.receive()
        assert frame.opcode == PING, frame
        self.send(frame.payload, PONG)

    def said(self) -> dict[str, Any]:
        """The next text message."""
        frame = self.frame()
        assert frame.opcode == TEXT, frame
        return dict(json.loads(frame.payload))

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a request."""
        self.send(json.dumps({"type": kind, **fields}))

    def asks(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send a request, and return its answer."""
        self.tell(kind, **fields)
        return self.said()
