"""A gateway with doors of SimpleMQ, shared by all tests of this folder: each has a topic of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest

from tests.gateway.gateway import Gateway
from tests.gateway.simplemq.client import Client
from tests.gateway.simplemq.place import CONFIG, DOORS
from tests.wire.conftest import daemons_in
from tests.wire.daemon import PATIENCE_S, Daemon

_NAMES = count(1)


class Served(NamedTuple):
    """A daemon and its gateway."""

    daemon: Daemon
    gateway: Gateway


@pytest.fixture(scope="package")
def other_node() -> Iterator[socket.socket]:
    """Where the peer of a door would be."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.bind(("127.0.0.1", 0))
        node.settimeout(PATIENCE_S)
        yield node


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory, other_node: socket.socket) -> Iterator[Served]:
    """A gateway in front of a daemon."""
    place = tmp_path_factory.mktemp("simplemq")
    doors = DOORS.replace("PEER", str(other_node.getsockname()[1]))
    with daemons_in(place, os.environ.get("POSTROOM_BACKEND", "")) as make:
        daemon = make(config=CONFIG).start()
        gateway = Gateway(place / "gateway", daemon.ipc / "lane.sock", doors).start()
        try:
            yield Served(daemon, gateway)
        finally:
            gateway.kill()
            print(gateway.log())
    assert "Traceback" not in gateway.log()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client of the door."""
    client = Client(served.gateway)
    yield client
    client.close()


@pytest.fixture
def hasty(served: Served) -> Iterator[Client]:
    """A client of the door on which consumers have no time."""
    client = Client(served.gateway, "simplemq-hasty")
    yield client
    client.close()


@pytest.fixture
def lively(served: Served) -> Iterator[Client]:
    """A client of the door that asks often for signs of life."""
    client = Client(served.gateway, "simplemq-lively")
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    """A topic that does not exist yet."""
    return f"t{next(_NAMES)}"
