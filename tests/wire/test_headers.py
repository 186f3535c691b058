"""Headers and binary bodies are carried through whatever happens to a message, and shown to people."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

from tests.wire.conftest import MakeDaemon, on_stores
from tests.wire.daemon import Daemon, Fields

HEADERS: Fields = {
    "contentType": "image/x-raw",
    "type": "frame",
    "version": 3,
    "traceId": "trace-7",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "correlationId": "order 17",
    "replyTo": "answers",
    "deduplicationKey": "frame-9",
    "timestamp": "2026-11-28T06:00:00Z",
}
BODY = bytes(range(256))
BINARY: Fields = {"message": base64.b64encode(BODY).decode(), "encoding": "base64", "attributes": {"lens": [1, 2]}}


def carried(message: Fields) -> Fields:
    assert base64.b64decode(message["payload"]) == BODY
    assert (message["encoding"], json.loads(message["attributes"])) == ("base64", {"lens": [1, 2]})
    return {name: message[name] for name in HEADERS}


def postroom(daemon: Daemon, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    return subprocess.run(line, input=data, capture_output=True, check=False)


@on_stores("sqlite", "hybrid")
def test_headers_survive_a_retry_a_death_and_a_restart(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"initialDelaySec": 0.001}})
    daemon.ask("publish", queue="q", **BINARY, **HEADERS)
    first = daemon.consume("q")
    daemon.settle("nack", first, requeue=True)
    second = daemon.consume("q", waitMs=20_000)
    daemon.settle("nack", second)
    daemon.restart(kill=True)
    (letter,) = daemon.ask("list_dlq", queue="q", previewBytes=4)["messages"]
    assert (letter["preview"], letter["bytes"]) == ("00010203", 256)
    daemon.ask("reprocess_dlq", messageKey=letter["messageKey"])
    assert [carried(one["message"]) for one in (first, second, daemon.consume("q"))] == [HEADERS] * 3


@on_stores("sqlite", "hybrid")
def test_headers_are_exported_and_imported(make_daemon: MakeDaemon, backend: str) -> None:
    source, target = make_daemon().start(), make_daemon().start()
    source.ask("publish", queue="q", **BINARY, **HEADERS)
    exported = source.tool("export")
    assert target.tool("import", data=exported.stdout).returncode == 0
    assert carried(target.consume("q")["message"]) == HEADERS


def test_each_item_of_a_batch_has_its_own_headers(daemon: Daemon) -> None:
    items = [
        {**BINARY, **HEADERS, "deduplicationKey": f"{number}", "correlationId": f"{number}"} for number in range(3)
    ]
    daemon.ask("publish_batch", queue="q", messages=items)
    for number, one in enumerate(daemon.ask("consume_next", queue="q", max=3)["messages"]):
        reported = carried(one["message"])
        assert reported == {**HEADERS, "deduplicationKey": f"{number}", "correlationId": f"{number}"}


def test_the_command_line_sends_and_shows_all_headers(daemon: Daemon) -> None:
    options = {
        "--content-type": "image/x-raw",
        "--type": "frame",
        "--msg-version": "3",
        "--trace-id": "trace-7",
        "--traceparent": HEADERS["traceparent"],
        "--correlation-id": "order 17",
        "--reply-to": "answers",
        "--dedup-key": "frame-9",
        "--timestamp": HEADERS["timestamp"],
        "--attributes": '{"lens": [1, 2]}',
    }
    words = [word for pair in options.items() for word in pair]
    for _ in range(3):
        done = postroom(daemon, "publish", "--queue", "q", "--binary", *words, data=BODY)
        assert done.returncode == 0, done.stderr
    reported = postroom(daemon, "consume", "--queue", "q")
    rows = [" ".join(line.split()) for line in reported.stdout.decode().splitlines()]
    for row in ("type frame", "trace id trace-7", f"traceparent {HEADERS['traceparent']}", "correlation id order 17"):
        assert row in rows
    for row in ("reply to answers", "content type image/x-raw", 'attributes {"lens": [1, 2]}', "dedup key frame-9"):
        assert row in rows
    assert f"payload 256 bytes: {BODY.hex()}" in rows
    as_json = json.loads(postroom(daemon, "consume", "--queue", "q", "--json").stdout)
    assert carried(as_json["data"]["message"]) == HEADERS
    assert postroom(daemon, "consume", "--queue", "q", "--raw").stdout == BODY


@pytest.mark.parametrize("trace", ["00-short", "ff-no trace at all", "späte Spur", "x" * 4096])
def test_an_invalid_traceparent_is_carried_unchanged(daemon: Daemon, trace: str) -> None:
    daemon.publish("q", "x", traceparent=trace)
    assert daemon.consume("q")["message"]["traceparent"] == trace


@pytest.mark.parametrize("trace", ["00\r\nx: y", "a\x00", "a\x7f", "a\x85b"])
def test_a_traceparent_with_control_characters_is_refused(daemon: Daemon, trace: str) -> None:
    assert daemon.refusal("publish", queue="q", message="x", traceparent=trace) == "ERR_INVALID_REQUEST"
    assert not daemon.ask("status", queue="q")["exists"]
