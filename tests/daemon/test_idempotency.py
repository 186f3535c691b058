"""What is remembered of requests, and how much."""

from __future__ import annotations

import pytest

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode
from postroom_daemon.broker import idempotency as module
from postroom_daemon.broker.idempotency import (
    REMEMBERED,
    REMEMBERED_AFTER_RESTART,
    Idempotency,
    key_of_event,
    request_key,
)
from postroom_daemon.broker.transaction import Transaction
from postroom_daemon.model.request import Answer
from tests.conformance.bench import Bench
from tests.daemon.reached import reached


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_repeat_is_recognised_by_user_and_bytes() -> None:
    assert request_key(7, b"bytes") == request_key(7, b"bytes")
    assert len({request_key(uid, data) for uid in (0, 7, 2**32 - 2) for data in (b"", b"bytes", b"bytes ")}) == 9


def test_the_promise_of_the_protocol_is_kept() -> None:
    assert REMEMBERED >= 100_000 and REMEMBERED_AFTER_RESTART >= 20_000


def test_the_oldest_are_forgotten_first_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    monkeypatch.setattr(module, "ANSWERS", 5)
    idempotency = Idempotency()
    for number in range(100):
        idempotency.remember({key(number): number})
        idempotency.remember({key(number): number})
        idempotency.remember_answer(key(1000 + number), Answer(error=CommandError(ErrorCode.PAUSED, str(number))))
    assert [number for number in range(100) if type(idempotency.recall(key(number))) is int] == list(range(90, 100))
    assert [number for number in range(100) if type(idempotency.recall(key(1000 + number))) is Answer] == list(
        range(95, 100)
    )


def test_a_refused_request_is_refused_again_in_the_same_words(bench: Bench) -> None:
    sent = bench.send("pause", queue="none")
    bench.publish("none")
    again = bench.again(sent)
    bench.run(again)
    assert again.answer.error is not None and sent.answer.error is not None
    assert (again.code, again.answer.error.message) == ("ERR_QUEUE_NOT_FOUND", sent.answer.error.message)


def test_a_remembered_refusal_references_nothing_of_its_group(bench: Bench) -> None:
    refused = [
        bench.make("publish", queue="q", message="!", encoding="base64"),
        bench.make("publish", queue=""),
        bench.make("none"),
    ]
    bench.run(bench.make("publish", queue="q", message="body"), *refused)
    idempotency = bench.live.broker.state.idempotency
    assert all(one.request.key and type(idempotency.recall(one.request.key)) is Answer for one in refused)
    assert reached(idempotency, Transaction) == 0
    assert not any(reached(one.answer, Transaction) for one in refused)


def test_the_same_bytes_from_another_user_are_another_request(bench: Bench) -> None:
    sent = bench.send("publish", queue="q", message="x")
    other = bench.make("publish", queue="q", message="x", uid=4242)
    other.request.wire = sent.request.wire
    other.request.key = request_key(4242, b"client/request-1")
    bench.run(other)
    assert other.data["messageKey"] != sent.data["messageKey"]


def test_a_last_event_names_its_request_and_others_name_none(bench: Bench) -> None:
    sent = bench.send("publish", queue="new", message="x")
    by_type = {event["type"]: event for event in bench.events()}
    assert key_of_event(by_type["published"]) == sent.request.key
    assert key_of_event(by_type["queue_created"]) is None
