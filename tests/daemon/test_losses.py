"""What the store has never seen: health says so until an operator has taken note of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from postroom_daemon.cli import main
from postroom_daemon.records import LOSSES_LIMIT, with_loss
from tests.conformance.bench import Bench

STORES = ("sqlite", "filesystem", "hybrid")


def after_old_segments_went(make_bench: Callable[..., Bench], backend: str) -> tuple[Bench, int]:
    """A root whose store is lost, with a message that was published only in a segment that is gone; the id of the last
    event that is gone."""
    bench = make_bench(backend, segment_bytes=600).open()
    bench.publish(message="old")
    while len(bench.segments()) < 4:
        bench.publish("other", message="x" * 100)
    bench.publish(message="new")
    assert bench.store.checkpoint() == bench.live.journal.last_id
    assert bench.live.journal.drop_segments(10**9, 2**62, 10**9, 2**62)
    first = int(bench.segments()[0].stem)
    bench.close()
    bench.lose_store()
    return bench.open(), first - 1


def journal_check(bench: Bench) -> dict[str, Any]:
    check: dict[str, Any] = bench.do("health")["checks"]["journal"]
    return check


@pytest.mark.parametrize("backend", STORES)
def test_a_store_that_is_lost_after_old_segments_went_leaves_health_degraded_until_it_is_noted(
    make_bench: Callable[..., Bench], backend: str
) -> None:
    bench, last_lost = after_old_segments_went(make_bench, backend)
    for _ in range(3):
        health = bench.do("health")
        assert health["status"] == "degraded"
        assert health["checks"]["journal"]["missingEvents"] == [[1, last_lost]]
        assert f"{last_lost} events are lost" in health["checks"]["journal"]["error"]
        bench.stop()
        bench.store.checkpoint()
        bench.reopen()
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "new"
    assert bench.live.broker.accept_losses() == [[1, last_lost]]
    for _ in range(2):
        bench.store.checkpoint()
        bench.reopen()
        assert bench.do("health")["status"] == "ok" and "missingEvents" not in journal_check(bench)
    assert [event["ranges"] for event in bench.events() if event["type"] == "loss_accepted"] == [[[1, last_lost]]]
    assert bench.live.broker.accept_losses() == []


def test_what_was_noted_comes_back_when_the_store_is_lost_before_the_note_only(
    make_bench: Callable[..., Bench],
) -> None:
    bench, _ = after_old_segments_went(make_bench, "sqlite")
    bench.live.broker.accept_losses()
    bench.reopen(without_store=True)
    assert bench.do("health")["status"] == "ok", "the note stands behind the hole, and is folded as well"


def test_events_that_only_the_journal_lacks_are_told_and_are_no_loss(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(segment_bytes=300).open()
    for number in range(6):
        bench.publish(message=f"m{number}")
    bench.close()
    lost = bench.segments()[3]
    last = int(bench.segments()[4].stem) - 1
    lost.unlink()
    bench.open()
    health = bench.do("health")
    assert health["status"] == "ok"
    assert health["checks"]["journal"]["missingEvents"] == [[int(lost.stem), last]]


def test_the_command_line_takes_note(make_bench: Callable[..., Bench]) -> None:
    bench, last_lost = after_old_segments_went(make_bench, "sqlite")
    bench.close()
    outcome = CliRunner().invoke(main, ["accept-loss", "--root", str(bench.path)])
    assert (outcome.exit_code, outcome.output) == (0, f"events 1 to {last_lost} are lost\ntaken note of\n")
    again = CliRunner().invoke(main, ["accept-loss", "--root", str(bench.path), "--json"])
    assert json.loads(again.output) == {"ok": True, "ranges": []}
    bench.open()
    assert bench.do("health")["status"] == "ok"


def test_many_losses_are_told_as_so_many_ranges_and_none_is_left_out() -> None:
    losses: list[list[int]] = []
    for number in range(3 * LOSSES_LIMIT):
        losses = with_loss(losses, 10 * number, 10 * number + 1)
    assert len(losses) == LOSSES_LIMIT
    assert losses[0] == [0, 1] and losses[-1] == [10 * (LOSSES_LIMIT - 1), 10 * (3 * LOSSES_LIMIT - 1) + 1]
