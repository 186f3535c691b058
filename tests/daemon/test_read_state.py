"""read_state: everything that a root holds, by pages, for its operator alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from postroom_daemon.model.records import Entry, entry_from_json, entry_to_json
from tests.conformance.bench import Bench

BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")


def read(bench: Bench, part: str, limit: int = 2) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = bench.do("read_state", part=part, after=after, limit=limit)
        assert page["asOfEvent"] == bench.store.applied
        found += orjson.loads(orjson.dumps(page[part]))
        after = page["next"]
        if not after:
            return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_its_pages_have_every_message_with_body_and_history(make_bench: Callable[..., Bench], backend: str) -> None:
    bench = make_bench(backend).open()
    keys = [bench.publish(message=f"body {number}", priority=number) for number in range(4)]
    bench.publish("other", delayMs=50, attributes={"a": 1})
    bench.do("consume_next", queue="q")
    bench.do("nack", messageKey=keys[3], consumerId="client", reason="broken")
    bench.do("consume_next", queue="q")
    found = {message["key"]: message for message in read(bench, "messages")}
    assert {key: entry_from_json(message) for key, message in found.items()} == {
        key: bench.store.get(key) for key in found
    }
    assert [key for key in found if key.startswith("msg:q:")] == keys
    assert [message["state"] for message in found.values()] == ["delayed", "ready", "ready", "inflight", "dead"]
    assert found[keys[0]]["message"] == orjson.loads(bench.store.bodies.envelope(keys[0]))
    assert [failure["reasonMessage"] for failure in found[keys[3]]["history"]] == ["broken"]
    assert [record["name"] for record in read(bench, "queues", 1)] == ["other", "q"]
    head = bench.do("read_state")
    assert (head["root"], head["epoch"], head["backend"]) == ("root-id", 1, backend)


def test_only_the_daemons_user_and_root_may_read_it(bench: Bench) -> None:
    stranger = bench.make("read_state", uid=4711)
    bench.run(stranger)
    assert stranger.code == "ERR_FORBIDDEN"


def test_an_entry_is_read_back_from_json_with_every_fact() -> None:
    for entry in (
        Entry("msg:q:1", "q", "ready", 0, 0, 0, 0),  # type: ignore[arg-type]
        Entry("msg:q:1", "q", "dead", -1, 2, 3, 4, "t", 5, 6, "l", "c", 7, 8, 9, 10, "p"),  # type: ignore[arg-type]
    ):
        assert entry_from_json(orjson.loads(orjson.dumps(entry_to_json(entry)))) == entry
