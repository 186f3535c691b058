"""Operation and inspection through the mailbox: by the client, and by its command line."""

from __future__ import annotations

import pytest

from postroom_client import Client, Delivery, errors

from .daemon import Daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return Client(str(daemon.ipc), client_id="press-7")


def test_a_purge_continues_until_all_pages_are_done(client: Client) -> None:
    for number in range(3):
        client.publish_batch([{"message": str(number)} for _ in range(1000)], "q")
    assert client.purge("q", dry_run=True)["purged"] == 3000
    assert client.purge("q", limit=10)["purged"] == 10
    assert client.purge("q")["purged"] == 2990
    assert client.status("q")["metrics"]["ready"] == 0


def test_a_move_continues_until_all_pages_are_done(client: Client) -> None:
    for _ in range(2):
        client.publish_batch([{"message": "x"} for _ in range(1000)], queue="q")
    assert client.move("other", queue="q")["moved"] == 2000
    assert client.status("other")["metrics"]["ready"] == 2000


def test_a_queue_is_deleted_with_its_messages_only_on_request(client: Client) -> None:
    delivery = _leased(client)
    client.nack(delivery)
    client.publish("q", "waits")
    with pytest.raises(errors.QueueNotEmpty):
        client.delete_queue("q")
    assert client.delete_queue("q", purge=True)["deleted"] is True
    assert client.list_queues()["queues"] == []


def test_messages_in_flight_prevent_the_deletion_of_their_queue(client: Client) -> None:
    _leased(client)
    with pytest.raises(errors.QueueNotEmpty):
        client.delete_queue("q", purge=True)


def test_a_delivery_can_be_passed_for_its_message(client: Client) -> None:
    delivery = _leased(client)
    client.release(delivery)
    assert client.hold(delivery)["state"] == "held"
    assert client.get_message(delivery, events=10)["events"][-1]["type"] == "held"
    assert client.unhold(delivery)["state"] == "ready"


def _leased(client: Client) -> Delivery:
    client.publish("q", "work")
    delivery = client.consume_next("q")
    assert delivery is not None
    return delivery
