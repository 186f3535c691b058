"""A device with messages of all kinds, some of them hostile, for tests that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom_client import Client
from tests.wire.daemon import Daemon

#: Sets the clipboard, clears the screen in two ways, sets the title, reverses the direction of writing, and is markup.
HOSTILE = "\x1b]52;c;cm0=\x07 \x1b[2J \x9b2J \x1b]0;title\x1b\\ \x1b[31m[/bold] [red] \u202egnp \u200f"
#: The parts of it that must not reach a terminal.
STEERING = ("\x1b]", "\x07", "\x9b", "\x1b[2J", "\x1b\\", "\u202e", "\u200f")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a daemon with a queue with dead letters, one with leases, and one with ready messages, each with a
    hostile text wherever the daemon accepts it."""
    daemon = Daemon(tmp_path_factory.mktemp("site") / "root").start()
    try:
        with Client(str(daemon.ipc), client_id="application") as client:
            _fill(client)
        yield daemon.root
    finally:
        daemon.kill()
        print(daemon.log())


def _fill(client: Client) -> None:
    client.publish("alarms", {"text": HOSTILE, "수집": "設定"}, attributes={HOSTILE: HOSTILE})
    client.publish("q[/b] [red]", HOSTILE)
    client.publish("leased", HOSTILE)
    client.consume_next("leased", consumer_id="worker-7", visibility_timeout_sec=3600)
    for body in (HOSTILE, {"evt": HOSTILE}):
        client.publish("dead", body)
        delivery = client.consume_next("dead", consumer_id="worker-8")
        assert delivery
        client.nack(delivery, reason=HOSTILE)
    client.publish("paused", "x")
    client.pause("paused")
