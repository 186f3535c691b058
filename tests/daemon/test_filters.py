"""Filters say which messages a command means, in bounded work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom_common.errors import CommandError
from postroom_common.protocol import State
from postroom_daemon.engine import selection
from postroom_daemon.engine.context import Context
from postroom_daemon.engine.filters import Filter
from postroom_daemon.engine.json_path import Budget, BudgetExceeded, JsonPath
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param).open()


#: A context that lacks what a selection does not use is no context to machine code, which checks each argument.
pytestmark = pytest.mark.interpreted


def context_of(bench: Bench) -> Context:
    live: Any = bench.live
    return Context(bench.store, live.clock.now(), *[None] * 15)  # type: ignore[arg-type]


def meant(bench: Bench, wanted: dict[str, Any], limit: int = 100) -> list[str]:
    found, after = [], ""
    while True:
        states = [State.READY, State.DELAYED]
        page = selection.select(context_of(bench), "q", states, Filter(wanted), after, limit)
        found += [entry.key for entry in page.entries]
        after = page.next
        if not after:
            return found


@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        ({"colour": "red"}, "filter.colour is unknown; use reasonCode, "),
        ({"text": 5}, "filter.text must be of type string"),
        ({"priority": True}, "filter.priority must be of type integer"),
        ({"attribute": {}}, "at least one attribute"),
        ({"reasonCode": "WHIM"}, "use REJECTED"),
        ({"olderThanMs": -1}, "filter.olderThanMs must be from 0"),
        ({"jsonPath": "$["}, "filter.jsonPath: "),
        ({"jsonPath": "$[?@.a == 1e400]"}, "filter.jsonPath: a number in it is too large"),
        ({"jsonPath": "$[?match(@.a, '(a|a)*')]"}, "filter.jsonPath: "),
        ({"jsonPath": "$[?search(@.a, 'x')]"}, "filter.jsonPath: "),
        ({"jsonPath": "$[?$.a == 1]"}, "must begin with @"),
        ({"jsonPath": "$[?@..a]"}, "name a single value"),
        ({"jsonPath": "$" + ".a" * 200}, "at most 300"),
    ],
)
def test_an_invalid_filter_is_refused_with_the_reason(wanted: dict[str, Any], reported: str) -> None:
    with pytest.raises(CommandError) as refused:
        Filter(wanted)
    assert reported in refused.value.message


def test_each_key_means_what_it_says(bench: Bench) -> None:
    wanted: dict[str, Any]
    first = bench.publish(message={"a": {"n": 1}, "list": [{"ok": True}]}, attributes={"kind": "x"}, priority=3)
    bench.clocks.pass_ms(1000)
    second = bench.publish(message="plain text", orderingKey="o", correlationId="c", targetConsumerId="t")
    wall = bench.clocks.wall_ms
    for wanted in (
        {"attribute": {"kind": "x"}},
        {"priority": 3},
        {"olderThanMs": 1000},
        {"to": wall - 1},
        {"text": '"n":1'},
        {"jsonPath": "$.a.n"},
        {"jsonPath": "$..[?@.ok == true]"},
        {"jsonPath": "$.list[0]"},
        {"targetConsumerId": ""},
    ):
        assert meant(bench, wanted) == [first], wanted
    for wanted in (
        {"orderingKey": "o"},
        {"correlationId": "c"},
        {"targetConsumerId": "t"},
        {"youngerThanMs": 1000},
        {"from": wall},
        {"text": "in tex"},
    ):
        assert meant(bench, wanted) == [second], wanted
    for wanted in (
        {"attemptAtLeast": 1},
        {"reasonText": "x"},
        {"jsonPath": "$.a.m"},
        {"attribute": {"kind": 1}},
        {"reasonCode": "NACKED"},
    ):
        assert meant(bench, wanted) == [], wanted
    assert meant(bench, {}) == [first, second]


def test_the_last_failure_of_a_message_that_is_retried_counts(bench: Bench) -> None:
    key = bench.publish()
    lease = bench.do("consume_next", queue="q", consumerId="worker")["lease"]
    bench.do("nack", messageKey=key, leaseId=lease["leaseId"], reason="the pump is off", requeue=True)
    assert meant(bench, {"reasonText": "pump", "reasonCode": "NACKED", "consumerId": "worker"}) == [key]
    assert meant(bench, {"consumerId": "another"}) == []


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_that_follow_each_other_have_each_message_once(
    bench: Bench, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "LOOKS", 4)
    monkeypatch.setattr(selection, "READ_BYTES", 300)
    keys = [bench.publish(message={"n": number}, delayMs=60_000 * (number % 2)) for number in range(20)]
    assert sorted(meant(bench, {}, limit)) == sorted(keys)
    assert sorted(meant(bench, {"jsonPath": "$.n"}, limit)) == sorted(keys)
    assert meant(bench, {"jsonPath": "$.m"}, limit) == []
    assert meant(bench, {"text": '"n":13'}, limit) == [keys[13]]


def test_a_cursor_of_another_question_is_refused(bench: Bench) -> None:
    bench.publish()
    bench.publish()
    page = selection.select(context_of(bench), "q", [State.READY], Filter({}), "", 1)
    assert page.next
    for queue, states, after in (("q", [State.HELD], page.next), ("q", [State.READY], page.next[:-2]), ("q", [], "é")):
        with pytest.raises(CommandError):
            selection.select(context_of(bench), queue, states, Filter({}), after, 1)


@pytest.mark.parametrize("query", ["$..*..*..*..*..nothing", "$[*,*,*][*,*,*][*,*,*][*,*,*].nothing", "$..[?@.a == 3]"])
def test_no_query_goes_on_for_ever(query: str) -> None:
    body: Any = {"a": 1, "b": 2}
    for _ in range(5):
        body = [body] * 12
    with pytest.raises(BudgetExceeded):
        JsonPath(query).matches(body, Budget(100_000))


def test_a_deep_body_is_searched() -> None:
    body: Any = {"found": 1}
    for _ in range(120):
        body = [body]
    assert JsonPath("$..found").matches(body, Budget(100_000))
