"""hold, unhold, move, purge, delete_queue, drain."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from postroom_common.protocol import State
from postroom_daemon.engine.verbs import operation
from postroom_daemon.journal.journal import JournalRefused
from tests.conformance.bench import Bench, Sent, exported


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(request.param).open()


def counts(bench: Bench, queue: str = "q") -> dict[str, int]:
    record = bench.store.queue(queue)
    return {state: count for state, count in record.counts.items() if count} if record else {}


def state_of(bench: Bench, key: str) -> State | None:
    entry = bench.store.get(key)
    return entry.state if entry else None


def consume(bench: Bench, queue: str = "q") -> str | None:
    message = bench.do("consume_next", queue=queue)["message"]
    return str(message["messageKey"]) if message else None


def all_pages(bench: Bench, command: str, **payload: Any) -> list[dict[str, Any]]:
    """What a client does: repeat with ``next`` and ``upToEvent`` until there is no more."""
    pages = [bench.do(command, **payload)]
    while pages[-1]["next"]:
        payload |= {"after": pages[-1]["next"], "upToEvent": pages[0]["upToEvent"]}
        pages.append(bench.do(command, **payload))
    return pages


def test_a_message_on_hold_is_not_delivered_until_unhold(bench: Bench) -> None:
    key = bench.publish()
    assert bench.do("hold", messageKey=key, reason="odd weight")["state"] == "held"
    assert consume(bench) is None
    assert bench.events()[-1]["reason"] == "odd weight"
    assert bench.do("unhold", messageKey=key)["state"] == "ready"
    assert consume(bench) == key


def test_a_message_on_hold_that_is_not_due_yet_becomes_delayed_again(bench: Bench) -> None:
    key = bench.publish(delayMs=5000)
    bench.do("hold", messageKey=key)
    bench.clocks.pass_ms(1000)
    reported = bench.do("unhold", messageKey=key)
    assert reported["state"] == "delayed"
    assert reported["availableAtEngineMs"] - reported["engineNowMs"] == 4000
    assert consume(bench) is None
    bench.clocks.pass_ms(4000)
    assert consume(bench) == key


def test_a_message_that_became_due_while_on_hold_is_ready_at_once(bench: Bench) -> None:
    key = bench.publish(delayMs=5000)
    bench.do("hold", messageKey=key)
    bench.clocks.pass_ms(5000)
    assert consume(bench) is None
    assert bench.do("unhold", messageKey=key)["state"] == "ready"
    assert consume(bench) == key


def test_only_waiting_messages_can_be_put_on_hold(bench: Bench) -> None:
    key = bench.publish()
    consume(bench)
    refused = bench.send("hold", messageKey=key)
    assert refused.code == "ERR_INVALID_REQUEST"
    assert "is inflight: only ready and delayed messages can be held" in str(refused.answer.error)
    assert bench.send("hold", messageKey="msg:q:none").code == "ERR_MESSAGE_NOT_FOUND"
    assert bench.send("unhold", messageKey=key).code == "ERR_INVALID_REQUEST"


def test_a_purge_drops_the_backlog_and_leaves_messages_in_flight_or_dead(bench: Bench) -> None:
    dead = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("nack", messageKey=dead, leaseId=lease)
    taken = bench.publish()
    consume(bench)
    for number in range(3):
        bench.publish(delayMs=number * 1000)
    bench.do("hold", messageKey=bench.publish())
    assert bench.do("purge", queue="q")["purged"] == 4
    assert counts(bench) == {"inflight": 1, "dead": 1}
    assert state_of(bench, taken) is State.INFLIGHT
    assert bench.events()[-1]["failure"]["reasonCode"] == "PURGED"
    assert bench.do("purge", queue="q", state="dead")["purged"] == 1
    assert bench.store.queue("q").reasons == {}  # type: ignore[union-attr]


def test_a_purge_by_pages_leaves_messages_published_meanwhile(bench: Bench) -> None:
    for _ in range(5):
        bench.publish()
    first = bench.do("purge", queue="q", limit=2)
    newer = bench.publish(priority=9)
    rest = all_pages(bench, "purge", queue="q", limit=2, after=first["next"], upToEvent=first["upToEvent"])
    assert first["purged"] + sum(page["purged"] for page in rest) == 5
    assert consume(bench) == newer


def test_a_purge_by_pages_includes_messages_that_waited_for_their_ordering_key(bench: Bench) -> None:
    for _ in range(7):
        bench.publish(orderingKey="k", priority=1)
        bench.publish()
    assert sum(page["purged"] for page in all_pages(bench, "purge", queue="q", limit=3)) == 14
    assert counts(bench) == {}


def test_a_dry_run_counts_and_changes_nothing(bench: Bench) -> None:
    for _ in range(5):
        bench.publish(orderingKey="k")
    before = len(bench.events())
    pages = all_pages(bench, "purge", queue="q", limit=2, dryRun=True)
    assert [page["purged"] for page in pages] == [2, 2, 1]
    pages = all_pages(bench, "move", queue="q", to="other", limit=2, dryRun=True)
    assert sum(page["moved"] for page in pages) == 5
    assert len(bench.events()) == before
    assert bench.store.queue("other") is None


def test_a_purge_drops_only_matching_messages(bench: Bench) -> None:
    bench.publish(priority=1)
    kept = bench.publish(priority=2)
    assert bench.do("purge", queue="q", filter={"priority": 1})["purged"] == 1
    assert consume(bench) == kept


def test_leased_or_quarantined_dead_letters_are_not_purged(bench: Bench) -> None:
    keys = []
    for _ in range(3):
        keys.append(bench.publish())
        lease = bench.do("consume_next", queue="q")["lease"]
        bench.do("nack", messageKey=keys[-1], leaseId=lease["leaseId"], requeue=False)
    bench.do("quarantine_dlq", messageKey=keys[0])
    leased = bench.do("consume_next", queue="q.dlq")["lease"]
    assert leased["messageKey"] == keys[1]
    assert bench.do("purge", queue="q", state="dead", dryRun=True)["purged"] == 1
    assert bench.do("purge", queue="q", state="dead")["purged"] == 1
    assert [one["messageKey"] for one in bench.do("list_dlq", queue="q")["messages"]] == keys[:2]
    bench.do("ack", messageKey=keys[1], leaseId=leased["leaseId"])


def test_messages_in_flight_are_not_purged(bench: Bench) -> None:
    bench.publish()
    refused = bench.send("purge", queue="q", state="inflight")
    assert refused.code == "ERR_INVALID_REQUEST"
    assert "in flight" in str(refused.answer.error)
    assert bench.send("purge", queue="none").code == "ERR_QUEUE_NOT_FOUND"


def test_a_message_moves_with_its_state_its_attempts_and_its_time_to_live(bench: Bench) -> None:
    key = bench.publish(delayMs=1000, ttlMs=9000)
    expires = bench.store.get(key).expires  # type: ignore[union-attr]
    reported = bench.do("move", messageKey=key, to="other")
    assert (reported["queue"], reported["to"], reported["moved"]) == ("q", "other", 1)
    entry = bench.store.get(key)
    assert entry is not None
    assert (entry.queue, entry.state, entry.expires) == ("other", State.DELAYED, expires)
    bench.clocks.pass_ms(1000)
    assert consume(bench, "other") == key


def test_the_backlog_of_a_queue_moves_by_pages(bench: Bench) -> None:
    keys = [bench.publish(orderingKey="k" if number % 2 else "") for number in range(6)]
    bench.do("hold", messageKey=keys[0])
    bench.publish(delayMs=1000)
    assert sum(page["moved"] for page in all_pages(bench, "move", queue="q", to="other", limit=2)) == 7
    assert counts(bench) == {}
    assert counts(bench, "other") == {"ready": 5, "delayed": 1, "held": 1}


def test_an_impossible_move_is_refused(bench: Bench) -> None:
    key = bench.publish()
    assert bench.send("move", messageKey=key, to="q").code == "ERR_INVALID_REQUEST"
    assert bench.send("move", messageKey=key, to="q.dlq").code == "ERR_INVALID_REQUEST"
    assert bench.send("move", to="other").code == "ERR_INVALID_REQUEST"
    assert bench.send("move", to="other", queue="none").code == "ERR_QUEUE_NOT_FOUND"
    assert bench.send("move", to="other", messageKey="msg:q:none").code == "ERR_MESSAGE_NOT_FOUND"
    consume(bench)
    refused = bench.send("move", messageKey=key, to="other")
    assert refused.code == "ERR_INVALID_REQUEST"
    assert "in flight" in str(refused.answer.error)
    assert bench.store.queue("other") is None


def test_a_queue_that_is_not_empty_is_not_deleted(bench: Bench) -> None:
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("nack", messageKey=key, leaseId=lease)
    refused = bench.send("delete_queue", queue="q")
    assert refused.code == "ERR_QUEUE_NOT_EMPTY"
    assert "1 dead" in str(refused.answer.error)
    assert bench.send("delete_queue", queue="none").code == "ERR_QUEUE_NOT_FOUND"


def test_a_queue_is_deleted_with_its_messages_whatever_their_state(bench: Bench) -> None:
    dead, leased, held, delayed = bench.publish(), bench.publish(), bench.publish(), bench.publish(delayMs=60_000)
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("nack", messageKey=dead, leaseId=lease)
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("hold", messageKey=held)
    bench.publish()
    data = bench.do("delete_queue", queue="q", discard=True)
    assert (data["deleted"], data["discarded"]) == (True, 5)
    assert bench.store.queue("q") is None
    assert bench.send("ack", messageKey=leased, leaseId=lease).code == "ERR_MESSAGE_NOT_FOUND"
    assert bench.send("get_message", messageKey=delayed).code == "ERR_MESSAGE_NOT_FOUND"
    assert bench.send("delete_queue", queue="q", discard=True).code == "ERR_QUEUE_NOT_FOUND"


def test_the_messages_of_a_large_queue_are_discarded_in_several_requests(bench: Bench) -> None:
    bench.do("publish_batch", queue="q", messages=[{"message": "x", "orderingKey": "k"} for _ in range(1000)])
    bench.publish()
    discarded = 0
    while not (data := bench.do("delete_queue", queue="q", discard=True))["deleted"]:
        assert data["discarded"] > 0
        discarded += data["discarded"]
    assert discarded + data["discarded"] == 1001


def test_a_queue_is_deleted_whose_messages_are_behind_many_of_other_queues(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "DISCARDED", 1)
    bench.do("publish_batch", queue="others", messages=[{"message": "x", "delayMs": 1000} for _ in range(100)])
    bench.publish(delayMs=60_000)
    data = bench.do("delete_queue", queue="q", discard=True)
    assert (data["deleted"], data["discarded"]) == (True, 1)


def test_deleting_a_queue_deletes_its_policy_and_its_pauses(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 7}})
    bench.do("pause", queue="q", operation="publish")
    assert bench.do("delete_queue", queue="q")["deleted"] is True
    assert bench.store.queue("q") is None
    bench.publish()
    reported = bench.do("status", queue="q")
    assert reported["policy"]["retry"]["limit"] != 7
    assert reported["paused"] == {"publish": False, "consume": False}


def test_a_drain_refuses_new_messages_serves_the_rest_and_survives_a_restart(bench: Bench) -> None:
    key = bench.publish()
    assert bench.do("drain")["draining"] is True
    bench.reopen()
    assert bench.send("publish", queue="q", message="x").code == "ERR_DRAINING"
    batch = bench.do("publish_batch", queue="q", messages=[{"message": "x"}])
    assert batch["results"][0]["error"]["code"] == "ERR_DRAINING"
    assert bench.do("health")["draining"] is True
    assert bench.do("status", queue="q")["draining"] is True
    assert consume(bench) == key
    assert bench.do("drain", draining=False)["draining"] is False
    bench.publish()
    assert bench.do("health")["draining"] is False


@pytest.mark.parametrize("draining", [True, False])
def test_a_drain_that_the_disk_has_refused_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, draining: bool
) -> None:
    if not draining:
        bench.do("drain")

    def refuse(*arguments: object) -> NoReturn:
        raise JournalRefused(OSError(errno.EIO, os.strerror(errno.EIO)))

    with monkeypatch.context() as patched:
        patched.setattr(bench.live.journal, "append", refuse)
        change, publish = bench.make("drain", draining=draining), bench.make("publish", queue="q", message="x")
        bench.run(change, publish)
    assert change.code == "ERR_STORAGE_FAILED"
    assert bench.send("publish", queue="q", message="x").code == ("OK" if draining else "ERR_DRAINING")


def test_a_schedule_does_not_publish_while_the_daemon_drains(bench: Bench) -> None:
    bench.do("set_schedule", name="s", queue="q", cron="@every 10s", message="tick")
    bench.do("drain")
    bench.clocks.pass_ms(11_000)
    bench.do("metrics")
    fired = [event for event in bench.events() if event["type"] == "schedule_fired"]
    assert [event["refused"] for event in fired] == ["ERR_DRAINING"]
    assert counts(bench) == {}


def _hold(bench: Bench) -> Sent:
    return bench.make("hold", messageKey=bench.publish())


def _unhold(bench: Bench) -> Sent:
    key = bench.publish(delayMs=1000)
    bench.do("hold", messageKey=key)
    return bench.make("unhold", messageKey=key)


def _purge(bench: Bench) -> Sent:
    for _ in range(3):
        bench.publish()
    return bench.make("purge", queue="q", limit=2)


def _purge_nothing(bench: Bench) -> Sent:
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 7}})
    return bench.make("purge", queue="q")


def _move(bench: Bench) -> Sent:
    bench.publish()
    return bench.make("move", queue="q", to="other")


def _delete(bench: Bench) -> Sent:
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 7}})
    return bench.make("delete_queue", queue="q")


def _drain(bench: Bench) -> Sent:
    return bench.make("drain")


@pytest.mark.parametrize("prepare", [_hold, _unhold, _purge, _purge_nothing, _move, _delete, _drain])
def test_a_repeat_gets_the_first_answer_and_changes_nothing(bench: Bench, prepare: Callable[[Bench], Sent]) -> None:
    sent = prepare(bench)
    bench.run(sent)
    held = exported(bench)
    for restart in (lambda: None, bench.reopen, lambda: bench.reopen(without_store=True)):
        if prepare is not _purge_nothing:  # what made no event is known until a restart
            restart()
        again = bench.again(sent)
        bench.run(again)
        assert again.data == sent.data
        assert exported(bench) == held
