"""Real daemons with real ``postroom-cluster`` processes on real NATS servers: how a cluster begins. What fails
is in ``test_faults.py``."""

from __future__ import annotations

from tests.cluster.machines import machines
from tests.wire.daemon import Daemon, wait_until


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
