"""Helpers to make dead letters and to list them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.bench import Bench

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(request.param).open()


def policy(bench: Bench, queue: str = "q", **groups: Any) -> None:
    bench.do("set_policy", queue=queue, policy=groups)


def fail(bench: Bench, key: str, queue: str = "q", **options: Any) -> dict[str, Any]:
    delivery = bench.do("consume_next", queue=queue)
    assert delivery["message"]["messageKey"] == key
    return bench.do("nack", messageKey=key, leaseId=delivery["lease"]["leaseId"], **options)


def bury(bench: Bench, queue: str = "q", reason: str = "bad", **options: Any) -> str:
    """Make a dead letter; its key."""
    key = bench.publish(queue, **options)
    fail(bench, key, queue, reason=reason, requeue=False)
    bench.clocks.pass_ms(10)
    return key


def dead(bench: Bench, queue: str = "q", **options: Any) -> list[str]:
    return [one["messageKey"] for one in bench.do("list_dlq", queue=queue, **options)["messages"]]


def run_periodic_tasks(bench: Bench, seconds: int = 2) -> None:
    for _ in range(seconds):
        bench.clocks.pass_ms(1001)
        bench.run()


def settle(bench: Bench, delivery: dict[str, Any], command: str = "ack", **options: Any) -> None:
    lease = delivery["lease"]
    bench.do(command, messageKey=lease["messageKey"], leaseId=lease["leaseId"], **options)
