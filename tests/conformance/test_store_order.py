"""The contract of stores/base.py, the same for every store: who comes next, pages, moves between queues, names of
facts."""

from __future__ import annotations

from postroom_common.protocol import State
from postroom_daemon.model.records import QueueRecord
from postroom_daemon.stores.base import Cursor, Store
from tests.conformance.store_calls import QUEUE, change, counts, drain, entry, insert


def turn(store: Store, consumer: str = "c") -> int | None:
    """The number of the message that would be delivered now."""
    head = store.next_ready(QUEUE, consumer)
    return head.seq if head else None


def change_alone(store: Store, number: int, **changes: object) -> None:
    store.begin()
    change(store, f"msg:{QUEUE}:{number}", **changes)
    store.commit()


def remove(store: Store, number: int) -> None:
    store.begin()
    gone = store.get(f"msg:{QUEUE}:{number}")
    assert gone is not None
    store.delete(gone, gone.state)
    store.commit()


def pages(store: Store, state: State, limit: int, queue: str = QUEUE) -> list[int]:
    """The numbers of a queue's messages in a state, read page by page."""
    found: list[int] = []
    after: Cursor = ()
    while True:
        page, after = store.pages.scan(queue, state, after, limit)
        assert len(page) <= limit
        found += [one.seq for one in page]
        if not after:
            return found


# --- ordering keys ------------------------------------------------------------------------------------------------


def test_only_the_first_published_message_of_an_ordering_key_is_delivered(store: Store) -> None:
    insert(store, entry(1, order_key="k"), entry(2, order_key="k", priority=9), entry(3, priority=5))
    assert drain(store) == [3, 1, 2]
    change_alone(store, 3, state=State.DEAD, dead_at=1)
    assert turn(store) == 1


def test_no_message_is_delivered_while_another_of_its_ordering_key_is_in_flight_or_waits_for_its_retry(
    store: Store,
) -> None:
    insert(store, entry(1, order_key="k"), entry(2, order_key="k"), entry(3, order_key="other"))
    change_alone(store, 1, state=State.INFLIGHT, lease_until=9)
    assert drain(store) == [3]
    change_alone(store, 1, state=State.DELAYED, lease_until=0, due=50)
    assert drain(store) == [3]
    store.begin()
    assert store.due.promote(50, 10) == [QUEUE]
    store.commit()
    assert drain(store) == [1, 2, 3]


def test_a_message_that_dies_or_is_removed_frees_its_ordering_key(store: Store) -> None:
    insert(store, *(entry(number, order_key="k") for number in (1, 2, 3)))
    change_alone(store, 1, state=State.DEAD, dead_at=1)
    assert turn(store) == 2
    remove(store, 2)
    assert turn(store) == 3


def test_a_reprocessed_dead_letter_waits_for_the_message_of_its_ordering_key_that_is_in_flight(store: Store) -> None:
    insert(store, entry(1, State.DEAD, order_key="k", dead_at=1), entry(2, order_key="k"))
    change_alone(store, 2, state=State.INFLIGHT, lease_until=9)
    change_alone(store, 1, state=State.READY, dead_at=0)
    assert turn(store) is None
    remove(store, 2)
    assert turn(store) == 1


def test_a_message_on_hold_keeps_its_turn(store: Store) -> None:
    insert(store, entry(1, order_key="k"), entry(2, order_key="k"))
    change_alone(store, 1, state=State.HELD)
    assert turn(store) is None
    change_alone(store, 1, state=State.READY)
    assert turn(store) == 1


def test_the_same_ordering_key_in_another_queue_is_independent(store: Store) -> None:
    insert(store, entry(1, order_key="k", queue="other"), entry(2, order_key="k"))
    assert turn(store) == 2


def test_a_rollback_restores_whose_turn_it_is(store: Store) -> None:
    insert(store, entry(1, order_key="k"), entry(2, order_key="k"))
    store.begin()
    change(store, "msg:q:1", state=State.INFLIGHT, lease_until=9)
    store.rollback()
    assert turn(store) == 1


# --- time ---------------------------------------------------------------------------------------------------------


def test_waiting_messages_expire_oldest_first_at_their_end_or_that_of_their_target(store: Store) -> None:
    insert(
        store,
        entry(1, expires=90),
        entry(2, State.DELAYED, due=500, expires=50),
        entry(3, expires=80, target="t", fallback=60),
        entry(4, fallback=10),  # without a target it means nothing
        entry(5, State.INFLIGHT, lease_until=500, expires=10),
        entry(6, State.HELD, expires=10),
        entry(7, State.DEAD, dead_at=1, expires=10),
    )
    due = store.due.next_time()
    assert due is not None and due <= 50
    assert [one.seq for one in store.due.expiring(49, 10)] == []
    assert [one.seq for one in store.due.expiring(90, 10)] == [2, 3, 1]
    assert [one.seq for one in store.due.expiring(90, 1)] == [2]
    change_alone(store, 2, state=State.READY, expires=0)
    change_alone(store, 3, target="", fallback=0)
    change_alone(store, 5, state=State.READY, lease_until=0)
    assert [one.seq for one in store.due.expiring(85, 10)] == [5, 3]


def test_the_lease_of_a_dead_letter_ends_like_any_other(store: Store) -> None:
    insert(store, entry(1, State.DEAD, dead_at=3, lease_until=20, lease_id="l", consumer_id="c"))
    due = store.due.next_time()
    assert due is not None and due <= 20
    assert store.due.ended_leases(19, 10) == []
    assert [one.seq for one in store.due.ended_leases(20, 10)] == [1]
    assert counts(store) == {"dead": 1}


def test_leases_are_listed_including_those_of_dead_letters(store: Store) -> None:
    insert(
        store,
        entry(1, State.INFLIGHT, lease_until=30),
        entry(2, State.DEAD, dead_at=3, lease_until=20, lease_id="l", consumer_id="c"),
        entry(3, State.DEAD, dead_at=3),
        entry(4, State.INFLIGHT, queue="other", lease_until=25),
        entry(5, State.INFLIGHT, lease_until=10),
    )
    for queue, expected in ((QUEUE, [5, 2, 1]), ("", [5, 2, 4, 1]), ("none", [])):
        found: list[int] = []
        after: Cursor = ()
        while page := store.pages.leases(queue, after, 1):
            found += [one.seq for one in page[0]]
            after = page[1]
            if not after:
                break
        assert found == expected


# --- pages --------------------------------------------------------------------------------------------------------


def test_pages_of_each_state_are_in_the_order_in_which_messages_come_next(store: Store) -> None:
    insert(
        store,
        entry(1),
        entry(2, priority=5),
        entry(3, target="t", priority=9),
        entry(4, order_key="k", priority=-1),
        entry(5, order_key="k", priority=9),
        entry(6, priority=5),
        entry(11, State.DELAYED, due=70),
        entry(12, State.DELAYED, due=60),
        entry(13, State.DELAYED, due=60),
        entry(21, State.INFLIGHT, lease_until=9),
        entry(22, State.INFLIGHT, lease_until=8),
        entry(31, State.HELD),
        entry(32, State.HELD),
        entry(41, State.DEAD, dead_at=9),
        entry(42, State.DEAD, dead_at=8),
        entry(51, queue="other"),
        entry(52, State.DELAYED, queue="other", due=65),
        entry(53, State.INFLIGHT, queue="other", lease_until=1),
    )
    for limit in (1, 2, 100):
        assert pages(store, State.READY, limit) == [2, 6, 1, 4, 3, 5]
        assert pages(store, State.DELAYED, limit) == [12, 13, 11]
        assert pages(store, State.INFLIGHT, limit) == [22, 21]
        assert pages(store, State.HELD, limit) == [31, 32]
        assert pages(store, State.DEAD, limit) == [42, 41]
        assert pages(store, State.DELAYED, limit, "") == [12, 13, 52, 11]
        assert pages(store, State.INFLIGHT, limit, "") == [53, 22, 21]
        assert pages(store, State.READY, limit, "none") == []


def test_the_oldest_ready_message_for_a_consumer_is_one_that_it_could_get(store: Store) -> None:
    insert(
        store,
        entry(1, target="other"),
        entry(2, State.HELD, order_key="k"),
        entry(3, order_key="k"),
        entry(4, priority=-5),
        entry(5, target="me", priority=9),
    )
    oldest, mine = store.pages.oldest_ready(QUEUE), store.pages.oldest_ready(QUEUE, "me")
    assert oldest is not None and oldest.seq == 1
    assert mine is not None and mine.seq == 4


# --- queues -------------------------------------------------------------------------------------------------------


def test_the_oldest_ready_messages_come_in_publish_order_whatever_their_target_priority_or_ordering_key(
    store: Store,
) -> None:
    insert(
        store,
        entry(1, state=State.DELAYED, due=5),
        entry(2, priority=1),
        entry(3, target="somebody"),
        entry(4, order_key="k"),
        entry(5, order_key="k", priority=7),
        entry(6, priority=1),
        entry(7, target="other", priority=-3),
        entry(8, priority=9),
    )
    assert [one.seq for one in store.pages.oldest(QUEUE, 100)] == [2, 3, 4, 5, 6, 7, 8]
    assert [one.seq for one in store.pages.oldest(QUEUE, 3)] == [2, 3, 4]
    change_alone(store, 3, state=State.INFLIGHT, lease_until=9)
    assert [one.seq for one in store.pages.oldest(QUEUE, 3)] == [2, 4, 5]
    assert store.pages.oldest("no such queue", 3) == []


def test_the_next_several_are_those_that_are_leased_one_after_the_other(store: Store) -> None:
    insert(
        store,
        entry(1, priority=1, target="c"),
        entry(2, order_key="k"),
        entry(3, order_key="k", priority=99),
        entry(4, priority=9),
        entry(5, priority=99, target="another"),
        entry(6, priority=9, target="c"),
        entry(7, priority=1),
    )
    order = []
    store.begin()
    while head := store.next_ready(QUEUE, "c"):
        order.append(head.seq)
        change(store, head.key, state=State.INFLIGHT, lease_until=9)
    store.rollback()
    assert order == [4, 6, 1, 7, 2]
    for limit in range(1, 9):
        several = [one.seq for one in store.several.next_ready(QUEUE, "c", limit)]
        assert several and several == order[:limit][: len(several)]
    assert store.several.next_ready("no such queue", "c", 3) == []


def test_a_message_that_moves_keeps_its_key_and_its_body_and_is_counted_where_it_is(store: Store) -> None:
    insert(store, entry(1, size=12, order_key="k"), entry(2, size=12, order_key="k"), entry(3, queue="b"))
    store.begin()
    moved = store.get("msg:q:1")
    assert moved is not None
    moved = moved.copy()
    moved.queue = "b"
    store.update(moved, State.READY, QUEUE)
    store.commit()
    assert counts(store) == {"ready": 1} and counts(store, "b") == {"ready": 2}
    there, left = store.queue("b"), store.queue(QUEUE)
    assert there is not None and left is not None
    assert (there.bytes, left.bytes) == (12, 12)
    assert turn(store) == 2
    head = store.next_ready("b", "c")
    assert head is not None and head.key == "msg:q:1" and head.queue == "b"
    assert store.bodies.envelope("msg:q:1") == b'{"parts":[]}'
    store.begin()
    store.delete(head, State.READY)
    store.commit()
    assert counts(store, "b") == {"ready": 1} and store.get("msg:q:1") is None


def test_a_move_that_is_rolled_back_has_not_happened(store: Store) -> None:
    insert(store, entry(1), entry(3, queue="b"))
    store.begin()
    moved = store.get("msg:q:1")
    assert moved is not None
    moved = moved.copy()
    moved.queue = "b"
    store.update(moved, State.READY, QUEUE)
    store.rollback()
    back = store.get("msg:q:1")
    assert back is not None and back.queue == QUEUE
    assert turn(store) == 1 and counts(store, "b") == {"ready": 1}
    assert store.bodies.envelope("msg:q:1") == b'{"parts":[]}'


def test_a_queue_knows_the_size_of_its_messages_that_are_not_dead(store: Store) -> None:
    insert(store, entry(1, size=5), entry(2, State.DELAYED, due=9, size=7), entry(3, State.DEAD, dead_at=1, size=100))
    record = store.queue(QUEUE)
    assert record is not None and record.bytes == 12
    change_alone(store, 1, state=State.DEAD, dead_at=2)
    record = store.queue(QUEUE)
    assert record is not None and record.bytes == 7
    remove(store, 2)
    record = store.queue(QUEUE)
    assert record is not None and record.bytes == 0


def test_a_deleted_queue_is_gone_and_can_be_created_again(store: Store) -> None:
    insert(store, entry(1))
    remove(store, 1)
    store.begin()
    store.delete_queue(QUEUE)
    store.delete_queue("none")
    store.rollback()
    assert store.pages.queue_names("", 10) == [QUEUE]
    store.begin()
    store.delete_queue(QUEUE)
    store.commit()
    assert store.queue(QUEUE) is None and store.pages.queue_names("", 10) == []
    store.begin()
    store.add_queue(QueueRecord(QUEUE, created_wall=5))
    store.commit()
    made = store.queue(QUEUE)
    assert made is not None and made.created_wall == 5 and store.pages.queue_names("", 10) == [QUEUE]


# --- facts --------------------------------------------------------------------------------------------------------


def test_names_of_facts_are_paged_by_prefix(store: Store) -> None:
    store.begin()
    for name in ("claim:b", "claim:a", "claim:é", "claims", "schedule:a"):
        store.facts.put(name, {"of": name})
    store.facts.put("claim:gone", 1)
    store.facts.put("claim:gone", None)
    store.commit()
    assert store.facts.names("claim:", "", 10) == ["claim:a", "claim:b", "claim:é"]
    assert store.facts.names("claim:", "claim:a", 1) == ["claim:b"]
    assert store.facts.names("none:", "", 10) == []


def test_a_fact_whose_name_is_the_whole_prefix_is_listed_once(store: Store) -> None:
    store.begin()
    for name in ("draining", "draining\0a", "drain"):
        store.facts.put(name, True)
    store.commit()
    assert store.facts.names("draining", "", 10) == ["draining", "draining\0a"]
    assert store.facts.names("draining", "drain", 1) == ["draining"]
    assert store.facts.names("draining", "draining", 10) == ["draining\0a"]
