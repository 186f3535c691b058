"""Many clients, a daemon that is killed: nothing is lost, nothing happens twice. ``scripts/campaign chaos`` is long."""

from __future__ import annotations

import pytest

from tests.wire.audit import audit_bodies
from tests.wire.chaos import run_chaos
from tests.wire.conftest import MakeDaemon


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_the_daemon_is_killed(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    print(run_chaos(daemon, messages=600, kills=3, seed=1, patience_s=120))
    daemon.kill()
    audit_bodies(daemon)
