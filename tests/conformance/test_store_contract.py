"""The contract of stores/base.py, the same for every store."""

from __future__ import annotations

import pytest

from postroom_common.protocol import NO_PRIORITY, State
from postroom_daemon.model.facts import part_fact
from postroom_daemon.model.records import Entry, QueueRecord
from postroom_daemon.stores.base import Store
from postroom_daemon.stores.errors import BodyLost, StoreError
from tests.conformance.store_calls import QUEUE, change, counts, drain, entry, insert


def test_a_store_needs_fifteen_methods_and_has_what_else_it_does_in_contracts_of_their_own() -> None:
    assert len([name for name, one in vars(Store).items() if callable(one) and not name.startswith("_")]) <= 15
    assert {"several", "facts", "bodies", "pages", "due", "disk", "recovery", "audit"} <= Store.__annotations__.keys()


def test_an_entry_is_read_back_with_every_fact_that_was_stored(store: Store) -> None:
    full = Entry(
        key="msg:q:x", queue=QUEUE, state=State.INFLIGHT, priority=-3, seq=2**62, created_wall=2**41, created=5,
        target="someone", attempt=4, due=17, lease_id="lease", consumer_id="holder", lease_until=99, leased_at=70,
        dead_at=0, failures=3, phase="word", size=12, reason="why", expires=2**40, fallback=2**41, due_wall=2**42,
        order_key="line 7/é~%", claim="c" * 32, holder_uid="0",
        retry_limit=2**31 - 1, returned_seq=2**62 + 1, parts=4096, unset=256, name="é:%/ name",
    )  # fmt: skip
    insert(store, full)
    assert store.get("msg:q:x") == full
    assert store.bodies.envelope("msg:q:x") == b'{"parts":[]}'


def test_several_messages_are_stored_changed_and_removed_as_one_after_the_other(store: Store) -> None:
    insert(store, entry(1))
    new = [entry(number) for number in (10, 11, 12)]
    store.begin()
    store.folding = 10
    store.several.insert(new, [b'{"parts":[%d]}' % one.seq for one in new])
    assert store.folding == 12
    leased = [one.copy() for one in new]
    for one in leased:
        one.state, one.lease_until = State.INFLIGHT, 9
    store.folding = 13
    store.several.update(leased, State.READY)
    assert store.folding == 15
    store.several.delete(leased[1:], State.INFLIGHT)
    store.applied = 15
    store.commit()
    assert counts(store) == {"ready": 1, "inflight": 1}
    assert store.get("msg:q:10") == leased[0] and store.bodies.envelope("msg:q:10") == b'{"parts":[10]}'
    assert store.get("msg:q:11") is None and store.get("msg:q:12") is None


def test_a_missing_entry_is_none_and_reading_its_body_is_an_error(store: Store) -> None:
    assert store.get("msg:q:none") is None
    assert store.queue("none") is None
    assert store.facts.get("none") is None
    assert store.next_ready("none", "c") is None
    assert store.pages.oldest_ready("none") is None
    assert store.due.next_time() is None
    assert store.pages.dead("none", (-1, -1), 10) == []
    assert store.due.promote(2**62, 10) == [] and store.due.ended_leases(2**62, 10) == []
    with pytest.raises(StoreError):
        store.bodies.envelope("msg:q:none")
    with pytest.raises(StoreError):
        store.queue_for_update("none")


def test_an_update_changes_no_entry_that_was_read_before_and_a_rollback_undoes_it(store: Store) -> None:
    insert(store, entry(1))
    store.begin()
    before = store.get("msg:q:1")
    assert before is not None
    changed = before.copy()
    changed.attempt = 9
    store.update(changed, State.READY)
    assert before.attempt == 0
    store.rollback()
    after = store.get("msg:q:1")
    assert after is not None and after.attempt == 0


def test_a_message_that_was_leased_before_is_gone_once_deleted_whatever_is_asked_in_between(store: Store) -> None:
    insert(store, entry(1), entry(2))
    store.begin()
    lease_next(store)
    store.commit()
    store.begin()
    leased = store.get("msg:q:1")
    assert leased is not None
    store.delete(leased, leased.state)
    assert [one.seq for one in store.pages.entries("", 10)] == [2]
    assert store.get("msg:q:1") is None
    store.commit()
    assert store.get("msg:q:1") is None and counts(store) == {"ready": 1}


def test_delivery_is_by_priority_then_by_publish_order(store: Store) -> None:
    insert(store, entry(3), entry(1), entry(2, priority=5), entry(5, priority=-1), entry(4, priority=5))
    assert drain(store) == [2, 4, 1, 3, 5]


def lease_next(store: Store, consumer: str = "c") -> int:
    """Lease the next message in the open transaction; its number."""
    head = store.next_ready(QUEUE, consumer)
    assert head is not None
    change(store, head.key, state=State.INFLIGHT, lease_id=f"lease-{head.seq}", lease_until=100 + head.seq)
    return head.seq


def test_each_lease_takes_the_next_message_after_the_changes_before_it(store: Store) -> None:
    insert(store, *[entry(number) for number in range(10, 40)], entry(40, target="c"), entry(41, state=State.HELD))
    store.begin()
    assert [lease_next(store) for _ in range(7)] == list(range(10, 17))
    store.insert(entry(50, priority=3), b"{}")
    change(store, "msg:q:18", state=State.HELD)
    change(store, "msg:q:11", state=State.READY, lease_id="", lease_until=0)
    assert [lease_next(store) for _ in range(4)] == [50, 11, 17, 19]
    gone = store.get("msg:q:20")
    assert gone is not None
    store.delete(gone, gone.state)
    change(store, "msg:q:41", state=State.READY)
    store.insert(entry(9, target="c"), b"{}")
    assert [lease_next(store) for _ in range(3)] == [9, 21, 22]
    assert [lease_next(store) for _ in range(19)] == [*range(23, 42)]
    assert store.next_ready(QUEUE, "c") is None
    store.insert(entry(60), b"{}")
    assert lease_next(store) == 60
    store.commit()


def test_a_rollback_does_not_change_a_lease_of_an_earlier_transaction(store: Store) -> None:
    insert(store, *[entry(number) for number in range(3)])
    store.begin()
    for _ in range(3):
        lease_next(store)
    store.commit()
    for _ in range(2):
        store.begin()
        change(store, "msg:q:1", state=State.READY, lease_id="", lease_until=0)
        change(store, "msg:q:2", attempt=7)
        gone = store.get("msg:q:0")
        assert gone is not None
        store.delete(gone, gone.state)
        store.rollback()
    for number in range(3):
        kept = store.get(f"msg:q:{number}")
        assert kept == entry(number, State.INFLIGHT, lease_id=f"lease-{number}", lease_until=100 + number)
    assert counts(store) == {"inflight": 3}


def test_a_targeted_message_is_seen_by_its_consumer_only_and_in_its_place(store: Store) -> None:
    insert(store, entry(1), entry(2, target="me", priority=1), entry(3, target="other", priority=9), entry(4))
    assert drain(store, "me") == [2, 1, 4]
    assert drain(store, "other") == [3, 1, 4]
    assert drain(store, "nobody") == [1, 4]
    assert drain(store, "") == [1, 4]


@pytest.mark.parametrize("state", [State.DELAYED, State.GATHERING, State.INFLIGHT, State.DEAD])
def test_only_ready_messages_are_delivered(store: Store, state: State) -> None:
    insert(store, entry(1, state, due=5, lease_until=5, dead_at=5))
    assert drain(store) == [] and store.pages.oldest_ready(QUEUE) is None


def test_a_message_that_becomes_ready_again_has_its_old_place(store: Store) -> None:
    insert(store, entry(1), entry(2), entry(3))
    store.begin()
    change(store, "msg:q:1", state=State.INFLIGHT, lease_until=10)
    change(store, "msg:q:1", state=State.READY, lease_until=0)
    store.commit()
    assert drain(store) == [1, 2, 3]


def test_counts_follow_every_move(store: Store) -> None:
    insert(store, entry(1), entry(2, State.DELAYED, due=5))
    assert counts(store) == {"ready": 1, "delayed": 1}
    store.begin()
    change(store, "msg:q:1", state=State.INFLIGHT, lease_until=9)
    assert store.due.promote(5, 10) == [QUEUE]
    store.commit()
    assert counts(store) == {"inflight": 1, "ready": 1}
    store.begin()
    gone = store.get("msg:q:2")
    assert gone is not None
    store.delete(gone, State.READY)
    change(store, "msg:q:1", state=State.DEAD, dead_at=9)
    store.commit()
    assert counts(store) == {"dead": 1}


def test_what_gathers_is_promoted_with_what_is_delayed_in_the_order_of_their_times(store: Store) -> None:
    insert(
        store,
        entry(1, State.GATHERING, due=30, queue="a"),
        entry(2, State.DELAYED, due=20, queue="b"),
        entry(3, State.GATHERING, due=10, queue="c"),
        entry(4, State.GATHERING, due=99, queue="a"),
    )
    assert store.due.next_time() == 10
    store.begin()
    assert store.due.promote(50, 2) == ["c", "b"]
    assert store.due.promote(50, 2) == ["a"]
    store.commit()
    assert [one.seq for one in store.pages.scan("a", State.GATHERING, (), 9)[0]] == [4]
    assert store.pages.scan("a", State.DELAYED, (), 9)[0] == []


def test_parts_are_stored_beside_a_message_and_go_with_it(store: Store) -> None:
    insert(store, entry(1, State.GATHERING, due=30))
    for number in (1, 2):
        store.begin()
        store.facts.put(part_fact("msg:q:1", number), {"text": f"part {number}"})
        change(store, "msg:q:1", parts=number)
        if number == 2:
            store.rollback()
        else:
            store.commit()
    found = store.get("msg:q:1")
    assert found and found.parts == 1 and store.bodies.appended(found) == [{"text": "part 1"}]
    found = found.copy()
    found.parts = 3
    with pytest.raises(BodyLost, match="part 2"):
        store.bodies.appended(found)


def test_another_body_replaces_the_one_of_a_message_whatever_was_stored_before(store: Store) -> None:
    insert(store, entry(1), entry(2))
    store.bodies.envelope("msg:q:2")
    store.begin()
    store.insert(entry(3), b'{"parts":[]}')
    for number in (1, 3):
        replace(store, number, b'{"parts":["%d"]}' % number)
        assert store.bodies.envelope(f"msg:q:{number}") == b'{"parts":["%d"]}' % number
    store.rollback()
    assert store.bodies.envelope("msg:q:1") == b'{"parts":[]}' and store.get("msg:q:3") is None
    store.begin()
    replace(store, 1, b'{"parts":["once"]}')
    store.commit()
    store.begin()
    replace(store, 1, b'{"parts":["twice"]}')
    replace(store, 2, b'{"parts":["two"]}')
    changed = store.get("msg:q:1")
    assert changed is not None and changed.size == len(b'{"parts":["twice"]}')
    store.delete(changed, changed.state)
    store.commit()
    store.disk.checkpoint()
    assert store.get("msg:q:1") is None and store.bodies.envelope("msg:q:2") == b'{"parts":["two"]}'
    assert [one.key for one in store.several.next_ready(QUEUE, "c", 10)] == ["msg:q:2"]
    assert counts(store) == {"ready": 1}


def replace(store: Store, number: int, envelope: bytes) -> None:
    """Replace the body of a message in the open transaction."""
    found = store.get(f"msg:{QUEUE}:{number}")
    assert found is not None
    changed = found.copy()
    changed.size = len(envelope)
    store.queue_for_update(QUEUE).bytes += changed.size - found.size
    store.replace(changed, envelope)


def test_drafts_are_listed_in_publish_order_and_never_delivered(store: Store) -> None:
    insert(store, *(entry(number, State.DRAFTING, priority=number, expires=10 * number) for number in (3, 1, 2)))
    insert(store, entry(4, State.HELD))
    page, after = store.pages.scan(QUEUE, State.DRAFTING, (), 2)
    rest, last = store.pages.scan(QUEUE, State.DRAFTING, after, 2)
    assert [one.seq for one in (*page, *rest)] == [1, 2, 3] and last == ()
    assert [one.seq for one in store.pages.scan(QUEUE, State.HELD, (), 9)[0]] == [4]
    assert drain(store) == [] and counts(store) == {"drafting": 3, "held": 1}
    assert [one.seq for one in store.due.expiring(20, 9)] == [1, 2] and store.due.promote(99, 9) == []


def test_what_has_no_priority_is_delivered_last(store: Store) -> None:
    insert(store, entry(1, priority=NO_PRIORITY), entry(2, priority=-(2**31)), entry(3), entry(4, priority=NO_PRIORITY))
    assert drain(store) == [3, 2, 1, 4]
    store.disk.checkpoint()
    assert drain(store) == [3, 2, 1, 4]
    page, _ = store.pages.scan(QUEUE, State.READY, (), 3)
    assert [one.seq for one in page] == [3, 2, 1] and page[-1].priority == NO_PRIORITY


def test_promotion_takes_due_messages_oldest_first_up_to_the_limit(store: Store) -> None:
    insert(store, *(entry(number, State.DELAYED, due=100 - number) for number in range(1, 6)))
    store.begin()
    assert store.due.promote(94, 10) == []
    assert store.due.promote(97, 2) == [QUEUE, QUEUE]
    assert counts(store) == {"delayed": 3, "ready": 2}
    store.commit()
    assert drain(store) == [4, 5]
    store.begin()
    assert len(store.due.promote(97, 10)) == 1
    store.commit()
    assert drain(store) == [3, 4, 5]


def test_a_lease_ends_at_its_time_and_the_oldest_comes_first(store: Store) -> None:
    insert(store, *(entry(number, State.INFLIGHT, lease_until=100 - number) for number in range(1, 5)))
    store.begin()
    assert [found.seq for found in store.due.ended_leases(95, 10)] == []
    assert [found.seq for found in store.due.ended_leases(96, 10)] == [4]
    assert [found.seq for found in store.due.ended_leases(99, 2)] == [4, 3]
    assert [found.seq for found in store.due.ended_leases(99, 10)] == [4, 3, 2, 1]
    store.rollback()


def test_a_lease_ends_once_however_often_it_was_set_to_the_same_end(store: Store) -> None:
    insert(store, entry(1, State.INFLIGHT, lease_until=50))
    store.begin()
    change(store, "msg:q:1", lease_until=50)
    store.commit()
    store.begin()
    change(store, "msg:q:1", state=State.READY)
    store.rollback()
    assert [found.seq for found in store.due.ended_leases(50, 10)] == [1]


def test_messages_due_at_the_same_time_come_in_publish_order(store: Store) -> None:
    keys = ["msg:a:z", "msg:b:y", "msg:c:x", "msg:d:w"]
    for number, key in enumerate(keys):
        made = Entry(key, key[4], State.DELAYED, priority=0, seq=number, created_wall=1, created=1, due=9)
        insert(store, made)
    store.begin()
    assert store.due.promote(9, 3) == ["a", "b", "c"]
    assert store.due.promote(9, 3) == ["d"]
    for key in reversed(keys):
        change(store, key, state=State.INFLIGHT, lease_until=20)
    store.commit()
    assert [found.key for found in store.due.ended_leases(20, 10)] == keys


def test_an_extended_lease_ends_at_its_new_time(store: Store) -> None:
    insert(store, entry(1, State.INFLIGHT, lease_until=50))
    store.begin()
    change(store, "msg:q:1", lease_until=80)
    store.commit()
    assert store.due.ended_leases(79, 10) == []
    assert [found.seq for found in store.due.ended_leases(80, 10)] == [1]


def test_nothing_is_due_before_the_time_that_the_store_names(store: Store) -> None:
    insert(store, entry(1, State.DELAYED, due=70), entry(2, State.INFLIGHT, lease_until=60))
    due = store.due.next_time()
    assert due is not None and due <= 60
    store.begin()
    change(store, "msg:q:2", state=State.DEAD, dead_at=60, lease_until=0)
    store.commit()
    store.begin()
    assert store.due.promote(70, 10) == [QUEUE]
    store.commit()
    assert store.due.promote(2**62, 10) == [] and store.due.ended_leases(2**62, 10) == []
    assert store.due.next_time() is None


def test_dead_letters_are_paged_by_time_of_death_then_publish_order(store: Store) -> None:
    insert(store, *(entry(number, State.DEAD, dead_at=10 + number // 3) for number in (5, 1, 4, 2, 3)))
    pages = []
    after = (-1, -1)
    while page := store.pages.dead(QUEUE, after, 2):
        pages.append([found.seq for found in page])
        after = (page[-1].dead_at, page[-1].seq)
    assert pages == [[1, 2], [3, 4], [5]]


def test_the_oldest_ready_is_the_first_published_whatever_its_priority_or_target(store: Store) -> None:
    insert(store, entry(3, priority=9), entry(2, target="zoe", priority=-5), entry(4), entry(5, target="zoe"))
    oldest = store.pages.oldest_ready(QUEUE)
    assert oldest is not None and oldest.seq == 2


def test_queue_names_are_paged_in_character_order(store: Store) -> None:
    names = ["b", "a", "B", "ä", "a/../b", "100%", "a_b", "queue:x", "\U0001f600", "\uffee", "'; DROP TABLE kv;--"]
    store.begin()
    for name in names:
        store.add_queue(QueueRecord(name))
    store.commit()
    found: list[str] = []
    while page := store.pages.queue_names(found[-1] if found else "", 3):
        found += page
    assert found == sorted(names)


def test_the_records_of_all_queues_are_read_in_pages_as_the_open_transaction_sees_them(store: Store) -> None:
    names = [f"{number:02}" for number in range(8)]
    store.begin()
    for name in names:
        store.add_queue(QueueRecord(name))
    store.commit()
    store.begin()
    store.delete_queue("03")
    store.queue_for_update("05").used = 7
    found: list[QueueRecord] = []
    while page := store.pages.queues(found[-1].name if found else "", 3):
        found += page
    left = [name for name in names if name != "03"]
    assert [(one.name, one.used) for one in found] == [(name, 7 if name == "05" else 0) for name in left]
    store.rollback()
    assert [(one.name, one.used) for one in store.pages.queues("02", 3)] == [("03", 0), ("04", 0), ("05", 0)]


def test_stored_bytes_are_counted_by_publisher_in_pages_of_messages(store: Store) -> None:
    published = [("8", 10), ("8", 20), ("", 40), ("9", 80), ("8", 160)]
    messages = [entry(number) for number in range(1, 6)]
    for message, (account, size) in zip(messages, published, strict=True):
        message.publisher_uid, message.size = account, size
    insert(store, *messages)
    pages, after = list[tuple[dict[str, int], str]](), ""
    while not pages or after:
        stored, after = store.pages.stored_bytes(after, 4, 2)
        pages.append((dict(stored), after))
    assert pages == [({"8": 30}, "msg:q:2"), ({"9": 80}, "msg:q:4"), ({}, "")]


def test_a_queue_record_is_read_back_as_it_was_changed(store: Store) -> None:
    store.begin()
    store.add_queue(QueueRecord(QUEUE, created_wall=5))
    record = store.queue_for_update(QUEUE)
    record.override = {"retry.limit": 3}
    record.consume_paused = True
    record.total("published")
    store.commit()
    kept = store.queue(QUEUE)
    assert kept is not None
    assert (kept.override, kept.consume_paused, kept.totals) == ({"retry.limit": 3}, True, {"published": 1})


def test_a_rollback_undoes_everything(store: Store) -> None:
    insert(store, entry(1), entry(2, State.DELAYED, due=5), entry(3, State.INFLIGHT, lease_until=5))
    store.begin()
    store.facts.put("pins", {"a": 1})
    store.applied = 5
    store.commit()
    store.begin()
    change(store, "msg:q:1", state=State.INFLIGHT, lease_until=3)
    store.due.promote(5, 10)
    change(store, "msg:q:3", state=State.DEAD, dead_at=4)
    gone = store.get("msg:q:2")
    assert gone is not None
    store.delete(gone, gone.state)
    store.insert(entry(4), b"{}")
    store.add_queue(QueueRecord("new"))
    store.queue_for_update(QUEUE).override = {"retry.limit": 9}
    store.queue_for_update(QUEUE).total("published")
    store.facts.put("pins", {"b": 2})
    store.facts.put("other", 1)
    store.applied = 9
    store.rollback()
    assert store.applied == 5
    assert counts(store) == {"ready": 1, "delayed": 1, "inflight": 1}
    record = store.queue(QUEUE)
    assert record is not None and record.override == {} and record.totals == {}
    assert store.queue("new") is None and store.pages.queue_names("", 10) == [QUEUE]
    assert store.facts.get("pins") == {"a": 1} and store.facts.get("other") is None
    assert store.get("msg:q:4") is None and store.bodies.envelope("msg:q:2") == b'{"parts":[]}'
    assert drain(store) == [1]
    assert [found.seq for found in store.due.ended_leases(5, 10)] == [3]
    assert store.pages.dead(QUEUE, (-1, -1), 10) == []
    store.begin()
    assert store.due.promote(5, 10) == [QUEUE]
    store.rollback()


def test_a_fact_that_a_caller_changes_in_place_is_not_changed_in_the_store(store: Store) -> None:
    store.begin()
    store.facts.put("pins", {"a": 1})
    store.commit()
    store.facts.get("pins")["b"] = 2
    assert store.facts.get("pins") == {"a": 1}


def test_facts_are_listed_by_prefix_whatever_follows_it(store: Store) -> None:
    names = [f"schedule:{name}" for name in ("", "\0", "a", "a\0", "é", "\uffff", "🚀", "\U0010ffff", "\U0010ffff" * 2)]
    store.begin()
    for name in (*names, "schedulf", "schedule", "schedule;", "sched"):
        store.facts.put(name, True)
    store.commit()
    found: list[str] = []
    while page := store.facts.names("schedule:", found[-1] if found else "", 2):
        found += page
    assert found == names


def test_applied_is_stored_with_the_data(store: Store) -> None:
    store.begin()
    store.applied = 12
    store.commit()
    store.begin()
    store.applied = 13
    store.rollback()
    assert store.applied == 12


def test_after_a_commit_there_is_nothing_to_roll_back(store: Store) -> None:
    store.begin()
    store.applied = 12
    store.commit()
    store.rollback()
    assert store.applied == 12


def test_names_may_have_any_character(store: Store) -> None:
    for name in ("..", "a/b", "100%", "O'Brien", '"', "q*[?]", "ü", "\U0001f600" * 60):
        made = Entry(f"msg:{name}:1", name, State.READY, priority=0, seq=1, created_wall=1, created=1, target=name)
        insert(store, made)
        found = store.next_ready(name, name)
        assert found is not None and found.key == made.key
        assert counts(store, name) == {"ready": 1}


def test_the_store_answers_a_probe_and_makes_itself_durable(store: Store) -> None:
    insert(store, entry(1))
    store.begin()
    store.applied = 3
    store.commit()
    store.disk.probe()
    assert store.disk.checkpoint() in (0, 3)  # 0: it never is


def test_pages_of_all_entries_have_each_message_once_in_any_state(store: Store) -> None:
    states = [State.READY, State.DELAYED, State.INFLIGHT, State.DEAD, State.READY]
    insert(store, *(entry(number, state) for number, state in enumerate(states)))
    insert(store, entry(9, queue="p", key="msg:p:9"))
    expected = ["msg:p:9", *(f"msg:q:{number}" for number in range(5))]
    assert [one.key for one in store.pages.entries("", 10)] == expected
    found: list[str] = []
    while page := store.pages.entries(found[-1] if found else "", 2):
        found += [one.key for one in page]
        store.begin()
        for number in range(5):  # what is read already, or not yet, changes its state meanwhile
            change(store, f"msg:q:{number}", state=State.READY)
        store.commit()
    assert found == expected


def test_a_message_removed_meanwhile_is_in_no_later_page(store: Store) -> None:
    insert(store, *(entry(number) for number in range(4)))
    assert [one.seq for one in store.pages.entries("", 2)] == [0, 1]
    store.begin()
    gone = store.get("msg:q:2")
    assert gone is not None
    store.delete(gone, gone.state)
    store.commit()
    assert [one.seq for one in store.pages.entries("msg:q:1", 2)] == [3]
