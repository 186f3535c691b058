"""Real daemons with real ``postroom-cluster`` processes on real NATS servers: how a cluster begins, and one without a
quorum. What else fails is in ``test_faults.py``."""

from __future__ import annotations

from functools import partial

from tests.cluster.machines import Machine, machines, refused
from tests.wire.daemon import Daemon, wait_until


def is_degraded(machine: Machine) -> bool:
    return not machine.role()["ok"]


def test_a_root_with_messages_becomes_a_cluster_whose_other_node_is_seeded_from_a_backup_and_takes_over(
    servers, tmp_path
):
    with machines(servers.urls, tmp_path, "a", "b", start=False) as cluster:
        a, b = cluster
        alone = Daemon(a.daemon.root, backend="sqlite").start()
        alone.publish("q", "from before")
        alone.stop()
        a.start()
        cluster.leader(a)
        a.daemon.publish("q", "in the backup")
        a.postroomd("backup", "--to", str(tmp_path / "backup"))
        a.daemon.publish("q", "behind it")
        b.start()
        wait_until(lambda: "seed this node" in b.role().get("error", ""), "an empty node cannot follow")
        b.kill()
        b.postroomd("restore", "--from", str(tmp_path / "backup"), "--as-member", "--replace")
        b.start()
        cluster.agree()
        assert b.role()["ok"] and b.daemon.counts("q") == {"ready": 3}
        a.kill()
        cluster.leader(b)
        assert [b.daemon.consume("q")["message"]["payload"] for _ in range(3)] == [
            "from before",
            "in the backup",
            "behind it",
        ]


def test_without_a_quorum_nothing_is_acknowledged_health_says_so_and_it_goes_on_by_itself(servers, tmp_path):
    with machines(servers.urls, tmp_path, "a", "b") as cluster:
        a, b = cluster
        cluster.leader(a)
        a.daemon.publish("q", "before")
        servers.kill(1)
        servers.kill(2)
        sent = a.daemon.send("publish", {"queue": "q", "message": "without a quorum"})
        for node in (a, b):
            wait_until(partial(is_degraded, node), "health says so")
            assert 'postroom_check_ok{check="cluster"} 0' in node.daemon.ask("metrics", format="prometheus")["text"]
        assert not a.daemon.answer_path(sent).exists(), "nobody knows whether it will be there"
        servers.restart(1)
        servers.restart(2)
        wait_until(a.daemon.answer_path(sent).exists, "now it is known")
        leader = cluster.leader()
        leader.daemon.publish("q", "behind")
        cluster.agree()
        done = not refused(a, sent)
        assert leader.daemon.counts("q") == {"ready": 2 + done}
        assert {one.role()["ok"] for one in cluster} == {True}
        assert "postroom_cluster_leads 1" in leader.daemon.ask("metrics", format="prometheus")["text"]
