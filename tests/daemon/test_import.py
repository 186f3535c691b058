"""import_state: what another root exported, with ids, attempts, delays, dead letters and policies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest

from postroom_daemon.observe.state import State, steady
from tests.conformance.bench import Bench
from tests.daemon.random_work import more_work, work
from tests.daemon.states import quietly

KEPT = (
    "queue", "createdMs", "priority", "attempt", "failures", "target", "message", "history", "bytes", "reason", "phase",
    "deliverAtMs", "orderingKey", "claim", "retryLimit",
)  # fmt: skip
ENDS = ("expiresEngineMs", "fallbackEngineMs")
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")


def reported(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """Queues and messages by name, with times on the wall and without what belongs to one root alone: numbers of
    events, leases, totals."""
    shift = state.head.wall_ms - state.head.engine_ms
    queues = {record.name: (record.override, record.publish_paused, record.consume_paused) for record in state.queues}
    messages = {}
    for message in state.messages:
        shown = _joined(orjson.loads(orjson.dumps(message)))
        inflight = shown["state"] == "inflight"
        messages[shown["key"]] = {
            "state": "ready" if inflight else shown["state"],
            "due": _due(shown, state.head.engine_ms, shift),
            **{name: shown.get(name) for name in KEPT},
            "phase": None if inflight else shown.get("phase"),
            **{name: shown[name] + shift for name in ENDS if shown.get(name, 0) > state.head.engine_ms},
        }
    return queues, messages


def _joined(shown: dict[str, Any]) -> dict[str, Any]:
    """A message with the parts that were appended to it in its body, as an import stores it."""
    if "appended" in shown:
        shown["message"]["parts"] += shown.pop("appended")
        shown["bytes"] = len(orjson.dumps(shown["message"]))
    return shown


def _due(shown: dict[str, Any], now: int, shift: int) -> int | None:
    """When it is due, on the wall, where that still counts."""
    due = shown.get("dueEngineMs", 0)
    return due + shift if shown["state"] in ("delayed", "gathering", "held") and due > now + 10 else None


def transfer(state: State) -> dict[str, Any]:
    """The request that imports a state."""
    messages = orjson.loads(orjson.dumps(list(state.messages)))
    return {
        "engineMs": state.head.engine_ms,
        "wallMs": state.head.wall_ms,
        "queues": [record.to_json() for record in state.queues],
        "messages": sorted(messages, key=lambda message: message["published"]),
        "facts": state.facts,
    }


def reported_facts(state: State) -> dict[str, Any]:
    """What there is beside queues and messages, with times on the wall; only claims that still count."""
    shift, reported = state.head.wall_ms - state.head.engine_ms, {}
    for fact in state.facts:
        name, value = fact["name"], fact["value"]
        if name.startswith("claim:") and value["untilEngineMs"]:
            value = value | {"untilEngineMs": value["untilEngineMs"] + shift}
            if value["untilEngineMs"] > state.head.wall_ms + 10:
                reported[name] = value
        elif not name.startswith("claim-end:"):
            reported[name] = value
    return reported


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(3))
def test_queues_and_messages_arrive_in_another_root_unchanged(
    make_bench: Callable[..., Bench], backend: str, seed: int
) -> None:
    source, random = make_bench("memory").open(), Random(seed)
    for _ in range(250):
        work(source, random)
        more_work(source, random)
    source.publish("a", targetConsumerId="c1", attributes={"a": [1, 2.5]}, type="t", version=3)
    target = make_bench(backend).open()
    target.clocks.pass_ms(9)
    target.clocks.wall_ms = source.clocks.wall_ms + 7
    target.publish("z")
    done = target.do("import_state", **transfer(steady(quietly(source))))
    expected_queues, expected = reported(steady(quietly(source)))
    target.clocks.pass_ms(0)
    queues, messages = reported(steady(quietly(target)))
    assert {name: queues[name] for name in expected_queues} == expected_queues
    assert {key: one for key, one in messages.items() if one["queue"] != "z"} == expected
    facts = reported_facts(steady(quietly(source)))
    assert reported_facts(steady(quietly(target))) == facts
    others = {name: value for name, value in facts.items() if not name.startswith("name:")}
    brought = [name for name, value in others.items() if name.startswith("schedule:") or value.get("untilEngineMs")]
    assert done == {"queues": len(expected_queues), "messages": len(expected), "skipped": 0, "facts": len(brought)}
    for queue in expected_queues:  # and in the same order
        order = [
            one.key for one in sorted(source.store.pages.entries("", 1000), key=lambda e: e.seq) if one.queue == queue
        ]
        assert [
            one.key for one in sorted(target.store.pages.entries("", 1000), key=lambda e: e.seq) if one.queue == queue
        ] == order
    target.reopen(without_store=backend in ("sqlite", "filesystem"))
    assert reported(steady(quietly(target)))[1] == messages


def test_existing_data_is_left_as_it_is(make_bench: Callable[..., Bench]) -> None:
    source, target = make_bench().open(), make_bench().open()
    for number in range(3):
        source.publish(message=f"body {number}")
    request = transfer(steady(quietly(source)))
    assert target.do("import_state", **request) == {"queues": 1, "messages": 3, "skipped": 0, "facts": 0}
    target.do("set_policy", queue="q", policy={"retry": {"limit": 2}})
    first = target.do("consume_next", queue="q")["message"]["messageKey"]
    assert target.do("import_state", **request) == {"queues": 0, "messages": 0, "skipped": 4, "facts": 0}
    assert target.store.get(first).state == "inflight"  # type: ignore[union-attr]
    assert target.store.queue("q").override == {"retry.limit": 2}  # type: ignore[union-attr]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_fact_of_a_message_is_imported(make_bench: Callable[..., Bench], backend: str) -> None:
    source, target = make_bench("memory").open(), make_bench(backend).open()
    source.clocks.pass_ms(5_000)
    source.do("set_policy", queue="q", policy={"deduplication": {"mode": "while-present"}})
    held = source.publish(delayMs=90_000, deduplicationKey="one")
    source.do("hold", messageKey=held)
    mixed = source.publish(
        "m", targetConsumerId="c1", targetFallbackMs=70_000, ttlMs=80_000, orderingKey="k",
        deliverAt=source.clocks.wall_ms + 9_000,
    )  # fmt: skip
    dead = source.publish("d")
    lease = source.do("consume_next", queue="d")["lease"]["leaseId"]
    source.do("nack", messageKey=dead, leaseId=lease, requeue=False, reason="no")
    apart = source.publish("e")
    lease = source.do("consume_next", queue="e")["lease"]["leaseId"]
    source.do("nack", messageKey=apart, leaseId=lease, requeue=False, reason="no")
    source.do("quarantine_dlq", messageKey=apart)
    assert source.do("consume_next", queue="d.dlq")["message"]["messageKey"] == dead
    expected = reported(steady(quietly(source)))[1]
    target.clocks.wall_ms = source.clocks.wall_ms
    assert target.do("import_state", **transfer(steady(quietly(source))))["messages"] == 4
    assert reported(steady(quietly(target)))[1] == expected
    assert {key: one["state"] for key, one in expected.items()} == {
        held: "held",
        mixed: "delayed",
        dead: "dead",
        apart: "dead",
    }
    assert expected[apart]["phase"] == "quarantined"
    assert target.store.get(dead).lease_id == ""  # type: ignore[union-attr]
    assert target.do("publish", queue="q", message="again", deduplicationKey="one")["duplicate"] is True
    assert target.do("unhold", messageKey=held)["state"] == "delayed"
    target.clocks.pass_ms(75_000)
    assert target.do("consume_next", queue="m")["message"]["messageKey"] == mixed  # whoever asks, behind its fallback


@pytest.mark.parametrize("backend", BACKENDS)
def test_used_keys_schedules_and_the_drain_are_imported(make_bench: Callable[..., Bench], backend: str) -> None:
    source, target = make_bench("memory").open(), make_bench(backend).open()
    source.do("set_policy", queue="q", policy={"deduplication": {"mode": "window", "windowSec": 100}})
    old = source.publish("q", deduplicationKey="old")
    source.clocks.pass_ms(60_000)
    key = source.publish("q", deduplicationKey="new")
    for _ in range(2):
        lease = source.do("consume_next", queue="q")["lease"]
        source.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    source.do("set_schedule", name="s", queue="q", cron="0 5 * * *", message={"n": 1}, ttlMs=5000)
    source.do("drain", draining=True)
    target.clocks.wall_ms = source.clocks.wall_ms
    request = transfer(steady(quietly(source)))
    assert target.do("import_state", **request) == {"queues": 1, "messages": 0, "skipped": 0, "facts": 4}
    assert target.do("import_state", **request) == {"queues": 0, "messages": 0, "skipped": 5, "facts": 0}
    target.reopen(without_store=backend in ("sqlite", "filesystem"))
    assert target.do("list_schedules")["schedules"] == source.do("list_schedules")["schedules"]
    assert target.send("publish", queue="q").code == "ERR_DRAINING"
    target.do("drain", draining=False)
    for name, first in (("old", old), ("new", key)):
        assert target.do("publish", queue="q", deduplicationKey=name) == {
            "messageKey": first, "messageId": first.rpartition(":")[2], "duplicate": True,
        }  # fmt: skip
    target.clocks.pass_ms(40_000)
    assert "duplicate" not in target.do("publish", queue="q", deduplicationKey="old")
    assert target.do("publish", queue="q", deduplicationKey="new")["duplicate"] is True


def test_an_existing_schedule_and_a_key_in_use_stay_as_they_are(make_bench: Callable[..., Bench]) -> None:
    source, target = make_bench().open(), make_bench().open()
    next(source.ids)  # so that its message has another key
    for bench, cron in ((source, "1 * * * *"), (target, "2 * * * *")):
        bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "window"}})
        bench.publish("q", deduplicationKey="k")
        bench.do("set_schedule", name="s", queue="q", cron=cron)
    before = steady(quietly(target)).facts
    request = transfer(steady(quietly(source))) | {"messages": []}
    assert target.do("import_state", **request) == {"queues": 0, "messages": 0, "skipped": 3, "facts": 0}
    assert steady(quietly(target)).facts == before


SCHEDULE = {
    "queue": "q", "cron": "1 * * * *", "timezone": "UTC", "missed": "once", "publish": {"message": 1},
    "setMs": 5, "nextMs": 60_000, "lastMs": 0,
}  # fmt: skip
CLAIM = "claim:q\0" + "0" * 32
CLAIMED = {"key": "msg:q:1", "untilEngineMs": 2**40}


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (7, "its name"),
        ({"name": "losses", "value": [[1, 2]]}, "its name"),
        ({"name": "draining", "value": "yes"}, "must be true"),
        ({"name": "drainingly", "value": True}, "no fact"),
        ({"name": "claim:q", "value": CLAIMED}, "a zero byte"),
        ({"name": "claim:q\0xyz", "value": CLAIMED}, "a digest"),
        ({"name": CLAIM, "value": True}, "its key"),
        ({"name": CLAIM, "value": CLAIMED | {"key": ""}}, "its key"),
        ({"name": CLAIM, "value": CLAIMED | {"untilEngineMs": -1}}, "untilEngineMs"),
        ({"name": "schedule:", "value": SCHEDULE}, "name is required"),
        ({"name": "schedule:s", "value": None}, "expected queue"),
        ({"name": "schedule:s", "value": SCHEDULE | {"more": 1}}, "expected queue"),
        ({"name": "schedule:s", "value": SCHEDULE | {"publish": {"delayMs": 1}}}, "expected queue"),
        ({"name": "schedule:s", "value": SCHEDULE | {"publish": {"ttlMs": -1}}}, "ttlMs"),
        ({"name": "schedule:s", "value": SCHEDULE | {"queue": "a\n"}}, "queue"),
        ({"name": "schedule:s", "value": SCHEDULE | {"cron": "now"}}, "cron"),
        ({"name": "schedule:s", "value": SCHEDULE | {"timezone": "Mars/North"}}, "time zone"),
        ({"name": "schedule:s", "value": SCHEDULE | {"missed": "never"}}, "missed"),
        ({"name": "schedule:s", "value": SCHEDULE | {"nextMs": 2**52}}, "2248"),
        ({"name": "schedule:s", "value": SCHEDULE | {"setMs": "5"}}, "2248"),
        ({"name": "schedule:s", "value": SCHEDULE | {"queue": "a.dlq"}}, "dead letters"),
    ],
)
def test_an_invalid_fact_is_refused_and_nothing_is_imported(bench: Bench, fact: Any, text: str) -> None:
    good = [{"name": "draining", "value": True}, {"name": CLAIM, "value": CLAIMED}]
    sent = bench.send("import_state", engineMs=0, wallMs=bench.clocks.wall_ms, facts=[*good, fact], messages=[GOOD])
    assert sent.code == "ERR_INVALID_REQUEST"
    assert text in str(sent.answer.error)
    assert bench.store.pages.entries("", 10) == [] and steady(quietly(bench)).facts == []


def test_logs_and_messages_for_a_log_are_refused_because_positions_belong_to_their_root(bench: Bench) -> None:
    bench.do("append", queue="measures", message="1", createWith={})
    record = steady(quietly(bench)).queues[0].to_json()
    bench.do("set_policy_patterns", patterns=[{"pattern": "made-.*", "policy": {"kind": "log"}}])
    of_log = {"key": "msg:measures:20261128:x", "queue": "measures"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"queues": [record | {"name": "elsewhere"}]}, "only restore keeps them"),
        ({"messages": [GOOD, GOOD | of_log]}, "'measures' is a log here"),
        ({"queues": [{"name": "made-here"}]}, "makes it a log"),
    ]
    before = bench.live.journal.last_id
    for parts, text in refused:
        sent = bench.send("import_state", engineMs=0, wallMs=0, **parts)
        assert sent.code == "ERR_INVALID_REQUEST" and text in str(sent.answer.error), parts
    assert bench.live.journal.last_id == before and bench.counts("measures") == {}


def test_more_schedules_than_a_root_has_are_refused(bench: Bench) -> None:
    facts = [{"name": f"schedule:{number}", "value": SCHEDULE} for number in range(1001)]
    sent = bench.send("import_state", engineMs=0, wallMs=0, facts=facts)
    assert (sent.code, steady(quietly(bench)).facts) == ("ERR_INVALID_REQUEST", [])


def test_a_claim_that_another_message_makes_stays_its_own(make_bench: Callable[..., Bench]) -> None:
    source, target = make_bench().open(), make_bench().open()
    for bench in (source, target):
        bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "while-present"}})
    next(source.ids)  # so that its message has another key
    first = target.publish("q", deduplicationKey="one")
    source.publish("q", deduplicationKey="one")
    assert target.do("import_state", **transfer(steady(quietly(source))))["messages"] == 1
    assert target.do("publish", queue="q", message="again", deduplicationKey="one")["messageKey"] == first


def test_a_waiting_consumer_gets_an_imported_message(make_bench: Callable[..., Bench]) -> None:
    source, target = make_bench().open(), make_bench().open()
    key = source.publish()
    waiting = target.make("consume_next", queue="q", waitMs=1000)
    target.run(waiting)
    target.do("import_state", **transfer(steady(quietly(source))))
    assert waiting.data["message"]["messageKey"] == key


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_moved_message_is_imported_under_its_original_key(make_bench: Callable[..., Bench], backend: str) -> None:
    source, target = make_bench("memory").open(), make_bench(backend).open()
    key = source.publish("born", message="goes far")
    source.do("move", messageKey=key, to="other")
    assert target.do("import_state", **transfer(steady(quietly(source))))["messages"] == 1
    target.reopen(without_store=backend in ("sqlite", "filesystem"))
    entry = target.store.get(key)
    assert entry is not None and entry.queue == "other"
    delivered = target.do("consume_next", queue="other")
    assert (delivered["message"]["messageKey"], delivered["message"]["payload"]) == (key, "goes far")
    target.do("ack", messageKey=key, leaseId=delivered["lease"]["leaseId"])
    assert target.store.get(key) is None


def test_only_the_daemons_user_and_root_may_import(bench: Bench) -> None:
    stranger = bench.make("import_state", uid=4711, engineMs=0, wallMs=0)
    bench.run(stranger)
    assert stranger.code == "ERR_FORBIDDEN"


GOOD: dict[str, Any] = {
    "key": "msg:q:1", "queue": "q", "state": "ready", "published": 3, "createdMs": 5, "createdEngineMs": 5,
    "message": {"parts": [{"text": "body"}]},
}  # fmt: skip
FAILURE = {"reasonCode": "REJECTED", "reasonMessage": "", "attempt": 1, "consumerId": "", "failedAtMs": 5}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"key": 7}, "no key"),
        ({"key": "q:1"}, "does not begin"),
        ({"key": "msg:1"}, "does not begin"),
        ({"key": "msg::1"}, "does not begin"),
        ({"key": "msg:q:"}, "does not begin"),
        ({"key": "msg:q:" + "x" * 5000}, "key must be"),
        ({"queue": "", "key": "msg::1"}, "must not be empty"),
        ({"state": "gone"}, "state must be"),
        ({"priority": 2**31}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"dueEngineMs": -1}, "dueEngineMs"),
        ({"attempt": 1.5}, "attempt"),
        ({"bytes": "9"}, "bytes"),
        ({"reason": 7}, "reason"),
        ({"expiresEngineMs": -1}, "expiresEngineMs"),
        ({"target": "c", "fallbackEngineMs": 1.5}, "fallbackEngineMs"),
        ({"fallbackEngineMs": 5}, "no target"),
        ({"deliverAtMs": "tomorrow"}, "deliverAtMs"),
        ({"orderingKey": 7}, "orderingKey"),
        ({"claim": {"name": "x"}}, "claim must be"),
        ({"phase": "asleep"}, "phase must be"),
        ({"attempt": True}, "attempt"),
        ({"history": {}}, "history"),
        ({"history": [FAILURE] * 33}, "history"),
        ({"history": [FAILURE | {"attempt": "1"}]}, "failure"),
        ({"history": [FAILURE | {"failedAtMs": -1}]}, "failedAtMs"),
        ({"message": None}, "message must be"),
        ({"message": {"parts": []}}, "parts"),
        ({"message": {"parts": [{"text": 7}]}}, "strings"),
        ({"message": {"parts": [{"text": "a", "json": 1}]}}, "exactly one"),
        ({"message": {"parts": [{"base64": "?"}]}}, "base64"),
        ({"message": {"parts": [{"text": ""}], "other": 1}}, "unknown"),
        ({"message": {"parts": [{"text": ""}], "type": []}}, "message.type"),
        ({"bodyLost": True, "message": None}, "message must be"),
    ],
)
def test_an_invalid_message_is_refused_and_nothing_is_imported(bench: Bench, change: dict[str, Any], text: str) -> None:
    sent = bench.send("import_state", engineMs=0, wallMs=0, messages=[GOOD | {"key": "msg:q:0"}, GOOD | change])
    assert sent.code == "ERR_INVALID_REQUEST"
    assert text in str(sent.answer.error)
    assert bench.store.pages.entries("", 10) == []


@pytest.mark.parametrize(
    "queue",
    [
        7,
        {},
        {"name": "q\n"},
        {"name": "q", "override": {"retry.limit": -1}},
        {"name": "q", "override": {"x": 1}},
        {"name": "q", "publishPaused": 1},
        {"name": "a.dlq"},
        {"name": "q", "override": []},
    ],
)
def test_an_invalid_queue_is_refused(bench: Bench, queue: Any) -> None:
    assert bench.send("import_state", engineMs=0, wallMs=0, queues=[queue]).code == "ERR_INVALID_REQUEST"
    assert bench.store.pages.queue_names("", 10) == []
