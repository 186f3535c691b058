"""NATS JetStream."""

from __future__ import annotations

import itertools
import json
import socket
from typing import Any

from .wires import CRLF, LEASE_S, Answer, Pulled, Refused, exchange


class JetStream:
    """A stream of NATS JetStream with the retention of a queue, and one durable consumer that clients pull from. Every
    command is a request whose answer goes to an inbox that names its key."""

    ack_is_answered = True
    _numbers = itertools.count()

    def __init__(self, queue: str) -> None:
        self._name = queue
        self.inbox = f"i{next(self._numbers)}"
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.taker"

    def open(self, connection: socket.socket) -> None:
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        subscribe = f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox}.* 1\r\nPING\r\n".encode()
        exchange(connection, subscribe, lambda buffer: True if b"PONG\r\n" in buffer else None)
        self._ask(
            connection,
            f"$JS.API.STREAM.CREATE.{self._name}",
            {"name": self._name, "subjects": [self._name], "retention": "workqueue", "storage": "file"},
        )
        consumer = {"durable_name": "taker", "ack_policy": "explicit", "ack_wait": LEASE_S * 10**9}
        self._ask(
            connection,
            f"$JS.API.CONSUMER.DURABLE.CREATE.{self._name}.taker",
            {"stream_name": self._name, "config": consumer},
        )

    def _ask(self, connection: socket.socket, subject: str, question: Any) -> dict[str, Any]:
        def parse(buffer: bytearray) -> bytes | None:
            return next((payload for _, _, payload in self._frames(buffer)), None)

        answer: dict[str, Any] = json.loads(
            exchange(connection, self._request(subject, 0, json.dumps(question).encode()), parse)
        )
        if "error" in answer:
            raise Refused(str(answer["error"]))
        return answer

    def _request(self, subject: str, key: int, payload: bytes) -> bytes:
        return b"PUB %b %b.%d %d\r\n%b\r\n" % (subject.encode(), self.inbox.encode(), key, len(payload), payload)

    def push(self, key: int, body: bytes) -> bytes:
        return self._request(self._name, key, body)

    def pull(self, key: int) -> bytes:
        return self._request(self._next, key, b'{"batch":1,"no_wait":true}')

    def ack(self, key: int, handle: Any) -> bytes:
        return self._request(handle.decode(), key, b"+ACK")

    def answers(self, buffer: bytearray) -> list[Answer]:
        found = []
        for words, header, payload in self._frames(buffer):
            inbox, _, key = words[1].rpartition(b".")
            if inbox != self.inbox.encode():
                found.append(Answer(None, Pulled(payload, words[3])))  # its own subject, and where to acknowledge it
            elif header.startswith((b"NATS/1.0 404", b"NATS/1.0 408")):
                found.append(Answer(int(key), is_empty=True))
            elif header or b'"error"' in payload:
                raise Refused((header + payload).decode(errors="replace"))
            else:
                found.append(Answer(int(key)))
        return found

    @staticmethod
    def _frames(buffer: bytearray) -> list[tuple[list[bytes], bytes, bytes]]:
        """Complete messages: the words of the line, header and payload."""
        found, place = [], 0
        while (end := buffer.find(CRLF, place)) >= 0:
            words = bytes(buffer[place:end]).split()
            after = end + 2
            if words[0] in (b"MSG", b"HMSG"):
                payload_end = after + int(words[-1])
                if len(buffer) < payload_end + 2:
                    break
                body = after + (int(words[-2]) if words[0] == b"HMSG" else 0)
                found.append((words, bytes(buffer[after:body]), bytes(buffer[body:payload_end])))
                after = payload_end + 2
            elif words[0] == b"-ERR":
                raise Refused(b" ".join(words).decode(errors="replace"))
            place = after
        del buffer[:place]
        return found

    def left(self, connection: socket.socket) -> int:
        return int(self._ask(connection, f"$JS.API.STREAM.INFO.{self._name}", {})["state"]["messages"])
