"""A member whose journal has lost its end, as a disk that lies about its syncs can leave it: its store is ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom_daemon.broker.following import CaughtUp
from tests.conformance.bench import Bench, exported
from tests.conformance.journal_end import lose_end
from tests.daemon.cluster_nodes import MakeBench, Stream, divergent, follow, lead, make_node

BACKENDS = ("sqlite", "filesystem", "hybrid")


def work(bench: Bench, number: int) -> None:
    """Requests whose effects a second fold would double: bodies, ends, policies, totals, claims, logs."""
    sent = [bench.make("publish", queue="q", message=f"{number}-{at}", priority=at % 3) for at in range(4)]
    bench.run(*sent)
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 3 + number}})
    taken = bench.do("consume_next", queue="q", consumerId="c")["lease"]
    bench.do("ack", messageKey=taken["messageKey"], leaseId=taken["leaseId"])
    taken = bench.do("consume_next", queue="q", consumerId="c")["lease"]
    bench.do("nack", messageKey=taken["messageKey"], leaseId=taken["leaseId"], requeue=True, reason="no")
    bench.do("publish", queue=f"new-{number}", message="x", delayMs=60_000)
    bench.do("append", queue="log", message=f"{number}")
    bench.clocks.pass_ms(1000)
    bench.run()


def as_it_is(bench: Bench) -> None:
    pass


def written(bench: Bench) -> None:
    bench.store.disk.tidy()


def checkpointed(bench: Bench) -> None:
    bench.store.disk.checkpoint()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("durable", [as_it_is, written, checkpointed])
def test_a_member_whose_journal_has_lost_its_end_folds_nothing_twice_and_nothing_never(
    make_bench: MakeBench, backend: str, durable: Callable[[Bench], None]
) -> None:
    """The leader is stopped, and a follower: each loses groups; the last of them may be torn within."""
    stream = Stream()
    nodes = leader, follower, other = [make_node(make_bench, backend) for _ in range(3)]
    lead(leader, stream, 1)
    leader.do("create_queue", queue="log", createWith={"kind": "log"})
    for number in range(3):
        work(leader, number)
        for bench in (follower, other):
            follow(bench, stream)
    for bench in (leader, follower):
        bench.store.disk.checkpoint()
    work(leader, 3)
    follow(follower, stream)
    for bench in (leader, follower):
        durable(bench)
    work(leader, 4)
    follow(follower, stream)
    for bench in (leader, follower):
        durable(bench)
    for groups, torn in ((1, 0), (3, 0), (5, 40), (9, 7)):
        for bench in (leader, follower):
            bench.close()
            lose_end(bench.journal_root, groups, torn)
        for bench in (leader, follower, other):
            catch_up(bench, stream)
        assert state_of(leader) == state_of(other) == state_of(follower), groups
        lead(other, stream, other.live.broker.state.epoch + 1)
        work(other, 5 + groups)
        for bench in (leader, follower):
            catch_up(bench, stream)
            durable(bench)
        assert state_of(leader) == state_of(other) == state_of(follower), groups
        other.reopen()
        catch_up(other, stream)
    for bench in nodes:
        bench.reopen()
        catch_up(bench, stream)
        assert not bench.live.found and not divergent(bench).names()
    assert state_of(leader) == state_of(other) == state_of(follower)
    assert len({tuple(path.read_bytes() for path in bench.segments()) for bench in nodes}) == 1


def state_of(bench: Bench) -> list[dict[str, Any]]:
    """Its state file; the clocks of the nodes differ, and with them what is due."""
    lines = exported(bench)
    for counts in (line["counts"] for line in lines if "counts" in line):
        counts["ready"] += counts.pop("delayed")
    return [line | {"state": "ready"} if line.get("state") == "delayed" else line for line in lines]


def catch_up(bench: Bench, stream: Stream) -> None:
    """Follow, as the daemon does: its root is opened again when its journal has what its store shows."""
    try:
        follow(bench, stream)
    except CaughtUp:
        bench.reopen()
        follow(bench, stream)
