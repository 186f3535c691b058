"""postroomd backup while the daemon works, and what a restore makes of a root that was lost."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom_client import Client
from postroom_common.events import Event
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import PATIENCE_S, Daemon, Fields, wait_until


def done(daemon: Daemon, command: str, *arguments: str | Path) -> Fields:
    """What a command of ``postroomd`` on a daemon's root prints as JSON; it must succeed."""
    ended = daemon.tool(command, "--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    shown: Fields = json.loads(ended.stdout)
    assert shown.pop("ok") is True
    return shown


@contextmanager
def load(daemon: Daemon) -> Iterator[None]:
    """Two who publish, and two who consume and acknowledge, as fast as they can."""
    ending = threading.Event()

    def publish(client: Client, number: int) -> None:
        client.publish("q", f"message {number} " + "x" * 200)

    def consume(client: Client, number: int) -> None:
        delivery = client.consume_next("q", wait_ms=100)
        if delivery is not None and number % 3:
            client.ack(delivery)

    def work(name: str, step: Any) -> None:
        number = 0
        with Client(str(daemon.ipc), client_id=name, timeout=PATIENCE_S) as client:
            while not ending.is_set():
                step(client, number)
                number += 1

    steps = {"publisher-1": publish, "publisher-2": publish, "consumer-1": consume, "consumer-2": consume}
    threads = [threading.Thread(target=work, args=item) for item in steps.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def waiting_at(events: list[Event], event_id: int) -> set[str]:
    """The messages that were there at an event, by an account of its own."""
    there: set[str] = set()
    for event in events:
        if event["id"] <= event_id and event["type"] == "published":
            there.add(event["key"])
        elif event["id"] <= event_id and event["type"] == "acked":
            there.remove(event["key"])
    return there


def drained(daemon: Daemon) -> list[tuple[str, str]]:
    """Consume and acknowledge until there is nothing: keys and bodies."""
    found: list[tuple[str, str]] = []
    with Client(str(daemon.ipc), client_id="drain", timeout=PATIENCE_S) as client:

        def emptied() -> bool:
            while (delivery := client.consume_next("q", visibility_timeout_sec=60)) is not None:
                client.ack(delivery)
                found.append((delivery.message_key, delivery.payload))
            return not daemon.counts("q")

        wait_until(emptied, "the queue is empty")
    return found


@on_every_store
def test_after_a_backup_under_load_a_kill_and_a_loss_exactly_the_waiting_messages_are_delivered(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.ask(
        "set_policy",
        queue="q",
        policy={"visibilityTimeoutSec": 1, "retry": {"limit": 50, "backoff": "fixed", "initialDelaySec": 1}},
    )
    for number in range(300):
        daemon.publish("q", f"message {number}")
    with load(daemon):
        daemon.wait(lambda: len(daemon.events("acked")) > 50, "there is load")
        made = done(daemon, "backup", "--to", tmp_path / "backup")
        seen = daemon.events()[-1]["id"]
        daemon.wait(lambda: daemon.events()[-1]["id"] > seen + 50, "it goes on working")
    daemon.kill()
    events = daemon.events()
    expected = waiting_at(events, made["event"])
    assert made["messages"] == len(expected) > 100 and made["bodiesLost"] == 0
    assert made["event"] < events[-1]["id"]
    shutil.rmtree(daemon.root)
    restored = done(daemon, "restore", "--from", tmp_path / "backup")
    assert (restored["event"], restored["messages"]) == (made["event"], made["messages"])
    daemon.audited = False  # the backup may be of the middle of a group
    daemon.start()
    found = drained(daemon)
    assert sorted(key for key, _ in found) == sorted(expected)
    bodies = {event["key"]: event.get("message") for event in events if event["type"] == "published"}
    assert all(bodies[key] in (None, {"parts": [{"text": body}]}) for key, body in found)
    assert all(body.startswith("message ") for _, body in found)
    ids = [event["id"] for event in daemon.events()]
    assert ids == list(range(1, len(ids) + 1))


def test_a_root_is_restored_to_a_moment_of_its_day(daemon: Daemon, tmp_path: Path) -> None:
    first = daemon.publish("q", "before the backup")
    done(daemon, "backup", "--to", tmp_path / "backup.tar.gz")
    second = daemon.publish("q", "before the mistake")
    daemon.settle("ack", daemon.consume("q"))
    point = daemon.events()[-1]
    daemon.settle("ack", daemon.consume("q"))
    refused = daemon.tool("restore", "--from", tmp_path / "backup.tar.gz", "--replace")
    assert (refused.returncode, b"stop it first" in refused.stderr) == (1, True)
    daemon.stop()
    shown = done(
        daemon, "restore", "--from", tmp_path / "backup.tar.gz", "--replace", "--to-event", str(point["id"])
    )  # fmt: skip
    assert (shown["event"], shown["wallMs"], shown["epoch"]) == (point["id"], point["wallMs"], 2)
    daemon.start()
    assert daemon.consume("q")["message"]["messageKey"] == second != first
    assert daemon.events()[: point["id"]][-1] == point


def test_a_daemon_does_not_serve_a_root_whose_restore_was_interrupted(daemon: Daemon) -> None:
    daemon.stop()
    (daemon.root / "restore.json").write_text("{}")
    daemon.start(ready=False)
    assert daemon.process.wait(PATIENCE_S) == 1
    assert "its restore was interrupted" in daemon.log()


def test_a_backup_to_standard_output_reports_on_standard_error(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q")
    ended = daemon.tool("backup", "--to", "-")
    assert b"1 message of 1 queue" in ended.stderr
    (tmp_path / "piped").write_bytes(ended.stdout)
    assert done(daemon, "restore", "--root", tmp_path / "other", "--from", tmp_path / "piped")["messages"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--to-event", "x"), "expected the id of an event"),
        (("--to-time", "yesterday"), "is not an ISO 8601 time"),
        (("--to-time", "2026-11-28T02:00:00"), "has no time zone"),
        (("--to-time", "1", "--to-event", "1"), "give one of them"),
        (("--journal", "somewhere"), "need --to-event or --to-time"),
        (("--backend", "memory"), "backend memory stores nothing"),
    ],
)
def test_a_contradictory_restore_is_refused(
    make_daemon: MakeDaemon, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    daemon = make_daemon()
    ended = daemon.tool("restore", "--from", tmp_path, *arguments)
    assert ended.returncode in (1, 2)
    assert text in ended.stderr.decode()
    assert not daemon.root.exists()
