"""Clients work on a cluster of real machines while everything fails, one after the other. ``scripts/campaign cluster``
is the long form, at random."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import pytest

from tests.cluster.faults import (
    YEARS_S,
    Fault,
    Scene,
    cut_off_with_a_client,
    deaf,
    disk_full,
    frozen,
    mute,
    publish_many,
    quorum_lost,
    scene,
    seeded,
)
from tests.cluster.machines import Machine, refused
from tests.wire.daemon import wait_until


@pytest.mark.slow
def test_nothing_that_was_confirmed_is_lost_or_doubled_whatever_fails(servers, tmp_path):
    with scene(servers, tmp_path, "a", "b", "c") as made:
        a_leader_is_killed_and_returns_after_many_events(made, *made.cluster)
        made.begin(clients=3, batch=10)
        new = followers(made)[-1]
        with seeded(made, new):
            new.set_clock(YEARS_S)
        outcomes = {fault.__name__: late_publish(made, fault) for fault in (frozen, cut_off_with_a_client, mute, deaf)}
        without_a_quorum_nothing_is_acknowledged_and_health_says_so(made)
        a_full_disk_stops_one_machine(made)
        a_leader_whose_disk_is_full_refuses_with_certainty_until_another_is_promoted(made, new)
        made.go_on()
        print(made.end())
        texts = Counter(
            one["message"]["parts"][0].get("text") for one in made.cluster.all[0].daemon.events("published")
        )
        was_there = {name: texts[name] for name in outcomes}
        assert was_there == {name: int(not code) for name, code in outcomes.items()}
        assert outcomes | {"deaf": ""} == dict.fromkeys(outcomes, "ERR_NOT_LEADER") | {"deaf": ""}
        a_process_ends_in_an_orderly_way(made)
        made.verify()


def late_publish(made: Scene, fault: Fault) -> str:
    """Another machine takes over from a leader that then gets a publish; with which error that is refused."""
    made.go_on()
    leader = made.cluster.leader()
    others = [one for one in made.cluster if one is not leader]
    with fault(made, leader):
        late = leader.daemon.send("publish", {"queue": "q", "message": fault.__name__})
        made.cluster.leader(*others)
    wait_until(leader.daemon.answer_path(late).exists, "it is certain whether it was published")
    return refused(leader, late)


def followers(made: Scene) -> list[Machine]:
    leader = made.cluster.leader()
    return [one for one in made.cluster if one is not leader]


def a_leader_is_killed_and_returns_after_many_events(made: Scene, a: Machine, b: Machine, c: Machine) -> None:
    """It puts the group aside that was not confirmed. What no client sends again can be published again."""
    assert made.cluster.leader() is a
    a.daemon.publish("q", "x")
    made.cluster.agree()
    answer = b.daemon.answer(b.daemon.send("publish", {"queue": "q", "message": "x"}))["error"]
    assert (answer["code"], answer["data"]) == ("ERR_NOT_LEADER", {"leader": "a", "address": "a.example:9980"})
    a.freeze_process()
    a.daemon.freeze()
    unconfirmed = [a.daemon.send("publish", {"queue": "q", "message": text}) for text in ("only here", "sent again")]
    a.daemon.thaw()
    wait_until(lambda: b"sent again" in a.daemon.segments()[-1].read_bytes(), "its journal has them")
    a.kill()
    second = made.cluster.leader(b, c)
    publish_many(made, b, c)
    a.start()
    wait_until(lambda: a.role()["leader"] == second.name, "it follows")
    for one in unconfirmed:
        wait_until(lambda one=one: refused(a, one) == "ERR_NOT_LEADER", "it is certain that nothing was changed")  # type: ignore[misc]
    (aside,) = json.loads(a.postroomd("divergent", "list", "--json"))["groups"]
    assert aside["types"] == {"published": 2}
    assert "only here" in a.postroomd("divergent", "show", aside["name"])
    second = made.cluster.leader()
    second.daemon.put(unconfirmed[1].data)
    assert second.daemon.answer(unconfirmed[1])["ok"]
    path = str(a.daemon.root / "journal.divergent" / aside["name"])
    for check, published, known in (("--check", 1, 1), ("--no-check", 1, 1), ("--no-check", 0, 2)):
        done = json.loads(second.postroomd("divergent", "reinject", path, check, "--json"))
        assert (done["published"], done["known"], done["left"]) == (published, known, {})
    made.cluster.agree()
    texts = [one["message"]["parts"][0]["text"] for one in a.daemon.events("published") if one["queue"] == "q"]
    assert sorted(texts) == ["only here", "sent again", "x"]


def without_a_quorum_nothing_is_acknowledged_and_health_says_so(made: Scene) -> None:
    def answers() -> int:
        return sum(len(client.done) for client in made.clients)

    with quorum_lost(made, made.cluster.leader()):
        for machine in made.cluster:
            wait_until(partial(is_degraded, machine), "health says so")
        before = answers()
        for machine in made.cluster:
            assert 'postroom_check_ok{check="cluster"} 0' in machine.daemon.ask("metrics", format="prometheus")["text"]
        assert answers() == before
    made.go_on()
    metrics = made.cluster.leader().daemon.ask("metrics", format="prometheus")["text"]
    assert "postroom_cluster_leads 1" in metrics


def is_degraded(machine: Machine) -> bool:
    return not machine.role()["ok"]


def a_full_disk_stops_one_machine(made: Scene) -> None:
    follower = followers(made)[0]
    with disk_full(made, follower):
        wait_until(lambda: is_degraded(follower), "health says so")
        made.go_on()
    wait_until(lambda: follower.role()["ok"], "it follows again")


def a_leader_whose_disk_is_full_refuses_with_certainty_until_another_is_promoted(made: Scene, other: Machine) -> None:
    """It goes on leading, because the others have the same journal, and may be as full."""
    wait_until(lambda: other.role()["ok"], "it follows")
    leader = made.cluster.leader()
    if leader is other:
        (other, *_) = followers(made)
    with disk_full(made, leader):

        def is_refused() -> bool:
            return refused(leader, sent) == "ERR_STORAGE_FULL"

        sent = leader.daemon.send("publish", {"queue": "full", "message": "refused"})
        wait_until(is_refused, "nothing is acknowledged")
        shown = leader.daemon.ask("health")
        assert (shown["status"], shown["checks"]["disk"]["ok"], leader.is_leader()) == ("degraded", False, True)
        assert other.command("promote").returncode == 0
        made.cluster.leader(other)
        made.go_on()
    wait_until(lambda: leader.role()["ok"], "it follows again")
    assert not [one for one in other.daemon.events("published") if one["queue"] == "full"]


def a_process_ends_in_an_orderly_way(made: Scene) -> None:
    statuses = json.loads(made.cluster.all[0].command("status", "--json").stdout)
    assert [one["role"] for one in statuses].count("leading") == 1
    assert {one["lastId"] for one in statuses} == {statuses[0]["lastId"]}
    assert [one.stop_process() for one in made.cluster] == [0, 0, 0]
    assert made.cluster.all[0].command("status").returncode == 1
