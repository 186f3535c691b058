"""A daemon on which LMQ's clients may do everything, with the machine's clock or with one that the test drives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.lmq.driven import DrivenDaemon
from tests.gateway.lmq.peers import CONFIG
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon on which LMQ's clients may do everything."""
    return make_daemon(config=CONFIG).start()


@pytest.fixture
def driven_daemon(tmp_path: Path) -> Iterator[DrivenDaemon]:
    """The same with a clock that the test drives."""
    daemon = DrivenDaemon(tmp_path / "driven").serve()
    try:
        yield daemon
    finally:
        daemon.cut()
        print(daemon.log.read_text())
