"""Every golden vector, judged by the codec, by the client, and by a running daemon through its mailbox and its lane."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_client import _codec as client_codec
from postroom_client import errors as client_errors
from postroom_common.codec import decode_request
from postroom_common.errors import RequestRejected
from postroom_common.protocol import ALIASES, FIELDS, Command, ErrorCode, Kind, resolve_command
from tests.table import table
from tests.wire.audit import audit
from tests.wire.daemon import Daemon, Sent
from tests.wire.lane import LaneClient, as_in_mailbox

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "v1"

Vector = dict[str, Any]

VALID = ("envelope-valid", "commands-valid", "cpp-requests", "bodies", "queue-names", "superseded")
INVALID = ("envelope-invalid", "commands-invalid")


def published(name: str) -> list[Vector]:
    """The vectors of a file."""
    vectors: list[Vector] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    assert vectors, f"{name} is empty"
    return vectors


def load(name: str) -> list[Vector]:
    """The vectors of a file as they hold now: an invalid request that became valid is in ``superseded`` alone."""
    later = {(one["file"], one["name"]): one for one in published("superseded")}
    if name != "superseded":
        return [vector for vector in published(name) if (name, vector["name"]) not in later]
    requests = {(file, one["name"]): one["request"] for file in INVALID for one in published(file)}
    return [one | {"name": f"{one['file']}: {one['name']}", "request": requests[key]} for key, one in later.items()]


def every(*files: str, having: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every vector of these files; ``having``: only those that expect this."""
    return table(
        "vector",
        {
            f"{file}: {vector['name']}": vector
            for file in files
            for vector in load(file)
            if not having or having in vector["expect"]
        },
    )


def bytes_of(source: dict[str, Any]) -> bytes:
    if "hex" in source:
        return bytes.fromhex(source["hex"])
    parts = source.get("parts", [source])
    return b"".join(part["text"].encode() * part.get("times", 1) for part in parts)


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types throughout: 1, 1.0 and true are three values."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


# --- the codec -------------------------------------------------------------------------------------------------------


@every(*VALID)
def test_a_valid_request_is_read(vector: Vector) -> None:
    request, expect = decode_request(bytes_of(vector["request"])), vector["expect"]
    assert request.problem is None
    assert (request.request_id, request.client_id) == (expect["requestId"], expect["clientId"])
    assert resolve_command(request.command) == expect["command"]
    assert same(request.deadline_ms, expect["deadlineMs"])
    assert same(request.payload, expect["payload"])


@every("envelope-invalid", having="dead")
def test_an_unanswerable_request_is_rejected_with_its_reason(vector: Vector) -> None:
    with pytest.raises(RequestRejected) as caught:
        decode_request(bytes_of(vector["request"]))
    assert vector["expect"]["dead"] in caught.value.reason


@every("envelope-invalid", having="error")
def test_a_faulty_envelope_with_valid_ids_is_answered(vector: Vector) -> None:
    request, expect = decode_request(bytes_of(vector["request"])), vector["expect"]
    assert (request.request_id, request.client_id) == (expect["requestId"], expect["clientId"])
    assert request.problem is not None
    assert request.problem.code == expect["error"]
    assert expect["message"] in request.problem.message


@every("commands-invalid")
def test_a_refused_command_has_a_valid_envelope(vector: Vector) -> None:
    assert decode_request(bytes_of(vector["request"])).problem is None


# --- the client ------------------------------------------------------------------------------------------------------


@every(*VALID)
def test_the_client_writes_an_equal_request(vector: Vector) -> None:
    expect = vector["expect"]
    if expect["deadlineMs"] > 2**63:
        expect = {**expect, "deadlineMs": 1}
    written, body = client_codec.encode_request(
        expect["requestId"], expect["clientId"], expect["command"], 1, expect["deadlineMs"], expect["payload"]
    )
    assert not body
    request = decode_request(written)
    assert request.problem is None
    assert (request.request_id, request.client_id) == (expect["requestId"], expect["clientId"])
    assert (request.command, request.deadline_ms) == (expect["command"], expect["deadlineMs"])
    assert same(request.payload, expect["payload"])


@every("responses", having="data")
def test_the_client_reads_data(vector: Vector) -> None:
    data = client_codec.decode_response(bytes_of(vector["response"]), vector["requestId"])
    assert same(data, vector["expect"]["data"])


@every("responses", having="error")
def test_the_client_raises_the_error_of_the_code(vector: Vector) -> None:
    expect = vector["expect"]["error"]
    with pytest.raises(client_errors.ServerError) as caught:
        client_codec.decode_response(bytes_of(vector["response"]), vector["requestId"])
    assert (caught.value.code, caught.value.message) == (expect["code"], expect["message"])
    assert type(caught.value) is client_errors.ERRORS_BY_CODE.get(expect["code"], client_errors.ServerError)


@every("responses", having="unreadable")
def test_the_client_refuses_an_invalid_response(vector: Vector) -> None:
    with pytest.raises(client_errors.BadResponse):
        client_codec.decode_response(bytes_of(vector["response"]), vector["requestId"])


@table("talk", {talk["name"]: talk for talk in load("conversations")})
def test_the_client_reads_every_response_of_a_conversation(talk: Vector) -> None:
    for step in talk["steps"]:
        response = json.loads(step["response"]["text"])
        try:
            data = client_codec.decode_response(bytes_of(step["response"]), response["requestId"])
        except client_errors.ServerError as error:
            assert error.code == response["error"]["code"]
        else:
            assert same(data, response["data"])


# --- a running daemon ------------------------------------------------------------------------------------------------


class DaemonBehindADoor(Daemon):
    """A daemon to which requests go through one of its doors."""

    lane: LaneClient | None = None


@pytest.fixture(scope="module", params=["mailbox", "lane"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonBehindADoor]:
    """One daemon for all vectors of a door: they are independent of each other."""
    parent = tmp_path_factory.mktemp("vectors")
    daemon = DaemonBehindADoor(parent / "root")
    daemon.start()
    if request.param == "lane":
        daemon.lane = LaneClient(daemon.ipc)
    try:
        yield daemon
        assert not daemon.ask("status", queue="v.none")["exists"], "a vector has made the queue that does not exist"
        if daemon.lane:
            daemon.lane.close()
        daemon.stop()
    finally:
        daemon.kill()
        print(daemon.log())
    assert {path.name for path in parent.iterdir()} == {"root", "root.log"}, "something was written beside the root"
    assert "Traceback" not in daemon.log()
    audit(daemon.events())


def exchange(daemon: DaemonBehindADoor, data: bytes, request_id: str, client_id: str, name: str = "") -> dict[str, Any]:
    """Send exactly these bytes; the response."""
    if daemon.lane:
        daemon.lane.send(data)
        answer = as_in_mailbox(*daemon.lane.receive())
        assert answer["requestId"] == request_id
        return answer
    return daemon.again(Sent(name or daemon.new_name(), request_id, client_id, data))


@pytest.fixture(scope="module")
def set_aside(daemon: DaemonBehindADoor) -> dict[str, str]:
    """All requests that nobody can be answered for, put at once: name of the vector to name of the file."""
    if daemon.lane:
        return {}
    rejected = [vector for vector in load("envelope-invalid") if "dead" in vector["expect"]]
    return {vector["name"]: daemon.put(bytes_of(vector["request"])) for vector in rejected}


@every(*VALID)
def test_the_daemon_answers_a_valid_request(vector: Vector, daemon: DaemonBehindADoor) -> None:
    expect = vector["expect"]
    response = exchange(daemon, bytes_of(vector["request"]), expect["requestId"], expect["clientId"])
    assert (response["error"]["code"] if not response["ok"] else "ok") == expect["reply"], response


@every("bodies", "queue-names")
def test_the_daemon_delivers_the_published_message(vector: Vector, daemon: DaemonBehindADoor) -> None:
    expect, shown = vector["expect"], vector["expect"]["shown"]
    queue = expect["payload"]["queue"]
    again = json.dumps(json.loads(bytes_of(vector["request"])) | {"requestId": f"again-{time.time_ns()}"}).encode()
    key = exchange(daemon, again, json.loads(again)["requestId"], "vectors")["data"]["messageKey"]
    as_text = take(daemon, queue, key)
    for name, value in shown.items():
        if name in ("payload", "attributes") and not isinstance(value, str):
            assert same(json.loads(as_text[name]), value)
        else:
            assert same(as_text[name], value)
    as_value = take(daemon, queue, key, payloadAs="value")
    for name, value in shown.items():
        assert same(as_value[name], {} if name == "attributes" and value == "{}" else value)
    assert (as_value["queue"], as_value["attempt"]) == (queue, 1)


def take(daemon: DaemonBehindADoor, queue: str, key: str, **options: Any) -> dict[str, Any]:
    """The message of a key as a consumer gets it; everything is put back as it was."""
    leases = []
    try:
        while True:
            delivery = daemon.ask("consume_next", queue=queue, **options)
            leases.append(delivery["lease"])
            if delivery["message"]["messageKey"] == key:
                message: dict[str, Any] = delivery["message"]
                return message
    finally:
        for lease in leases:
            daemon.ask("release", messageKey=lease["messageKey"], leaseId=lease["leaseId"])


@every("envelope-invalid", having="dead")
def test_the_daemon_rejects_requests_that_it_cannot_answer(
    vector: Vector, daemon: DaemonBehindADoor, set_aside: dict[str, str]
) -> None:
    if daemon.lane and vector["name"] == "clientId missing":  # it is in hello
        assert exchange(daemon, bytes_of(vector["request"]), "r", "wire")["ok"]
        return
    if daemon.lane:
        with LaneClient(daemon.ipc) as client:
            client.send(bytes_of(vector["request"]))
            error = client.receive()[0]
            assert "requestId" not in error and vector["expect"]["dead"] in error["error"]["message"]
            assert client.is_ended()
        return
    name = set_aside[vector["name"]]
    reason = daemon.dead / (name + ".reason")
    daemon.wait(lambda: reason.exists() and not (daemon.requests / name).exists(), f"{name} to be set aside")
    record = json.loads(reason.read_bytes())
    assert vector["expect"]["dead"] in record["reason"]
    assert isinstance(record["movedAt"], int)
    assert (daemon.dead / name).read_bytes() == bytes_of(vector["request"])


@every("envelope-invalid", "commands-invalid", having="error")
def test_the_daemon_refuses_with_the_code(vector: Vector, daemon: DaemonBehindADoor) -> None:
    expect = vector["expect"]
    response = exchange(daemon, bytes_of(vector["request"]), expect["requestId"], expect["clientId"])
    assert response["ok"] is False
    assert response["error"]["code"] == expect["error"], response
    assert expect["message"] in response["error"]["message"]


@table("talk", {talk["name"]: talk for talk in load("conversations")})
def test_the_daemon_holds_the_conversation(talk: Vector, daemon: DaemonBehindADoor) -> None:
    ids: dict[str, str] = {}
    sent: dict[bytes, tuple[str, dict[str, Any]]] = {}
    for step in talk["steps"]:
        data = rename(step["request"]["text"], ids).encode()
        request = json.loads(data)
        name = sent[data][0] if step.get("again") else f"{time.time_ns():020d}-talk.json"
        response = exchange(daemon, data, request["requestId"], request["clientId"], name)
        if step.get("again"):
            assert response == sent[data][1]
        sent[data] = (name, response)
        agree(json.loads(rename(step["response"]["text"], ids)), response, "", step.get("varies", []), ids)


def rename(text: str, ids: dict[str, str]) -> str:
    for own in sorted(ids, key=len, reverse=True):
        text = text.replace(own, ids[own])
    return text


def kind_of(value: Any) -> type:
    return float if type(value) is int else type(value)


def agree(expected: Any, actual: Any, path: str, varies: list[str], ids: dict[str, str]) -> None:
    """Check that ``actual`` has all that ``expected`` has; learn the ids that vary."""
    if path in varies:
        assert kind_of(actual) is kind_of(expected), (path, expected, actual)
        if path.endswith(("Id", "Key")) and expected not in ids.values():
            ids[expected] = actual
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), (path, actual)
        for name, value in expected.items():
            assert name in actual, (path, name, actual)
            agree(value, actual[name], f"{path}.{name}".lstrip("."), varies, ids)
    elif isinstance(expected, list):
        assert len(actual) == len(expected), (path, actual)
        for index, value in enumerate(expected):
            agree(value, actual[index], f"{path}.{index}", varies, ids)
    else:
        assert same(actual, expected), (path, expected, actual)


# --- the vectors themselves ------------------------------------------------------------------------------------------


def test_no_two_vectors_of_a_file_have_one_name() -> None:
    for path in VECTORS.glob("*.json"):
        names = [(vector.get("file"), vector["name"]) for vector in published(path.stem)]
        assert len(set(names)) == len(names), path.name


def test_every_command_alias_field_and_error_code_has_vectors() -> None:
    valid = [json.loads(bytes_of(vector["request"])) for file in VALID for vector in load(file)]
    invalid = [json.loads(bytes_of(vector["request"])) for vector in published("commands-invalid")]
    assert {request["command"].lower() for request in valid} >= set(Command) | set(ALIASES)
    for command, fields in FIELDS.items():
        given = [request["payload"] for request in valid if request["command"] == command and request.get("payload")]
        refused = [request["payload"] for request in invalid if request["command"] == command]
        for field in fields:
            assert any(field.name in payload for payload in given), (command, field.name)
            if field.required or field.kind is not Kind.VALUE:
                assert any(field.name in payload for payload in refused), (command, field.name)
    read = {vector["expect"]["error"]["code"] for vector in load("responses") if "error" in vector["expect"]}
    assert read >= set(ErrorCode)


def test_every_command_has_an_example() -> None:
    steps = [step for talk in load("conversations") for step in talk["steps"] if "example" in step]
    assert {step["example"].partition(",")[0] for step in steps} == set(Command)
