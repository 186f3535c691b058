"""Ways around a rule, each of which is closed: batches, leases, dead letters, names, lists, schedules, repeats."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.bench import Bench
from tests.daemon.access_rules import ALICE, BOB, FORBIDDEN, Fields, allow, as_user, for_user, use


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench("memory").open()


def test_each_message_of_a_batch_is_checked_separately(bench: Bench) -> None:
    use(bench, allow(for_user(ALICE, "publish", queue="a")))
    messages = [{"queue": "a", "message": 1}, {"queue": "b", "message": 2}, {"queue": "a", "message": 3}]
    results = as_user(bench, ALICE, "publish_batch", messages=messages).data["results"]
    assert [one.get("error", {}).get("code") for one in results] == [None, FORBIDDEN, None]
    assert as_user(bench, ALICE, "publish_batch", queue="b", messages=[{"message": 1}]).data["results"][0]["error"]
    assert bench.do("status", queue="b")["exists"] is False


def test_settling_with_a_publish_needs_both_permissions_or_changes_nothing(bench: Bench) -> None:
    bench.publish("a")
    use(bench, allow(for_user(ALICE, "consume", queue="a"), for_user(ALICE, "publish", queue="b")))
    delivery = as_user(bench, ALICE, "consume_next", queue="a").data
    one = {"messageKey": delivery["message"]["messageKey"], "leaseId": delivery["lease"]["leaseId"]}
    refused = as_user(bench, ALICE, "ack_and_publish", **one, messages=[{"queue": "b"}, {"queue": "c"}])
    assert refused.code == FORBIDDEN
    assert bench.do("status", queue="a")["metrics"]["inflight"] == 1
    assert as_user(bench, ALICE, "ack_and_publish", **one, messages=[{"queue": "b"}]).code == "OK"


def test_a_leaked_lease_id_settles_nothing_for_a_user_who_may_not_consume(bench: Bench) -> None:
    bench.publish("a")
    delivery = as_user(bench, ALICE, "consume_next", queue="a").data
    one = {"messageKey": delivery["message"]["messageKey"], "leaseId": delivery["lease"]["leaseId"]}
    use(bench, allow(for_user(BOB, "publish", "browse")))
    for command in ("ack", "nack", "release", "extend_lease"):
        assert as_user(bench, BOB, command, **one).code == FORBIDDEN
        assert as_user(bench, BOB, command, leaseId=one["leaseId"]).code == FORBIDDEN
        assert as_user(bench, BOB, command, leaseId=one["leaseId"], queue="b").code == FORBIDDEN
        if command.endswith("ack"):
            results = as_user(bench, BOB, f"{command}_batch", items=[one]).data["results"]
            assert [item["error"]["code"] for item in results] == [FORBIDDEN]
    assert bench.do("status", queue="a")["metrics"]["inflight"] == 1


def test_the_history_of_a_message_shows_the_current_lease_only_to_its_consumer_and_operators(bench: Bench) -> None:
    key = bench.publish("a")
    lease = as_user(bench, ALICE, "consume_next", queue="a").data["lease"]["leaseId"]
    shown = {
        uid: [event["lease"] for event in as_user(bench, uid, "get_message", messageKey=key, events=9).data["events"]
              if "lease" in event]
        for uid in (ALICE, BOB, 0)
    }  # fmt: skip
    assert shown == {ALICE: [lease], BOB: [], 0: [lease]}


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_a_consumers_name_settles_nothing_for_another_user_even_after_a_restart(
    make_bench: Callable[..., Bench], backend: str
) -> None:
    bench = make_bench(backend).open()
    key = bench.publish("a")
    as_user(bench, ALICE, "consume_next", queue="a", consumerId="worker")
    bench.reopen()
    assert as_user(bench, BOB, "ack", messageKey=key, consumerId="worker").code == "ERR_LEASE_MISMATCH"
    assert as_user(bench, ALICE, "extend_lease", messageKey=key, consumerId="worker").code == "OK"
    assert as_user(bench, 0, "ack", messageKey=key, consumerId="worker").code == "OK"


def letters(bench: Bench, name: str, **queues: str) -> None:
    """A dead letter in each queue, whose dead letters share a name."""
    for queue in queues:
        bench.do("set_policy", queue=queue, policy={"dlq": {"queue": name}})
        bench.publish(queue, queue)
        delivery = bench.do("consume_next", queue=queue)
        bench.do("nack", messageKey=delivery["message"]["messageKey"], leaseId=delivery["lease"]["leaseId"])


def test_a_shared_dead_letter_address_gives_a_user_only_permitted_queues(bench: Bench) -> None:
    letters(bench, "dead", a="", b="", c="")
    use(bench, allow(for_user(ALICE, "consume", "browse", "operate", queue="b"), for_user(ALICE, "browse", queue="c")))
    assert [one["queue"] for one in as_user(bench, ALICE, "list_dlq", queue="dead").data["messages"]] == ["b", "c"]
    assert as_user(bench, ALICE, "count_dlq", queue="dead").data["count"] == 2
    assert as_user(bench, ALICE, "status", queue="dead").data["metrics"]["dlq"] == 2
    assert as_user(bench, ALICE, "reprocess_dlq", queue="dead", dryRun=True).data["reprocessed"] == 1
    assert as_user(bench, ALICE, "drop_dlq", queue="dead", dryRun=True).data["dropped"] == 1
    assert as_user(bench, ALICE, "consume_next", queue="dead", max=9).data["messages"][0]["message"]["queue"] == "b"
    for command in ("list_dlq", "count_dlq", "reprocess_dlq", "drop_dlq", "consume_next", "status"):
        assert as_user(bench, BOB, command, queue="dead").code == FORBIDDEN
        assert as_user(bench, BOB, command, queue="no such.dlq").code == FORBIDDEN


def test_a_user_with_permission_for_some_queues_of_an_address_waits_for_their_dead_letters(bench: Bench) -> None:
    letters(bench, "dead", a="")
    bench.do("set_policy", queue="b", policy={"dlq": {"queue": "dead"}})
    use(bench, allow(for_user(BOB, "consume", queue="b")))
    assert as_user(bench, BOB, "consume_next", queue="dead").data == {"message": None}
    waiting = as_user(bench, BOB, "consume_next", queue="dead", waitMs=60_000)
    letters(bench, "dead", a="")
    assert not waiting.answers
    letters(bench, "dead", b="")
    assert waiting.data["message"]["queue"] == "b"


def test_a_dead_letter_address_can_be_claimed_only_by_an_operator_of_that_name(bench: Bench) -> None:
    use(bench, allow(for_user(ALICE, "operate", pattern="line\\..*"), default=("publish",)))
    refused = as_user(bench, ALICE, "set_policy", queue="line.a", policy={"dlq": {"queue": "payroll"}})
    assert refused.code == FORBIDDEN
    assert as_user(bench, BOB, "publish", queue="payroll").code == "OK"
    assert as_user(bench, ALICE, "set_policy", queue="line.a", policy={"dlq": {"queue": "line.x"}}).code == "OK"


@pytest.mark.parametrize("target", ["b", "new"])
def test_moving_messages_to_a_queue_needs_the_right_to_operate_it(bench: Bench, target: str) -> None:
    dead, waits = bench.publish("mine", "dead"), bench.publish("mine")
    bench.publish("b")
    bench.do("nack", messageKey=bench.do("consume_next", queue="mine")["message"]["messageKey"], consumerId="client")
    use(bench, allow(for_user(ALICE, "operate", pattern="mine.*"), for_user(ALICE, "publish", "consume", "browse")))
    for payload in ({"messageKey": dead}, {"queue": "mine"}):
        assert as_user(bench, ALICE, "reprocess_dlq", **payload, to=target).code == FORBIDDEN
    for payload in ({"messageKey": waits}, {"queue": "mine"}, {"queue": "b"}):
        assert as_user(bench, ALICE, "move", **payload, to=target).code == FORBIDDEN
    assert as_user(bench, ALICE, "move", queue="b", to="mine").code == FORBIDDEN
    assert as_user(bench, ALICE, "move", messageKey=waits, to="mine too").code == "OK"


def test_a_message_that_was_moved_belongs_to_the_queue_in_which_it_is(bench: Bench) -> None:
    key = bench.publish("a", "secret")
    bench.do("move", messageKey=key, to="b")
    use(bench, allow(for_user(ALICE, "browse", "operate", queue="a"), for_user(BOB, "browse", queue="b")))
    assert as_user(bench, ALICE, "get_message", messageKey=key).code == FORBIDDEN
    assert as_user(bench, ALICE, "hold", messageKey=key).code == FORBIDDEN
    reported = as_user(bench, BOB, "get_message", messageKey=key, events=9).data
    assert reported["message"]["payload"] == "secret"
    assert reported["events"] == []  # they name the other queue


def test_the_history_of_a_message_that_is_gone_needs_the_right_to_browse_its_queues(bench: Bench) -> None:
    key = bench.publish("a")
    bench.do("purge", queue="a")
    use(bench, allow(for_user(ALICE, "browse", queue="a")))
    assert len(as_user(bench, ALICE, "get_message", messageKey=key, events=9).data["events"]) == 2
    assert as_user(bench, BOB, "get_message", messageKey=key, events=9).code == FORBIDDEN


def test_users_without_permission_cannot_learn_whether_a_message_or_queue_exists(bench: Bench) -> None:
    key = bench.publish("a")
    use(bench, allow(for_user(ALICE, "browse", queue="b")))
    for command in ("ack", "nack", "hold", "get_message", "quarantine_dlq", "reprocess_dlq", "move"):
        more = {"to": "b"} if command == "move" else {}
        for which in (key, "msg:a:none"):
            assert as_user(bench, ALICE, command, messageKey=which, **more).code == FORBIDDEN
    for command in ("status", "get_policy", "pause", "purge", "delete_queue", "browse", "list_dlq"):
        for queue in ("a", "none"):
            assert as_user(bench, ALICE, command, queue=queue).code == FORBIDDEN
    assert as_user(bench, ALICE, "list_queues").data["queues"] == []


def test_lists_of_queues_leave_out_those_without_permission(bench: Bench) -> None:
    for queue in ("a", "b", "c"):
        bench.publish(queue)
        bench.do("consume_next", queue=queue)
        bench.do("set_schedule", name=f"of {queue}", queue=queue, cron="0 5 * * *")
    use(bench, allow(for_user(ALICE, "browse", queue="b"), for_user(ALICE, "publish", queue="c")))
    reported = {
        "list_queues": [one["queue"] for one in as_user(bench, ALICE, "list_queues").data["queues"]],
        "list_inflight": [one["queue"] for one in as_user(bench, ALICE, "list_inflight").data["messages"]],
        "list_consumers": [one["queue"] for one in as_user(bench, ALICE, "list_consumers").data["consumers"]],
        "list_schedules": [one["queue"] for one in as_user(bench, ALICE, "list_schedules").data["schedules"]],
    }
    assert reported == {
        "list_queues": ["b", "c"],
        "list_inflight": ["b"],
        "list_consumers": ["b"],
        "list_schedules": ["b"],
    }
    assert as_user(bench, ALICE, "list_schedules", limit=1).data["next"] == ""


def test_who_waits_by_pattern_is_shown_to_operators_and_to_himself(bench: Bench) -> None:
    bench.publish("b")
    bench.do("consume_next", queue="b")
    use(bench, allow(for_user(ALICE, "browse", "consume", queue="b")))
    bench.run(
        bench.make("consume_next", queuePattern="^secret|b", waitMs=60_000),
        bench.make("consume_next", queuePattern="^b", consumerId="hers", waitMs=60_000, uid=ALICE),
    )
    hers = {"queuePattern": "^b", "consumerId": "hers", "waiting": 1}
    for fields in ({}, {"queue": "b"}):
        assert as_user(bench, ALICE, "list_consumers", **fields).data["waitingByPattern"] == [hers]
        assert len(bench.do("list_consumers", **fields)["waitingByPattern"]) == 2
    (other,) = bench.do("list_consumers", queue="secret")["waitingByPattern"]
    assert other["queuePattern"] == "^secret|b", "she may not consume there"


def test_pages_of_queues_have_each_permitted_queue_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        bench.publish(f"q{number:02}")
    use(bench, allow(for_user(ALICE, "browse", pattern="q.[37]")))
    monkeypatch.setattr("postroom_daemon.engine.verbs.queues.NAMES_LIMIT", 8)
    monkeypatch.setattr("postroom_daemon.engine.verbs.queues._NAMES_A_PAGE", 4)
    found: list[str] = []
    place = "first"
    while place:
        page = as_user(bench, ALICE, "list_queues", limit=2, after="" if place == "first" else place).data
        found += [one["queue"] for one in page["queues"]]
        place = page["next"]
    assert found == ["q03", "q07", "q13", "q17", "q23", "q27"]


def test_a_schedule_belongs_to_operators_of_its_queue_and_nobody_else_replaces_it(bench: Bench) -> None:
    plan: Fields = {"name": "tick", "cron": "@every 1s"}
    use(bench, allow(for_user(ALICE, "operate", queue="a"), for_user(BOB, "operate", queue="b"), default=("publish",)))
    assert as_user(bench, ALICE, "set_schedule", **plan, queue="b").code == FORBIDDEN
    assert as_user(bench, ALICE, "set_schedule", **plan, queue="a").code == "OK"
    assert as_user(bench, BOB, "set_schedule", **plan, queue="b").code == FORBIDDEN
    assert as_user(bench, BOB, "delete_schedule", name="tick").code == FORBIDDEN
    use(bench, allow(for_user(ALICE, "operate", queue="a")))  # the daemon publishes, not she
    bench.clocks.pass_ms(2000)
    bench.run()
    assert bench.do("status", queue="a")["metrics"]["ready"] == 1


def test_fields_of_a_message_give_no_access_to_another_queue(bench: Bench) -> None:
    use(bench, allow(for_user(ALICE, "publish", "consume", queue="a")))
    carried = {"replyTo": "b", "correlationId": "b", "orderingKey": "b", "attributes": {"queue": "b", "replyTo": "b"}}
    as_user(bench, ALICE, "publish", queue="a", message={"queue": "b"}, **carried, delayMs=10)
    bench.clocks.pass_ms(10)
    assert as_user(bench, ALICE, "consume_next", queue="a").data["message"]["replyTo"] == "b"
    assert [one["queue"] for one in bench.do("list_queues")["queues"]] == ["a"]
    assert as_user(bench, ALICE, "consume_next", queue="b").code == FORBIDDEN


def test_permissions_of_a_waiting_request_are_checked_again_when_a_message_arrives(bench: Bench) -> None:
    use(bench, allow(for_user(ALICE, "consume", queue="a")))
    waiting = as_user(bench, ALICE, "consume_next", queue="a", waitMs=60_000)
    use(bench, allow(default=()))
    bench.publish("a")
    assert waiting.code == FORBIDDEN
    assert bench.do("status", queue="a")["metrics"]["ready"] == 1


def test_a_repeat_gets_the_first_answer_even_if_rules_have_changed_and_another_users_copy_does_not(
    bench: Bench,
) -> None:
    sent = as_user(bench, ALICE, "publish", queue="a")
    use(bench, allow(default=()))
    again = bench.again(sent)
    bench.run(again)
    assert again.data == sent.data
    copied = bench.make("publish", client=sent.request.who.client_id, uid=BOB, queue="a")
    bench.run(copied)
    assert copied.code == FORBIDDEN
