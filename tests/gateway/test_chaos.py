"""Clients on both doors, and a daemon and a gateway that are killed. ``scripts/campaign gateway`` is long."""

from __future__ import annotations

from tests.gateway.chaos import run_chaos


def test_nothing_is_lost_or_doubled_while_daemon_and_gateway_are_killed(make_daemon):
    print(run_chaos(make_daemon(), messages=400, kills=4, seed=1, patience_s=120))
