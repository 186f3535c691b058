"""What stands at a place of the stream decides, whatever became of the answers. Machines that fail are in
``test_faults.py``."""

from __future__ import annotations

import asyncio

from postroom_cluster.errors import NotAppended
from postroom_cluster.groups import Author, Group
from tests.cluster.nodes import cluster_of, until
from tests.cluster.peer import line_of


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
