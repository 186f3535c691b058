"""The state at one event: read while the daemon works, and loaded into another store."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from postroom_common.events import decode_line, encode_line
from postroom_common.protocol import State as MessageState
from postroom_daemon.model.facts import FACT_LOADING
from postroom_daemon.model.records import BodyReference, Entry
from postroom_daemon.observe.state import (
    State,
    StateError,
    bodies_in,
    capture,
    load,
    read_state,
    steady,
    write_state,
)
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.backends import make_store
from postroom_daemon.stores.hybrid.payloads import payload_path
from tests.conformance.bench import Bench
from tests.daemon.random_work import work
from tests.daemon.states import plain, quietly

BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_state_read_while_the_daemon_works_is_that_at_one_event(
    make_bench: Callable[..., Bench], tmp_path: Path, backend: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom_daemon.observe.state.model.PAGE_LIMIT", 3)
    bench, random = make_bench(backend).open(), Random(seed)
    for _ in range(60):
        work(bench, random)

    states: dict[int, dict[str, Any]] = {}

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        states[bench.store.applied] = plain(steady(quietly(bench)))
        data = bench.do(command, **payload)
        for _ in range(random.randrange(5)):
            work(bench, random)
            states[bench.store.applied] = plain(steady(quietly(bench)))
        return orjson.loads(orjson.dumps(data))  # type: ignore[no-any-return]

    with capture(ask, bench.journal_root, bodies_in(bench.config.settings.hybrid_payload_root), tmp_path) as state:
        seen = plain(state)
    assert seen == states[state.head.event]
    assert len(seen["messages"]) > 6


def test_a_message_that_ends_while_the_pages_are_read_is_not_one_whose_body_is_lost(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench("hybrid").open()
    payloads = bench.config.settings.hybrid_payload_root
    before = bench.publish("a")

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload["part"] == "queues":
            bench.publish("b", message="is acknowledged behind the last page")
            bench.publish("a", message="stays")
            bench.publish("c", message="has lost its body")
            next(payloads.glob("c*/*/*.json")).unlink()
        data = bench.do(command, **payload)
        if payload["part"] == "queues":
            taken = bench.do("consume_next", queue="b")
            bench.do("ack", messageKey=taken["message"]["messageKey"], leaseId=taken["lease"]["leaseId"])
        return orjson.loads(orjson.dumps(data))  # type: ignore[no-any-return]

    with capture(ask, bench.journal_root, bodies_in(payloads), tmp_path) as state:
        assert state.head.event == bench.store.applied
        found = {message["key"]: message for message in state.messages}
    assert found.pop(before)["queue"] == "a"
    assert sorted((one["queue"], "bodyLost" in one) for one in found.values()) == [("a", False), ("c", True)]
    assert {record.name: sum(record.counts.values()) for record in state.queues} == {"a": 2, "b": 0, "c": 1}


def test_memory_does_not_grow_with_the_changes_made_while_the_pages_are_read(bench: Bench, tmp_path: Path) -> None:
    bench.publish("a")

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload["part"] == "queues":
            for _ in range(1000):
                bench.publish("a", message="x" * 4000)
        data = bench.do(command, **payload)
        if payload["part"] == "queues":
            tracemalloc.start()  # what the daemon holds itself does not count
        return data

    try:
        with capture(ask, bench.journal_root, lambda *_: None, tmp_path) as state:
            assert not list(tmp_path.glob("state-*")), "a tool that is killed would leave it"
            assert sum(1 for _ in state.messages) == 1001
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("backend", ("sqlite", "filesystem", "hybrid"))
def test_a_state_loaded_into_another_store_is_the_same(
    make_bench: Callable[..., Bench], tmp_path: Path, backend: str
) -> None:
    bench, random = make_bench("memory").open(), Random(7)
    for _ in range(200):
        work(bench, random)
    expected = plain(steady(quietly(bench)))
    other = make_bench(backend)
    config = replace(other.config, settings=replace(other.config.settings, journal_root=bench.journal_root))
    store = make_store(config.settings, other.files, Quarantine(tmp_path / "quarantine", other.files))
    store.open()
    assert load(steady(quietly(bench)), store) == []
    store.close()
    bench.close()
    other.config, other.clocks, other.ids, other.requests = config, bench.clocks, bench.ids, bench.requests
    other.open()
    found = plain(steady(quietly(other)))
    assert (found["queues"], found["messages"]) == (expected["queues"], expected["messages"])
    assert found["facts"] == expected["facts"] != []
    assert other.store.applied == other.live.journal.last_id


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("backend", ("sqlite", "filesystem", "hybrid"))
@pytest.mark.parametrize("checkpoint_every", (1, 3))
def test_an_interrupted_load_can_be_continued(
    make_bench: Callable[..., Bench],
    tmp_path: Path,
    backend: str,
    checkpoint_every: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroom_daemon.observe.state.loading.BATCH", 3)
    monkeypatch.setattr("postroom_daemon.observe.state.loading.CHECKPOINT_EVERY", checkpoint_every)
    bench, random = make_bench("memory").open(), Random(5)
    for _ in range(150):
        work(bench, random)
    keys = [message["key"] for message in steady(quietly(bench)).messages]
    settings = make_bench(backend).config.settings
    quarantine = Quarantine(tmp_path / "quarantine", bench.files)

    def cut_short(state: State, number: int) -> State:
        def messages() -> Iterator[dict[str, Any]]:
            yield from islice(state.messages, number)
            raise Interrupted

        return replace(state, messages=messages())

    for number in range(0, len(keys), 4):
        store = make_store(settings, bench.files, quarantine)
        store.open()
        with pytest.raises(Interrupted):
            load(cut_short(steady(quietly(bench)), number), store)
        store.close()
    store = make_store(settings, bench.files, quarantine)
    store.open()
    load(steady(quietly(bench)), store)
    store.close()  # writes nothing
    store = make_store(settings, bench.files, quarantine)
    store.open()
    store.recovery.finish_replay(clean=False)
    assert store.facts.get(FACT_LOADING) is None
    assert [entry.key for entry in store.pages.entries("", 1000)] == keys
    assert [store.get(key) for key in keys] == [bench.store.get(key) for key in keys]
    assert [store.bodies.envelope(key) for key in keys] == [bench.store.bodies.envelope(key) for key in keys]
    queues = bench.store.pages.queue_names("", 100)
    assert [store.queue(name) for name in queues] == [bench.store.queue(name) for name in queues]
    with pytest.raises(StateError, match="not empty"):
        load(steady(quietly(bench)), store)
    store.close()


def test_a_state_read_in_pages_is_refused_if_the_root_changes(bench: Bench) -> None:
    bench.publish()

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        data = bench.do(command, **payload)
        bench.publish()
        return data

    with pytest.raises(StateError, match="went on"):
        plain(steady(ask))


def test_events_that_the_journal_lacks_are_reported(bench: Bench, tmp_path: Path) -> None:
    bench.publish()

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        data = bench.do(command, **payload)
        bench.publish()
        return data

    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    with pytest.raises(StateError, match="are incomplete"), capture(ask, elsewhere, lambda *_: None, tmp_path):
        pass


def test_a_state_is_read_back_from_a_file(bench: Bench) -> None:
    random = Random(3)
    for _ in range(100):
        work(bench, random)
    expected = plain(steady(quietly(bench)))
    file = BytesIO()
    totals = write_state(steady(quietly(bench)), file)
    assert (totals.queues, totals.messages) == (len(expected["queues"]), len(expected["messages"]))
    assert totals.size == len(file.getvalue())
    file.seek(0)
    assert plain(read_state(file, "state")) == expected


def test_a_file_that_is_cut_damaged_or_reassembled_is_refused_with_the_place(bench: Bench) -> None:
    for number in range(5):
        bench.publish(message=f"body {number}")
    file = BytesIO()
    write_state(steady(quietly(bench)), file)
    whole = file.getvalue()
    lines = whole.splitlines(True)
    assert len(lines) == 8  # head, queue, five messages, end
    for cut in (0, 10, len(lines[0]), len(whole) - len(lines[-1]), len(whole) - 3):
        with pytest.raises(StateError, match=r"^state, line \d+: "):
            plain(read_state(BytesIO(whole[:cut]), "state"))
    for at in range(0, len(whole), 7):
        with pytest.raises(StateError):
            plain(read_state(BytesIO(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]), "state"))
    head, queue, one, two, *rest = lines
    for changed in (
        [head, queue, two, *rest],
        [head, queue, two, one, *rest],
        lines[1:],
        [head, queue, one, *lines[2:]],
    ):
        with pytest.raises(StateError):
            plain(read_state(BytesIO(b"".join(changed)), "state"))
    for more in (whole, b"\n", b"\0" * 100):  # two exports in one file would be imported as the first alone
        with pytest.raises(StateError, match="line 8: the state ends here"):
            plain(read_state(BytesIO(whole + more), "state"))
    newer = encode_line(decode_line(lines[0]) | {"format": 5})
    with pytest.raises(StateError, match="newer"):
        read_state(BytesIO(newer + b"".join(lines[1:])), "state")


def test_a_body_is_lost_if_its_file_is_at_fault_but_not_if_the_machine_is(tmp_path: Path) -> None:
    entry, body = Entry("msg:q:1", "q", MessageState.READY, 0, 1, 0, 0), b"body"
    read, reference, path = bodies_in(tmp_path), BodyReference.of(body), tmp_path / payload_path(1, "q", "msg:q:1")
    assert read(entry, reference) is None
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    assert read(entry, reference) == body
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            read(entry, reference)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    path.write_bytes(b"body and more")
    assert read(entry, reference) is None
    path.unlink()
    os.mkfifo(path)
    assert read(entry, reference) is None
    path.unlink()
    path.mkdir()
    assert read(entry, reference) is None


def test_a_message_left_out_because_its_body_is_lost_frees_its_key(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench("hybrid", **{"hybrid.inlineBelowBytes": "0"}).open()
    bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "while-present"}})
    key = bench.publish("q", deduplicationKey="k")
    bench.store.disk.checkpoint()  # the body is no longer in memory
    for path in bench.config.settings.hybrid_payload_root.rglob("*.json"):
        path.unlink()
    state = steady(quietly(bench))
    assert [fact["name"] for fact in state.facts if fact["name"].startswith("claim:")]
    other = make_store(make_bench("sqlite").config.settings, bench.files, Quarantine(tmp_path, bench.files))
    other.open()
    try:
        assert load(state, other) == [key]
        assert other.facts.names("claim:", "", 10) == []
    finally:
        other.close()
