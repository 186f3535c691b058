"""Clients, and a daemon and a gateway that are killed. ``scripts/campaign gateway``, ``websocket`` and ``simplemq``
are long."""

from __future__ import annotations

from tests.gateway.chaos import run_chaos
from tests.gateway.simplemq import chaos as simplemq_chaos
from tests.gateway.simplemq import place
from tests.gateway.websocket_mq import chaos as websocket_chaos
from tests.gateway.websocket_mq.queue import CONFIG


def test_nothing_is_lost_or_doubled_while_daemon_and_gateway_are_killed(make_daemon):
    print(run_chaos(make_daemon(), messages=400, kills=4, seed=1, patience_s=120))


def test_no_message_of_websocket_mq_is_lost_or_active_twice_while_daemon_and_gateway_are_killed(make_daemon):
    print(websocket_chaos.run_chaos(make_daemon(config=CONFIG), messages=150, kills=3, seed=1, patience_s=120))


def test_no_message_of_simplemq_is_lost_or_comes_after_its_ack_while_daemon_and_gateway_are_killed(make_daemon):
    print(simplemq_chaos.run_chaos(make_daemon(config=place.CONFIG), messages=400, kills=4, seed=1, patience_s=120))
