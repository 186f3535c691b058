"""What clients and monitors of the C++ system rely on, beyond the exact bytes of its own programs (golden vectors)."""

from __future__ import annotations

import time

from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon

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
