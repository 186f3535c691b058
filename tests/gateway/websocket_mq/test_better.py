"""What the server's document says and the server gets wrong, and what its clients can have beside it."""

from __future__ import annotations

import pytest

from tests.gateway.frames import WebSocketPeer
from tests.gateway.websocket_mq.client import RpcError
from tests.gateway.websocket_mq.queue import CONFIGURATION, DOOR, KEEP, REMOVE_MESSAGE, REMOVE_SLOTS, Queue, State
from tests.wire.daemon import wait_until

FOR_EVER = 2**53 - 1


def wait_for_orders(gateway, number: int) -> None:
    wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == number, f"{number} orders wait")


# --- orders that wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "params"), [("renewMessage", 1), ("renewAllFailedMessages", 0)])
def test_a_message_that_is_renewed_wakes_an_order(queue, gateway, method, params):
    queue.configure()
    message = queue.failed()
    order = queue.start("orderMessage")
    wait_for_orders(gateway, 1)
    queue.call(method, *[message][:params])
    assert order.get() == message


@pytest.mark.parametrize("method", ["abandonMessage", "removeMessage"])
@pytest.mark.parametrize("state", [State.ORDERED, State.ACTIVE])
def test_the_end_of_a_message_wakes_an_order_that_the_concurrency_keeps_waiting(queue, gateway, method, state):
    queue.configure(concurrency=1)
    message = queue.in_state(state)
    other = queue.waiting()
    order = queue.start("orderMessage")
    wait_for_orders(gateway, 1)
    queue.call(method, message)
    assert order.get() == other


def test_a_message_that_was_cleared_counts_no_longer_for_the_concurrency(queue, gateway):
    queue.configure(concurrency=2)
    queue.active()
    queue.ordered()
    other = queue.waiting()
    order = queue.start("orderMessage")
    wait_for_orders(gateway, 1)
    queue.call("clearMessagesByState", State.ORDERED)
    assert order.get() == other


def test_one_message_wakes_one_order(queue, gateway):
    queue.configure()
    orders = [queue.start("orderMessage") for _ in range(5)]
    wait_for_orders(gateway, 5)
    message = queue.waiting()
    wait_for_orders(gateway, 4)
    wait_until(lambda: any(order.is_done for order in orders), "an order has its answer")
    assert [order.get() for order in orders if order.is_done] == [message]
    for order in orders:
        order.abort()
    wait_for_orders(gateway, 0)
    assert queue.stats() == {"ordered": 1}


def test_a_concurrency_of_0_keeps_all_orders_waiting(queue, gateway):
    queue.configure(concurrency=0)
    assert queue.call("getQueue")["concurrency"] == 0
    message = queue.waiting()
    order = queue.start("orderMessage")
    wait_for_orders(gateway, 1)
    queue.configure(concurrency=-1)
    assert not order.is_done
    queue.configure(concurrency=1)
    assert queue.call("getQueue")["concurrency"] == 1
    assert order.get() == message


def test_a_concurrency_that_was_0_is_not_exceeded_when_it_is_raised(queue, gateway):
    queue.configure(concurrency=0)
    messages = {queue.waiting() for _ in range(3)}
    orders = [queue.start("orderMessage") for _ in messages]
    wait_for_orders(gateway, 3)
    queue.configure(concurrency=1)
    wait_for_orders(gateway, 2)
    assert queue.stats() == {"waiting": 2, "ordered": 1}
    queue.configure(concurrency=0)
    assert queue.call("getQueue")["concurrency"] == 0
    queue.configure()
    assert {order.get() for order in orders} == messages


# --- uniqueness -------------------------------------------------------------------------------------------------------


def test_a_missing_slot_of_a_waiting_message_is_missing_in_a_unique_queue_too(queue):
    queue.configure(unique=True)
    message = queue.waiting("same")
    assert "SlotNotFound" in queue.error("setMessageSlot", message, "nope", 1).classes
    assert "DuplicateMessage" in queue.error("setMessageSlot", queue.draft(), "slot", "same").classes


@pytest.mark.parametrize(("behavior", "is_free"), [(KEEP, False), (REMOVE_SLOTS, False), (REMOVE_MESSAGE, True)])
def test_a_message_is_unique_among_all_that_exist_whatever_their_state(queue, behavior, is_free):
    queue.configure(unique=True, behaviorWhenCompleted=behavior, behaviorWhenAbandoned=behavior)
    for number, end in enumerate((queue.completed, queue.abandoned)):
        end(number)
        message = queue.draft()
        if is_free:
            queue.call("setMessageSlot", message, "slot", number)
            queue.call("removeMessage", message)
        else:
            assert "DuplicateMessage" in queue.error("setMessageSlot", message, "slot", number).classes
    failed = queue.failed("failed")
    assert "DuplicateMessage" in queue.error("setMessageSlot", queue.draft(), "slot", "failed").classes
    queue.call("removeMessage", failed)
    assert queue.state(queue.waiting("failed")) is State.WAITING


def test_the_names_of_slots_count_for_uniqueness(queue):
    queue.configure(unique=True)
    first, second = queue.draft("a"), queue.draft("b")
    queue.call("setMessageSlot", first, "a", 1)
    queue.call("setMessageSlot", second, "b", 1)
    assert queue.state(second) is State.WAITING


# --- fencing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["completeMessage", "failMessage"])
def test_a_late_worker_with_a_lease_cannot_settle_what_somebody_else_works_on(queue, method):
    queue.configure(activeTimeout=200)
    message = queue.ordered()
    late = queue.call("getMessage", message, {"lease": True})
    assert late["slots"] == {"slot": "value"}
    wait_until(lambda: queue.stats() == {"waiting": 1}, "the message waits again")
    queue.configure(activeTimeout=60_000)
    assert queue.call("orderMessage") == message
    assert "BadMessageState" in queue.error(method, message, late["leaseId"]).classes
    mine = queue.call("getMessage", message, {"lease": True})
    error = queue.error(method, message, late["leaseId"])
    assert (error.name, "BadMessageState" in error.classes) == ("StaleLease", True)
    assert queue.state(message) is State.ACTIVE
    assert queue.call(method, message, mine["leaseId"]) is None


def test_a_late_worker_with_a_lease_cannot_activate_what_somebody_else_has_ordered(queue):
    queue.configure(orderedTimeout=200)
    message = queue.waiting()
    late = queue.call("orderMessage", {"lease": True})
    assert late["messageId"] == message
    wait_until(lambda: queue.stats() == {"waiting": 1}, "the message waits again")
    queue.configure(orderedTimeout=60_000)
    mine = queue.call("orderMessage", {"lease": True})
    error = queue.error("getMessage", message, {"leaseId": late["leaseId"]})
    assert (error.name, "BadMessageState" in error.classes) == ("StaleLease", True)
    assert queue.state(message) is State.ORDERED
    assert queue.call("getMessage", message, {"leaseId": mine["leaseId"]})["slots"] == {"slot": "value"}
    assert queue.call("completeMessage", message, mine["leaseId"]) is None
    assert queue.error("getMessage", message, {"leaseId": mine["leaseId"]}).name == "StaleLease"


def test_without_a_lease_id_whoever_is_late_settles_it_as_in_the_server(queue):
    queue.configure(activeTimeout=200)
    message = queue.active()
    wait_until(lambda: queue.stats() == {"waiting": 1}, "the message waits again")
    queue.configure(activeTimeout=60_000)
    assert queue.call("orderMessage") == message
    queue.call("getMessage", message)
    assert queue.call("completeMessage", message) is None


# --- configuration ----------------------------------------------------------------------------------------------------


def test_times_of_any_length_are_accepted(queue):
    day = 24 * 3600 * 1000
    queue.configure(draftingTimeout=30 * day, orderedTimeout=30 * day, activeTimeout=FOR_EVER)
    shown = queue.call("getQueue")
    assert (shown["draftingTimeout"], shown["orderedTimeout"]) == (30 * day, 7 * day)
    assert shown["activeTimeout"] == 7 * day
    queue.configure(draftingTimeout=FOR_EVER)
    assert queue.call("getQueue")["draftingTimeout"] == FOR_EVER


def test_a_pause_of_an_operator_outlasts_a_configuration(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR).start()
    with WebSocketPeer(gateway) as peer:
        peer.ask("setQueue", "q", CONFIGURATION)
        daemon.ask("pause", queue="q")
        peer.ask("setQueue", "q", CONFIGURATION | {"concurrency": 5})
        assert daemon.ask("status", queue="q")["paused"]["consume"]
        assert peer.ask("getQueue", "q")["result"]["concurrency"] == 5


def test_messages_and_queues_of_other_clients_are_shown(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR).start()
    daemon.ask("publish", queue="q", message={"a": 1}, priority=7)
    daemon.ask("publish", queue="q", message="text")
    with WebSocketPeer(gateway) as peer:
        assert peer.ask("getQueue", "q")["result"]["orderedTimeout"] == FOR_EVER
        for expected in ({"a": 1}, "text"):
            message = peer.ask("orderMessage", "q")["result"]
            assert peer.ask("getMessage", "q", message)["result"]["slots"] == {"body": expected}
            assert peer.ask("completeMessage", "q", message) == {"result": None}
        assert peer.ask("getQueueStats", "q")["result"]["completed"] == 2


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["daemon", "gateway"])
def test_a_kill_after_each_step_loses_nothing_and_gives_nobody_two(daemon, make_gateway, clients, victim):
    gateway = make_gateway(daemon, DOOR).start()
    port = gateway.ports["mq-websocket"]
    gateway.write(DOOR.replace("port = 0", f"port = {port}"))
    queue = Queue(clients.connect(gateway), "q").configure()

    def kill() -> None:
        nonlocal queue
        if victim == "daemon":
            daemon.kill()
            daemon.start()
        else:
            gateway.process.kill()
            gateway.process.wait()
            gateway.start()
            queue = queue.through(clients.connect(gateway))

    message = queue.draft("a", "b")
    kill()
    assert queue.state(message) is State.DRAFTING
    queue.call("setMessageSlot", message, "a", 1)
    kill()
    assert queue.peek(message)["slots"] == {"a": 1}
    queue.call("setMessageSlot", message, "b", 2)
    kill()
    assert queue.call("orderMessage") == message
    kill()
    assert queue.stats() == {"ordered": 1}
    assert queue.call("getMessage", message)["slots"] == {"a": 1, "b": 2}
    kill()
    assert queue.stats() == {"active": 1}
    order = queue.start("orderMessage")
    queue.call("completeMessage", message)
    kill()
    assert queue.state(message) is State.COMPLETED
    assert queue.stats() == {"completed": 1}
    if victim == "daemon":
        other = queue.waiting()  # the order has waited on
        assert order.get() == other


def test_a_stop_ends_orders_without_taking_a_message(daemon, make_gateway, clients):
    gateway = make_gateway(daemon, DOOR).start()
    client = clients.connect(gateway)
    queue = Queue(client, "q").configure()
    order = queue.start("orderMessage")
    wait_for_orders(gateway, 1)
    closed = client.closed()
    gateway.stop()
    assert closed.get() == 1005
    assert not order.is_done
    gateway = make_gateway(daemon, DOOR).start()
    queue = queue.through(clients.connect(gateway))
    assert queue.state(queue.waiting()) is State.WAITING


def test_a_call_of_which_the_daemon_is_away_fails_after_some_time(daemon, make_gateway, clients):
    toml = DOOR + f'[daemon]\nsocket = "{daemon.ipc / "lane.sock"}"\npatience_seconds = 0.2\n[observe]\nport = 0\n'
    queue = Queue(clients.connect(make_gateway(daemon, toml).start()), "q").configure()
    daemon.kill()
    with pytest.raises(RpcError) as error:
        queue.waiting()
    assert error.value.name == "ServiceUnavailable"
