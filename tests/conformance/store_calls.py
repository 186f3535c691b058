"""Short forms of a store's calls."""

from __future__ import annotations

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry, QueueRecord
from postroom_daemon.stores.base import Store

QUEUE = "q"


def entry(number: int, state: State = State.READY, **changes: object) -> Entry:
    made = Entry(f"msg:{QUEUE}:{number}", QUEUE, state, priority=0, seq=number, created_wall=7, created=number)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def insert(store: Store, *entries: Entry) -> None:
    """Keep entries in a transaction of its own, their queues made as needed."""
    store.begin()
    for one in entries:
        if store.queue(one.queue) is None:
            store.add_queue(QueueRecord(one.queue))
        store.insert(one, b'{"parts":[]}')
    store.commit()


def change(store: Store, key: str, **changes: object) -> None:
    """Change facts of one message within the open transaction."""
    found = store.get(key)
    assert found is not None
    changed = found.copy()
    for name, value in changes.items():
        setattr(changed, name, value)
    store.update(changed, found.state)


def counts(store: Store, queue: str = QUEUE) -> dict[str, int]:
    record = store.queue(queue)
    assert record is not None
    return {name: count for name, count in record.counts.items() if count}


def drain(store: Store, consumer: str = "c") -> list[int]:
    """The numbers of the ready messages in the order of delivery. Nothing is changed in the end."""
    order = []
    store.begin()
    while head := store.next_ready(QUEUE, consumer):
        order.append(head.seq)
        store.delete(head, head.state)
    store.rollback()
    return order
