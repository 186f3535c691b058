"""Outcomes that are kept: messages that are done, and those that were abandoned; and the tally of all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bench import Bench, exported
from tests.daemon.maintenance_runs import verified

MakeBench = Callable[..., Bench]
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")
_DAY_MS = 24 * 3600 * 1000


def set_policy(bench: Bench, **policy: Any) -> None:
    bench.do("set_policy", queue="q", policy=policy)


@pytest.fixture(params=BACKENDS)
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    """An open root whose queue ``q`` keeps messages that are done."""
    bench = make_bench(request.param).open()
    set_policy(bench, done={"keep": "message"})
    return bench


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    bench = make_bench().open()
    set_policy(bench, done={"keep": "message"})
    return bench


def completed(bench: Bench, message: Any = "body", **options: Any) -> str:
    """Publish a message, consume it and acknowledge it."""
    bench.publish(message=message, **options)
    key = str(bench.do("consume_next", queue="q")["message"]["messageKey"])
    bench.do("ack", messageKey=key)
    return key


def failed(bench: Bench, message: Any = "body") -> str:
    """Publish a message, and let it die."""
    bench.publish(message=message)
    key = str(bench.do("consume_next", queue="q")["message"]["messageKey"])
    bench.do("nack", messageKey=key)
    return key


def status(bench: Bench) -> dict[str, Any]:
    return bench.do("status", queue="q")


def browsed(bench: Bench, state: str = "done") -> list[str]:
    return [one["messageKey"] for one in bench.do("browse", queue="q", state=state)["messages"]]


def purge(bench: Bench, **options: Any) -> int:
    """Purge all pages; how many messages."""
    purged, after, pages = 0, "", 0
    while True:
        data = bench.do("purge", queue="q", after=after, **options)
        purged, after, pages = purged + int(data["purged"]), data["next"], pages + 1
        assert pages < 50
        if not after:
            return purged


def sound(bench: Bench, workspace: Path) -> None:
    """A stopped root in which nothing is wrong."""
    bench.stop()
    bench.close()
    assert not verified(bench, workspace).faults


# --- done ---------------------------------------------------------------------------------------------------------


def test_an_acknowledged_message_is_done_and_stays_with_its_body(any_bench: Bench) -> None:
    key = completed(any_bench, "work", attributes={"n": 1})
    assert any_bench.counts() == {"done": 1} and status(any_bench)["bytes"] == 0
    shown = any_bench.do("get_message", messageKey=key)
    assert (shown["state"], shown["message"]["payload"]) == ("done", "work")
    assert shown["message"]["doneAtEngineMs"] >= 0 and "leaseId" not in shown["message"]
    assert browsed(any_bench) == [key]
    assert any_bench.do("consume_next", queue="q")["message"] is None


def test_messages_that_are_done_are_listed_in_the_order_of_their_end(any_bench: Bench) -> None:
    keys = [any_bench.publish(message=text) for text in "abc"]
    for _ in keys:
        any_bench.do("consume_next", queue="q")
    for key in reversed(keys):
        any_bench.clocks.pass_ms(10)
        any_bench.do("ack", messageKey=key)
    assert browsed(any_bench) == keys[::-1]


def test_without_the_policy_it_is_gone_and_counted_in_the_tally(any_bench: Bench) -> None:
    completed(any_bench)
    set_policy(any_bench, done={"keep": "none"})
    completed(any_bench)
    completed(any_bench)
    assert any_bench.counts() == {"done": 1}
    assert status(any_bench)["tally"] == {"completed": 2, "abandoned": 0}
    assert status(any_bench)["totals"]["acked"] == 3


def test_a_message_that_is_done_cannot_be_settled_held_moved_or_activated_again(bench: Bench) -> None:
    key = completed(bench)
    for command in ("ack", "nack", "release", "extend_lease", "activate"):
        assert bench.send(command, messageKey=key, anyHolder=True).code == "ERR_LEASE_EXPIRED"
    assert bench.send("hold", messageKey=key).code == "ERR_INVALID_REQUEST"
    assert bench.send("move", messageKey=key, to="other").code == "ERR_INVALID_REQUEST"


def test_what_is_done_counts_for_no_limit_and_holds_up_no_other_message_of_its_ordering_key(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "message"}, limits={"messages": 1, "bytes": 100})
    for text in ("a", "b", "c"):
        completed(any_bench, text, orderingKey="k")
    assert any_bench.counts() == {"done": 3}


def test_a_claim_lasts_while_its_message_is_done(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "message"}, deduplication={"mode": "while-present"})
    key = completed(any_bench, deduplicationKey="d")
    again = any_bench.do("publish", queue="q", message="x", deduplicationKey="d")
    assert (again["duplicate"], again["messageKey"]) == (True, key)
    assert purge(any_bench, state="done") == 1
    assert "duplicate" not in any_bench.do("publish", queue="q", message="x", deduplicationKey="d")


def test_retention_drops_what_is_too_old_or_too_much(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "message", "retentionDays": 1, "maxMessages": 2})
    keys = [completed(any_bench, text) for text in "abcd"]
    any_bench.clocks.pass_ms(1000)
    any_bench.run()
    assert browsed(any_bench) == keys[2:]
    any_bench.clocks.pass_ms(_DAY_MS)
    any_bench.run()
    assert any_bench.counts() == {}
    assert status(any_bench)["totals"]["dropped"] == 4


def test_without_retention_what_is_done_stays_for_ever(bench: Bench) -> None:
    completed(bench)
    bench.clocks.pass_ms(400 * _DAY_MS)
    bench.run()
    assert bench.counts() == {"done": 1}


def test_a_queue_with_messages_that_are_done_is_not_idle_and_not_empty(bench: Bench) -> None:
    set_policy(bench, done={"keep": "message"}, expireAfterIdleSec=1)
    completed(bench)
    bench.clocks.pass_ms(5000)
    bench.run()
    assert status(bench)["exists"]
    assert bench.send("delete_queue", queue="q").code == "ERR_QUEUE_NOT_EMPTY"
    assert bench.do("delete_queue", queue="q", discard=True)["deleted"]


def test_the_tally_of_a_queue_that_is_made_again_begins_at_0(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "none"})
    completed(any_bench)
    any_bench.do("delete_queue", queue="q")
    any_bench.publish()
    assert status(any_bench)["tally"] == {"completed": 0, "abandoned": 0}


def test_only_the_headers_of_a_gathered_message_are_kept(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "headers"}, gatherWindowSec=1)
    for text in "abc":
        any_bench.publish(message=text)
    any_bench.clocks.pass_ms(1000)
    key = any_bench.do("consume_next", queue="q")["message"]["messageKey"]
    any_bench.do("ack", messageKey=key)
    entry = any_bench.store.get(key)
    assert entry and (entry.parts, entry.state) == (0, "done")
    assert any_bench.store.facts.names("part:", "", 10) == []


# --- abandon ------------------------------------------------------------------------------------------------------


def test_a_message_in_any_state_can_be_abandoned(any_bench: Bench) -> None:
    dead, done, leased = failed(any_bench), completed(any_bench), any_bench.publish()
    any_bench.do("consume_next", queue="q")
    delayed, held, ready = any_bench.publish(delayMs=60_000), any_bench.publish(), any_bench.publish()
    any_bench.do("hold", messageKey=held)
    for key in (delayed, held, dead, done, leased, ready):
        assert any_bench.do("abandon", messageKey=key, reason="no longer needed") == {"state": "dead"}
    assert any_bench.counts() == {"dlq": 6}
    assert status(any_bench)["reasons"] == {"ABANDONED": 6}
    letter = any_bench.do("get_message", messageKey=held)["message"]
    assert (letter["reasonCode"], letter["reason"]) == ("ABANDONED", "no longer needed")


def test_the_policy_says_what_is_kept_of_an_abandoned_message(any_bench: Bench) -> None:
    set_policy(any_bench, abandon={"keep": "none"})
    assert any_bench.do("abandon", messageKey=any_bench.publish()) == {"state": "dropped"}
    assert any_bench.counts() == {}
    assert status(any_bench)["tally"] == {"completed": 0, "abandoned": 1}
    assert status(any_bench)["totals"]["abandoned"] == 1


def test_an_abandoned_dead_letter_counts_once_and_an_abandoned_message_can_be_abandoned_again(any_bench: Bench) -> None:
    key = failed(any_bench)
    assert status(any_bench)["reasons"] == {"REJECTED": 1}
    for _ in range(2):
        any_bench.clocks.pass_ms(5)
        any_bench.do("abandon", messageKey=key)
        assert (any_bench.counts(), status(any_bench)["reasons"]) == ({"dlq": 1}, {"ABANDONED": 1})
    assert status(any_bench)["tally"]["abandoned"] == 0


def test_abandoning_ends_the_lease_and_lets_the_next_message_go_in_flight(any_bench: Bench) -> None:
    set_policy(any_bench, limits={"inflight": 1})
    any_bench.publish(message="a")
    second = any_bench.publish(message="b")
    data = any_bench.do("consume_next", queue="q", orderedSec=10)
    waiting = any_bench.send("consume_next", queue="q", waitMs=60_000)
    any_bench.do("abandon", messageKey=data["message"]["messageKey"])
    assert waiting.data["message"]["messageKey"] == second
    assert any_bench.counts() == {"inflight": 1, "dlq": 1}


def test_a_lease_that_is_given_must_be_that_of_the_message(bench: Bench) -> None:
    key = bench.publish()
    assert bench.send("abandon", messageKey=key, leaseId="lease").code == "ERR_LEASE_MISMATCH"
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    assert bench.send("abandon", messageKey=key, leaseId="another").code == "ERR_LEASE_MISMATCH"
    assert bench.do("abandon", messageKey=key, leaseId=lease) == {"state": "dead"}


def test_a_message_is_abandoned_or_purged_in_no_other_state_than_the_one_that_is_named(bench: Bench) -> None:
    def refused(command: str, key: str, *states: str) -> None:
        queue = {"queue": "q"} if command == "purge" else {}
        for state in states:
            assert bench.send(command, messageKey=key, ifState=state, **queue).code == "ERR_BAD_STATE", state

    dead, waiting = failed(bench, "dead"), bench.publish(message="waits")
    for command in ("purge", "abandon"):
        refused(command, dead, "ready", "inflight", "ordered", "active")
        refused(command, waiting, "dead", "done", "drafting", "active")
    bench.do("consume_next", queue="q", orderedSec=100)
    refused("abandon", waiting, "ready", "active")
    bench.do("activate", messageKey=waiting)
    refused("purge", waiting, "ready", "ordered")
    assert bench.send("abandon", messageKey=waiting, ifState="asleep").code == "ERR_INVALID_REQUEST"
    assert bench.send("purge", queue="q", ifState="dead").code == "ERR_INVALID_REQUEST"
    assert bench.counts() == {"inflight": 1, "dlq": 1}
    assert bench.do("purge", queue="q", messageKey=waiting, ifState="active")["purged"] == 1
    assert bench.do("abandon", messageKey=dead, ifState="dead") == {"state": "dead"}


def test_a_message_that_does_not_exist_cannot_be_abandoned(bench: Bench) -> None:
    assert bench.send("abandon", messageKey="msg:q:nothing").code == "ERR_MESSAGE_NOT_FOUND"


def test_failed_messages_are_reprocessed_without_those_that_were_abandoned(any_bench: Bench) -> None:
    set_policy(any_bench, retry={"returnTo": "end"})
    first, second = failed(any_bench, "a"), failed(any_bench, "b")
    any_bench.do("abandon", messageKey=failed(any_bench, "c"))
    last = any_bench.publish(message="d")
    waiting = any_bench.send("consume_next", queue="q", waitMs=60_000)
    assert waiting.data["message"]["messageKey"] == last
    fresh = any_bench.publish(message="e")
    any_bench.do("reprocess_dlq", queue="q", filter={"notReasonCode": "ABANDONED"})
    assert any_bench.counts() == {"ready": 3, "inflight": 1, "dlq": 1}
    assert browsed(any_bench, "ready") == [fresh, first, second]


def test_reprocessing_wakes_a_consumer_that_waits(any_bench: Bench) -> None:
    key = failed(any_bench)
    waiting = any_bench.send("consume_next", queue="q", waitMs=60_000)
    any_bench.do("reprocess_dlq", messageKey=key)
    assert waiting.data["message"]["messageKey"] == key


# --- purge --------------------------------------------------------------------------------------------------------


def fill(bench: Bench) -> None:
    """Messages in every state."""
    completed(bench)
    failed(bench)
    bench.publish(delayMs=60_000)
    bench.do("hold", messageKey=bench.publish())
    bench.do("consume_next", queue="q", orderedSec=60) if bench.publish() else None
    bench.publish()


def test_purge_of_any_state_empties_a_queue_and_resets_its_tally(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "none"})
    completed(any_bench)
    set_policy(any_bench, done={"keep": "message"})
    fill(any_bench)
    before = sum(status(any_bench)["metrics"].values()) - 1  # one is ordered and in flight
    data = any_bench.do("purge", queue="q", state="any", resetTally=True)
    assert (data["purged"], data["next"]) == (before, "")
    assert any_bench.counts() == {} and status(any_bench)["tally"] == {"completed": 0, "abandoned": 0}
    completed(any_bench)
    assert status(any_bench)["tally"] == {"completed": 0, "abandoned": 0} and any_bench.counts() == {"done": 1}


def test_purge_of_any_state_by_pages(any_bench: Bench) -> None:
    fill(any_bench)
    assert any_bench.do("purge", queue="q", state="any", dryRun=True, limit=2)["purged"] == 2
    assert purge(any_bench, state="any", limit=2) == 6
    assert any_bench.counts() == {}


def test_purge_of_what_is_done_leaves_all_else(any_bench: Bench) -> None:
    fill(any_bench)
    assert purge(any_bench, state="done") == 1
    assert "done" not in any_bench.counts() and sum(status(any_bench)["metrics"].values()) == 6


def test_the_tally_is_reset_with_the_last_page(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "none"})
    completed(any_bench)
    for text in "abc":
        any_bench.publish(message=text)
    first = any_bench.do("purge", queue="q", resetTally=True, limit=2)
    assert first["next"] and status(any_bench)["tally"]["completed"] == 1
    any_bench.do("purge", queue="q", resetTally=True, limit=2, after=first["next"])
    assert status(any_bench)["tally"]["completed"] == 0


# --- durability ---------------------------------------------------------------------------------------------------


def test_kept_outcomes_survive_the_loss_of_the_store_and_a_restart(any_bench: Bench) -> None:
    set_policy(any_bench, done={"keep": "none"})
    completed(any_bench)
    set_policy(any_bench, done={"keep": "message"})
    fill(any_bench)
    any_bench.do("abandon", messageKey=completed(any_bench))
    any_bench.store.disk.checkpoint()
    any_bench.do("abandon", messageKey=any_bench.publish())
    completed(any_bench)
    before = exported(any_bench), status(any_bench)
    for without_store in (False, True):
        any_bench.reopen(without_store)
        assert exported(any_bench) == before[0]
        assert status(any_bench)["tally"] == before[1]["tally"]
        assert status(any_bench)["metrics"] == before[1]["metrics"]


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_verification_finds_nothing_wrong_with_kept_outcomes(
    make_bench: MakeBench, backend: str, tmp_path: Path
) -> None:
    bench = make_bench(backend).open()
    set_policy(bench, done={"keep": "message"}, deduplication={"mode": "while-present"})
    fill(bench)
    bench.do("abandon", messageKey=completed(bench, deduplicationKey="d"))
    bench.do("abandon", messageKey=failed(bench))
    set_policy(bench, done={"keep": "headers"}, abandon={"keep": "headers"}, gatherWindowSec=1)
    for text in "ab":
        bench.publish(message=text)
    bench.clocks.pass_ms(1000)
    bench.do("ack", messageKey=bench.do("consume_next", queue="q", max=9)["messages"][-1]["message"]["messageKey"])
    sound(bench, tmp_path)
    bench.open()
    assert bench.counts()["done"]
    sound(bench, tmp_path)


def test_outcomes_come_with_their_queue_to_another_root(make_bench: MakeBench, any_bench: Bench) -> None:
    fill(any_bench)
    any_bench.do("abandon", messageKey=completed(any_bench))
    parts = {part: any_bench.do("read_state", part=part)[part] for part in ("queues", "messages", "facts")}
    target, now = make_bench().open(), any_bench.live.clock.now()
    target.do("import_state", engineMs=now.engine, wallMs=now.wall, **parts)
    before = any_bench.counts()
    expected = {name: count for name, count in before.items() if name not in ("inflight", "ordered")}
    assert target.counts() == expected | {"ready": before["ready"] + before["inflight"]}  # leases stay behind
    assert browsed(target) == browsed(any_bench)
    assert status(target)["reasons"] == {"REJECTED": 1, "ABANDONED": 1}
    assert status(target)["tally"] == {"completed": 0, "abandoned": 0}
    target.reopen(without_store=True)
    assert browsed(target) == browsed(any_bench)


def test_the_tally_comes_with_its_queue_to_another_root(make_bench: MakeBench) -> None:
    bench, target = make_bench().open(), make_bench().open()
    for _ in range(2):
        completed(bench)
    queues, now = bench.do("read_state", part="queues")["queues"], bench.live.clock.now()
    for wrong in ({"totals": {"acked": "2"}}, {"tallyFrom": [1]}):
        sent = target.send("import_state", engineMs=now.engine, wallMs=now.wall, queues=[queues[0] | wrong])
        assert sent.code == "ERR_INVALID_REQUEST"
    target.do("import_state", engineMs=now.engine, wallMs=now.wall, queues=queues)
    assert status(target)["tally"] == {"completed": 2, "abandoned": 0}
    completed(target)
    target.reopen(without_store=True)
    assert status(target)["tally"] == {"completed": 3, "abandoned": 0}
