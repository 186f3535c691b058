"""The text protocol of beanstalkd."""

from __future__ import annotations

import re
import socket
from typing import Any, Final

from .wires import CRLF, LEASE_S, Answer, Pulled, Refused, exchange


class Beanstalk:
    """beanstalkd's text protocol: put, reserve, delete."""

    ack_is_answered = True
    _JOBS: Final = re.compile(rb"current-jobs-(?:ready|reserved|delayed|buried): (\d+)")

    def __init__(self, queue: str) -> None:
        self._tube = queue.encode()

    def open(self, connection: socket.socket) -> None:
        for command, expected in (
            (b"use %b" % self._tube, b"USING %b" % self._tube),
            (b"watch %b" % self._tube, b"WATCHING 2"),
            (b"ignore default", b"WATCHING 1"),
        ):
            answer = exchange(connection, command + CRLF, _line)
            if answer != expected:
                raise Refused(answer.decode(errors="replace"))

    def push(self, key: int, body: bytes) -> bytes:
        return b"put 0 0 %d %d\r\n%b\r\n" % (LEASE_S, len(body), body)

    def pull(self, key: int) -> bytes:
        return b"reserve-with-timeout 0\r\n"

    def ack(self, key: int, handle: Any) -> bytes:
        return b"delete %b\r\n" % handle

    def answers(self, buffer: bytearray) -> list[Answer]:
        found, place = [], 0
        while (end := buffer.find(CRLF, place)) >= 0:
            words = bytes(buffer[place:end]).split()
            after = end + 2
            if words[0] == b"RESERVED":
                body_end = after + int(words[2])
                if len(buffer) < body_end + 2:
                    break
                found.append(Answer(None, Pulled(bytes(buffer[after:body_end]), words[1])))
                after = body_end + 2
            elif words[0] in (b"INSERTED", b"DELETED"):
                found.append(Answer(None))
            elif words[0] == b"TIMED_OUT":
                found.append(Answer(None, is_empty=True))
            else:
                raise Refused(b" ".join(words).decode(errors="replace"))
            place = after
        del buffer[:place]
        return found

    def left(self, connection: socket.socket) -> int:
        def parse(buffer: bytearray) -> bytes | None:
            line = _line(buffer)
            return bytes(buffer) if line and len(buffer) >= len(line) + int(line.split()[1]) + 4 else None

        return sum(map(int, self._JOBS.findall(exchange(connection, b"stats-tube %b\r\n" % self._tube, parse))))


def _line(buffer: bytearray) -> bytes | None:
    end = buffer.find(CRLF)
    return bytes(buffer[:end]) if end >= 0 else None
