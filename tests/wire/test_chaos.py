"""Many clients, a daemon that is killed: nothing is lost, nothing happens twice. ``scripts/campaign chaos`` is long."""

from __future__ import annotations

import pytest

from tests.wire.chaos import run_chaos
from tests.wire.conftest import MakeDaemon


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_the_daemon_is_killed(make_daemon: MakeDaemon) -> None:
    print(run_chaos(make_daemon(), messages=1500, kills=3, seed=1, patience_s=120))
