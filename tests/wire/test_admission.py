"""What a queue takes and gives, seen through the mailbox."""

from __future__ import annotations

import json

from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon, Sent

LONG_MS = 60_000


def policy(daemon: Daemon, queue: str = "q", **groups: object) -> None:
    daemon.ask("set_policy", queue=queue, policy=groups)


def code(daemon: Daemon, sent: Sent) -> str:
    answer = daemon.answer(sent)
    return "OK" if answer["ok"] else str(answer["error"]["code"])


@on_every_store
def test_of_many_simultaneous_publishes_as_many_succeed_as_there_is_space_for(daemon: Daemon) -> None:
    policy(daemon, limits={"messages": 100})
    sent = [daemon.send("publish", {"queue": "q", "message": str(number)}) for number in range(150)]
    codes = [code(daemon, one) for one in sent]
    assert codes.count("OK") == 100
    assert codes.count("ERR_QUEUE_FULL") == 50
    assert daemon.counts("q") == {"ready": 100}


@on_every_store
def test_a_used_key_is_remembered_by_the_next_daemon_even_after_a_kill(daemon: Daemon) -> None:
    policy(daemon, deduplication={"mode": "window", "windowSec": 3600})
    first = daemon.ask("publish", queue="q", message="once", deduplicationKey="k")
    daemon.settle("ack", daemon.consume("q"))
    daemon.kill()
    daemon.start()
    again = daemon.ask("publish", queue="q", message="once", deduplicationKey="k")
    assert again == first | {"duplicate": True}
    assert daemon.counts("q") == {}


def test_of_many_simultaneous_duplicates_one_is_the_first(daemon: Daemon) -> None:
    policy(daemon, deduplication={"mode": "while-present"})
    sent = [daemon.send("publish", {"queue": "q", "deduplicationKey": "k"}) for _ in range(40)]
    answers = [daemon.answer(one)["data"] for one in sent]
    assert len({one["messageKey"] for one in answers}) == 1
    assert sum("duplicate" not in one for one in answers) == 1


def test_a_consumer_that_waits_at_its_limit_is_served_when_it_settles(daemon: Daemon) -> None:
    policy(daemon, limits={"inflightPerConsumer": 1})
    daemon.publish("q", "first")
    daemon.publish("q", "second")
    delivery = daemon.consume("q", consumerId="c")
    waiting = daemon.send("consume_next", {"queue": "q", "consumerId": "c", "waitMs": LONG_MS})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "it waits")
    daemon.settle("ack", delivery)
    assert daemon.answer(waiting)["data"]["message"]["payload"] == "second"


def test_the_schema_of_the_cpp_system_is_checked_with_its_error_texts(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    rules = [
        {"field": "deviceId", "type": "required"},
        {"field": "timestamp", "type": "type", "expectedType": "number"},
    ]
    daemon.root.mkdir(exist_ok=True)
    queues = [{"name": "telemetry", "messageSchema": {"name": "reading", "rules": rules}}]
    (daemon.root / "config.json").write_text(json.dumps({"queues": queues}))
    daemon.start()
    answer = daemon.answer(daemon.send("publish", {"queue": "telemetry", "message": '{"timestamp":"now"}'}))
    assert answer["error"] == {
        "code": "ERR_VALIDATION_FAILED",
        "message": "field 'deviceId' is required; field 'timestamp' must be of type 'number'",
    }
    daemon.publish("telemetry", '{"deviceId": "d", "timestamp": 1.5}')


def test_no_body_keeps_the_daemon_busy_whatever_the_pattern(daemon: Daemon) -> None:
    policy(daemon, validation={"schema": {"pattern": "^(a|aa)+$"}})
    sent = daemon.send("publish", {"queue": "q", "message": json.dumps("a" * 200_000 + "!")})
    assert code(daemon, sent) == "ERR_VALIDATION_FAILED"
    daemon.publish("q", '"aaa"')
