"""The messages of delight-rpc, as bytes: requests, batches, aborts, versions, errors, and the order of arrival."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.frames import PING, PONG, TEXT, Frame, WebSocketPeer, frame, request
from tests.gateway.websocket_mq.queue import CONFIGURATION, DOOR
from tests.wire.daemon import wait_until

LOST = {"name": "QueueNotFound", "message": "", "stack": None, "ancestors": ["CustomError", "Error"]}
ABORTED = {"name": "DOMException", "message": "This operation was aborted", "stack": None, "ancestors": ["Error"]}
UNAVAILABLE = {
    "name": "MethodNotAvailable",
    "message": "The method is not available.",
    "stack": None,
    "ancestors": ["CustomError", "Error"],
}


@pytest.fixture
def peer(gateway) -> Iterator[WebSocketPeer]:
    """A connection that writes its own frames."""
    with WebSocketPeer(gateway) as peer:
        yield peer


@pytest.fixture
def name(peer, queue) -> str:
    """The name of a queue that exists."""
    assert peer.ask("setQueue", queue.name, CONFIGURATION) == {"result": None}
    return str(queue.name)


def batch(*calls: list[Any], parallel: bool, id_: str = "B", **more: Any) -> str:
    requests = [{"method": [method], "params": params} for method, *params in calls]
    fields = {"protocol": "delight-rpc", "version": "3.1", "id": id_, "parallel": parallel, "requests": requests}
    return json.dumps(fields | more)


def abort(id_: str) -> str:
    return json.dumps({"protocol": "delight-rpc", "version": "3.1", "id": id_, "abort": True})


def is_silent(peer: WebSocketPeer) -> bool:
    """Whether the gateway says nothing to what it was sent before."""
    peer.send(b"", PING)
    return peer.receive() == Frame(PONG, b"")


# --- requests ---------------------------------------------------------------------------------------------------------


def test_what_is_no_request_for_this_server_is_ignored(peer):
    good = request("getQueue", "none")
    for wrong in (
        "{oops",
        "[]",
        "null",
        '"text"',
        "",
        json.dumps(good)[:-1] + ',"n":NaN}',
        json.dumps(good | {"protocol": "json-rpc"}),
        json.dumps(good | {"version": "2.2"}),
        json.dumps(good | {"version": "3.1.0"}),
        json.dumps(good | {"version": 3.1}),
        json.dumps(good | {"id": 7}),
        json.dumps(good | {"channel": "c"}),
        json.dumps(good | {"channel": None}),
        json.dumps(good | {"method": "getQueue"}),
        json.dumps(good | {"params": {}}),
        json.dumps(good | {"expectedVersion": 7}),
        json.dumps({name: value for name, value in good.items() if name != "params"}),
        json.dumps({"protocol": "delight-rpc", "version": "3.1", "id": "1", "result": None}),
        abort("never")[:-1] + ',"abort":false}',
        "[" * 10_000,
    ):
        peer.send(wrong)
        assert is_silent(peer), wrong
    peer.send(json.dumps(good | {"version": "3.0", "more": [1]}))
    assert peer.answer() == {"result": None}


def test_an_answer_has_the_bytes_of_the_servers(peer, name):
    peer.request("getQueue", name, id_="eAI6X-Kx9anlScZ8uDEXx0")
    assert peer.receive() == Frame(
        TEXT,
        b'{"protocol":"delight-rpc","version":"3.1","id":"eAI6X-Kx9anlScZ8uDEXx0","result":{"unique":false,'
        b'"draftingTimeout":60000,"orderedTimeout":60000,"activeTimeout":60000,"concurrency":null,'
        b'"behaviorWhenCompleted":0,"behaviorWhenAbandoned":0}}',
    )


def test_an_error_has_all_four_fields(peer):
    assert peer.ask("draftMessage", "none", None, ["slot"]) == {"error": LOST}
    empty = peer.ask("draftMessage", "none", None, [])["error"]  # this is checked first
    assert (empty["name"], empty["message"]) == ("AssertionError", "The slotNames cannot be empty.")


def test_a_method_that_does_not_exist_is_not_available(peer):
    for path in (["noSuchMethod"], ["a", "b"], [], ["toString"], ["constructor"], ["__class__"], ["getQueue", "call"]):
        peer.send(json.dumps(request("x") | {"method": path}))
        assert peer.answer() == {"error": UNAVAILABLE}


def test_a_version_that_this_server_is_not_is_refused(peer):
    for expected in ("^0.7.0", "", None, "0.7.x", ">=0.6 <0.8 || 9"):
        assert peer.ask("getQueue", "none", expectedVersion=expected) == {"result": None}
    for expected in ("^0.6.0", "garbage", "0.7.5"):
        error = peer.ask("getQueue", "none", expectedVersion=expected)["error"]
        assert error == {
            "name": "VersionMismatch",
            "message": f'The expected version is "{expected}", but the server version is "0.7.4".',
            "stack": None,
            "ancestors": ["CustomError", "Error"],
        }
    peer.send(batch(["getQueue", "none"], parallel=True, expectedVersion="^1.0.0"))
    assert peer.answer("B")["error"]["name"] == "VersionMismatch"


def test_arguments_of_a_wrong_type_are_refused(peer, name):
    for method, *params in (
        ("getQueue",),
        ("getQueue", 5),
        ("setQueue", name),
        ("setQueue", name, CONFIGURATION | {"concurrency": 1.5}),
        ("setQueue", name, CONFIGURATION | {"unique": "no"}),
        ("setQueue", name, CONFIGURATION | {"behaviorWhenCompleted": 9}),
        ("setQueue", "", CONFIGURATION),
        ("setQueue", "x" * 257, CONFIGURATION),
        ("draftMessage", name, 1.5, ["slot"]),
        ("draftMessage", name, True, ["slot"]),
        ("draftMessage", name, 2**31, ["slot"]),
        ("draftMessage", name, None, "slot"),
        ("draftMessage", name, None, ["slot", 1]),
        ("draftMessage", name, None, ["slot"], ""),
        ("draftMessage", name, None, ["\ud800"]),
        ("draftMessage", name, None, [str(number) for number in range(257)]),
        ("getMessageIdsByState", name, 7),
        ("getMessageIdsByState", name, "0 OR 1=1"),
        ("clearMessagesByState", name),
        ("completeMessage", name, None),
        ("completeMessage", name, "id", 5),
    ):
        error = peer.ask(method, *params)["error"]
        assert (error["name"], error["ancestors"]) == ("AssertionError", ["CustomError", "Error"]), (method, params)
        assert error["message"]


def test_a_value_that_is_nested_too_deep_is_refused(peer, name):
    message = peer.ask("draftMessage", name, None, ["slot"])["result"]
    for depth, is_deep in ((126, False), (130, True), (300, True), (1000, True)):
        call = json.dumps(request("setMessageSlot", name, message, "slot", "deep"))
        peer.send(call.replace('"deep"', "[" * depth + "]" * depth))
        answer = peer.answer()
        assert answer.get("error", {}).get("name") == ("AssertionError" if is_deep else None), depth


def test_values_of_slots_are_what_they_were(peer, name):
    for value in (
        None, True, 0, -0.5, 1e300, 2**53, 1.2345678901234568e20, "", "\0 \x1f € 😀", "\ud800", [[], {}, [1, [2]]],
        {"b": {"z": 1, "a": [None]}, "a": "x"}, {"": 0, "__proto__": 1, "\ud800": "\udfff"},
    ):  # fmt: skip
        message = peer.ask("draftMessage", name, 5.0, ["slot", "slot", "other"])["result"]
        assert peer.ask("setMessageSlot", name, message, "other", value) == {"result": None}, value
        assert peer.ask("setMessageSlot", name, message, "slot", [value]) == {"result": None}
        found = peer.ask("peekMessage", name, message)["result"]
        assert found == {"state": 1, "priority": 5, "slots": {"other": value, "slot": [value]}}


def test_a_slot_that_is_too_large_for_the_daemon_is_refused(peer, name):
    message = peer.ask("draftMessage", name, None, ["slot"])["result"]
    assert peer.ask("setMessageSlot", name, message, "slot", "x" * 2_000_000) == {"result": None}
    error = peer.ask("setMessageSlot", name, message, "slot", "x" * 5_000_000)["error"]
    assert error["name"] == "MessageTooLarge"
    assert len(peer.ask("getMessage", name, message)["result"]["slots"]["slot"]) == 2_000_000


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [True, False])
def test_each_call_of_a_batch_has_an_outcome_of_its_own(peer, name, parallel):
    peer.send(batch(["getQueueStats", name], ["getMessage", "none", "1"], ["nope"], parallel=parallel))
    stats = dict.fromkeys(("drafting", "waiting", "ordered", "active", "failed", "completed", "abandoned"), 0)
    expected = [{"result": stats}, {"error": LOST}, {"error": UNAVAILABLE}]
    assert peer.answer("B") == {"responses": expected}


@pytest.mark.parametrize("parallel", [True, False])
def test_a_batch_of_the_real_client_is_answered(client, queue, parallel):
    calls = [("setQueue", queue.name, CONFIGURATION), ("draftMessage", queue.name, None, ["slot"], "m"),
             ("setMessageSlot", queue.name, "m", "slot", 1), ("orderMessage", queue.name),
             ("getMessage", queue.name, "m"), ("completeMessage", queue.name, "x")]  # fmt: skip
    if parallel:  # an order does not keep the calls behind it waiting
        calls = [*calls[:3], calls[5]]
    outcomes = client.batch(*calls, parallel=parallel)
    assert [one["result"] for one in outcomes[:3]] == [None, "m", None]
    assert "MessageNotFound" in outcomes[-1]["error"]["classes"]
    if not parallel:
        assert outcomes[3:5] == [{"result": "m"}, {"result": {"state": 3, "priority": None, "slots": {"slot": 1}}}]


def test_a_batch_that_is_empty_or_too_large_is_answered(peer):
    peer.send(batch(parallel=True))
    assert peer.answer("B") == {"responses": []}
    peer.send(batch(*[["getQueue", "none"]] * 1001, parallel=True))
    assert peer.answer("B")["error"]["name"] == "AssertionError"


def test_a_call_of_a_batch_that_is_no_call_makes_the_batch_none(peer):
    peer.send(batch(["getQueue", "none"], parallel=True).replace('"params": ["none"]', '"params": null'))
    peer.send(batch(["getQueue", "none"], parallel=True).replace("true", "1"))
    assert is_silent(peer)


# --- aborts -----------------------------------------------------------------------------------------------------------


def test_an_order_that_is_aborted_is_answered_with_the_error_of_an_abort(peer, name, gateway):
    peer.request("orderMessage", name, id_="O")
    wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == 1, "the order waits")
    peer.send(abort("O"))
    assert peer.answer("O") == {"error": ABORTED}
    assert gateway.metric("postroom_gateway_waiting_requests") == 0


def test_an_abort_that_arrives_with_its_request_counts(peer, name):
    peer.socket.sendall(frame(json.dumps(request("orderMessage", name, id_="O"))) + frame(abort("O")))
    assert peer.answer("O") == {"error": ABORTED}


def test_an_abort_ends_the_orders_of_a_batch_and_nothing_else(peer, name):
    for parallel in (True, False):
        peer.send(batch(["getQueue", "none"], ["orderMessage", name], ["getQueue", "no"], parallel=parallel))
        peer.send(abort("B"))
        assert peer.answer("B") == {"responses": [{"result": None}, {"error": ABORTED}, {"result": None}]}


def test_aborts_of_what_is_unknown_or_was_answered_are_ignored_in_any_number(peer, name):
    peer.ask("getQueue", name, id_="old")
    peer.socket.sendall((frame(abort("old")) + frame(abort("unknown"))) * 5000)
    assert is_silent(peer)
    peer.socket.sendall(frame(json.dumps(request("draftMessage", name, None, ["slot"], id_="D"))) + frame(abort("D")))
    assert "result" in peer.answer("D")


def test_aborts_that_cross_messages_lose_none(peer, name):
    """Each message is either the answer to an order that was aborted too late, or waits at its place."""
    ids = []
    for number in range(40):
        peer.request("orderMessage", name, id_=f"O{number}")
        message = f"m{number}"
        peer.request("draftMessage", name, None, ["slot"], message, id_=f"D{number}")
        peer.send(json.dumps(request("setMessageSlot", name, message, "slot", number, id_=f"S{number}")))
        peer.send(abort(f"O{number}"))
        answers: dict[str, Any] = {}
        while len(answers) < 3:
            answer = json.loads(peer.receive().payload)
            answers[answer["id"]] = answer
        order = answers[f"O{number}"]
        if "result" in order:
            ids.append(order["result"])
        else:
            assert order["error"] == ABORTED
    wait_until(
        lambda: peer.ask("getQueueStats", name)["result"]["ordered"] == len(ids), "what was not delivered waits again"
    )
    assert peer.ask("getQueueStats", name)["result"]["waiting"] == 40 - len(ids)
    assert len(ids) == len(set(ids))


def test_the_end_of_a_connection_ends_its_orders(gateway, name, queue):
    with WebSocketPeer(gateway) as gone:
        gone.request("orderMessage", name)
        gone.send(batch(["orderMessage", name], ["orderMessage", name], parallel=True))
        wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == 3, "the orders wait")
    wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == 0, "their waits have ended")
    message = queue.waiting()
    assert queue.peek(message)["state"] == 1


# --- the order of arrival ---------------------------------------------------------------------------------------------


def test_methods_of_a_connection_take_effect_in_the_order_of_their_arrival(peer, queue):
    name = queue.name
    calls: list[tuple[Any, ...]] = [
        ("setQueue", name, CONFIGURATION),
        ("draftMessage", name, None, ["slot"], "m"),
        ("peekMessage", name, "m"),
        ("setMessageSlot", name, "m", "slot", 1),
        ("getMessage", name, "m"),
        ("setMessageSlot", name, "m", "slot", 2),
        ("getQueueStats", name),
        ("abandonMessage", name, "m"),
        ("getMessageIdsByState", name, 6),
        ("removeMessage", name, "m"),
        ("getMessage", name, "m"),
        ("removeQueue", name),
        ("getMessage", name, "m"),
        ("getQueue", name),
    ]
    for _ in range(10):
        data = b"".join(frame(json.dumps(request(*call, id_=str(n)))) for n, call in enumerate(calls))
        peer.socket.sendall(data)
        answers = {}
        for _ in calls:
            answer = json.loads(peer.receive().payload)
            answers[int(answer["id"])] = answer.get("result", answer.get("error", {}).get("name"))
        assert answers == {
            0: None, 1: "m", 2: {"state": 0, "priority": None, "slots": {}}, 3: None,
            4: {"state": 1, "priority": None, "slots": {"slot": 1}}, 5: None,
            6: dict.fromkeys(("drafting", "ordered", "active", "failed", "completed", "abandoned"), 0) | {"waiting": 1},
            7: None, 8: ["m"], 9: None, 10: None, 11: None, 12: "QueueNotFound", 13: None,
        }  # fmt: skip


@pytest.mark.parametrize("parallel", [True, False])
def test_a_batch_takes_effect_before_what_arrives_behind_it(peer, name, parallel):
    for number in range(20):
        message = f"m{number}"
        draft, value = ["draftMessage", name, None, ["slot"], message], ["setMessageSlot", name, message, "slot", 1]
        data = frame(batch(draft, value, ["removeMessage", name, "none"], parallel=parallel))
        data += frame(json.dumps(request("peekMessage", name, message, id_="P")))
        peer.socket.sendall(data)
        answers = {}
        for _ in range(2):
            answer = json.loads(peer.receive().payload)
            answers[answer["id"]] = answer
        assert answers["B"]["responses"] == [{"result": message}, {"result": None}, {"result": None}]
        assert answers["P"]["result"]["state"] == 1


def test_calls_behind_an_order_in_a_series_keep_nobody_waiting(peer, name):
    peer.send(batch(["getQueue", "none"], ["orderMessage", name], ["removeQueue", name], parallel=False))
    assert peer.ask("draftMessage", name, None, ["slot"], "m") == {"result": "m"}
    peer.request("setMessageSlot", name, "m", "slot", 1)
    answers = [json.loads(peer.receive().payload) for _ in range(2)]
    assert {"result": "m"} in next(one for one in answers if one["id"] == "B")["responses"]
    assert peer.ask("getQueue", name) == {"result": None}


def test_many_large_batches_are_executed_without_a_pause(peer, name):
    wrong = batch(*[["setMessageSlot", name, "m", 5]] * 1000, parallel=True)
    peer.socket.sendall(frame(wrong) * 30)
    for _ in range(30):
        assert len(peer.answer("B")["responses"]) == 1000


def test_orders_keep_nobody_waiting(peer, name):
    for number in range(300):
        peer.request("orderMessage", name, id_=f"O{number}")
    for number in range(300):
        assert peer.ask("draftMessage", name, None, ["slot"], f"m{number}", id_="D") == {"result": f"m{number}"}
    got = []
    for number in range(300):
        peer.request("setMessageSlot", name, f"m{number}", "slot", number, id_="S")
        for _ in range(2):
            answer = json.loads(peer.receive().payload)
            if answer["id"] != "S":
                got.append(answer["result"])
    assert sorted(got) == sorted(f"m{number}" for number in range(300))


def test_more_orders_than_may_wait_are_refused(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nwaiting = 3\n" + DOOR).start()
    with WebSocketPeer(gateway) as peer:
        peer.ask("setQueue", "q", CONFIGURATION)
        for number in range(4):
            peer.request("orderMessage", "q", id_=str(number))
        error = peer.answer("3")["error"]
        assert (error["name"], error["ancestors"]) == ("ServiceUnavailable", ["CustomError", "Error"])


def test_answers_are_counted_by_the_names_of_their_errors(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR).start()
    with WebSocketPeer(gateway) as peer:
        peer.ask("getQueue", "q")
        peer.ask("orderMessage", "q")
        peer.ask("nothing")
    metric = 'postroom_gateway_answers_total{{door="mq-websocket",status="{}"}}'
    kinds = ("ok", "QueueNotFound", "MethodNotAvailable")
    assert {kind: gateway.metric(metric.format(kind)) for kind in kinds} == dict.fromkeys(kinds, 1)
