"""Logs of a root: the fold into records and files, over kills, lost files and damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from postroom_daemon.platform.files import Files
from postroom_daemon.stores.log.contract import LogDamaged
from tests.conformance.bench import Bench
from tests.daemon.log_work import Killed, KillingFiles, append, bodies, create, log_record, record, segments, trim

STORES = ("sqlite", "filesystem", "hybrid", "memory")


@pytest.mark.parametrize("backend", STORES)
def test_records_and_readers_are_the_same_after_every_kind_of_restart(
    make_bench: Callable[..., Bench], backend: str
) -> None:
    bench = make_bench(backend).open()
    bench.publish("ordinary")
    log, gone = create(bench), create(bench, "gone")
    bench.store.logs.use_segment_bytes(log, 300)
    expected = [f"body {number}" for number in range(40)]
    append(bench, gone, "x", name="gone")
    for start in range(0, 40, 4):
        append(bench, log, *expected[start : start + 4])
        if start == 20:
            record(bench, {"type": "reader_moved", "queue": "telemetry", "log": log, "reader": "r", "position": 9})
            record(bench, {"type": "reader_moved", "queue": "telemetry", "log": log, "reader": "s", "position": 9})
            bench.store.disk.checkpoint()
    record(bench, {"type": "reader_deleted", "queue": "telemetry", "log": log, "reader": "s"})
    before = bodies(bench, log)
    assert before == expected
    trim(bench, log, keep_bytes=bench.store.logs.facts()[log].bytes - 400)
    record(bench, {"type": "queue_deleted", "queue": "gone", "log": gone, "reason": "requested"})
    left, known = bodies(bench, log), log_record(bench).copy()
    assert 0 < len(left) < 40 and left == expected[-len(left) :] and known.trimmed < known.first <= known.last
    assert [*known.readers] == ["r"] and known.readers["r"][0] == 9
    restarts: list[Callable[[], object]] = [
        lambda: None,
        bench.lose_store if backend != "memory" else lambda: None,
        lambda: shutil.rmtree(bench.config.settings.logs_root),
        lambda: (bench.config.settings.logs_root / "state.json").write_bytes(b"?"),
    ]
    for restart in restarts:
        bench.close()
        restart()
        bench.open()
        assert bodies(bench, log) == left and log_record(bench) == known
        assert [*bench.store.logs.facts()] == [log]
        assert "damage_found" not in bench.event_types()
        assert bench.counts("ordinary") == {"ready": 1}
    append(bench, log, "last")
    durable = bench.store.disk.checkpoint()
    assert durable == (0 if backend == "memory" else bench.live.journal.last_id)
    bench.store.disk.tidy()
    assert backend == "memory" or len({path.parent for path in segments(bench)}) == 1
    bench.reopen()
    assert bodies(bench, log) == [*left, "last"]


def test_a_root_without_logs_has_no_files_of_logs_and_replays_nothing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    for _ in range(3):
        bench.publish()
    assert bench.store.disk.checkpoint() == bench.live.journal.last_id
    bench.reopen()
    assert bench.store.logs.applied == bench.store.applied and not bench.config.settings.logs_root.exists()


def test_a_rollback_leaves_no_record(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    log = create(bench)
    append(bench, log, "one")
    with bench.full_disk(), pytest.raises(Exception, match="No space left"):
        append(bench, log, "two")
    append(bench, log, "three")
    assert bodies(bench, log) == ["one", "three"] and log_record(bench).records == 2


@pytest.mark.parametrize("reaches", [True, False])
def test_damaged_records_come_back_from_the_journal_or_are_reported(
    make_bench: Callable[..., Bench], reaches: bool
) -> None:
    bench = make_bench(segment_bytes=2000).open()
    log = create(bench)
    bench.store.logs.use_segment_bytes(log, 500)
    expected = [f"body {number} {'x' * 60}" for number in range(30)]
    for body in expected:
        append(bench, log, body)
    folded = bench.store.disk.checkpoint()
    if not reaches:
        assert bench.live.journal.drop_segments(folded, 2**62, 10**9, 2**62)
    first, second, *_ = segments(bench)
    data = bytearray(first.read_bytes())
    data[130] ^= 4
    first.write_bytes(data)
    second.unlink()
    bench.reopen()
    with pytest.raises(LogDamaged):
        bodies(bench, log)
    bench.reopen()
    left = bodies(bench, log)
    found = [event for event in bench.events() if event["type"] == "damage_found"]
    if reaches:
        assert left == expected and not found
    else:
        lost = len(expected) - len(left)
        assert lost >= 5 and left == [body for body in expected if body in left]
        assert [(one["queue"], one["log"], one["records"]) for event in found for one in event["logs"]] == [
            ("telemetry", log, lost - 1),
            ("telemetry", log, 1),
        ]
        assert bench.do("health")["status"] == "degraded"
        bench.live.broker.accept_losses()
    for _ in range(2):
        append(bench, log, "more")
        bench.reopen()
        assert log_record(bench).records == len(bodies(bench, log))
        assert bench.event_types().count("damage_found") == len(found)
    assert bench.do("health")["status"] == "ok"
    assert any("log" in name for name in bench.quarantined())


def test_a_log_whose_record_is_lost_is_there_again(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(segment_bytes=1000).open()
    log = create(bench)
    expected = [f"body {number} {'x' * 60}" for number in range(30)]
    for body in expected:
        append(bench, log, body)
    folded = bench.store.disk.checkpoint()
    assert bench.live.journal.drop_segments(folded, 2**62, 10**9, 2**62)
    bench.reopen(without_store=True)
    assert bodies(bench, log) == expected and log_record(bench).records == 30
    assert bench.event_types().count("damage_found") == 1
    append(bench, log, "more")
    bench.reopen()
    assert bodies(bench, log) == [*expected, "more"]
    assert bench.event_types().count("damage_found") == 1


def test_a_journal_that_has_lost_its_end_goes_on_behind_the_logs(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**{"journal.durability": "none"}).open()
    log = create(bench)
    append(bench, log, "one")
    size = bench.segments()[0].stat().st_size
    append(bench, log, "two")
    last = bench.live.journal.last_id
    bench.close()
    bench.segments()[0].write_bytes(bench.segments()[0].read_bytes()[:size])
    (bench.journal_root / "end").unlink()
    bench.lose_store()
    bench.open()
    assert bodies(bench, log) == ["one", "two"] and log_record(bench).last == last
    append(bench, log, "three")
    assert bodies(bench, log) == ["one", "two", "three"]


def test_a_kill_at_any_call_loses_no_record_that_was_answered(make_bench: Callable[..., Bench]) -> None:
    for at in range(3, 400, 23):
        bench, done = make_bench(), list[str]()
        bench.files = KillingFiles(at)
        log = 0
        try:
            bench.open()
            log = create(bench)
            for number in range(6):
                text = f"body {number}"
                append(bench, log, text, text)
                done += [text, text]
                if number in (1, 4):
                    bench.store.disk.checkpoint()
        except Killed:
            pass
        bench.close()
        bench.files = Files()
        bench.open()
        if log:
            assert bodies(bench, log)[: len(done)] == done and len(bodies(bench, log)) - len(done) in (0, 2)
            assert log_record(bench).records == len(bodies(bench, log))
        assert "damage_found" not in bench.event_types()
        bench.close()
        if len(done) == 12:
            break
    assert at > 50


def test_a_segment_that_is_short_or_of_another_root_is_appended_again_from_the_journal(
    make_bench: Callable[..., Bench],
) -> None:
    def build(word: str) -> tuple[Bench, int]:
        bench = make_bench().open()
        log = create(bench)
        bench.store.logs.use_segment_bytes(log, 300)
        for number in range(20):
            append(bench, log, f"{word} {number} {'x' * 60}")
            if number == 9:
                bench.store.disk.checkpoint()
        return bench, log

    others = [path.read_bytes() for path in segments(build("them")[0])]
    bench, log = build("mine")
    expected = bodies(bench, log)
    size = segments(bench)[0].stat().st_size // 3
    swap = [segments(bench)[at].read_bytes() for at in (0, -2)]
    for at, data in (
        (-3, b""),
        (-3, segments(bench)[-3].read_bytes()[:size]),
        (-3, others[-3]),
        (1, others[1]),
        (0, swap[1]),
        (-2, swap[0]),
        (-2, segments(bench)[-1].read_bytes()),
        (1, segments(bench)[1].read_bytes() + others[2]),
    ):
        bench.close()
        segments(bench)[at].write_bytes(data)
        bench.open()
        assert bodies(bench, log) == expected and log_record(bench).records == 20
        assert "damage_found" not in bench.event_types()
        bench.store.logs.use_segment_bytes(log, 300)
