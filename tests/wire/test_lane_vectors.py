"""The golden vectors of the lane, judged by a running daemon and by the client."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from postroom_client import _codec as client_codec
from postroom_client import errors as client_errors
from tests.wire.conftest import MakeDaemon
from tests.wire.lane import LaneClient, as_in_mailbox
from tests.wire.test_vectors import agree, rename, same

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "lane1"


def talks(name: str) -> list[dict[str, Any]]:
    """The conversations of a file of vectors."""
    read: list[dict[str, Any]] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return read


WITH_ANYBODY, WITH_A_GATEWAY = talks("conversations.json"), talks("gateway.json")
every_talk = pytest.mark.parametrize("talk", WITH_ANYBODY + WITH_A_GATEWAY, ids=lambda talk: talk["name"])


@every_talk
def test_the_daemon_holds_the_conversation(talk: dict[str, Any], make_daemon: MakeDaemon) -> None:
    users = str(os.geteuid()) if talk in WITH_A_GATEWAY else ""
    daemon = make_daemon(config={"gateway": {"users": users}}).start()
    ids: dict[str, str] = {}
    answers: dict[str, Any] = {}
    with LaneClient(daemon.ipc, greet=False) as client:
        for step in talk["steps"]:
            sent = step["send"]
            if "hex" in sent:
                client.socket.sendall(bytes.fromhex(sent["hex"]))
            else:
                client.send(rename(sent["header"], ids).encode(), bytes.fromhex(sent.get("body", "")))
            if "receive" not in step:
                continue
            header, body = client.receive()
            assert body == bytes.fromhex(step["receive"].get("body", ""))
            if step.get("again"):
                assert header == answers[sent["header"]]
            answers[sent.get("header", "")] = header
            agree(json.loads(rename(step["receive"]["header"], ids)), header, "", step.get("varies", []), ids)
        assert not talk.get("ends") or client.is_ended()


@every_talk
def test_the_client_reads_each_answer_as_it_would_in_the_mailbox(talk: dict[str, Any]) -> None:
    for step in talk["steps"]:
        received = step.get("receive", {"header": "{}"})
        header, body = json.loads(received["header"]), bytes.fromhex(received.get("body", ""))
        if "requestId" not in header:
            continue
        try:
            data = client_codec.decode_response(received["header"].encode(), header["requestId"], body)
        except client_errors.ServerError as error:
            assert error.code == header["error"]["code"]
        else:
            assert same(data, as_in_mailbox(header, body)["data"])
