"""Request files that are nearly right: the golden vectors, changed by Hypothesis in a few places, through the mailbox.

Whatever they say, the daemon lives, takes each file away, and fails at none.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.wire.daemon import Daemon

_VECTORS: Final = Path(__file__).resolve().parents[1] / "vectors" / "v1"
_FILES: Final = ("commands-valid", "envelope-valid", "cpp-requests", "bodies", "queue-names")
#: Requests that may be there before the daemon is waited for: it leaves what it cannot read for two seconds.
_AHEAD: Final = 8000
#: What stands in the place of a value.
_JUNK: Final = (
    b"null", b"true", b"0", b"-1", b"1", b"2147483648", b"9223372036854775807", b"18446744073709551616", b"1e308",
    b"-0.0", b"1.5", b'""', b'"\\u0000"', b'"\\ud800"', b'"..\\/.."', b'"' + b"x" * 5000 + b'"', b'"\\u202e"',
    b"[]", b"{}", b"[[[[1]]]]", b'{"a":{"b":[null]}}', b"NaN", b'"consume_next"', b'"*"', b'"q.dlq"', b"[1,2,3]",
)  # fmt: skip


def _bases() -> list[bytes]:
    found = []
    for name in _FILES:
        for vector in json.loads((_VECTORS / f"{name}.json").read_text()):
            source = vector["request"]
            if "text" in source and len(source["text"]) < 4000:
                found.append(source["text"].encode())
    assert len(found) > 150
    return found


def _values(data: bytes) -> list[tuple[int, int]]:
    """Where each number, word and text of a JSON text begins and ends, but for keys."""
    found, at = [], 0
    while at < len(data):
        begin = at
        if data[at : at + 1] == b'"':
            at += 1
            while at < len(data) and data[at : at + 1] != b'"':
                at += 2 if data[at : at + 1] == b"\\" else 1
            at += 1
        elif data[at : at + 1] in b"-0123456789tfn":
            while at < len(data) and data[at : at + 1] not in b',]} \n"':
                at += 1
        if at > begin:
            if data[at : at + 2].strip()[:1] != b":":
                found.append((begin, at))
        else:
            at += 1
    return found


def _put_junk(data: bytes, where: int, what: int) -> bytes:
    values = _values(data)
    if not values:
        return data
    begin, end = values[where % len(values)]
    return data[:begin] + _JUNK[what % len(_JUNK)] + data[end:]


def _at(data: bytes, where: int) -> int:
    return where % (len(data) + 1)


#: Each kind of change, given the bytes, a place and a number.
_CHANGES: Final[tuple[Callable[[bytes, int, int], bytes], ...]] = (
    _put_junk,
    lambda data, where, what: data[: _at(data, where)] + bytes([what % 256]) + data[_at(data, where) + 1 :],
    lambda data, where, what: data[: _at(data, where)] + bytes([what % 256]) + data[_at(data, where) :],
    lambda data, where, what: data[: _at(data, where)] + data[_at(data, where) + what % 8 :],
    lambda data, where, what: data[: _at(data, where)],
    lambda data, where, what: data + data[_at(data, where) :] * (what % 3),
    lambda data, where, what: data[: _at(data, where)] + data[: what % 64] + data[_at(data, where) :],
)
_BASES: Final = _bases()
_PLACES: Final = st.integers(0, 65535)
#: Files made of one example, and the bytes that say how each is made: Hypothesis draws them all at once.
_FILES_OF_ONE: Final = 20
_PLAN_BYTES: Final = 18
_PLANS: Final = st.binary(min_size=_FILES_OF_ONE * _PLAN_BYTES, max_size=_FILES_OF_ONE * _PLAN_BYTES)


def mutated(plan: bytes) -> bytes:
    """A request, changed as a plan says: most often in one place, and so that its form stays that of JSON."""
    numbers = [int.from_bytes(plan[at : at + 2], "little") for at in range(0, _PLAN_BYTES, 2)]
    data = _BASES[numbers[0] % len(_BASES)]
    changes = 1 + (numbers[1] % 3 == 0) + (numbers[1] % 12 == 0)
    for kind, where, what in zip(numbers[2 : 2 + changes], numbers[3:], numbers[5:], strict=False):
        change = _CHANGES[kind % len(_CHANGES)] if kind % 5 == 0 else _put_junk
        data = change(data, where, what)
    return data


def send_mutated(daemon: Daemon, count: int, number: int) -> Counter[str]:
    """Send so many mutated requests to a running daemon; ``number`` makes them other ones. What it said of them.

    Fails if the daemon has ended, a file is left that waits for nothing, or a request made it fail.
    """
    pid, sent = daemon.process.pid, 0

    def ahead() -> bool:
        return len(os.listdir(daemon.requests)) < _AHEAD

    @seed(number)
    @settings(
        max_examples=-(-count // _FILES_OF_ONE),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(_PLANS)
    def send(plans: bytes) -> None:
        nonlocal sent
        for at in range(0, len(plans), _PLAN_BYTES):
            daemon.put(mutated(plans[at : at + _PLAN_BYTES]))
        sent += _FILES_OF_ONE
        if sent % 400 == 0:
            daemon.wait(ahead, "most are taken", 600)

    send()
    daemon.wait(lambda: _left(daemon) == 0, "every file is taken that does not wait for a message", 600)
    assert daemon.process.pid == pid
    assert "Traceback" not in daemon.log()
    metrics: dict[str, Any] = daemon.ask("metrics")
    assert "ERR_INTERNAL_ERROR" not in metrics["errorCodes"], metrics["errorCodes"]
    return Counter(sent=sent, executed=metrics["requests"]["success"], **metrics["errorCodes"])


def _left(daemon: Daemon) -> int:
    """Files in ``requests/`` that are not those of requests that wait for a message."""
    parked = daemon.ask("metrics")["mailbox"]["parked"]
    return len(os.listdir(daemon.requests)) - int(parked)
