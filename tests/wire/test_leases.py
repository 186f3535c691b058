"""Who may settle a delivery, and for how long."""

from __future__ import annotations

import time

import pytest

from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon, Fields, receipt, wait_until

SETTLING = ("ack", "nack", "release", "extend_lease")
every_settling_command = pytest.mark.parametrize("command", SETTLING)


def leased(daemon: Daemon, queue: str = "q", **fields: object) -> Fields:
    daemon.publish(queue)
    return daemon.consume(queue, consumerId="holder", **fields)


def test_a_message_that_does_not_exist_cannot_be_settled(daemon: Daemon) -> None:
    for command in SETTLING:
        assert daemon.refusal(command, messageKey="msg:q:nothing", leaseId="x") == "ERR_MESSAGE_NOT_FOUND"


def test_a_message_that_was_acknowledged_cannot_be_settled(daemon: Daemon) -> None:
    delivery = leased(daemon)
    daemon.settle("ack", delivery)
    for command in SETTLING:
        assert daemon.refusal(command, **receipt(delivery)) == "ERR_MESSAGE_NOT_FOUND"


def test_a_message_that_is_not_leased_cannot_be_settled(daemon: Daemon) -> None:
    key = daemon.publish("q")
    for command in SETTLING:
        assert daemon.refusal(command, messageKey=key, leaseId="x") == "ERR_LEASE_EXPIRED"
    assert daemon.counts("q") == {"ready": 1}


def test_another_lease_cannot_settle(daemon: Daemon) -> None:
    delivery = leased(daemon)
    wrong = receipt(delivery) | {"leaseId": "00000000-0000-4000-8000-000000000000", "consumerId": "holder"}
    for command in SETTLING:
        assert daemon.refusal(command, **wrong) == "ERR_LEASE_MISMATCH"
    assert daemon.counts("q") == {"inflight": 1}


@pytest.mark.parametrize("lease", [{}, {"leaseId": ""}, {"leaseId": None}], ids=["absent", "empty", "null"])
def test_without_a_lease_id_the_consumer_must_own_the_lease(daemon: Daemon, lease: Fields) -> None:
    for command in SETTLING:
        key = leased(daemon, queue=command)["message"]["messageKey"]
        assert daemon.refusal(command, messageKey=key, **lease) == "ERR_LEASE_MISMATCH"
        assert daemon.refusal(command, messageKey=key, consumerId="other", **lease) == "ERR_LEASE_MISMATCH"
        daemon.ask(command, messageKey=key, consumerId="holder", **lease)


@on_every_store
def test_the_lease_id_alone_is_enough_also_after_a_crash(daemon: Daemon) -> None:
    before, after, letter = (leased(daemon, queue)["lease"]["leaseId"] for queue in ("q", "q", "d"))
    daemon.ask("nack", leaseId=letter, reason="bad")
    assert daemon.ask("release", leaseId=before) == {"state": "ready"}
    letter = daemon.consume("d.dlq")["lease"]["leaseId"]
    again = daemon.consume("q")["lease"]["leaseId"]
    daemon.restart(kill=True)
    assert daemon.ask("extend_lease", leaseId=after, visibilityTimeoutSec=600)["leaseUntilEngineMs"]
    assert daemon.ask("ack", leaseId=after) == daemon.ask("ack", leaseId=again) == {}
    assert daemon.ask("ack", leaseId=letter, queue="d.dlq") == {}
    assert daemon.counts("q") == daemon.counts("d") == {}
    for lease in (before, after, again, letter):
        assert daemon.refusal("ack", leaseId=lease) == "ERR_LEASE_EXPIRED"


@every_settling_command
def test_a_lease_id_that_nobody_has_settles_nothing(daemon: Daemon, command: str) -> None:
    delivery = leased(daemon)
    assert daemon.refusal(command, leaseId="00000000-0000-4000-8000-000000000000") == "ERR_LEASE_EXPIRED"
    assert daemon.refusal(command, leaseId=delivery["message"]["messageKey"]) == "ERR_LEASE_EXPIRED"
    assert daemon.refusal(command, consumerId="holder") == "ERR_INVALID_REQUEST"
    assert daemon.refusal(command, leaseId="", messageKey="") == "ERR_INVALID_REQUEST"
    assert daemon.counts("q") == {"inflight": 1}


@every_settling_command
def test_a_queue_beside_a_lease_id_must_be_that_of_the_message(daemon: Daemon, command: str) -> None:
    lease = leased(daemon)["lease"]["leaseId"]
    assert daemon.refusal(command, leaseId=lease, queue="other") == "ERR_LEASE_MISMATCH"
    assert daemon.refusal(command, leaseId=lease, queue="q.dlq") == "ERR_LEASE_MISMATCH"
    daemon.ask(command, leaseId=lease, queue="q")


def test_a_queue_beside_a_message_key_is_ignored(daemon: Daemon) -> None:
    assert daemon.settle("ack", leased(daemon), queue="other") == {}


def test_batches_and_an_ack_with_messages_take_leases_alone(daemon: Daemon) -> None:
    leases = [leased(daemon)["lease"]["leaseId"] for _ in range(5)]
    items = [{"leaseId": leases[0]}, {"leaseId": leases[0]}, {"leaseId": leases[1], "queue": "other"}, {}]
    results = daemon.ask("ack_batch", items=items)["results"]
    assert [one.get("error", {}).get("code") for one in results] == [
        None, "ERR_MESSAGE_NOT_FOUND", "ERR_LEASE_MISMATCH", "ERR_INVALID_REQUEST",
    ]  # fmt: skip
    results = daemon.ask("nack_batch", items=[{"leaseId": leases[1]}, {"leaseId": leases[1]}])["results"]
    assert [one.get("error", {}).get("code") for one in results] == [None, "ERR_LEASE_EXPIRED"]
    daemon.ask("ack_and_publish", leaseId=leases[2], messages=[{"queue": "next", "message": "x"}])
    assert daemon.refusal("ack_and_publish", leaseId=leases[2], messages=[{"queue": "next"}]) == "ERR_LEASE_EXPIRED"
    assert daemon.counts("q") == {"inflight": 2, "dlq": 1} and daemon.counts("next") == {"ready": 1}


def test_a_lease_that_ended_or_was_answered_to_another_is_no_longer_enough(daemon: Daemon) -> None:
    lease = leased(daemon, visibilityTimeoutSec=0.01)["lease"]["leaseId"]
    assert daemon.refusal("ack", leaseId="x") == "ERR_LEASE_EXPIRED"  # there is an index from now on
    daemon.wait(lambda: daemon.events("retried"), "the lease has ended")
    assert daemon.refusal("ack", leaseId=lease) == "ERR_LEASE_EXPIRED"
    another = daemon.ask("consume_next", queue="q", waitMs=30_000)["lease"]["leaseId"]
    assert daemon.ask("ack", leaseId=another) == {}


@every_settling_command
def test_a_late_consumer_is_refused_even_before_its_lease_has_been_ended(daemon: Daemon, command: str) -> None:
    delivery = leased(daemon, visibilityTimeoutSec=0.4)
    began = time.monotonic()
    daemon.freeze()
    sent = daemon.send(command, receipt(delivery))
    wait_until(lambda: time.monotonic() > began + 0.5, "the lease is over")
    daemon.thaw()
    assert daemon.answer(sent)["error"]["code"] == "ERR_LEASE_EXPIRED"
    assert daemon.events("acked", "died", "released", "lease_extended") == []
    (retried,) = daemon.events("retried")
    assert retried["failure"]["reasonCode"] == "LEASE_EXPIRED"


@every_settling_command
def test_a_late_consumer_cannot_touch_a_message_of_another_consumer(daemon: Daemon, command: str) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"initialDelaySec": 0.001}})
    late = leased(daemon, visibilityTimeoutSec=0.05)
    taken = daemon.ask("consume_next", queue="q", waitMs=30000, consumerId="other")
    assert taken["message"]["attempt"] == 2
    assert daemon.refusal(command, **receipt(late)) == "ERR_LEASE_MISMATCH"
    daemon.settle("ack", taken)


def test_a_lease_that_is_extended_lives_on(daemon: Daemon) -> None:
    delivery = leased(daemon, visibilityTimeoutSec=2)
    first_end = delivery["lease"]["leaseUntilEngineMs"]
    extended = daemon.settle("extend_lease", delivery, visibilityTimeoutSec=60)
    assert extended["leaseUntilEngineMs"] == extended["engineNowMs"] + 60_000
    daemon.wait(lambda: daemon.ask("health")["engineNowMs"] > first_end + 50, "the first lease would be over")
    daemon.settle("ack", delivery)


def test_a_lease_can_be_made_shorter(daemon: Daemon) -> None:
    delivery = leased(daemon, visibilityTimeoutSec=3600)
    daemon.settle("extend_lease", delivery, visibilityTimeoutSec=0.02)
    daemon.wait(lambda: daemon.events("retried"), "the lease is over")


def test_a_lease_without_a_given_length_has_that_of_the_policy(make_daemon) -> None:
    daemon = make_daemon(config={"policyDefaults": {"visibilityTimeoutSec": 77}}).start()
    delivery = leased(daemon)
    assert delivery["lease"]["leaseUntilEngineMs"] - delivery["engineNowMs"] == 77_000


def test_every_lease_has_a_new_receipt(daemon: Daemon) -> None:
    daemon.publish("q")
    seen = set()
    for _ in range(5):
        delivery = daemon.consume("q")
        seen.add(delivery["lease"]["leaseId"])
        daemon.settle("release", delivery)
    assert len(seen) == 5


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
@on_every_store
def test_leases_and_delays_survive_a_restart(daemon: Daemon, kill: bool) -> None:
    delivery = leased(daemon)
    delayed = daemon.publish("q", delayMs=3_600_000)
    daemon.restart(kill=kill)
    assert daemon.ask("consume_next", queue="q") == {"message": None}
    assert daemon.counts("q") == {"inflight": 1, "delayed": 1}
    assert daemon.refusal("ack", messageKey=delayed) == "ERR_LEASE_EXPIRED"
    daemon.settle("ack", delivery)


def test_a_lease_that_ends_while_no_daemon_runs_is_over_at_the_start(daemon: Daemon) -> None:
    delivery = leased(daemon, visibilityTimeoutSec=0.2)
    began = time.monotonic()
    daemon.kill()
    wait_until(lambda: time.monotonic() > began + 0.3, "the lease is over")
    daemon.start()
    assert daemon.refusal("ack", **receipt(delivery)) in ("ERR_LEASE_EXPIRED", "ERR_LEASE_MISMATCH")
    (retried,) = daemon.events("retried")
    assert retried["key"] == delivery["message"]["messageKey"]


@on_every_store
def test_attempts_count_deliveries_of_consumers_that_die(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 3, "initialDelaySec": 0.001}})
    daemon.publish("q", "poison")
    for attempt in (1, 2, 3):
        answer = daemon.ask("consume_next", queue="q", waitMs=30000, visibilityTimeoutSec=0.02)
        assert answer["message"]["attempt"] == attempt
        daemon.restart(kill=True)
    daemon.wait(lambda: daemon.counts("q") == {"dlq": 1}, "the message is dead")
