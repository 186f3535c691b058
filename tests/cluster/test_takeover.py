"""Who leads: one node at a time, whoever is killed, cut off or stalled, and nothing that was confirmed is lost."""

from __future__ import annotations

import asyncio

import pytest

from postroom_cluster.errors import NotAppended
from postroom_cluster.groups import Author, Group
from tests.cluster.nodes import cluster_of, until
from tests.cluster.peer import NotConfirmed, line_of


def test_what_a_leader_appends_is_applied_by_all_and_another_takes_over_when_it_dies(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", "b", "c") as cluster:
            first = await cluster.leader()
            assert first.name == "a"
            for number in range(10):
                await first.peer.publish(f"{number}", f"{number}, second event")
            await cluster.agree()
            await first.peer.stop()
            second = await cluster.publish("after the death", first)
            assert second.peer.epoch > 2
            await first.peer.start()
            assert (await cluster.agree())[-1] == "after the death"
            assert len(await cluster.agree()) == 21
            await until("it follows", lambda: first.peer.followed[-1:] == [second.name])

    asyncio.run(run())


def test_a_leader_that_is_cut_off_is_refused_when_it_returns_and_its_tail_is_put_aside(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", "b") as cluster:
            first, second = cluster.places
            await cluster.publish("confirmed")
            first.peer.confirm_s = 30
            first.proxy.hold()
            late = asyncio.create_task(first.peer.publish("late"))
            await until("the other leads", lambda: second.peer.is_leader)
            assert await cluster.publish("of the new leader", first) is second
            assert not late.done()
            first.proxy.pass_on()
            with pytest.raises(NotConfirmed):
                await late
            assert await cluster.agree() == ["confirmed", "of the new leader"]
            assert b"late" in b"".join(first.peer.aside)

    asyncio.run(run())


def test_a_group_whose_confirmation_is_lost_is_confirmed_or_comes_back_and_is_never_twice(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", "b") as cluster:
            first, _ = cluster.places
            await cluster.publish("before")
            first.proxy.hold("down")
            publish = asyncio.create_task(first.peer.publish("answer lost"))
            await until("it is in the stream", lambda: "answer lost" in cluster.places[1].peer.texts())
            first.proxy.cut()
            first.proxy.pass_on()
            await asyncio.gather(publish, return_exceptions=True)
            await cluster.publish("behind")
            assert await cluster.agree() == ["before", "answer lost", "behind"]

    asyncio.run(run())


def test_without_a_quorum_nothing_is_confirmed_and_it_goes_on_by_itself_when_that_is_back(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", "b") as cluster:
            first = await cluster.publish("before")
            for one in cluster.places:
                one.peer.confirm_s = 1
            servers.kill(1)
            servers.kill(2)
            with pytest.raises(NotConfirmed):
                await first.peer.publish("without a quorum")
            servers.restart(1)
            servers.restart(2)
            await cluster.publish("behind")
            texts = [text for text in await cluster.agree() if text != "without a quorum"]
            assert texts == ["before", "behind"]

    asyncio.run(run())


def test_two_nodes_that_append_in_one_place_never_both_succeed(servers, tmp_path):
    """Also with the same epoch, the same last event and the same name."""

    async def run():
        async with cluster_of(servers, tmp_path, "a") as cluster:
            await cluster.publish("one")
            await cluster.places[0].stop()
            state = await cluster.stream.state()
            last = await cluster.stream.at(state.last)
            assert last
            event_id = last.group.last + 1
            groups = [
                Group(event_id, event_id, 9, line[-11:-3].decode(), line)
                for line in (line_of(event_id, 9, "x"), line_of(event_id, 9, "y"))
            ]
            authors = [Author("n", "run-1", "root-1"), Author("n", "run-2", "root-1")]
            results = await asyncio.gather(
                *(
                    cluster.stream.append(group, author, state.last)
                    for group, author in zip(groups, authors, strict=True)
                ),
                return_exceptions=True,
            )
            assert [type(one) for one in results].count(int) == 1
            assert [type(one) for one in results].count(NotAppended) == 1
            winner = authors[[type(one) for one in results].index(int)]
            stored = await cluster.stream.at(state.last + 1)
            assert stored and stored.author == winner
            # repeated, as after a lost answer
            index = authors.index(winner)
            assert await cluster.stream.append(groups[index], winner, state.last) == state.last + 1

    asyncio.run(run())
