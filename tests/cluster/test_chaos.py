"""Nothing that was confirmed is lost or doubled, whatever fails. ``scripts/campaign cluster`` is long."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.chaos import campaign


@pytest.mark.slow
def test_nothing_that_was_confirmed_is_lost_or_doubled_while_nodes_links_and_servers_fail(servers, tmp_path):
    print(asyncio.run(campaign(servers, tmp_path, faults=4, seed=1)))
