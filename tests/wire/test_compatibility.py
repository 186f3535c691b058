"""What clients and monitors of the C++ system rely on, beyond the exact bytes of its own programs (golden vectors)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from postroom_client import Client
from postroom_daemon.platform.usable import add_client_command
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, Fields

#: A queue that accepts only objects with a deviceId.
STRICT = {"name": "strict", "messageSchema": {"rules": [{"field": "deviceId", "type": "required"}]}}


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_errors_are_counted_by_kind_as_a_monitor_of_the_cpp_system_expects(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"queues": [STRICT]}).start()
    before = daemon.ask("metrics")["errors"]
    assert before == {"parse": 0, "validation": 0, "timeout": 0, "internal": 0}
    assert daemon.refusal("publish", queue="q", priority="high") == "ERR_PARSE_ERROR"
    assert daemon.refusal("publish") == "ERR_INVALID_REQUEST"
    daemon.reason(daemon.put(b"no JSON"))
    assert daemon.refusal("publish", queue="strict", message="{}") == "ERR_VALIDATION_FAILED"
    late = daemon.send("health", {}, deadlineMs=1)
    assert daemon.answer(late)["error"]["code"] == "ERR_TIMEOUT"
    assert daemon.refusal("nonsense") == "ERR_UNKNOWN_COMMAND"
    assert daemon.refusal("ack", messageKey="msg:q:none") == "ERR_MESSAGE_NOT_FOUND"
    metrics = daemon.ask("metrics")
    assert metrics["errors"] == {"parse": 3, "validation": 1, "timeout": 1, "internal": 2}
    assert sum(metrics["errors"].values()) == metrics["requests"]["error"] == sum(metrics["errorCodes"].values())


def test_the_last_request_is_given_by_its_unix_time_and_its_duration_by_another_name(daemon: Daemon) -> None:
    before_ms = time.time_ns() // 1_000_000
    daemon.publish("q")
    timing = daemon.ask("metrics")["timing"]
    assert before_ms <= timing["lastRequestMs"] <= time.time_ns() // 1_000_000
    assert 0 < timing["lastProcessingMs"] < 60_000


# --- ids -------------------------------------------------------------------------------------------------------------

IDS = ("dev:1", "a@b", "a b", "센서1", "-x", "$(touch x)", 'a"\\b', "%s", "[red]")


def postroomd(daemon: Daemon, *words: str) -> str:
    """What a command of ``postroomd`` prints; it must succeed."""
    done = daemon.tool(words[0], *words[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize("client_id", IDS)
def test_any_path_component_without_control_characters_is_a_client_id(daemon: Daemon, client_id: str) -> None:
    def ask(command: str, **payload: Any) -> Fields:
        answer = daemon.answer(daemon.send(command, payload, client_id=client_id))
        assert answer["ok"], answer
        return dict(answer["data"])

    key = ask("publish", queue="q", message="{}")["messageKey"]
    delivery = ask("consume_next", queue="q")
    assert delivery["lease"]["consumerId"] == client_id
    (consumer,) = ask("list_consumers", queue="q")["consumers"]
    assert consumer["consumerId"] == client_id
    ask("nack", messageKey=key, requeue=False)
    assert ask("list_dlq", queue="q")["messages"][0]["consumerId"] == client_id
    assert [event["by"]["client"] for event in daemon.events("published", "leased", "died")] == [client_id] * 3
    daemon.restart()
    ask("reprocess_dlq", messageKey=key)
    assert ask("consume_next", queue="q")["lease"]["consumerId"] == client_id
    daemon.stop()
    lines = [line for path in sorted((daemon.root / "traffic").iterdir()) for line in path.read_text().splitlines()]
    assert {json.loads(line)["client"] for line in lines} == {client_id, "wire"}
    assert "no faults" in postroomd(daemon, "verify")
    assert postroomd(daemon, "export", "--to", "-").count(json.dumps(client_id, ensure_ascii=False)) >= 1


def test_the_name_of_a_response_directory_is_the_utf_8_of_the_id_in_every_locale(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(wrapper=("env", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0", "LC_ALL=C"))
    daemon.start()
    sent = daemon.send("health", {}, client_id="센서1", request_id="요청-1")
    assert daemon.answer(sent)["ok"]


@pytest.mark.parametrize("client_id", IDS)
def test_the_client_takes_such_an_id_and_so_do_the_tools(daemon: Daemon, client_id: str) -> None:
    with Client(daemon.ipc, client_id=client_id, transport="mailbox") as client:
        assert client.publish("q", "x")
        delivery = client.consume_next("q")
        assert delivery and delivery.consumer_id == client_id
    assert "exists already" in postroomd(daemon, "add-client", "--user", str(os.geteuid()), "--", client_id)
    (daemon.root / "config.json").write_text(json.dumps({"clients": {client_id: "root"}}))
    assert client_id in postroomd(daemon, "check-config")


@pytest.mark.parametrize(
    ("client_id", "command"),
    [
        ("press-7", "postroomd add-client press-7 --user anna --root /r"),
        ("a b", "postroomd add-client 'a b' --user anna --root /r"),
        ("$(reboot)", "postroomd add-client '$(reboot)' --user anna --root /r"),
        ("-x", "postroomd add-client --user anna --root /r -- -x"),
    ],
)
def test_a_command_for_a_client_can_be_pasted_whatever_its_id_is(client_id: str, command: str) -> None:
    assert add_client_command(client_id, "anna", Path("/r")) == command


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_whole_floats_and_booleans_are_integers_and_count_as_such(daemon: Daemon) -> None:
    daemon.publish("q", "second", priority=True)
    daemon.publish("q", "first", priority=5.0)
    daemon.publish("q", "later", delayMs=60000.0)
    first = daemon.consume("q", visibilityTimeoutSec=True)
    assert (first["message"]["payload"], first["message"]["priority"]) == ("first", 5)
    assert 0 < first["lease"]["leaseUntilEngineMs"] - first["engineNowMs"] <= 1000
    assert daemon.consume("q")["message"]["priority"] == 1
    assert daemon.counts("q")["delayed"] == 1
    assert all(type(event.get("priority", 0)) is int for event in daemon.events("published"))
    assert daemon.refusal("publish", queue="q", delayMs=0.5) == "ERR_PARSE_ERROR"


def test_times_of_the_envelope_may_have_fractions(daemon: Daemon) -> None:
    now_s = time.time()
    sent = daemon.send("publish", {"queue": "q"}, timestampMs=now_s * 1000 + 0.5, deadlineMs=now_s * 1000 + 60_000.5)
    assert daemon.answer(sent)["ok"]
    late = daemon.send("publish", {"queue": "q"}, deadlineMs=now_s * 1000 - 60_000.5)
    assert daemon.answer(late)["error"]["code"] == "ERR_TIMEOUT"


# --- deduplication ---------------------------------------------------------------------------------------------------


def test_the_deduplication_key_of_a_message_envelope_counts_where_the_policy_asks_for_it(
    make_daemon: MakeDaemon,
) -> None:
    once = {"name": "once", "policy": {"deduplication": {"mode": "window", "windowSec": 600}}}
    daemon = make_daemon(config={"queues": [once]}).start()
    body = {"deduplicationKey": "device-001:1705112460", "payload": {"temp": 36.1}}

    def publish(queue: str, message: Any, **fields: Any) -> bool:
        return bool(daemon.ask("publish", queue=queue, message=message, **fields).get("duplicate"))

    assert not publish("once", json.dumps(body))
    assert publish("once", json.dumps(body | {"traceId": "2"}))
    assert publish("once", body), "a JSON value as well as JSON text"
    assert publish("once", "another", deduplicationKey="device-001:1705112460"), "the same key in the field"
    assert not publish("once", body, deduplicationKey="the field decides")
    for other in (
        '{"a":{"deduplicationKey":"x"}}',
        '{"deduplicationKey":7}',
        '"deduplicationKey"',
        '["deduplicationKey"]',
    ):
        assert not publish("once", other)
        assert not publish("once", other)
    assert not publish("any", body)
    assert not publish("any", body)
    daemon.restart(kill=True)
    assert publish("once", json.dumps(body))
