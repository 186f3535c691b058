"""The socket ``cluster.sock``: a peer that speaks the frames by hand makes a node lead and follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

import pytest

from postroom_daemon.broker.failures import NotConfirmed
from postroom_daemon.doors.cluster import Cluster, RoleChanged
from tests.conformance.bench import Bench
from tests.conformance.cluster_peer import Header, Peer
from tests.conformance.journal_end import lose_end
from tests.daemon.cluster_nodes import MakeBench, divergent, make_node


class Node:
    """A root with its socket, as the daemon's loop has them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.config.settings.ipc_root.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(bench.config.settings, bench.files)
        self.open()
        self.peer = self.connect()

    def open(self) -> None:
        self.bench.close()
        self.bench.open(lead=self.cluster.take_lead())
        self.cluster.attach(self.bench.live)

    def connect(self) -> Peer:
        peer = Peer(self.bench.config.settings.ipc_root)
        self.turn()
        return peer

    def turn(self) -> None:
        self.cluster.collect(100)

    @contextmanager
    def answering(self, answer: Callable[[Header, bytes], Header | None]) -> Iterator[list[tuple[Header, bytes]]]:
        """Meanwhile the peer answers each group; None ends the connection."""
        groups: list[tuple[Header, bytes]] = []

        def serve() -> None:
            while header := (frame := self.peer.read())[0]:
                if "group" in header:
                    groups.append((header["group"], frame[1]))
                    given = answer(*groups[-1])
                    if given is None:
                        break
                    self.peer.send(**given)
                elif "stop" in header:
                    return
            self.peer.socket.close()

        thread = Thread(target=serve)
        thread.start()
        try:
            yield groups
        finally:
            self.cluster._send({"stop": True})
            thread.join()


def confirm(group: Header, lines: bytes) -> Header | None:
    return {"confirmed": group["last"], "sequence": 1}


@pytest.fixture
def node(make_bench: MakeBench) -> Iterator[Node]:
    made = Node(make_node(make_bench, **{"cluster.confirmMs": "60000", "nodeId": "a"}))
    yield made
    made.cluster.close()
    made.peer.socket.close()


def begin_to_lead(node: Node, epoch: int) -> None:
    node.peer.send(lead={"epoch": epoch})
    with pytest.raises(RoleChanged, match="leads"):
        node.turn()


def test_a_node_leads_when_it_is_told_to_and_each_group_waits_for_the_peer(node: Node) -> None:
    hello = node.peer.read()[0]["hello"]
    assert hello == {"version": 1, "node": "a", "root": "", "epoch": 0, "firstId": 0, "lastId": 0, "role": "follower"}
    assert node.bench.send("publish", queue="q", message="x").code == "ERR_NOT_LEADER"
    begin_to_lead(node, 1)
    with node.answering(confirm) as groups:
        node.open()
        node.bench.publish()
    assert [group for group, _ in groups] == [
        {"first": 1, "last": 2, "epoch": 1},
        {"first": 3, "last": 4, "epoch": 1},
    ]
    assert b"".join(lines for _, lines in groups) == node.bench.segments()[0].read_bytes()
    assert node.cluster.check_health() == {
        "ok": True, "role": "leader", "name": "", "leader": "a", "address": "", "leads": 1, "epoch": 1, "pending": 0,
        "groups": 2,
    }  # fmt: skip
    node.peer.send(follow={"leader": "b", "address": "b:1", "cluster": "plant"})
    with pytest.raises(RoleChanged, match="b leads"):
        node.turn()
    node.open()
    assert node.bench.send("publish", queue="q", message="x").answer.error.data == {"leader": "b", "address": "b:1"}  # type: ignore[union-attr]
    shown = node.cluster.check_health()
    assert [shown[name] for name in ("role", "name", "leader", "address")] == ["follower", "plant", "b", "b:1"]
    assert node.bench.counts() == {"ready": 1}


@pytest.mark.parametrize(
    ("answer", "text", "confirm_ms"),
    [
        (lambda group, lines: {"refused": "too late", "leader": "b"}, "refused: too late", 60_000),
        (lambda group, lines: {"follow": {"leader": "b"}}, "b leads", 60_000),
        (lambda group, lines: {"confirmed": group["last"] - 1}, "no answer about event", 150),
        (lambda group, lines: {"follow": 7}, "cannot be read", 60_000),
        (lambda group, lines: None, "not connected", 60_000),
    ],
    ids=["refused", "follow", "silence", "nonsense", "gone"],
)
def test_a_group_that_is_not_confirmed_is_not_answered_and_goes_aside(
    node: Node, answer: Callable[[Header, bytes], Header | None], text: str, confirm_ms: int
) -> None:
    begin_to_lead(node, 1)
    with node.answering(confirm):
        node.open()
        node.bench.publish(message="confirmed")
    sent = node.bench.make("publish", queue="q", message="last")
    node.cluster._settings = replace(node.cluster._settings, cluster_confirm_ms=confirm_ms)
    with node.answering(answer) as groups, pytest.raises(NotConfirmed, match=text):
        node.bench.run(sent)
    assert not sent.answers
    node.open()
    assert node.bench.counts() == {"ready": 1}
    ((_, lines),) = groups
    (name,) = divergent(node.bench).names()
    assert (divergent(node.bench).root / name).read_bytes() == lines
    assert node.cluster.check_health()["role"] == "follower"


def test_a_follower_applies_groups_tells_what_it_has_and_leads_on(make_bench: MakeBench, node: Node) -> None:
    begin_to_lead(node, 1)
    with node.answering(confirm) as groups:
        node.open()
        node.bench.publish(message="one")
        node.bench.publish(message="two")
    other = Node(make_node(make_bench, nodeId="b"))
    peer = other.peer
    peer.read()
    for group, lines in groups:
        peer.send(lines, apply=group | {"sequence": 1, "pending": 3})
    other.turn()
    assert peer.read()[0] == {"applied": groups[-1][0]["last"]}, "one answer for groups that come together"
    assert other.bench.events() == node.bench.events()
    assert other.cluster.figures() == {"leads": 0, "epoch": 1, "pending": 3, "groups": 3}
    last = node.bench.events()[-1]
    for header, answer in (
        ({"ask": last["id"]}, {"id": last["id"], "crc": last["crc"]}),
        ({"ask": last["id"] + 1}, {"id": last["id"] + 1, "crc": None}),
        ({"truncate": {"after": last["id"]}}, {"truncated": last["id"]}),
    ):
        peer.send(**header)
        other.turn()
        assert peer.read()[0] == answer
    peer.send(groups[-1][1], apply=groups[-1][0])
    other.turn()
    assert peer.read()[0] == {"applied": last["id"]}, "it has that already"
    for bad, text in (
        ({"truncate": {"after": 2}}, "seed this node"),
        ({"lead": {"epoch": 1}}, "epoch 1 is over"),
        ({"apply": {"last": 99}}, "without events"),
        ({"apply": 5}, "cannot be read"),
    ):
        peer.send(**bad)
        other.turn()
        assert text in peer.read()[0]["failed"]
        assert peer.read() == ({}, b"")
        assert text in other.cluster.check_health()["error"]
        peer.socket.close()
        peer = other.peer = other.connect()
        assert peer.read()[0]["hello"]["lastId"] == last["id"]
    begin_to_lead(other, 2)
    with other.answering(confirm):
        other.open()
        assert other.bench.do("consume_next", queue="q")["message"]["payload"] == "one"
    peer.socket.close()
    with pytest.raises(RoleChanged, match="no longer leads"):
        other.turn()
    other.cluster.close()


def test_a_journal_that_has_lost_its_end_gets_it_again_before_anything_else_happens(node: Node) -> None:
    begin_to_lead(node, 1)
    with node.answering(confirm) as groups:
        node.open()
        node.bench.publish(message="one")
        sent = node.bench.send("publish", queue="q", message="two")
    node.bench.close()
    assert lose_end(node.bench.journal_root, 1) == groups[1][0]["last"]
    node.open()
    assert node.peer.wait_for("hello")[0]["lastId"] == groups[1][0]["last"]
    repeated = node.bench.again(sent)
    node.bench.run(repeated)
    assert not repeated.answers, "nobody knows yet that it was executed"
    node.peer.send(lead={"epoch": 2})
    node.turn()
    assert "the cluster does not have it" in node.peer.read()[0]["failed"]
    node.peer.socket.close()
    node.peer = node.connect()
    node.peer.send(groups[2][1], apply=groups[2][0])
    with pytest.raises(RoleChanged, match="again"):
        node.turn()
    node.open()
    assert node.bench.counts() == {"ready": 2}
    repeated = node.bench.again(sent)
    node.bench.run(repeated)
    assert repeated.data == sent.data
    begin_to_lead(node, 2)


def test_a_second_process_is_refused_while_the_first_one_lives_and_takes_its_place_when_it_is_gone(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    begin_to_lead(node, 1)
    with node.answering(confirm):
        node.open()
        second = node.connect()
        assert "node a has a postroom-cluster already" in second.read()[0]["failed"]
        assert second.read() == ({}, b"")
        second.socket.close()
        second = node.connect()
        assert "failed" in second.read()[0]
        assert [record.message for record in caplog.records if "second" in record.message] == [
            "a second postroom-cluster was refused: one is connected already"
        ]
        node.bench.publish()
    assert node.cluster.check_health()["role"] == "leader"
    second.socket.close()
    node.peer.socket.close()
    node.peer = Peer(node.bench.config.settings.ipc_root)
    with pytest.raises(RoleChanged, match="no longer leads"):
        node.turn()
    node.open()
    assert node.peer.read()[0]["hello"]["role"] == "follower"
