"""A gateway with doors of smss, shared by the tests of a module: each has a topic of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import pytest

from tests.gateway.gateway import Gateway
from tests.gateway.smss.client import Connection, PubClient
from tests.gateway.smss.place import CONFIG, DOORS
from tests.wire.conftest import MakeDaemon, daemons_in
from tests.wire.daemon import Daemon

_NAMES = count(1)
Connect = Callable[..., Connection]


class Served(NamedTuple):
    """A daemon and its gateway."""

    daemon: Daemon
    gateway: Gateway


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon on which clients of smss may do everything, of one test alone."""
    return make_daemon(config=CONFIG).start()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway in front of a daemon."""
    place = tmp_path_factory.mktemp("smss")
    with daemons_in(place, os.environ.get("POSTROOM_BACKEND", "")) as make:
        daemon = make(config=CONFIG).start()
        gateway = Gateway(place / "gateway", daemon.ipc / "lane.sock", DOORS).start()
        try:
            yield Served(daemon, gateway)
        finally:
            gateway.kill()
            print(gateway.log())
    assert "Traceback" not in gateway.log()


@pytest.fixture
def connect(served: Served) -> Iterator[Connect]:
    """Makes connections to a door."""
    made: list[Connection] = []

    def make(door: str = "smss") -> Connection:
        made.append(Connection(served.gateway.ports[door]))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def publisher(served: Served) -> Iterator[PubClient]:
    """A publisher's client."""
    client = PubClient(served.gateway.ports["smss"])
    yield client
    client.close()


@pytest.fixture
def topic(publisher: PubClient) -> str:
    """A topic that was created."""
    name = f"t{next(_NAMES)}"
    publisher.create(name)
    return name
