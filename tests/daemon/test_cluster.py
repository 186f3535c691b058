"""A leader whose groups others must have, followers that fold them, and what a start makes of a group that nobody has
confirmed."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from postroom_common.errors import ConfigurationError
from postroom_common.events import Event, decode_event, encode_event
from postroom_daemon.broker.failures import NotConfirmed
from postroom_daemon.broker.following import CannotFollow, apply_groups
from postroom_daemon.broker.role import Leader
from postroom_daemon.cli.postroomd import main
from postroom_daemon.engine.fold import apply_new
from postroom_daemon.service.fuller_groups import FullerGroups
from tests.conformance.bench import Bench, exported, seen_in
from tests.conformance.power_cut import Disk
from tests.daemon.cluster_nodes import Killed, MakeBench, Stream, divergent, follow, lead, make_node
from tests.daemon.log_work import Killed as KilledInFiles
from tests.daemon.log_work import KillingFiles

BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")


def work(bench: Bench, number: int) -> None:
    """Requests of several kinds, so that the groups have events of many types."""
    for at in range(4):
        bench.publish(message=f"{number}-{at}", priority=at % 3)
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 3 + number}})
    taken = bench.do("consume_next", queue="q", consumerId="c")["lease"]
    bench.do("ack", messageKey=taken["messageKey"], leaseId=taken["leaseId"])
    taken = bench.do("consume_next", queue="q", consumerId="c")["lease"]
    bench.do("nack", messageKey=taken["messageKey"], leaseId=taken["leaseId"], requeue=True, reason="no")
    bench.do("publish", queue="later", message="x", delayMs=60_000)
    bench.do("consume_next", queue="q", consumerId="c", visibilityTimeoutSec=60)
    bench.clocks.pass_ms(1000)
    bench.run()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_follower_has_what_its_leader_has_and_leads_on_from_there(make_bench: MakeBench, backend: str) -> None:
    stream = Stream()
    first, second = (make_node(make_bench, backend, segment_bytes=3000) for _ in range(2))
    lead(first, stream, 1)
    for number in range(3):
        work(first, number)
    follow(second, stream)
    second.clocks.pass_ms(1000)  # since the leader's last event
    assert seen_in(second) == seen_in(first)
    assert [path.name for path in second.segments()] == [path.name for path in first.segments()]
    assert [path.read_bytes() for path in second.segments()] == [path.read_bytes() for path in first.segments()]
    assert len(first.segments()) > 2
    second.clocks.pass_ms(5000)
    lead(second, stream, 2)
    assert second.live.clock.now().engine >= first.events()[-1]["engineMs"]
    work(second, 4)
    first.close()
    follow(first, stream)
    first.clocks.pass_ms(1000)
    assert seen_in(first) == seen_in(second)
    assert exported(first) == exported(second)
    assert [event["epoch"] for event in first.events() if event["type"] == "epoch_started"] == [1, 2]
    for bench in (first, second):
        bench.reopen(without_store=True)
    assert exported(first) == exported(second), "each journal alone gives the same state"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_follower_that_has_the_beginning_of_a_group_takes_the_rest_of_it(make_bench: MakeBench, backend: str) -> None:
    """Like one that was seeded from the backup of a leader at work."""
    stream = Stream()
    first, second, other = (make_node(make_bench, backend) for _ in range(3))
    lead(first, stream, 1)
    for bench in (second, other):
        follow(bench, stream)
    sent = [first.make("publish", queue="q", message=f"message {number}") for number in range(3)]
    first.run(*sent)
    group = stream.groups[-1]
    events = [decode_event(line) for line in group]
    until = next(at for at, event in enumerate(events) if event["id"] == event["req"] and at > 0) + 1
    assert 0 < until < len(group)
    for bench, lines in ((second, group[:until]), (other, [group[0], *another(events[1:until])])):
        state = bench.live.broker.state
        state.store.begin()
        apply_new([decode_event(line) for line in lines], state.store, state.observers)
        state.journal.append(lines, events[until - 1]["id"])
        state.journal.sync()
        state.store.commit()
    second.reopen()
    follow(second, stream)
    first.publish(message="the next one")
    follow(second, stream)
    assert exported(second) == exported(first)
    assert [path.read_bytes() for path in second.segments()] == [path.read_bytes() for path in first.segments()]
    with pytest.raises(CannotFollow, match="is another one"):
        follow(other, stream)
    second.reopen(without_store=True)
    follow(second, stream)
    assert exported(second) == exported(first)


def another(events: list[Event]) -> list[bytes]:
    """The lines of these events as another leader might have written them."""
    return [
        encode_event({name: value for name, value in event.items() if name != "crc"} | {"wallMs": 1})
        for event in events
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_group_is_answered_or_folded_before_it_is_confirmed(make_bench: MakeBench, backend: str) -> None:
    for outcome in ("refused", "late", "killed before", "killed after", "killed unsynced"):
        stream = Stream()
        first, second = (make_node(make_bench, backend) for _ in range(2))
        lead(first, stream, 1)
        first.publish(message="confirmed")
        first.publish(message="confirmed, too")
        disk = Disk(first.path)
        disk.watch(first.files)
        stream.outcome = outcome
        has_last = stream.has_last
        sent = first.make("publish", queue="q", message="last")
        with pytest.raises((NotConfirmed, Killed)):
            first.run(sent)
        assert not sent.answers, outcome
        first.close()
        if outcome == "killed unsynced":
            disk.cut()
        first.open()
        if outcome == "killed unsynced":  # then the group before may be the one that is not sure
            assert first.counts()["ready"] + len(divergent(first).names()) == 2
        else:
            assert (first.counts(), len(divergent(first).names())) == ({"ready": 2}, 1), outcome
        follow(second, stream)
        lead(second, stream, 2)
        second.publish(message="of the second")
        follow(first, stream)
        assert first.counts() == {"ready": 4 if has_last else 3}, outcome
        assert exported(first) == exported(second), outcome
        assert bool(divergent(first).names()) == (not has_last), outcome
        repeated = second.again(sent)
        second.run(repeated)
        follow(first, stream)
        assert repeated.data and first.counts() == {"ready": 4}, f"{outcome}: executed once, whoever has answered"
        first.close()
        follow(first, stream)
        assert exported(first) == exported(second), outcome


def test_a_kill_at_any_moment_of_a_start_loses_no_unconfirmed_group(make_bench: MakeBench) -> None:
    stream = Stream()
    first = make_node(make_bench)
    lead(first, stream, 1)
    first.publish(message="confirmed")
    stream.outcome = "refused"
    with pytest.raises(NotConfirmed):
        first.publish(message="last")
    first.close()
    before, lines = first.path.with_name("before"), first.segments()[-1].read_bytes().splitlines(True)
    shutil.copytree(first.path, before)
    at, killed = 0, True
    while killed:
        shutil.rmtree(first.path)
        shutil.copytree(before, first.path)
        files = first.files
        first.files = KillingFiles(at)
        try:
            first.open()
            killed = False
        except KilledInFiles:
            pass
        first.root = None
        first.files = files
        gc.collect()  # closes the store that the kill has left open
        first.open()
        (name,) = divergent(first).names()
        assert divergent(first).lines(name) == lines[-1:], at
        assert first.counts() == {"ready": 1}, at
        assert not [event for event in first.events() if event["type"] in ("gap", "damage_found")], at
        first.close()
        at += 1
    assert at > 10


def test_a_follower_changes_nothing_and_answers_as_of_what_it_has(make_bench: MakeBench) -> None:
    stream = Stream()
    first, second = make_node(make_bench), make_node(make_bench)
    lead(first, stream, 1)
    first.do("publish", queue="q", message="x", ttlMs=1000)
    taken = first.do("consume_next", queue="q", visibilityTimeoutSec=1)["lease"]
    follow(second, stream)
    broker, events = second.live.broker, second.events()
    assert second.send("publish", queue="q", message="y").answer.error.data == {"leader": "", "address": ""}  # type: ignore[union-attr]
    broker.role.leader = Leader("node-1", "192.0.2.1:9980")
    for command, fields in (
        ("publish", {"queue": "q", "message": "y"}),
        ("consume_next", {"queue": "q", "waitMs": 1000}),
        ("ack", {"messageKey": taken["messageKey"], "leaseId": taken["leaseId"]}),
        ("drain", {}),
    ):
        sent = second.send(command, **fields)
        assert sent.code == "ERR_NOT_LEADER", command
        assert sent.answer.error and sent.answer.error.data == {"leader": "node-1", "address": "192.0.2.1:9980"}
    shown = second.do("status", queue="q")
    assert (shown["stale"], shown["asOfEvent"]) == (True, events[-1]["id"])
    assert second.do("get_message", messageKey=taken["messageKey"])["stale"]
    assert "stale" not in first.do("status", queue="q")
    second.clocks.pass_ms(2 * 3600 * 1000)
    second.run()
    second.stop()
    assert broker.next_due() is None
    assert second.events() == events


def test_a_follower_accepts_only_what_continues_its_journal(make_bench: MakeBench) -> None:
    stream = Stream()
    first, second = make_node(make_bench), make_node(make_bench)
    lead(first, stream, 1)
    first.run(*(first.make("publish", queue="q", message=text) for text in "ab"))
    lead(first, stream, 2)
    first.publish()
    follow(second, stream)
    first.publish()
    first.publish()
    gap, next_group = stream.groups[-1], stream.groups[-2]
    last = decode_event(next_group[-1])

    def changed(**fields: object) -> list[bytes]:
        return [encode_event({name: value for name, value in (last | fields).items() if name != "crc"})]

    for lines, text in (
        (gap, "no group that goes on with event"),
        (stream.groups[0], "no group that goes on with event"),
        ([], "without events"),
        ([next_group[-1].replace(b"body", b"bodx")], "damaged"),
        (changed(grp=last["id"] + 1), "no group"),
        (changed(gn=2), "no group"),
        (changed(epoch=1), "is of epoch 1"),
        (changed(root="another"), "of root another"),
        (changed(type="acked", key="nobody's", heldMs=1), "cannot be folded"),
    ):
        before = exported(second), second.events()
        with pytest.raises(CannotFollow, match=text):
            apply_groups(second.live.broker, [lines])
        assert (exported(second), second.events()) == before, text
    follow(second, stream)
    assert exported(second) == exported(first)


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_groups_that_come_together_those_before_one_that_cannot_be_applied_are_applied(
    make_bench: MakeBench, backend: str
) -> None:
    stream = Stream()
    first, second = make_node(make_bench, backend), make_node(make_bench, backend)
    lead(first, stream, 1)
    follow(second, stream)
    work(first, 1)
    groups = stream.groups[1:]
    event = decode_event(groups[-1][-1])
    wrong = encode_event({name: value for name, value in event.items() if name != "crc"} | {"epoch": 0})
    with pytest.raises(CannotFollow, match="is of epoch 0"):
        apply_groups(second.live.broker, [*groups[:-1], [*groups[-1][:-1], wrong]])
    assert second.events() == [event for event in first.events() if event["id"] < decode_event(groups[-1][0])["id"]]
    follow(second, stream)
    second.clocks.pass_ms(1000)  # since the leader's last event
    assert seen_in(second) == seen_in(first)


def test_a_kill_at_any_moment_while_groups_are_applied_together_loses_and_doubles_nothing(
    make_bench: MakeBench,
) -> None:
    stream = Stream()
    first = make_node(make_bench)
    lead(first, stream, 1)
    work(first, 1)
    at, killed = 0, True
    while killed:
        second = make_node(make_bench)
        files = second.files
        second.files = killing = KillingFiles(10**9)
        second.open()
        apply_groups(second.live.broker, stream.groups[:1])
        killing.left = at
        try:
            apply_groups(second.live.broker, stream.groups[1:])
            killed = False
        except KilledInFiles:
            pass
        second.root, second.files = None, files
        gc.collect()  # closes the store that the kill has left open
        follow(second, stream)
        second.clocks.pass_ms(1000)  # since the leader's last event
        assert (second.events(), seen_in(second)) == (first.events(), seen_in(first)), at
        at += 3
    assert at > 30


def test_a_lost_race_for_an_epoch_leaves_nothing(make_bench: MakeBench) -> None:
    stream = Stream()
    first, second = make_node(make_bench), make_node(make_bench)
    lead(first, stream, 1)
    first.publish()
    follow(second, stream)
    second.close()
    second.open(lead=2)
    stream.outcome = "refused"
    with pytest.raises(NotConfirmed):
        second.live.broker.begin_epoch("second", stream, second.live.found)
    second.reopen()
    assert second.events() == first.events()
    stream.outcome = "confirmed"
    first.publish()
    follow(second, stream)
    assert not divergent(second).names()
    assert second.events() == first.events()


def test_a_cluster_needs_a_journal_that_is_synced(make_bench: Callable[..., Bench]) -> None:
    with pytest.raises(ConfigurationError, match="must be commit"):
        make_bench("sqlite", **{"cluster.enabled": "true", "journal.durability": "interval"})


def test_an_operator_sees_what_was_set_aside_and_may_delete_it(make_bench: MakeBench) -> None:
    stream = Stream()
    first = make_node(make_bench)
    lead(first, stream, 1)
    stream.outcome = "refused"
    with pytest.raises(NotConfirmed):
        first.publish(message="last")
    first.reopen()
    first.close()

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["divergent", *arguments, "--root", str(first.path)])

    (shown,) = json.loads(run("list", "--json").output)["groups"]
    assert shown == {"name": shown["name"], "first": 3, "last": 4, "types": {"queue_created": 1, "published": 1}}
    assert "events 3 to 4: 1 queue_created, 1 published\n1 group\n" in run("list").output
    assert run("show", shown["name"]).output.count('"type":') == 2
    assert run("drop", "another").exit_code == 1
    assert run("drop", shown["name"]).exit_code == 0
    assert run("list").output == "0 groups\n"


def test_what_was_answered_before_a_root_was_a_member_stays_in_its_journal(make_bench: MakeBench) -> None:
    bench = make_bench("sqlite").open()
    bench.publish(message="answered")
    bench.config = replace(bench.config, settings=replace(bench.config.settings, cluster_enabled=True))
    bench.reopen(without_store=True)  # as a power cut can leave it
    assert (bench.counts(), divergent(bench).names()) == ({"ready": 1}, [])
    bench.close()
    bench.open()
    assert (bench.counts(), divergent(bench).names()) == ({"ready": 1}, [])


def test_a_leader_waits_for_those_whom_it_has_just_answered_and_not_for_others() -> None:
    groups = FullerGroups()
    assert groups.wait_s(1, 1.0) == 0, "nobody was answered yet"
    groups.note_group(answered=16, pending=4, took_s=0.008, now_s=1.0)
    assert groups.wait_s(0, 1.0) == 0, "there is nothing to do"
    assert groups.wait_s(4, 1.0) == 0.001
    assert groups.wait_s(19, 1.0035) == pytest.approx(0.0005), "half of the time that the group took"
    assert groups.wait_s(19, 1.0041) == 0
    assert groups.wait_s(20, 1.0) == 0, "all are there"
    groups.note_group(answered=2, pending=0, took_s=5.0, now_s=2.0)
    assert groups.wait_s(1, 2.0099) > 0
    assert groups.wait_s(1, 2.0101) == 0, "a slow group is no reason for a long wait"
