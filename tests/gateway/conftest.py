"""Gateways for tests: each in front of a daemon of its own, ended whatever happens, its log shown with a failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gateway.gateway import DOORS, Gateway
from tests.wire.conftest import MakeDaemon, daemons_in
from tests.wire.daemon import Daemon

MakeGateway = Callable[..., Gateway]


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[MakeDaemon]:
    """Makes daemons that are not started yet, and accept this user as a gateway."""
    with daemons_in(tmp_path, os.environ.get("POSTROOM_BACKEND", "")) as make:
        yield lambda *flags, **options: make("--gateway-users", str(os.getuid()), *flags, **options)


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon that serves an empty root."""
    return make_daemon().start()


@pytest.fixture(scope="session")
def any_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of all gateways whose doors alone are tested: without one, each would wait 2 s before it is ready."""
    with daemons_in(tmp_path_factory.mktemp("any"), "") as make:
        yield make("--gateway-users", str(os.getuid())).start()


@pytest.fixture
def make_gateway(tmp_path: Path) -> Iterator[MakeGateway]:
    """Makes gateways that are not started yet: from a daemon (or None) and a configuration."""
    made: list[Gateway] = []

    def make(daemon: Daemon | None = None, toml: str = DOORS, environment: dict[str, str] | None = None) -> Gateway:
        lane = daemon.ipc / "lane.sock" if daemon else tmp_path / "no-daemon" / "lane.sock"
        made.append(Gateway(tmp_path / f"gateway{len(made) or ''}", lane, toml, environment))
        return made[-1]

    try:
        yield make
    finally:
        for gateway in made:
            gateway.kill()
            print(gateway.log())  # pytest shows it only if the test fails
    for gateway in made:
        assert "Traceback" not in gateway.log()


@pytest.fixture
def gateway(daemon: Daemon, make_gateway: MakeGateway) -> Gateway:
    """A gateway with LMQ's doors, in front of ``daemon``."""
    return make_gateway(daemon).start()
