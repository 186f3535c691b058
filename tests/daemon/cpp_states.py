"""What an import of the C++ system must make of messages in all states, whichever backend they come from."""

from __future__ import annotations

import orjson

from postroom_common.protocol import State
from tests.conformance.bench import Bench

MINUTE = 60_000
STATES = {
    "first": State.READY, "ready": State.READY, "requeued": State.READY, "delayed": State.DELAYED, "due": State.READY,
    "retried": State.DELAYED, "leased": State.INFLIGHT, "over": State.INFLIGHT, "dead": State.DEAD,
    "nacked": State.DEAD, "targeted": State.READY,
}  # fmt: skip


def check_imported(bench: Bench, keys: dict[str, str], reason_of_nacked: str) -> None:
    """Check the messages with these keys, by name, in an open root that has imported them."""
    now = bench.live.clock.now()
    of = {name: entry for name, key in keys.items() if (entry := bench.store.get(key))}
    assert {name: entry.state for name, entry in of.items()} == STATES
    for name, entry in of.items():
        assert now.engine - entry.created == now.wall - entry.created_wall, name
    assert of["first"].created_wall == bench.clocks.wall_ms - 50 * MINUTE and of["first"].priority == 2
    assert orjson.loads(bench.store.bodies.envelope(keys["first"])) == {
        "parts": [{"text": "text"}],
        "attributes": {"text": '{"k":"v"}'},
    }
    assert of["requeued"].attempt == 3 and of["retried"].attempt == 2
    assert of["delayed"].due == now.engine + 5 * MINUTE and of["retried"].due == now.engine + 7 * MINUTE
    assert of["leased"].lease_until == now.engine + 20_000 and of["over"].lease_until == now.engine
    assert of["targeted"].target == "worker-7"
    (letter,) = bench.do("list_dlq", queue="telemetry")["messages"]
    assert (letter["reason"], letter["reasonCode"], letter["attempt"], letter["dlqAt"]) == (
        "retry limit exceeded (attempt 5)", "RETRY_LIMIT", 5, bench.clocks.wall_ms - MINUTE,
    )  # fmt: skip
    (letter,) = bench.do("list_dlq", queue="other")["messages"]
    assert (letter["reason"], letter["reasonCode"]) == (reason_of_nacked, "REJECTED")
