"""Order, names, policies and pauses of queues."""

from __future__ import annotations

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon


def payloads(daemon: Daemon, queue: str, count: int, **fields: object) -> list[str]:
    return [daemon.consume(queue, **fields)["message"]["payload"] for _ in range(count)]


def test_priority_comes_first_then_the_order_of_publishing(daemon: Daemon) -> None:
    for text, priority in [("c1", 0), ("b1", 5), ("d1", -7), ("b2", 5), ("a1", 2**31 - 1), ("c2", None)]:
        daemon.publish("q", text, priority=priority)
    assert payloads(daemon, "q", 6) == ["a1", "b1", "b2", "c1", "c2", "d1"]


def test_pending_requests_are_taken_in_the_order_of_their_renames(daemon: Daemon) -> None:
    daemon.freeze()
    sent = [daemon.request("publish", {"queue": "q", "message": f"{number}"}) for number in range(600)]
    for one in sent:
        daemon.put(one.data, f"{hash(one.name) & 0xFFFFFFFF:x}-{one.name}")
    daemon.thaw()
    for one in sent:
        assert daemon.answer(one)["ok"]
    published = [event["by"]["request"] for event in daemon.events("published")]
    assert published == [one.request_id for one in sent]


def test_a_retried_message_keeps_its_place(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"initialDelaySec": 0.001}})
    for text in ("first", "second", "third"):
        daemon.publish("q", text)
    daemon.settle("nack", daemon.consume("q"), requeue=True)
    daemon.wait(lambda: daemon.counts("q") == {"ready": 3}, "the retry is due")
    assert payloads(daemon, "q", 3) == ["first", "second", "third"]


def test_a_message_that_is_released_keeps_its_place(daemon: Daemon) -> None:
    daemon.publish("q", "first")
    daemon.publish("q", "second")
    daemon.settle("release", daemon.consume("q"))
    assert payloads(daemon, "q", 2) == ["first", "second"]


def test_a_delayed_message_keeps_the_place_of_its_publish(daemon: Daemon) -> None:
    daemon.publish("q", "early, delayed", delayMs=30)
    daemon.publish("q", "late")
    daemon.wait(lambda: daemon.counts("q") == {"ready": 2}, "it is due")
    assert payloads(daemon, "q", 2) == ["early, delayed", "late"]


def test_a_message_for_one_consumer_is_seen_by_that_one_only(daemon: Daemon) -> None:
    daemon.publish("q", "for b", targetConsumerId="b", priority=9)
    daemon.publish("q", "for anyone")
    daemon.publish("q", "also for b", targetConsumerId="b")
    assert payloads(daemon, "q", 1, consumerId="a") == ["for anyone"]
    assert daemon.ask("consume_next", queue="q", consumerId="a") == {"message": None}
    assert payloads(daemon, "q", 2, consumerId="b") == ["for b", "also for b"]


def test_names_that_contain_each_other_are_different_queues(daemon: Daemon) -> None:
    names = ["b", "a.b", "a", "B", " b", "b ", "a:b", "msg:b", "b%", "_", "..", "a/b", "b\u00e9", "be\u0301"]
    for name in names:
        daemon.publish(name, name)
    for name in names:
        assert daemon.counts(name) == {"ready": 1}
    for name in names:
        assert payloads(daemon, name, 1) == [name]
        assert daemon.ask("consume_next", queue=name) == {"message": None}
    listed = [one["queue"] for one in daemon.ask("list_queues")["queues"]]
    assert listed == sorted(names)


def test_settling_and_killing_in_one_queue_does_not_affect_the_other(daemon: Daemon) -> None:
    for queue in ("b", "a.b"):
        daemon.publish(queue)
        daemon.publish(queue)
    daemon.settle("nack", daemon.consume("b"))
    daemon.settle("ack", daemon.consume("b"))
    daemon.ask("pause", queue="b")
    assert daemon.counts("a.b") == {"ready": 2}
    assert daemon.ask("list_dlq", queue="a.b")["messages"] == []
    daemon.consume("a.b")


def test_policy_defaults_apply_to_queues_that_are_not_listed(make_daemon) -> None:
    config = {
        "policyDefaults": {"visibilityTimeoutSec": 12, "retry": {"limit": 1}},
        "queues": [{"name": "listed", "policy": {"retry": {"limit": 9}}}],
    }
    daemon = make_daemon(config=config).start()
    daemon.publish("unlisted")
    daemon.publish("listed")
    unlisted = daemon.ask("get_policy", queue="unlisted")["policy"]
    assert (unlisted["visibilityTimeoutSec"], unlisted["retry"]["limit"]) == (12, 1)
    listed = daemon.ask("get_policy", queue="listed")["policy"]
    assert (listed["visibilityTimeoutSec"], listed["retry"]["limit"]) == (12, 9)
    assert daemon.settle("nack", daemon.consume("unlisted"), requeue=True) == {"state": "dead"}
    assert daemon.settle("nack", daemon.consume("listed"), requeue=True)["state"] == "delayed"


def test_a_policy_set_at_run_time_overrides_the_configured_one_and_survives(make_daemon) -> None:
    daemon = make_daemon(config={"policyDefaults": {"visibilityTimeoutSec": 12}}).start()
    daemon.ask("set_policy", queue="q", policy={"visibilityTimeoutSec": 5})
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 2}})
    for _ in range(2):
        answer = daemon.ask("get_policy", queue="q")
        assert answer["override"] == {"visibilityTimeoutSec": 5, "retry": {"limit": 2}}
        assert answer["policy"]["visibilityTimeoutSec"] == 5
        daemon.restart(kill=True)
    daemon.ask("set_policy", queue="q", policy={})
    answer = daemon.ask("get_policy", queue="q")
    assert answer["override"] == {}
    assert answer["policy"]["visibilityTimeoutSec"] == 12


@pytest.mark.parametrize(
    "wrong",
    [
        {"visibility": 3},
        {"retry": {"limit": "many"}},
        {"retry": {"backoff": "sometimes"}},
        {"visibilityTimeoutSec": -1},
        {"visibilityTimeoutSec": 10**9},
        {"retry": 5},
        {"dlq.enabled": False},
    ],
)
def test_an_invalid_policy_is_refused_completely(daemon: Daemon, wrong: dict[str, object]) -> None:
    policy = {"dlq": {"enabled": False}, **wrong}
    assert daemon.refusal("set_policy", queue="q", policy=policy) == "ERR_INVALID_REQUEST"
    assert daemon.refusal("get_policy", queue="q") == "ERR_QUEUE_NOT_FOUND"


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_pauses_survive_a_restart(daemon: Daemon, kill: bool) -> None:
    daemon.publish("q")
    daemon.ask("pause", queue="q")
    daemon.ask("pause", queue="q", operation="publish")
    daemon.restart(kill=kill)
    assert daemon.ask("status", queue="q")["paused"] == {"publish": True, "consume": True}
    assert daemon.ask("consume_next", queue="q") == {"message": None}
    assert daemon.refusal("publish", queue="q") == "ERR_PAUSED"
    daemon.ask("resume", queue="q")
    daemon.ask("resume", queue="q", operation="publish")
    daemon.restart(kill=kill)
    daemon.consume("q")
    daemon.publish("q")


def test_messages_in_flight_may_be_settled_while_the_queue_is_paused(daemon: Daemon) -> None:
    daemon.publish("q")
    delivery = daemon.consume("q")
    daemon.ask("pause", queue="q")
    daemon.ask("pause", queue="q", operation="publish")
    daemon.settle("ack", delivery)


def test_a_queue_that_the_configuration_names_can_be_paused_before_its_first_message(make_daemon: MakeDaemon) -> None:
    config = {"queues": [{"name": "q"}, {"pattern": "line.*"}]}
    daemon = make_daemon(config=config).start()
    assert daemon.ask("pause", queue="q", operation="publish")["paused"] == {"publish": True, "consume": False}
    assert daemon.refusal("publish", queue="q") == "ERR_PAUSED"
    assert daemon.refusal("pause", queue="line.1") == "ERR_QUEUE_NOT_FOUND"
    daemon.restart(kill=True)
    assert daemon.ask("resume", queue="q", operation="publish")["paused"] == {"publish": False, "consume": False}
    daemon.publish("q")


def test_a_queue_that_does_not_exist_cannot_be_paused(daemon: Daemon) -> None:
    for command in ("pause", "resume", "get_policy"):
        assert daemon.refusal(command, queue="nobody made it") == "ERR_QUEUE_NOT_FOUND"
    assert daemon.ask("status", queue="nobody made it")["exists"] is False
    assert daemon.ask("list_queues")["queues"] == []


def test_health_is_ok_beside_other_requests_of_its_group(daemon: Daemon) -> None:
    daemon.freeze()
    publish = daemon.send("publish", {"queue": "q"})
    health = daemon.send("health", {})
    daemon.thaw()
    assert daemon.answer(publish)["ok"]
    assert daemon.answer(health)["data"]["status"] == "ok"
