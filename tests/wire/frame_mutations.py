"""Frames of the lane that are nearly right: the daemon outlives them all, and forgets them."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections import Counter
from pathlib import Path

from tests.wire.daemon import Daemon
from tests.wire.lane import LaneClient, frame

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "lane1"
HELLO = frame({"hello": {"versions": [1], "clientId": "mutant"}})
QUEUE = {"queue": "line.frames"}
#: Requests beside those of the vectors.
REQUESTS = [
    ("browse", {**QUEUE, "fullBodies": True}, b""),
    ("list_dlq", {**QUEUE, "fullBodies": True}, b""),
    ("get_message", {"messageKey": "x", "events": 5}, b""),
    ("publish_batch", {**QUEUE, "messages": [{"bodyBytes": 2}, {"message": {"a": 1}}]}, b"\0\1"),
    ("consume_next", {**QUEUE, "max": 3, "waitMs": 50}, b""),
    ("ack_and_publish", {"messageKey": "m", "leaseId": "l", "messages": [{**QUEUE, "bodyBytes": 3}]}, b"\0\1\2"),
    ("metrics", {"format": "prometheus"}, b""),
]
#: What is put into a header.
TOKENS = [
    *(b"null", b"true", b"[]", b"{}", b"-1", b"1e400", b"18446744073709551616", b'"\\ud800"', b"\xff", b"\0"),
    *(b'"' + b"x" * 300 + b'"', b"[" * 200, b'"as":"token:a",', b'"door":"x",', b'"cancel":"x",'),
    *(b'"bodyBytes":9999999999,', b'"requestId":"r1",', b'"clientId":"../x",'),
]


def send_mutated_frames(daemon: Daemon, count: int, seed: int) -> Counter[str]:
    """Send about ``count`` frames on many connections; what became of them. Raises ``AssertionError`` if another client
    is not served, or something of a connection stays."""
    rng, seen, sources = random.Random(seed), Counter[str](), _sources()
    with LaneClient(daemon.ipc, "probe") as probe:
        while seen["frames"] < count:
            data = HELLO if rng.random() < 0.9 else b""
            for _ in range(rng.randint(1, 12)):
                header, body = rng.choice(sources)
                body = rng.randbytes(rng.randrange(100)) if rng.random() < 0.2 else body
                sent = frame(_mutated(rng, header), body)
                data += _mutated(rng, sent) if rng.random() < 0.05 else sent
                seen["frames"] += 1
            seen["connections"] += 1
            seen["bytes received"] += _send(daemon, rng, data)
            if seen["connections"] % 20 == 0:
                probe.ask("health", {})
        daemon.wait(lambda: _lane(daemon)["connections"] == 1, "all connections are gone")
        lane = _lane(daemon)
        assert (lane["inFlight"], lane["heldBytes"]) == (0, 0), lane
    seen["connections refused"] = lane["refused"]
    return seen


def _sources() -> list[tuple[bytes, bytes]]:
    """Headers and bodies that are right."""
    talks = [talk for path in sorted(VECTORS.glob("*.json")) for talk in json.loads(path.read_text("utf-8"))]
    steps = [step["send"] for talk in talks for step in talk["steps"] if "header" in step["send"]]
    sources = [(step["header"].encode(), bytes.fromhex(step.get("body", ""))) for step in steps]
    for number, (command, payload, body) in enumerate(REQUESTS):
        sources.append((json.dumps({"requestId": f"m{number}", "command": command, "payload": payload}).encode(), body))
    return sources


def _mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0 if at < len(changed):
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randint(1, 20)]
            case 2:
                changed[at:at] = changed[rng.randrange(len(changed) + 1) :][:30]
            case _:
                changed[at:at] = rng.choice(TOKENS)
    return bytes(changed)


def _send(daemon: Daemon, rng: random.Random, data: bytes) -> int:
    """Send bytes on a connection of their own; how many came back before it was closed at some moment."""
    received = 0
    with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionError, BrokenPipeError):
        peer.settimeout(10)
        peer.connect(str(daemon.ipc / "lane.sock"))
        peer.sendall(data)
        if rng.random() < 0.7:
            peer.shutdown(socket.SHUT_WR)
            while rng.random() < 0.8 and (some := peer.recv(65536)):
                received += len(some)
    return received


def _lane(daemon: Daemon) -> dict[str, int]:
    figures: dict[str, int] = daemon.ask("metrics")["lane"]
    return figures
