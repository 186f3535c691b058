"""Very many requests at once; ``scripts/campaign flood`` is the long form."""

from __future__ import annotations

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.flood import flood_before_start, flood_while_running

FILES = 2000
#: More than the kernel keeps events of (fs.inotify.max_queued_events is 16,384 by default).
MORE_THAN_EVENTS = 17_000


@pytest.mark.slow
def test_requests_written_before_the_start_are_all_answered(make_daemon: MakeDaemon) -> None:
    print(flood_before_start(make_daemon(), FILES))


@pytest.mark.slow
def test_requests_that_arrived_while_the_daemon_slept_are_all_answered(make_daemon: MakeDaemon) -> None:
    print(flood_while_running(make_daemon(), MORE_THAN_EVENTS))
