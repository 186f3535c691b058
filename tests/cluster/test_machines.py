"""Real daemons with real ``postroom-cluster`` processes on real NATS servers: kills, takeovers and returns."""

from __future__ import annotations

import json

from tests.cluster.machines import machines, refused
from tests.wire.daemon import wait_until


def test_a_leader_is_killed_another_takes_over_and_the_unconfirmed_group_of_the_first_is_put_aside(servers, tmp_path):
    with machines(servers.urls, tmp_path, "a", "b", "c") as cluster:
        a, b, c = cluster
        assert cluster.leader() is a
        for number in range(20):
            a.daemon.publish("q", number)
        assert a.daemon.consume("q")["message"]["payload"] == "0"
        cluster.agree()
        assert b.daemon.counts("q") == a.daemon.counts("q")
        answer = b.daemon.answer(b.daemon.send("publish", {"queue": "q", "message": "x"}))["error"]
        assert (answer["code"], answer["data"]) == ("ERR_NOT_LEADER", {"leader": "a", "address": "a.example:9980"})

        a.freeze_process()
        unconfirmed = a.daemon.send("publish", {"queue": "q", "message": "only here"})
        wait_until(lambda: b"only here" in a.daemon.segments()[-1].read_bytes(), "its journal has it")
        a.kill()
        second = cluster.leader(b, c)
        second.daemon.publish("q", "of the second")
        a.start()
        cluster.agree()
        wait_until(lambda: a.role()["leader"] == second.name, "it follows")
        wait_until(lambda: refused(a, unconfirmed) == "ERR_NOT_LEADER", "its client is sent to the leader")
        assert a.daemon.counts("q") == second.daemon.counts("q")
        (aside,) = json.loads(a.postroomd("divergent", "list", "--json"))["groups"]
        assert aside["types"] == {"published": 1}
        assert "only here" in a.postroomd("divergent", "show", aside["name"])

        second.freeze()  # longer than the time-out
        (third,) = {b, c} - {second}
        leader = cluster.leader(third, a)
        leader.daemon.publish("q", "of the third")
        late = second.daemon.send("publish", {"queue": "q", "message": "late"})
        second.freeze(False)
        wait_until(lambda: refused(second, late) == "ERR_NOT_LEADER", "it is refused")
        cluster.agree()
        statuses = json.loads(leader.command("status", "--json").stdout)
        assert [one["role"] for one in statuses].count("leading") == 1
        assert {one["lastId"] for one in statuses} == {statuses[0]["lastId"]}
        for machine in cluster:
            assert machine.daemon.counts("q") == leader.daemon.counts("q")
