"""What becomes of a delivery that failed. Delays are read in the journal, not waited for."""

from __future__ import annotations

import pytest

from postroom_daemon.model.facts import history_fact
from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon, Fields


def policy(backoff: str, limit: int = 6, **dlq: object) -> Fields:
    retry = {"limit": limit, "backoff": backoff, "initialDelaySec": 0.004, "maxDelaySec": 0.02}
    return {"retry": retry, **({"dlq": dlq} if dlq else {})}


def fail(daemon: Daemon, queue: str, **fields: object) -> Fields:
    """One delivery that fails, as soon as there is one; the reply of the nack."""
    answer = daemon.ask("consume_next", queue=queue, waitMs=30_000)
    return daemon.settle("nack", answer, requeue=True, **fields)


@pytest.mark.parametrize(
    ("backoff", "delays_ms"),
    [
        ("exponential", [4, 8, 16, 20, 20]),
        ("linear", [4, 8, 12, 16, 20]),
        ("fixed", [4, 4, 4, 4, 4]),
    ],
)
def test_the_delay_grows_as_the_policy_says(daemon: Daemon, backoff: str, delays_ms: list[int]) -> None:
    daemon.ask("set_policy", queue="q", policy=policy(backoff))
    daemon.publish("q")
    replies = [fail(daemon, "q") for _ in range(6)]
    retried = daemon.events("retried")
    assert [event["dueEngineMs"] - event["engineMs"] for event in retried] == delays_ms
    assert [reply["state"] for reply in replies] == ["delayed"] * 5 + ["dead"]
    assert [reply["availableAtEngineMs"] for reply in replies[:5]] == [event["dueEngineMs"] for event in retried]
    leased = daemon.events("leased")
    assert [event["attempt"] for event in leased] == [1, 2, 3, 4, 5, 6]


def test_a_lease_that_ends_follows_the_same_policy(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy=policy("linear", limit=3))
    daemon.publish("q")
    for _ in range(3):
        daemon.ask("consume_next", queue="q", waitMs=30_000, visibilityTimeoutSec=0.005)
    daemon.wait(lambda: daemon.events("died"), "the message is dead")
    assert [event["dueEngineMs"] - event["engineMs"] for event in daemon.events("retried")] == [4, 8]
    (died,) = daemon.events("died")
    assert (died["failure"]["reasonCode"], died["failure"]["cause"]) == ("RETRY_LIMIT", "LEASE_EXPIRED")


def test_the_last_attempt_leaves_a_failure_record(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy=policy("fixed", limit=2))
    key = daemon.publish("q", '{"temp":99}')
    fail(daemon, "q", reason="too hot")
    fail(daemon, "q", reason="still too hot")
    (letter,) = daemon.ask("list_dlq", queue="q")["messages"]
    assert letter["messageKey"] == key
    assert (letter["reasonCode"], letter["attempt"], letter["consumerId"]) == ("RETRY_LIMIT", 2, "wire")
    assert "still too hot" in letter["reason"]
    assert (letter["preview"], letter["bytes"]) == ('{"temp":99}', 11)
    assert daemon.counts("q") == {"dlq": 1}


@pytest.mark.parametrize("limit", [0, 1])
def test_a_limit_of_one_or_less_means_one_delivery(daemon: Daemon, limit: int) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": limit}})
    daemon.publish("q")
    assert fail(daemon, "q") == {"state": "dead"}


def test_a_rejected_message_dies_at_once(daemon: Daemon) -> None:
    daemon.publish("q")
    assert daemon.settle("nack", daemon.consume("q"), reason="no such item") == {"state": "dead"}
    (letter,) = daemon.ask("list_dlq", queue="q")["messages"]
    assert (letter["reasonCode"], letter["reason"], letter["attempt"]) == ("REJECTED", "no such item", 1)


def test_a_queue_that_keeps_no_dead_letters_drops_and_counts_them(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy=policy("fixed", limit=1, enabled=False))
    daemon.publish("q")
    daemon.publish("q")
    daemon.publish("q")
    assert daemon.settle("nack", daemon.consume("q")) == {"state": "dropped"}
    assert fail(daemon, "q") == {"state": "dropped"}
    daemon.consume("q", visibilityTimeoutSec=0.01)
    daemon.wait(lambda: daemon.counts("q") == {}, "all three are gone")
    assert daemon.ask("status", queue="q")["totals"]["dropped"] == 3
    assert daemon.ask("list_dlq", queue="q")["messages"] == []
    assert all(event["failure"]["reasonCode"] for event in daemon.events("dropped"))


def test_a_release_is_no_attempt_and_no_delay(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 2}})
    daemon.publish("q")
    for _ in range(5):
        delivery = daemon.consume("q")
        assert delivery["message"]["attempt"] == 1
        assert daemon.settle("release", delivery) == {"state": "ready"}
    assert daemon.counts("q") == {"ready": 1}


@on_every_store
def test_a_second_life_begins_with_attempt_one_and_keeps_the_history(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy=policy("fixed", limit=2))
    key = daemon.publish("q")
    fail(daemon, "q", reason="first")
    fail(daemon, "q", reason="second")
    assert daemon.ask("reprocess_dlq", messageKey=key) == {"messageKey": key, "reprocessed": True}
    assert daemon.refusal("reprocess_dlq", messageKey=key) == "ERR_DLQ_NOT_FOUND"
    assert fail(daemon, "q", reason="third")["state"] == "delayed"
    assert fail(daemon, "q", reason="fourth")["state"] == "dead"
    assert [event["attempt"] for event in daemon.events("leased")] == [1, 2, 1, 2]
    (letter,) = daemon.ask("list_dlq", queue="q")["messages"]
    assert "fourth" in letter["reason"]
    daemon.stop()
    failures = failure_history(daemon, key)
    assert [failure.rpartition(": ")[2] for failure in failures] == ["first", "second", "third", "fourth"]


def failure_history(daemon: Daemon, key: str) -> list[str]:
    """The reasons that the store of a stopped daemon remembers (no command shows them yet)."""
    with daemon.opened() as store:
        return [failure["reasonMessage"] for failure in store.facts.get(history_fact(key))]


def test_only_dead_letters_can_be_reprocessed(daemon: Daemon) -> None:
    ready = daemon.publish("q")
    assert daemon.refusal("reprocess_dlq", messageKey=ready) == "ERR_DLQ_NOT_FOUND"
    assert daemon.refusal("reprocess_dlq", messageKey="msg:q:none") == "ERR_DLQ_NOT_FOUND"


@on_every_store
def test_dead_letters_are_listed_by_their_death_and_by_pages(daemon: Daemon) -> None:
    keys = [daemon.publish("q", f"{number}") for number in range(5)]
    deliveries = [daemon.consume("q") for _ in keys]
    order = [3, 0, 4, 1, 2]
    for number in order:
        daemon.settle("nack", deliveries[number])
    seen, after = [], ""
    while True:
        page = daemon.ask("list_dlq", queue="q", limit=2, after=after)
        seen += [letter["messageKey"] for letter in page["messages"]]
        after = page["next"]
        if not after:
            break
    assert sorted(seen) == sorted(keys)
    assert len(seen) == 5
    died = [event["key"] for event in daemon.events("died")]
    assert died == [keys[number] for number in order]


@on_every_store
def test_a_dead_letter_that_was_reprocessed_does_not_come_back_dead_after_a_restart(daemon: Daemon) -> None:
    key = daemon.publish("q")
    daemon.settle("nack", daemon.consume("q"))
    daemon.ask("reprocess_dlq", messageKey=key)
    daemon.settle("ack", daemon.consume("q"))
    daemon.restart(kill=True)
    assert daemon.counts("q") == {}
