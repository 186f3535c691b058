"""Groups: who is answered what when one request of many fails, and who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom_common.body import Form, Part
from postroom_common.protocol import Command
from postroom_daemon.broker import periodic, transaction
from postroom_daemon.engine import decide as engine
from postroom_daemon.engine.context import Context, Decision, Draft
from postroom_daemon.engine.fields import Fields
from postroom_daemon.model.request import MessageView
from tests.conformance.bench import Bench


class Bug(Exception):
    """What nobody expected."""


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """status of the queue ``poison`` raises what no verb should; release of anything breaks the fold."""

    def status(context: Context, fields: Fields) -> Decision:
        if fields["queue"] == "poison":
            raise Bug("a fault of ours")
        return Decision(data={})

    def health(context: Context, fields: Fields) -> Decision:
        return Decision([{"type": "acked", "queue": "q", "key": "msg:q:none", "lease": "", "heldMs": 0}])

    monkeypatch.setitem(engine.VERBS, Command.STATUS, status)
    monkeypatch.setitem(engine.VERBS, Command.HEALTH, health)


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize(("command", "payload"), [("status", {"queue": "poison"}), ("health", {})])
def test_a_request_that_breaks_the_engine_fails_alone_and_the_rest_of_its_group_succeeds(
    bench: Bench, command: str, payload: dict[str, Any]
) -> None:
    waiter = bench.make("consume_next", queue="later", consumerId="w", waitMs=10_000)
    bench.run(waiter)
    served = bench.make("consume_next", queue="now", consumerId="w", waitMs=10_000)
    bench.run(served)
    before = bench.make("publish", queue="now", message="1")
    bad = bench.make(command, **payload)
    parked = bench.make("consume_next", queue="later", consumerId="v", waitMs=10_000)
    after = bench.make("publish", queue="q", message="2")
    bench.run(before, bad, parked, after)
    assert [sent.code for sent in (before, bad, after)] == ["OK", "ERR_INTERNAL_ERROR", "OK"]
    assert served.data["message"]["payload"] == "1"
    assert waiter.answers == [] and parked.answers == []
    assert bench.event_types().count("published") == 2 and bench.event_types().count("leased") == 1
    bench.publish("later", "for the older")
    bench.publish("later", "for the younger")
    assert waiter.data["message"]["payload"] == "for the older"
    assert parked.data["message"]["payload"] == "for the younger"


@pytest.mark.usefixtures("poison")
def test_two_bad_requests_and_good_ones_between_them_are_each_answered_once(bench: Bench) -> None:
    sents = [bench.make("status", queue="poison" if number % 2 else "fine") for number in range(5)]
    sents += [bench.make("publish", queue="q", message=str(number)) for number in range(3)]
    bench.run(*sents)
    codes = [sent.code for sent in sents]
    assert codes == ["OK", "ERR_INTERNAL_ERROR", "OK", "ERR_INTERNAL_ERROR", "OK", "OK", "OK", "OK"]
    assert bench.event_types().count("published") == 3
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "0"


def test_an_answer_that_cannot_be_delivered_does_not_affect_others(bench: Bench) -> None:
    waiter = bench.make("consume_next", queue="q", consumerId="w", waitMs=10_000)
    bench.run(waiter)

    def refuse(answer: object) -> None:
        raise Bug("its answer is no JSON")

    broken = bench.make("publish", queue="x", message="1")
    broken.request.on_answer = refuse
    after = bench.make("publish", queue="q", message="2")
    bench.run(broken, after)
    assert after.code == "OK" and waiter.data["message"]["payload"] == "2"
    events = len(bench.events())
    again = bench.again(broken)
    bench.run(again)
    assert again.code == "OK" and len(bench.events()) == events
    assert bench.store.applied == bench.live.journal.last_id


def test_one_group_is_one_write_and_one_sync(bench: Bench) -> None:
    bench.publish()
    counts = {"write": 0, "fdatasync": 0}

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            counts[name] += 1
            return call(*arguments)

        return counting

    for name in counts:
        setattr(bench.files, name, counted(name, getattr(bench.files, name)))
    sents = [bench.make("publish", queue="q", message="x") for _ in range(20)]
    bench.run(*sents)
    assert all(sent.code == "OK" for sent in sents)
    assert counts == {"write": 1, "fdatasync": 1}
    bench.do("status", queue="q")
    assert counts == {"write": 1, "fdatasync": 1}


def test_requests_of_a_group_see_what_the_ones_before_them_did(bench: Bench) -> None:
    publish = bench.make("publish", queue="new", message="x")
    consume = bench.make("consume_next", queue="new")
    status = bench.make("status", queue="new")
    bench.run(publish, consume, status)
    assert consume.data["message"]["messageKey"] == publish.data["messageKey"]
    assert status.data["metrics"]["inflight"] == 1


def test_the_same_request_twice_in_one_group_is_executed_once(bench: Bench) -> None:
    first = bench.make("publish", queue="q", message="x")
    second = bench.again(first)
    bench.run(first, second)
    assert first.data == second.data and bench.event_types().count("published") == 1


def test_a_waiting_client_that_is_gone_gets_nothing_and_the_next_one_gets_the_message(bench: Bench) -> None:
    gone, there = (bench.make("consume_next", queue="q", consumerId=name, waitMs=9000) for name in ("gone", "there"))
    gone.request.alive = lambda: False
    bench.run(gone, there)
    bench.publish()
    assert gone.answers == [] and there.data["message"]["attempt"] == 1
    assert bench.event_types().count("leased") == 1


def test_a_cancelled_wait_gets_no_answer(bench: Bench) -> None:
    waiter = bench.make("consume_next", queue="q", waitMs=1000)
    bench.run(waiter)
    bench.live.broker.cancel(waiter.request)
    bench.publish()
    bench.clocks.pass_ms(5000)
    bench.run()
    assert waiter.answers == [] and bench.live.broker.subscriptions.count == 0


def test_a_wait_ends_with_nothing_at_its_time_counted_from_when_the_request_was_made(bench: Bench) -> None:
    waiter = bench.make("consume_next", queue="q", waitMs=1000)
    bench.clocks.pass_ms(400)  # it lay in the mailbox
    bench.run(waiter)
    assert bench.live.broker.next_due() == bench.live.clock.now().engine + 600
    bench.clocks.pass_ms(599)
    bench.run()
    assert waiter.answers == []
    bench.clocks.pass_ms(1)
    bench.run()
    assert waiter.data == {"message": None}


def test_a_waiting_request_without_a_matching_message_does_not_block_the_next(bench: Bench) -> None:
    first, second = (bench.make("consume_next", queue="q", consumerId=name, waitMs=9000) for name in ("one", "two"))
    bench.run(first, second)
    bench.publish(targetConsumerId="two")
    assert first.answers == [] and second.data["message"]["targetConsumerId"] == "two"


@pytest.mark.parametrize("how", ["release", "resume", "reprocess", "due"])
def test_whatever_makes_a_message_ready_serves_waiting_consumers(bench: Bench, how: str) -> None:
    key = bench.publish(delayMs=500 if how == "due" else 0)
    lease: dict[str, Any] = {}
    if how == "resume":
        bench.do("pause", queue="q")
    elif how != "due":
        lease = {"leaseId": bench.do("consume_next", queue="q")["lease"]["leaseId"]}
        if how == "reprocess":
            bench.do("nack", messageKey=key, **lease)
    waiter = bench.make("consume_next", queue="q", consumerId="w", waitMs=9000)
    bench.run(waiter)
    assert waiter.answers == []
    if how == "due":
        bench.clocks.pass_ms(500)
        bench.run()
    elif how == "resume":
        bench.do("resume", queue="q")
    elif how == "release":
        bench.do("release", messageKey=key, **lease)
    else:
        bench.do("reprocess_dlq", messageKey=key)
    assert waiter.data["message"]["messageKey"] == key


def test_leases_beyond_the_limit_of_one_group_all_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "ENDED_LEASES_LIMIT", 3)
    for _ in range(7):
        bench.publish()
        bench.do("consume_next", queue="q", visibilityTimeoutSec=1)
    bench.clocks.pass_ms(1000)
    groups = 0
    while (due := bench.live.broker.next_due()) is not None and due <= bench.live.clock.now().engine:
        bench.run()
        groups += 1
    assert groups == 3
    assert bench.do("status", queue="q")["metrics"]["delayed"] == 7


def test_a_late_consumer_is_refused_even_before_the_end_of_its_lease_was_processed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic, "ENDED_LEASES_LIMIT", 0)
    key = bench.publish()
    lease = bench.do("consume_next", queue="q", visibilityTimeoutSec=1)["lease"]["leaseId"]
    bench.clocks.pass_ms(1000)
    for command in ("ack", "nack", "release", "extend_lease"):
        assert bench.send(command, messageKey=key, leaseId=lease).code == "ERR_LEASE_EXPIRED"
    assert bench.do("status", queue="q")["metrics"]["inflight"] == 1


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_a_repeat_gets_the_first_answer_even_after_a_crash(make_bench: Callable[..., Bench], backend: str) -> None:
    bench = make_bench(backend).open()
    publish = bench.send("publish", queue="q", message="x")
    consume = bench.send("consume_next", queue="q")
    nack = bench.send("nack", messageKey=publish.data["messageKey"], requeue=True)
    bench.do("pause", queue="q", operation="publish")
    for _ in range(2):
        again = [bench.again(sent) for sent in (publish, consume, nack)]
        bench.run(*again)
        assert again[0].data == publish.data and again[2].data["state"] == "delayed"
        assert again[1].code == "ERR_LEASE_EXPIRED"
        bench.reopen()
    assert bench.event_types().count("published") == 1


def test_a_periodic_task_that_fails_is_logged_once_and_blocks_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(context: Context) -> Iterator[list[Draft]]:
        if context.now.engine >= 0:
            raise Bug("a fault of ours")
        yield []

    monkeypatch.setattr(transaction, "EACH_SECOND", (faulty, *periodic.EACH_SECOND))
    monkeypatch.setattr(transaction, "EACH_GROUP", (faulty, *periodic.EACH_GROUP))
    bench.publish(delayMs=1000)
    bench.do("publish", queue="q", message="x", ttlMs=1000)
    bench.do("set_schedule", name="s", queue="by the clock", cron="@every 1s")
    for _ in range(3):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.do("status", queue="q")["metrics"] | {"ready": 1, "dlq": 1} == bench.do("status", queue="q")["metrics"]
    assert bench.do("status", queue="by the clock")["metrics"]["ready"] > 0
    assert [record.getMessage() for record in caplog.records] == ["faulty failed, and will be tried again"]


def test_a_door_may_bring_a_message_of_several_parts_which_is_stored_and_delivered_in_order(bench: Bench) -> None:
    parts = (Part(b"head"), Part(b"\xff\0", Form.BINARY, "image/png", "picture"), Part(b"[1]", Form.JSON, "", "rest"))
    sent = bench.make("publish", queue="q", message="")
    sent.request.read_body = lambda fields: parts
    bench.run(sent)
    bench.reopen(without_store=True)
    taken = bench.send("consume_next", queue="q")
    assert taken.answer.data
    view: MessageView = taken.answer.data["message"]
    assert view.parts == parts
    assert bench.do("get_message", messageKey=sent.data["messageKey"])["message"]["bytes"] == 9


@pytest.mark.parametrize(
    ("command", "fields", "code"),
    [
        ("pause", {"operation": "publish"}, "ERR_PAUSED"),
        ("set_policy", {"policy": {"limits": {"messageBytes": 1}}}, "ERR_MESSAGE_TOO_LARGE"),
        ("drain", {"draining": True}, "ERR_DRAINING"),
    ],
)
def test_what_an_operator_changes_applies_to_the_next_request_of_the_same_group(
    bench: Bench, command: str, fields: dict[str, Any], code: str
) -> None:
    bench.publish("q")
    queue: dict[str, Any] = {} if command == "drain" else {"queue": "q"}
    before, change, after = (
        bench.make("publish", queue="q", message="before"),
        bench.make(command, **queue, **fields),
        bench.make("publish", queue="q", message="after"),
    )
    bench.run(before, change, after)
    assert (before.code, change.code, after.code) == ("OK", "OK", code)


def test_a_queue_that_is_deleted_and_published_to_in_one_group_is_created_again(bench: Bench) -> None:
    bench.publish("q")
    sent = [bench.make(command, queue="q") for command in ("publish", "purge", "delete_queue", "publish")]
    bench.run(*sent)
    assert [one.code for one in sent] == ["OK"] * 4
    assert bench.event_types()[-3:] == ["queue_deleted", "queue_created", "published"]


def test_each_request_of_a_group_sees_what_those_before_it_have_done(bench: Bench) -> None:
    bench.publish("q", "0")
    taken = bench.send("consume_next", queue="q")
    lease = {name: taken.data["lease"][name] for name in ("messageKey", "leaseId")}
    published = [bench.make("publish", queue="q", message=str(number)) for number in (1, 2)]
    ack, ack_again, late = bench.make("ack", **lease), bench.make("ack", **lease), bench.again(taken)
    by_lease = bench.make("ack", leaseId=lease["leaseId"])
    count, next_one = bench.make("status", queue="q"), bench.make("consume_next", queue="q")
    bench.run(*published, ack, late, ack_again, by_lease, count, next_one)
    codes = [one.code for one in (ack, late, ack_again, by_lease)]
    assert codes == ["OK", "ERR_LEASE_EXPIRED", "ERR_MESSAGE_NOT_FOUND", "ERR_LEASE_EXPIRED"]
    assert next_one.data["message"]["payload"] == "1"
    assert (count.data["bytes"], count.data["totals"]["published"], count.data["totals"]["acked"]) == (48, 3, 1)


def test_messages_that_a_group_publishes_and_settles_together_leave_what_they_leave_one_by_one(
    make_bench: Callable[..., Bench],
) -> None:
    seen = []
    for together in (True, False):
        bench = make_bench().open()
        for queue in ("a", "b"):
            bench.publish(queue, "first")
        taken = [bench.send("consume_next", queue=queue).data["lease"] for queue in ("a", "b")]
        requests = [bench.make("publish", queue=queue, message=queue) for queue in "abba"]
        requests[2:2] = [bench.make("ack", messageKey=one["messageKey"], leaseId=one["leaseId"]) for one in taken]
        if together:
            bench.run(*requests)
        else:
            for request in requests:
                bench.run(request)
        assert [request.code for request in requests] == ["OK"] * len(requests)
        bench.reopen()
        left = [bench.do("browse", queue=queue, fullBodies=True)["messages"] for queue in ("a", "b")]
        seen.append(([[one["payload"] for one in page] for page in left], bench.event_types()))
    assert seen[0] == seen[1]


def test_the_quota_of_stored_bytes_counts_what_the_same_group_has_published(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**{"limits.userStoredBytes": "150"}).open()
    bench.publish("q", "first")
    requests = [bench.make("publish", uid=7, queue="q", message="x" * 20) for _ in range(5)]
    bench.run(*requests)
    assert [request.code for request in requests] == ["OK"] * 3 + ["ERR_QUOTA_EXCEEDED"] * 2


def test_the_quota_of_stored_bytes_counts_no_message_that_the_same_group_has_acknowledged(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(**{"limits.userStoredBytes": "100"}).open()
    bench.run(*[bench.make("publish", uid=7, queue="q", message="x" * 8) for _ in range(3)])
    lease = bench.do("consume_next", queue="q")["lease"]
    requests = [bench.make("publish", uid=7, queue="q", message="x" * 8) for _ in range(3)]
    ack = bench.make("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    bench.run(requests[0], ack, *requests[1:])
    assert [request.code for request in requests] == ["ERR_QUOTA_EXCEEDED", "OK", "ERR_QUOTA_EXCEEDED"]
    assert bench.live.quotas.refused["storedBytes"] == 2
