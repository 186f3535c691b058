"""A daemon as a member of a cluster, from its start to a takeover."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom_client import Client
from postroom_console.data.execution import execute_action
from postroom_console.data.link import Link, Refused
from postroom_console.data.updates import Result, Step
from tests.conformance.cluster_peer import Peer
from tests.console.exports import export
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import wait_until


def confirm_next(peer: Peer) -> bytes:
    group, lines = peer.wait_for("group")
    peer.send(confirmed=group["last"], sequence=1)
    return lines


def test_a_member_follows_leads_and_after_a_kill_has_only_what_was_confirmed(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon("--cluster-enabled", "true", backend="sqlite").start()
    peer = Peer(daemon.ipc)
    assert peer.wait_for("hello")[0]["role"] == "follower"
    assert daemon.refusal("publish", queue="q", message="x") == "ERR_NOT_LEADER"
    peer.send(follow={"leader": "b", "address": "b:9980"})
    peer.send(lead={"epoch": 1})
    assert peer.wait_for("hello")[0]["role"] == "leader"
    stream = [confirm_next(peer)]
    sent = daemon.send("publish", {"queue": "q", "message": "one"})
    stream.append(confirm_next(peer))
    assert daemon.answer(sent)["ok"]
    unconfirmed = daemon.send("publish", {"queue": "q", "message": "two"})
    group, lines = peer.wait_for("group")
    assert not daemon.answer_path(unconfirmed).exists()
    daemon.kill()
    peer.socket.close()
    daemon.start()
    peer = Peer(daemon.ipc)
    assert peer.wait_for("hello")[0]["lastId"] == group["first"] - 1
    assert b"".join(stream) == b"".join(path.read_bytes() for path in daemon.segments())
    (aside,) = Path(daemon.root / "journal.divergent").glob("*.jsonl")
    assert aside.read_bytes() == lines
    peer.send(lines, apply=group)
    assert peer.wait_for("applied")[0] == group["last"]
    assert not aside.exists()
    shown = daemon.ask("status", queue="q")
    assert (shown["metrics"]["ready"], shown["stale"], shown["asOfEvent"]) == (2, True, group["last"])
    with pytest.raises(Refused, match="name of its cluster"):
        export(daemon.root, tmp_path)
    peer.send(follow={"leader": "b", "address": "b:9980", "cluster": "plant"})
    wait_until(lambda: daemon.ask("health")["checks"]["cluster"]["name"] == "plant", "it knows the name")
    for device in ("", "hall-2"):
        header = export(daemon.root, tmp_path / f"to-{device}", device=device).header
        exported = [header[name] for name in ("device", "node", "role", "lastEvent")]
        assert exported == [device or "plant", "local-01", "follows", group["last"]]
    link = Link(lambda: Client(str(daemon.ipc)), lambda: False)
    outcome = execute_action(link, 1, (Step("pause", {"queue": "q", "operation": "consume"}),))
    link.close()
    assert (outcome.result, outcome.code, outcome.text) == (Result.REFUSED, "ERR_NOT_LEADER", "b leads: b:9980")
    peer.send(lead={"epoch": 2})
    confirm_next(peer)
    taken = daemon.send("consume_next", {"queue": "q"})
    confirm_next(peer)
    assert daemon.answer(taken)["data"]["message"]["payload"] == "one"
    health = daemon.ask("health")
    assert (health["status"], health["checks"]["cluster"]["role"]) == ("ok", "leader")
    peer.socket.close()
    peer = Peer(daemon.ipc)
    assert peer.wait_for("hello")[0]["role"] == "follower"
    daemon.stop()
    peer.socket.close()


def test_a_member_leaves_nothing_to_replay_when_its_role_changes(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("--cluster-enabled", "true", backend="filesystem").start()
    peer = Peer(daemon.ipc)
    peer.send(lead={"epoch": 1})
    stream = [confirm_next(peer)]
    for text in ("one", "two"):
        sent = daemon.send("publish", {"queue": "q", "message": text})
        stream.append(confirm_next(peer))
        assert daemon.answer(sent)["ok"]
    last = daemon.events()[-1]["id"]
    peer.send(follow={"leader": "b", "address": ""})
    while (hello := peer.wait_for("hello")[0])["role"] != "follower" or not hello["lastId"]:
        pass
    assert list(daemon.root.rglob(f"checkpoint-{last:020d}.json"))
    peer.send(lead={"epoch": 2})
    lines = confirm_next(peer)
    assert b"epoch_started" in lines
    assert list(daemon.root.rglob(f"checkpoint-{last:020d}.json"))
    peer.socket.close()
