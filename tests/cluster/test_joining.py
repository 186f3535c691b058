"""Nodes that come, or come back: what they lack is given to them, and what does not fit is put aside or refused."""

from __future__ import annotations

import asyncio

from tests.cluster.nodes import cluster_of, until
from tests.cluster.peer import line_of


def test_a_node_that_comes_later_gets_all_groups_and_what_only_it_has_is_put_aside(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", later=("b", "c")) as cluster:
            first, empty, divergent = cluster.places
            for number in range(150):
                await cluster.publish(f"{number}")
            divergent.peer.lines = first.peer.lines[:80] + [line_of(81, 1, "only here"), line_of(82, 1, "this too")]
            await empty.start()
            await divergent.start()
            assert await cluster.agree() == [f"{number}" for number in range(150)]
            assert b"only here" in divergent.peer.aside[0] and b"this too" in divergent.peer.aside[0]
            assert not empty.peer.aside

    asyncio.run(run())


def test_groups_of_more_bytes_than_the_servers_send_at_once_reach_a_follower(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", later=("b",)) as cluster:
            sizes = (9, 9, 1, 15, 15, 1)
            for size in sizes:
                await cluster.publish("x" * (size * 2**20))
            await cluster.places[1].start()
            assert [len(text) >> 20 for text in await cluster.agree()] == list(sizes)

    asyncio.run(run())


def test_a_node_that_was_seeded_within_a_group_takes_the_whole_group(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", later=("b",)) as cluster:
            first, seeded = cluster.places
            await cluster.publish("one")
            await first.peer.publish("two", "three", "four")
            await cluster.publish("five")
            seeded.peer.lines = first.peer.lines[:-2]
            await seeded.start()
            assert await cluster.agree() == ["one", "two", "three", "four", "five"]
            assert not seeded.peer.aside

    asyncio.run(run())


def test_a_node_of_another_root_is_never_given_anything(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", later=("b",)) as cluster:
            stranger = cluster.places[1]
            await cluster.publish("one")
            stranger.peer.root = "root-2"
            await stranger.start()
            await cluster.problem(stranger, "seed this node")
            await cluster.places[0].stop()
            await cluster.problem(stranger, "seed this node")
            assert len(stranger.peer.lines) == 1 and not stranger.peer.is_leader

    asyncio.run(run())


def test_a_node_that_was_away_for_longer_than_the_stream_reaches_must_be_seeded(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", later=("b",), max_bytes=100_000) as cluster:
            first, late = cluster.places
            for number in range(30):
                await cluster.publish(f"{number} {'x' * 10_000}")
            await late.start()
            await cluster.problem(late, "seed this node")
            assert len(late.peer.lines) == 1
            # as a backup of the other node does
            await late.peer.stop()
            late.peer.lines = first.peer.lines[:-1]
            await late.peer.start()
            await until("it follows", lambda: late.peer.lines == first.peer.lines)

    asyncio.run(run())
