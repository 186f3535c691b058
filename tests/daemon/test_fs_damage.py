"""What damage to the files of the filesystem store costs: health is degraded until an operator accepts the loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.bench import Bench
from tests.daemon.random_damage import build, damage_one

MakeBench = Callable[..., Bench]


def file_of(bench: Bench, key: str) -> Path:
    root = bench.config.settings.filesystem_root
    (path,) = root.rglob(f"*-{key.rpartition(':')[2]}~*.json")
    return path


def damage_of(bench: Bench) -> list[tuple[str, list[str]]]:
    """What health names, and that it is degraded if there is anything."""
    health = bench.do("health")
    damage = health["checks"]["store"].get("damage", [])
    missing = health["checks"]["journal"].get("missingEvents", [])
    assert health["status"] == ("degraded" if damage or missing else "ok")
    return [(one["what"], one["keys"]) for one in damage]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_a_message_whose_file_is_gone_is_named_by_health_until_its_loss_is_accepted(
    make_bench: MakeBench, stopped: bool
) -> None:
    bench = make_bench("filesystem").open()
    gone = bench.publish("q", "gone")
    bench.store.disk.checkpoint()
    left = bench.publish("q", "left")
    if stopped:
        bench.stop()
        bench.store.disk.checkpoint()
    bench.close()
    file_of(bench, gone).unlink()
    bench.open()
    for _ in range(2):  # killed at once, it finds the same once more
        assert damage_of(bench) == [("a message is missing from the store", [gone])]
        bench.reopen()
    bench.live.broker.accept_losses()
    for _ in range(2):
        assert damage_of(bench) == []
        bench.reopen()
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == left


def test_a_missing_message_that_the_journal_no_longer_has_is_counted(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem", segment_bytes=600).open()
    gone = bench.publish("q", "gone")
    while len(bench.segments()) < 4:
        bench.publish("other", "x" * 100)
    bench.store.disk.checkpoint()
    assert bench.live.journal.drop_segments(10**9, 2**62, 10**9, 2**62)
    first = int(bench.segments()[0].stem)
    bench.close()
    file_of(bench, gone).unlink()
    bench.open()
    (what, _), *others = damage_of(bench)
    assert what.endswith("without an event in the journal") and not others
    assert [1, first - 1] in bench.do("health")["checks"]["journal"]["missingEvents"]


def test_a_message_that_was_acked_before_its_file_went_is_no_loss(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("q", "done")
    bench.store.disk.checkpoint()
    lease = bench.do("consume_next", queue="q")["lease"]
    bench.do("ack", messageKey=key, leaseId=lease["leaseId"])
    bench.store.disk.tidy()
    bench.close()
    (done,) = (bench.config.settings.filesystem_root / "q" / "archive").iterdir()
    done.unlink()
    bench.open()
    assert damage_of(bench) == []
    assert bench.do("consume_next", queue="q")["message"] is None


def test_a_message_that_moved_to_another_queue_is_not_missing_from_either(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("a", "moves")
    bench.store.disk.checkpoint()
    bench.do("move", messageKey=key, to="b")
    bench.reopen()
    assert damage_of(bench) == []
    assert bench.do("consume_next", queue="b")["message"]["messageKey"] == key


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_a_body_that_is_lost_is_named_by_health_until_its_loss_is_accepted(make_bench: MakeBench, backend: str) -> None:
    bench = make_bench(backend).open()
    key = bench.publish("q", "cut")
    bench.stop()
    bench.store.disk.checkpoint()
    bench.live.broker.note_lost_bodies([key])
    for _ in range(2):
        assert damage_of(bench) == [("the body of a message is lost", [key])]
        bench.reopen()
    bench.live.broker.accept_losses()
    bench.reopen()
    assert damage_of(bench) == []


def test_files_that_are_newer_than_the_journal_show_that_its_end_is_lost(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish("q", "early")
    bench.do("pause", queue="q", operation="consume")
    lost, (segment,) = bench.live.journal.last_id, bench.segments()
    bench.publish("q", "late")
    bench.store.disk.tidy()  # its file is there
    bench.close()
    lines = segment.read_bytes().splitlines(True)
    segment.write_bytes(b"".join(lines[:-2]))
    for name in ("end", "recent"):
        (bench.journal_root / name).unlink()
    bench.open()
    for _ in range(2):
        health = bench.do("health")
        assert health["status"] == "degraded"
        assert [lost, lost] in health["checks"]["journal"]["missingEvents"]
        bench.reopen()


def test_several_damages_at_once_lose_nothing_in_silence(tmp_path: Path) -> None:
    roots = build(tmp_path / "roots", "filesystem")
    for seed in range(1, 13):
        damage_one(roots, tmp_path / "scratch", seed)
