"""A gateway with a door of WebSocket MQ, whose clients may do everything, shared by the tests of a module: each has a
queue of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest

from tests.gateway.gateway import Gateway
from tests.gateway.websocket_mq.client import Client, Clients
from tests.gateway.websocket_mq.queue import CONFIG, DOOR, Queue
from tests.wire.conftest import MakeDaemon, daemons_in
from tests.wire.daemon import Daemon

_NAMES = count(1)


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon on which clients of WebSocket MQ may do everything."""
    return make_daemon(config=CONFIG).start()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway in front of a daemon."""
    place = tmp_path_factory.mktemp("websocket-mq")
    with daemons_in(place, os.environ.get("POSTROOM_BACKEND", "")) as make:
        daemon = make("--gateway-users", str(os.getuid()), config=CONFIG).start()
        gateway = Gateway(place / "gateway", daemon.ipc / "lane.sock", DOOR).start()
        try:
            yield gateway
        finally:
            gateway.kill()
            print(gateway.log())
    assert "Traceback" not in gateway.log()


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """The program with the real client."""
    clients = Clients()
    try:
        yield clients
    finally:
        clients.end()


@pytest.fixture
def client(gateway: Gateway, clients: Clients) -> Iterator[Client]:
    """A connection of the real client."""
    client = clients.connect(gateway)
    yield client
    client.close()


@pytest.fixture
def queue(client: Client) -> Queue:
    """A queue that does not exist yet, through that connection."""
    return Queue(client, f"q{next(_NAMES)}")
