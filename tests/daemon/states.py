"""States of a root as plain values, to be compared."""

from __future__ import annotations

from typing import Any

import orjson

from postroom_daemon.observe.state import (
    Ask,
    State,
)
from tests.conformance.bench import Bench


def plain(state: State) -> dict[str, Any]:
    """All of a state, as one value."""
    queues = [record.to_json() for record in state.queues]
    for queue in queues:  # what becomes due while the pages are read moves from one to the other without an event
        waiting = sum(queue["counts"][state] for state in ("ready", "delayed", "gathering"))
        queue["counts"] |= {"ready": 0, "delayed": waiting, "gathering": 0}
    return {
        "head": state.head.to_json() | {"engineMs": 0, "wallMs": 0, "backend": ""},
        "queues": queues,
        "facts": state.facts,
        "messages": [orjson.loads(orjson.dumps(message)) for message in state.messages],
    }


def quietly(bench: Bench) -> Ask:
    """Asks, and nothing else happens."""
    return lambda command, payload: bench.do(command, **payload)
