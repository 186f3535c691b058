"""Logs in backup, restore, export, migration, verification and repair."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import orjson
import pytest

from postroom_daemon.config.config import load
from postroom_daemon.maintenance.backup import make_backup
from postroom_daemon.maintenance.migrate import migrate
from postroom_daemon.maintenance.restore import RestorePoint, RestoreRequest, restore
from postroom_daemon.maintenance.transfer import export_state, import_state
from postroom_daemon.maintenance.verify import Kind
from postroom_daemon.root.open_root import Sources
from tests.conformance.bench import Bench
from tests.daemon.log_work import append, bodies, create, log_record, record, segments, trim
from tests.daemon.maintenance_runs import repaired, verified

TEXTS = [f"body {number} {'x' * 60}" for number in range(40)]


def filled(bench: Bench) -> int:
    bench.open()
    bench.publish("ordinary")
    log = create(bench)
    bench.store.logs.use_segment_bytes(log, 500)
    for start in range(0, 40, 4):
        append(bench, log, *TEXTS[start : start + 4])
    record(bench, {"type": "reader_moved", "queue": "telemetry", "log": log, "reader": "r", "position": 9})
    return log


def test_a_backup_has_the_records_and_a_restore_brings_them_back_also_to_another_backend_and_a_later_event(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench()
    log = filled(bench)
    trim(bench, log, keep_bytes=bench.store.logs.facts()[log].bytes - 600)
    left, known = bodies(bench, log), log_record(bench).copy()
    bench.stop()
    bench.close()
    make_backup(bench.config, str(tmp_path / "backup.tar"), True, {})
    bench.open()
    append(bench, log, "later", "and later")
    trim(bench, log, keep_bytes=bench.store.logs.facts()[log].bytes - 600)
    later = bodies(bench, log)
    bench.stop()
    bench.close()
    other = make_bench("filesystem")
    restore(other.config, RestoreRequest(tmp_path / "backup.tar", RestorePoint()), Sources())
    other.open()
    assert bodies(other, log) == left and log_record(other) == known
    append(other, log, "new")
    other.reopen()
    assert bodies(other, log) == [*left, "new"] and "damage_found" not in other.event_types()
    request = RestoreRequest(tmp_path / "backup.tar", RestorePoint(end=True), replace=True)
    restore(bench.config, request, Sources())
    bench.open()
    assert bodies(bench, log) == later and log_record(bench).records == len(later)
    (replaced,) = bench.path.glob("replaced-*")
    assert (replaced / "logs" / "state.json").is_file()


def test_an_export_has_the_records_and_an_import_takes_the_queues(
    make_bench: Callable[..., Bench], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench, other = make_bench(), make_bench()
    filled(bench)
    bench.close()
    file = BytesIO()
    export_state(bench.config, file, frozenset(), tmp_path)
    lines = [orjson.loads(line) for line in file.getvalue().splitlines()]
    assert lines[0]["format"] == 4
    assert sum(len(line["records"]) for line in lines if line["kind"] == "records") == 40
    other.open().close()
    file.seek(0)
    done = import_state(other.config, file, "it")
    assert (done.queues, done.messages) == (1, 1) and "logs are not imported" in caplog.text


def test_a_migration_leaves_the_records_where_they_are(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    log = filled(bench)
    known = log_record(bench).copy()
    bench.stop()
    bench.close()
    (bench.path / "config.json").write_text('{"nodeId": "press", "backend": "sqlite"}')
    migrate(load(bench.path, None, {}, {}), "filesystem", lambda text: None)
    other = Bench(bench.path, "filesystem").open()
    try:
        assert bodies(other, log) == TEXTS and log_record(other) == known
    finally:
        other.close()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_verify_finds_damaged_records_and_strange_files_and_repair_puts_them_in_order(
    make_bench: Callable[..., Bench], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    bench = make_bench()
    log = filled(bench)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    assert not verified(bench, tmp_path).faults
    _, second, *_ = segments(bench)
    damage(second)
    (second.parent / "strange").write_bytes(b"?")
    (bench.config.settings.logs_root / "stranger").write_bytes(b"?")
    report = verified(bench, tmp_path)
    kinds = [Kind.LOG_DAMAGED, Kind.LOG_STRANGE, Kind.LOG_STRANGE]
    assert [finding.kind for finding in report.findings if finding.is_fault] == kinds
    repaired(bench, tmp_path)
    bench.open()
    assert bodies(bench, log) == TEXTS and log_record(bench).records == 40
    assert {name.partition(".")[0] for name in bench.quarantined()} >= {"stranger"}


def test_repair_reports_records_that_nobody_has(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench(segment_bytes=2000)
    log = filled(bench)
    folded = bench.store.disk.checkpoint()
    assert bench.live.journal.drop_segments(folded, 2**62, 10**9, 2**62)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    flip(segments(bench)[1])
    assert Kind.LOG_DAMAGED in verified(bench, tmp_path).counts
    done = repaired(bench, tmp_path).done
    assert any("telemetry has lost 1 records: taken note of" in text for text in done)
    bench.open()
    assert len(bodies(bench, log)) == log_record(bench).records == 39
    assert bench.do("health")["status"] == "ok"
