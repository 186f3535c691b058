"""Publish again what a group had published that was set aside: ``postroomd divergent reinject``.

The group is folded from nothing, and the messages that are left are imported with their ids. So nothing comes twice:
a message, or its request, that the journal has is passed over, however often this is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

from postroom_common.errors import PostroomError
from postroom_common.events import Event, EventType, decode_event

from ..broker.idempotency import key_of_event
from ..config.config import Config
from ..engine.fold import apply
from ..journal.segments import list_segments, read_requests
from ..model.facts import FACT_EPOCH
from ..model.lifecycle import IllegalTransition
from ..observe.state import of_store, write_state
from ..platform.clock import Now
from ..stores.errors import NotStored
from ..stores.memory import MemoryStore
from .connect import reach
from .transfer import import_state


@dataclass(frozen=True, slots=True)
class Reinjected:
    """What became of a group: messages that were, or would be, published again; that the journal has, by themselves or
    by a repeat of their request; and events by type that are not repeated."""

    published: int
    known: int
    left: dict[str, int]


def reinject(config: Config, lines: list[bytes], name: str, check: bool = False) -> Reinjected:
    """Publish the messages of a group at the daemon of this root, which must lead. ``check``: only count them.

    Raises ``PostroomError``: the daemon does not lead, or its journal no longer reaches back to the group; and as
    ``import_state``.
    """
    events = [decode_event(line) for line in lines]
    _check_leads(config)
    known = _known(config, events)
    requests = list(_requests(events))
    new = [request for request in requests if not _is_known(request, known)]
    passed_over = sum(map(_published, requests)) - sum(map(_published, new))
    with TemporaryFile() as file:
        published, left = _write(new, events[-1], file)
        if published and not check:
            file.seek(0)
            import_state(config, file, name)
    return Reinjected(published, passed_over, left)


def _check_leads(config: Config) -> None:
    with reach(config) as reached:
        if not reached.running:
            raise PostroomError(f"{config.root}: no daemon runs here: start it")
        shown: Any = reached.ask("health", {})
    role = shown["checks"].get("cluster", {"role": "leader"})
    if role["role"] != "leader":
        leader = role["leader"] or "another node"
        raise PostroomError(f"this node follows, and {leader} leads: copy the file there, and name it in place of NAME")


def _known(config: Config, events: list[Event]) -> frozenset[str | bytes]:
    """Keys of messages, and idempotency keys of requests, that the journal has since the group was begun."""
    first = events[0]["id"]
    segments = list_segments(config.settings.journal_root)
    if not segments or segments[0][0] > first:
        raise PostroomError(
            f"the journal no longer has event {first}: nobody can know whether these messages were published meanwhile;"
            " publish what is missing by hand"
        )
    found: set[str | bytes] = set()
    for request in read_requests(config.settings.journal_root, first, lambda damage: None):
        for event in request.events:
            if event["type"] == EventType.PUBLISHED:
                found.add(event["key"])
        if key := key_of_event(request.events[-1]):
            found.add(key)
    return frozenset(found)


def _requests(events: list[Event]) -> Iterable[list[Event]]:
    request: list[Event] = []
    for event in events:
        request.append(event)
        if event["id"] == event["req"]:
            yield request
            request = []


def _is_known(request: list[Event], known: frozenset[str | bytes]) -> bool:
    keys = {event["key"] for event in request if event["type"] == EventType.PUBLISHED}
    return key_of_event(request[-1]) in known or bool(keys & known)


def _published(request: list[Event]) -> int:
    return sum(event["type"] == EventType.PUBLISHED for event in request)


def _write(requests: list[list[Event]], last: Event, file: IO[bytes]) -> tuple[int, dict[str, int]]:
    """Write the state that requests alone lead to; how many messages it has, and which events are not in it."""
    store, left = MemoryStore(), Counter[str]()
    store.begin()
    store.facts.put(FACT_EPOCH, {"root": "", "epoch": last["epoch"]})
    store.commit()
    for request in requests:
        for event in request:
            store.applied = event["id"] - 1
            store.begin()
            try:
                apply(event, store)
            except (NotStored, IllegalTransition):  # about what the group has not published
                store.rollback()
                left[event["type"]] += 1
            else:
                store.commit()
    totals = write_state(of_store(store, Now(last["engineMs"], last["wallMs"])), file)
    return totals.messages, dict(left)
