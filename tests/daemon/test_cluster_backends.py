"""What members of a cluster do whose store has files of its own for messages or bodies."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroom_daemon.broker.failures import NotConfirmed
from postroom_daemon.broker.following import CannotFollow
from postroom_daemon.cli.postroomd import main
from tests.conformance.bench import Bench, exported
from tests.daemon.cluster_nodes import MakeBench, Stream, divergent, follow, lead, make_node


def files_of(bench: Bench) -> dict[str, bytes]:
    root = bench.config.settings.hybrid_payload_root
    return {str(path.relative_to(root)): path.read_bytes() for path in bench.body_files()}


def kill(bench: Bench) -> None:
    """End it as a killed process: what its database has not committed is lost."""
    vars(bench.store)["flush"] = lambda: None
    bench.close()


def test_bodies_in_files_reach_nodes_of_every_backend_with_their_events(make_bench: MakeBench) -> None:
    stream = Stream()
    first = make_node(make_bench, "hybrid")
    lead(first, stream, 1)
    first.publish(message="a body that is easy to find")
    first.run(*(first.make("publish", queue="q", message=f"body {number}") for number in range(150)))
    first.publish(message="in another queue", queue="r")
    first.do("ack", **taken(first))
    assert all("message" in event for event in first.events() if event["type"] == "published")
    assert len(files_of(first)) == 152
    nodes = [make_node(make_bench, backend) for backend in ("hybrid", "sqlite", "filesystem", "memory")]
    for node in nodes:
        follow(node, stream)
        assert exported(node) == exported(first), node.store.name
    first.publish(message="the last one")
    follow(nodes[0], stream)
    assert files_of(nodes[0]) == files_of(first) and len(files_of(first)) == 152
    follow(nodes[2], stream)
    lead(nodes[2], stream, 2)
    nodes[2].publish(message="of another backend")
    first.close()
    follow(first, stream)
    assert exported(first) == exported(nodes[2])
    assert any(b"of another backend" in body for body in files_of(first).values())


def taken(bench: Bench) -> dict[str, str]:
    lease = bench.do("consume_next", queue="q", consumerId="c")["lease"]
    return {"messageKey": lease["messageKey"], "leaseId": lease["leaseId"]}


def test_the_file_of_a_body_is_durable_before_the_database_refers_to_it(make_bench: MakeBench) -> None:
    bench, done = make_node(make_bench, "hybrid"), list[str]()
    lead(bench, Stream(), 1)
    bench.store.disk.tidy()
    bench.publish()  # the queue's directory is new
    bench.store.disk.tidy()
    for name in ("syncfs", "fsync"):
        setattr(bench.files, name, noting(done, name))
    bench.publish()
    bench.publish()
    assert done == [], "the journal has the bodies"
    bench.store.disk.tidy()
    assert done == ["syncfs"]


def noting(done: list[str], name: str) -> Callable[[int], None]:
    return lambda fd: done.append(name)


def test_a_killed_node_finds_its_body_files_and_moves_none_away(make_bench: MakeBench) -> None:
    stream = Stream()
    first, second = make_node(make_bench, "hybrid"), make_node(make_bench, "hybrid")
    lead(first, stream, 1)
    first.store.disk.tidy()
    for text in ("whole", "torn", "emptied", "missing", "another"):
        first.publish(message=text)
    kill(first)
    root = first.config.settings.hybrid_payload_root
    paths = {path.read_bytes(): path for path in root.rglob("*.json")}

    def path_of(text: str) -> Path:
        return next(path for body, path in paths.items() if text.encode() in body)

    path_of("torn").write_bytes(path_of("torn").read_bytes()[:20] + bytes(9))
    path_of("emptied").write_bytes(b"")
    path_of("missing").unlink()
    follow(first, stream)
    follow(second, stream)
    assert exported(first) == exported(second)
    assert files_of(first) == files_of(second)
    assert [body for body in first.quarantined().values() if b"another" not in body] == []


def test_a_message_whose_end_is_taken_off_the_journal_still_has_its_file(make_bench: MakeBench) -> None:
    stream = Stream()
    first = make_node(make_bench, "hybrid")
    lead(first, stream, 1)
    key = first.publish()
    lease = taken(first)
    first.store.disk.tidy()
    first.do("ack", **lease)
    kill(first)
    first.open()
    assert len(divergent(first).names()) == 1 and first.store.bodies.envelope(key)
    follow(first, stream)
    assert first.store.get(key) is None
    lead(first, stream, 2)
    assert not files_of(first)
    assert first.store.applied == first.events()[-1]["id"]


@pytest.mark.parametrize(("outcome", "limit"), [("refused", 5), ("late", 5), ("refused", 4)])
def test_the_body_files_of_a_group_that_is_taken_off_go_with_it(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, outcome: str, limit: int
) -> None:
    """The group's file has the bodies. So many that they may be of another root's go to quarantine."""
    monkeypatch.setattr("postroom_daemon.stores.hybrid.store.CRASH_FILES_LIMIT", limit)
    stream = Stream()
    first = make_node(make_bench, "hybrid")
    lead(first, stream, 1)
    first.publish(message="confirmed")
    before = files_of(first)
    stream.outcome = outcome
    sent = [first.make("publish", queue="q", message=f"unconfirmed {number}") for number in range(5)]
    with pytest.raises(NotConfirmed):
        first.run(*sent)
    assert len([*first.config.settings.hybrid_payload_root.rglob("*.json")]) == 6
    first.reopen()
    assert files_of(first) == before and len(first.quarantined()) == (0 if limit == 5 else 5)
    (name,) = divergent(first).names()
    assert sum(b"unconfirmed" in line for line in divergent(first).lines(name)) == 5
    follow(first, stream)
    assert len(files_of(first)) == (6 if outcome == "late" else 1)
    kill(first)
    follow(first, stream)
    assert len(files_of(first)) == (6 if outcome == "late" else 1)


def test_a_follower_whose_disk_refuses_a_body_applies_its_group_later(make_bench: MakeBench) -> None:
    stream = Stream()
    first, second = make_node(make_bench), make_node(make_bench, "hybrid")
    lead(first, stream, 1)
    follow(second, stream)
    first.publish()
    before, write = second.events(), second.files.write
    second.files.write = refuse
    with pytest.raises(CannotFollow, match="disk is broken"):
        follow(second, stream)
    second.files.write = write
    assert second.events() == before and not files_of(second)
    follow(second, stream)
    assert exported(second) == exported(first)


def refuse(fd: int, data: bytes) -> int:
    raise OSError(errno.EIO, "the disk is broken")


def test_verify_of_a_member_without_its_database_takes_no_body_for_an_orphan(make_bench: MakeBench) -> None:
    bench = make_node(make_bench, "hybrid")
    lead(bench, Stream(), 1)
    bench.publish(message="with a file")
    bench.publish(message="without")
    bench.body_files()[1].unlink()
    bench.close()
    bench.lose_store()
    config = {"backend": "hybrid", "cluster": {"enabled": True}, "hybrid": {"inlineBelowBytes": 0}}
    (bench.path / "config.json").write_text(json.dumps(config))
    output = CliRunner().invoke(main, ["verify", "--root", str(bench.path), "--json"]).output
    assert [finding["kind"] for finding in json.loads(output)["findings"]] == ["store-missing"]


@pytest.mark.parametrize("shown", [False, True])
def test_a_start_takes_no_group_off_that_a_file_shows(make_bench: MakeBench, shown: bool) -> None:
    stream = Stream()
    first, second = make_node(make_bench, "filesystem"), make_node(make_bench)
    lead(first, stream, 1)
    first.publish(message="before")
    first.store.disk.checkpoint()
    policy = {"retry": {"limit": 4}}
    first.run(first.make("publish", queue="q", message="a"), first.make("set_policy", queue="q", policy=policy))
    if shown:
        first.store.disk.tidy()
    first.reopen()
    assert (first.counts(), len(divergent(first).names())) == ({"ready": 1 + shown}, 1 - shown)
    follow(first, stream)
    follow(second, stream)
    assert exported(first) == exported(second)
    assert not divergent(first).names() and not first.live.found
    lead(first, stream, 2)
    lease = taken(first)
    first.store.disk.tidy()
    stream.outcome = "refused"
    with pytest.raises(NotConfirmed):
        first.do("ack", **lease)
    first.reopen()
    assert (first.counts(), len(divergent(first).names())) == ({"inflight": 1, "ready": 1}, 1)
