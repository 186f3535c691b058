"""What the store has never seen: health says so until an operator has taken note of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from postroom_common.events import encode_line
from postroom_daemon.cli import main
from postroom_daemon.journal.end_mark import read_end_mark
from postroom_daemon.journal.journal import Journal
from postroom_daemon.journal.segments import OnDamage, PlacedRequest
from postroom_daemon.maintenance.backup import make_backup
from postroom_daemon.maintenance.restore import RestorePoint, RestoreRequest, restore
from postroom_daemon.model.facts import (
    DAMAGE_KEYS_LIMIT,
    DAMAGE_LIMIT,
    LOSSES_LIMIT,
    Loss,
    damage_text,
    with_damage,
    with_loss,
)
from postroom_daemon.observe.state import capture
from postroom_daemon.root.open_root import Sources
from postroom_daemon.stores.recovery import Recovery
from postroom_daemon.stores.sqlite.salvage import SqliteRecovery
from tests.conformance.bench import Bench

STORES = ("sqlite", "filesystem", "hybrid")


def after_old_segments_went(make_bench: Callable[..., Bench], backend: str) -> tuple[Bench, int]:
    """A root whose store is lost, with a message that was published only in a segment that is gone; the id of the last
    event that is gone."""
    bench = make_bench(backend, segment_bytes=600).open()
    bench.publish(message="old")
    while len(bench.segments()) < 4:
        bench.publish("other", message="x" * 100)
    bench.publish(message="new")
    assert bench.store.disk.checkpoint() == bench.live.journal.last_id
    assert bench.live.journal.drop_segments(10**9, 2**62, 10**9, 2**62)
    first = int(bench.segments()[0].stem)
    bench.close()
    bench.lose_store()
    return bench.open(), first - 1


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as an error since the last look."""
    found = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    caplog.clear()
    return found


def journal_check(bench: Bench) -> dict[str, Any]:
    check: dict[str, Any] = bench.do("health")["checks"]["journal"]
    return check


@pytest.mark.parametrize("backend", STORES)
def test_a_store_lost_after_old_segments_were_deleted_degrades_health_until_acknowledged(
    make_bench: Callable[..., Bench], backend: str
) -> None:
    bench, last_lost = after_old_segments_went(make_bench, backend)
    for _ in range(3):
        health = bench.do("health")
        assert health["status"] == "degraded"
        assert health["checks"]["journal"]["missingEvents"] == [[1, last_lost]]
        assert f"{last_lost} events are lost" in health["checks"]["journal"]["error"]
        bench.stop()
        bench.store.disk.checkpoint()
        bench.reopen()
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "new"
    assert bench.live.broker.accept_losses() == [[1, last_lost]]
    for _ in range(2):
        bench.store.disk.checkpoint()
        bench.reopen()
        assert bench.do("health")["status"] == "ok" and "missingEvents" not in journal_check(bench)
    assert [event["ranges"] for event in bench.events() if event["type"] == "loss_accepted"] == [[[1, last_lost]]]
    assert bench.live.broker.accept_losses() == []


def test_an_acknowledged_loss_returns_only_if_the_store_is_lost_from_before_the_acknowledgement(
    make_bench: Callable[..., Bench],
) -> None:
    bench, _ = after_old_segments_went(make_bench, "sqlite")
    bench.live.broker.accept_losses()
    bench.reopen(without_store=True)
    assert bench.do("health")["status"] == "ok", "the note stands behind the hole, and is folded as well"


def test_events_that_only_the_journal_lacks_are_not_lost_until_the_store_is_lost_too(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(segment_bytes=300).open()
    for number in range(6):
        bench.publish(message=f"m{number}")
    bench.close()
    lost = bench.segments()[3]
    last = int(bench.segments()[4].stem) - 1
    lost.unlink()
    bench.open()
    health = bench.do("health")
    assert health["status"] == "ok"
    assert health["checks"]["journal"]["missingEvents"] == [[int(lost.stem), last]]
    assert alarms(caplog) == [f"events {int(lost.stem)} to {last} are missing from the journal"]
    bench.live.broker.note_missing([[int(lost.stem), last]])
    bench.reopen()
    assert alarms(caplog) == [], "it is known"
    bench.reopen(without_store=True)  # which was all that had them
    assert len(alarms(caplog)) == 1
    health = bench.do("health")
    assert health["status"] == "degraded" and health["checks"]["journal"]["missingEvents"] == [[int(lost.stem), last]]
    assert bench.live.broker.accept_losses() == [[int(lost.stem), last]]
    bench.reopen(without_store=True)
    assert bench.do("health")["status"] == "ok"


def test_a_last_segment_that_the_disk_cannot_read_for_a_new_store_is_reported_as_lost(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(segment_bytes=600).open()
    while len(bench.segments()) < 4:
        bench.publish("other", message="x" * 100)
    last, last_id = bench.segments()[-1], bench.live.journal.last_id
    bench.close()
    bench.lose_store()
    replayed = Journal.requests_from

    def from_a_bad_disk(journal: Journal, event_id: int, on_damage: OnDamage) -> Iterator[PlacedRequest]:
        whole = os.open

        def failing(path: Any, *how: Any, **options: Any) -> int:
            if path == last:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return whole(path, *how, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", failing)
            yield from replayed(journal, event_id, on_damage)

    monkeypatch.setattr(Journal, "requests_from", from_a_bad_disk)
    bench.open()
    health = bench.do("health")
    assert health["status"] == "degraded"
    assert health["checks"]["journal"]["missingEvents"] == [[int(last.stem), last_id]]


@pytest.mark.parametrize("target", STORES)
def test_a_restored_root_reports_losses_until_they_are_acknowledged(
    make_bench: Callable[..., Bench], tmp_path: Path, target: str
) -> None:
    bench, last_lost = after_old_segments_went(make_bench, "sqlite")
    before = journal_check(bench)
    bench.close()
    make_backup(bench.config, str(tmp_path / "backup"), True, {})
    other = make_bench(target)
    restore(other.config, RestoreRequest(tmp_path / "backup", RestorePoint()), Sources(clock=bench.clocks.clock))
    other.open()
    reported = journal_check(other)
    assert (reported["ok"], reported["missingEvents"], reported["error"]) == (False, [[1, last_lost]], before["error"])
    assert other.live.broker.accept_losses() == [[1, last_lost]]
    assert other.do("health")["status"] == "ok"


@pytest.mark.parametrize("noted", [False, True], ids=["not noted", "noted while it is read"])
def test_the_state_of_a_running_root_includes_the_losses_at_its_event(
    make_bench: Callable[..., Bench], tmp_path: Path, noted: bool
) -> None:
    bench, last_lost = after_old_segments_went(make_bench, "sqlite")

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if noted and payload["part"] == "queues":
            bench.live.broker.accept_losses()
        return bench.do(command, **payload)

    with capture(ask, bench.journal_root, lambda *_: None, tmp_path) as state:
        assert state.head.losses == ([] if noted else [[1, last_lost]])


def test_the_command_line_acknowledges_losses(make_bench: Callable[..., Bench]) -> None:
    bench, last_lost = after_old_segments_went(make_bench, "sqlite")
    bench.close()
    outcome = CliRunner().invoke(main, ["accept-loss", "--root", str(bench.path)])
    assert (outcome.exit_code, outcome.output) == (
        0,
        f"events 1 to {last_lost} are lost\naccepted: health does not report them any more\n",
    )
    again = CliRunner().invoke(main, ["accept-loss", "--root", str(bench.path), "--json"])
    assert json.loads(again.output) == {"ok": True, "ranges": []}
    bench.open()
    assert bench.do("health")["status"] == "ok"


def test_many_losses_are_reported_as_ranges_and_none_is_left_out() -> None:
    losses: list[list[int]] = []
    for number in range(3 * LOSSES_LIMIT):
        losses = with_loss(losses, 10 * number, 10 * number + 1)
    assert len(losses) == LOSSES_LIMIT
    assert losses[0] == [0, 1] and losses[-1] == [10 * (LOSSES_LIMIT - 1), 10 * (3 * LOSSES_LIMIT - 1) + 1]


@pytest.mark.parametrize("backend", STORES)
def test_damage_that_a_store_reports_degrades_health_until_an_operator_accepts_it(
    make_bench: Callable[..., Bench], backend: str
) -> None:
    bench = make_bench(backend).open()
    key = bench.publish(message="there")
    bench.close()
    found = Loss("a file does not parse", [key], [(2, 3)])
    with (
        patch.object(Recovery, "losses", lambda recovery: [found]),
        patch.object(SqliteRecovery, "losses", lambda recovery: [found]),
    ):
        bench.open()
    for without_store in (False, True):  # it is in the journal: it does not matter that the store is lost
        health = bench.do("health")
        assert health["status"] == "degraded"
        check = health["checks"]["store"]
        assert check["damage"] == [{"what": "a file does not parse", "messages": 1, "keys": [key]}]
        assert check["error"].startswith(f"a file does not parse: {key}; ")
        assert health["checks"]["journal"]["missingEvents"] == [[2, 3]]
        bench.reopen(without_store and backend != "hybrid")
    bench.close()
    outcome = CliRunner().invoke(main, ["accept-loss", "--root", str(bench.path)], env={"POSTROOM_BACKEND": backend})
    assert (outcome.exit_code, outcome.output) == (
        0,
        f"events 2 to 3 are lost\na file does not parse: {key}\naccepted: health does not report them any more\n",
    )
    bench.open()
    assert bench.do("health")["status"] == "ok"
    accepted = [event for event in bench.events() if event["type"] == "loss_accepted"]
    assert [(event["ranges"], event["damage"][0]["keys"]) for event in accepted] == [([[2, 3]], [key])]


def test_a_restored_root_still_reports_damage_that_nobody_accepted(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench()
    with patch.object(SqliteRecovery, "losses", lambda recovery: [Loss("a file does not parse")]):
        bench.open()
    bench.close()
    make_backup(bench.config, str(tmp_path / "backup"), True, {})
    other = make_bench("filesystem")
    restore(other.config, RestoreRequest(tmp_path / "backup", RestorePoint()), Sources(clock=bench.clocks.clock))
    other.open()
    assert [one["what"] for one in other.do("health")["checks"]["store"]["damage"]] == ["a file does not parse"]


def test_further_damages_are_counted_in_the_last_record() -> None:
    damage: list[dict[str, Any]] = []
    for number in range(DAMAGE_LIMIT + 5):
        damage = with_damage(damage, f"damage {number}", 1, [f"msg:q:{number}"])
    assert len(damage) == DAMAGE_LIMIT
    assert damage[-1]["messages"] == 6 and damage[-1]["more"] == 5
    shown = [f"msg:q:{number:02}" for number in range(DAMAGE_KEYS_LIMIT)]
    assert damage_text(with_damage([], "gone", 23, shown)[0]) == f"gone: {', '.join(shown)}, and 3 more"


@pytest.mark.parametrize("backend", STORES)
@pytest.mark.parametrize("lines", [1, 2, 5])
def test_a_journal_that_has_lost_its_last_lines_with_the_store_that_had_them_is_reported(
    make_bench: Callable[..., Bench], backend: str, lines: int
) -> None:
    bench = make_bench(backend).open()
    for number in range(9):
        bench.publish(message=f"m{number}")
    last_id = bench.live.journal.last_id
    bench.close()
    segment = bench.segments()[-1]
    kept = segment.read_bytes().splitlines(True)[:-lines]
    segment.write_bytes(b"".join(kept))
    (bench.journal_root / "recent").unlink()
    bench.lose_store()
    verified = CliRunner().invoke(
        main, ["verify", "--root", str(bench.path), "--json"], env={"POSTROOM_BACKEND": backend}
    )
    lost = [one["where"] for one in json.loads(verified.output)["findings"] if one["kind"] == "events-lost"]
    assert lost == [f"{last_id - lines + 1}-{last_id}"]
    bench.open()
    health = bench.do("health")
    assert health["status"] == "degraded"
    assert health["checks"]["journal"]["missingEvents"] == [[last_id - lines + 1, last_id]]
    assert bench.events()[-1]["id"] > last_id, "ids are not given again"


@pytest.mark.parametrize(
    ("damage", "word"), [(Path.unlink, "missing"), (lambda path: path.write_bytes(b"?"), "damaged")]
)
def test_a_mark_of_the_end_that_is_lost_is_reported_unless_the_daemon_had_stopped_in_order(
    make_bench: Callable[..., Bench], damage: Callable[[Path], object], word: str
) -> None:
    bench = make_bench().open()
    bench.publish()
    bench.stop()
    bench.close()
    damage(bench.journal_root / "end")
    bench.open()
    assert bench.do("health")["status"] == "ok", "nothing comes behind an orderly stop"
    bench.publish()
    bench.close()
    damage(bench.journal_root / "end")
    for _ in range(2):
        bench.open()
        assert f"journal's end is {word}" in bench.do("health")["checks"]["store"]["error"]
        bench.close()
    bench.open().live.broker.accept_losses()
    bench.reopen()
    assert bench.do("health")["status"] == "ok"


def test_the_mark_of_another_root_says_nothing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    bench.publish()
    bench.close()
    (bench.journal_root / "end").write_bytes(encode_line({"root": "another", "epoch": 1, "event": 1000}))
    bench.open()
    assert bench.do("health")["status"] == "ok" and bench.live.journal.last_id < 1000


def test_the_mark_of_the_end_survives_damage_to_a_part_of_it(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    bench.publish()
    last_id = bench.live.journal.last_id
    bench.close()
    path = bench.journal_root / "end"
    whole = path.read_bytes()
    for damaged in (whole[:600], whole[700:], bytes(3584) + whole[3584:], whole.replace(b"\n", b"", 3)):
        path.write_bytes(damaged)
        mark = read_end_mark(bench.journal_root)
        assert mark and mark.event == last_id
