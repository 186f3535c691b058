"""A conversation that was recorded between the real client and the real server: the gateway says the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.gateway.frames import PING, PONG, Frame, WebSocketPeer
from tests.gateway.websocket_mq.queue import DOOR

_TRANSCRIPT = Path(__file__).with_name("transcript.txt")
#: The server shows the text of its database; the gateway says what is wrong.
_DATABASE = "SqliteError"


def exchanges() -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """What was sent, and what came in answer to that."""
    lines = [line for line in _TRANSCRIPT.read_text().splitlines() if line[:2] in ("> ", "< ")]
    sent: list[str] = []
    for mark, group in groupby(lines, lambda line: line[0]):
        texts = [line[2:] for line in group]
        if mark == ">":
            sent = texts
        else:
            yield sent, [json.loads(text) for text in texts]


def test_the_gateway_answers_as_the_server_did(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR).start()
    ids: dict[str, str] = {}  # ours, by those that the server made
    with WebSocketPeer(gateway) as peer:
        for sent, expected in exchanges():
            for text in sent:
                for theirs, ours in ids.items():
                    text = text.replace(theirs, ours)
                peer.send(text)
            answers = sorted((json.loads(peer.receive().payload) for _ in expected), key=lambda one: one["id"])
            for answer, wanted in zip(answers, sorted(expected, key=lambda one: one["id"]), strict=True):
                if "result" in wanted and '"draftMessage"' in sent[0]:
                    ids[wanted["result"]] = answer["result"]
                text = json.dumps(wanted)
                for theirs, ours in ids.items():
                    text = text.replace(theirs, ours)
                if _DATABASE in text:
                    assert answer["error"]["name"] == "AssertionError"
                else:
                    assert answer == json.loads(text), sent
        peer.send(b"", PING)
        assert peer.receive() == Frame(PONG, b"")  # it has said nothing more
