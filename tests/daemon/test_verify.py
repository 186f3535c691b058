"""``postroomd verify``: every fault of a root is named, a sound root has none, and nothing is changed by looking."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from postroom_daemon.cli import main
from postroom_daemon.maintenance.verify import RULES, Finding, Kind, NotVerified, Verification, table
from tests.conformance.bench import Bench
from tests.daemon.cpp_database import CppDatabase
from tests.daemon.faults import CASES, NAMES, STORES, Fault, faulty_root
from tests.daemon.faults_in_files import payload_gone, payload_of, store_gone
from tests.daemon.faults_in_store import message_removed
from tests.daemon.maintenance_runs import command, verified
from tests.daemon.populated_root import populate, stop, take
from tests.daemon.random_work import more_work, work


@pytest.mark.parametrize(("fault", "store"), CASES, ids=NAMES)
def test_each_fault_is_reported_and_verify_changes_nothing(
    make_bench: Callable[..., Bench], tmp_path: Path, fault: Fault, store: str
) -> None:
    bench, _ = faulty_root(make_bench, fault, store)
    report = verified(bench, tmp_path)
    assert report.counts[fault.kind] and report.faults
    assert all(finding.text and finding.where for finding in report.findings)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(4))
def test_an_intact_root_has_no_fault_at_any_moment_of_its_life(
    make_bench: Callable[..., Bench], tmp_path: Path, store: str, seed: int
) -> None:
    bench, random = make_bench(store, segment_bytes=3000).open(), Random(seed)
    for _ in range(80):
        work(bench, random)
        more_work(bench, random)
        if random.random() < 0.05:
            bench.store.disk.checkpoint()
        if random.random() < 0.05:
            bench.live.journal.drop_segments(bench.store.disk.checkpoint(), 2**62, 10**9, 2**62)
        if random.random() < 0.1:
            in_order = random.random() < 0.5
            stop(bench) if in_order else bench.close()
            report = verified(bench, tmp_path, deep=True)
            assert not report.faults and (not report.findings or not in_order), report.findings
            bench.open()
    stop(bench)
    report = verified(bench, tmp_path)
    assert report.messages > 5 and report.queues == 5 and report.as_of_event == report.applied >= 80


@pytest.mark.parametrize("rest", [0, 0.5], ids=["gone", "cut"])
@pytest.mark.parametrize("store", STORES)
def test_verify_reports_the_lost_events_that_the_next_start_will_report(
    make_bench: Callable[..., Bench], tmp_path: Path, store: str, rest: float
) -> None:
    bench = make_bench(store).open()
    for number in range(20):
        bench.publish("work", f"body {number}")
    for _ in range(5):
        bench.do("ack", **take(bench))
    take(bench)
    bench.store.disk.tidy()
    bench.close()  # as killed: the filesystem store has written no checkpoint
    for path in bench.journal_root.glob("*.jsonl"):
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * rest)])
        if not rest:
            path.unlink()
    before = verified(bench, tmp_path)
    bench.open()
    lost = bench.do("health")["checks"]["journal"].get("missingEvents", [])
    bench.close()
    foreseen = [finding.where for finding in before.findings if finding.kind is Kind.EVENTS_LOST]
    assert foreseen == [f"{first}-{last}" for first, last in lost]
    assert before.faults or (not lost and rest)
    assert bool(before.counts[Kind.JOURNAL_MISSING]) == (not rest)


@pytest.mark.parametrize("store", STORES)
def test_events_that_the_store_has_not_folded_are_a_note(
    make_bench: Callable[..., Bench], tmp_path: Path, store: str
) -> None:
    bench = make_bench(store).open()
    populate(bench)
    settings = bench.config.settings
    kept = {path: path.read_bytes() for path in settings.sqlite_db_path.parent.rglob("*") if path.is_file()}
    bench.open()
    bench.publish("work", "late")
    bench.do("ack", **take(bench))
    bench.close()
    if store != "filesystem":
        for path in settings.sqlite_db_path.parent.glob("yirangmq*"):
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data) if path.name.startswith("yirangmq") else None
    report = verified(bench, tmp_path)
    assert not report.faults and report.counts[Kind.STORE_BEHIND] == 1
    assert report.applied < report.as_of_event


def test_messages_that_only_the_store_has_are_counted(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench(segment_bytes=1500).open()
    populate(bench)
    bench.open()
    bench.publish("work", "y" * 1500)
    assert bench.live.journal.drop_segments(bench.store.disk.checkpoint(), 2**62, 10**9, 2**62)
    stop(bench)
    report = verified(bench, tmp_path)
    assert report.only_in_store > 5 and not report.findings


def test_a_message_that_the_journal_cannot_restore_is_reported_as_lost(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench(segment_bytes=1500).open()
    keys = populate(bench)
    bench.open()
    assert bench.live.journal.drop_segments(bench.store.disk.checkpoint(), 2**62, 10**9, 2**62)
    held = next(entry for entry in bench.store.pages.entries("", 100) if entry.key == keys.leased)
    bench.do("extend_lease", messageKey=held.key, leaseId=held.lease_id)
    stop(bench)
    message_removed(bench, keys._replace(dead=keys.leased))
    report = verified(bench, tmp_path)
    assert [finding.where for finding in report.findings if finding.kind is Kind.MESSAGE_LOST] == [keys.leased]


def test_a_dead_letter_without_its_body_is_a_note(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench("hybrid").open()
    keys = populate(bench)
    payload_gone(bench, keys._replace(ready=[keys.dead]))
    report = verified(bench, tmp_path)
    assert [finding.kind for finding in report.findings] == [Kind.BODY_BURIED] and not report.faults


@pytest.mark.parametrize("store", ["filesystem"])
def test_a_dead_letter_that_was_moved_by_hand_is_a_note(
    make_bench: Callable[..., Bench], tmp_path: Path, store: str
) -> None:
    bench = make_bench(store).open()
    keys = populate(bench)
    letter = next((bench.config.settings.filesystem_root / "work" / "dlq").iterdir())
    letter.rename(letter.parent.with_name("inbox") / letter.name)
    report = verified(bench, tmp_path)
    assert [finding.kind for finding in report.findings] == [Kind.MOVED_BY_HAND]
    bench.open()
    assert str(bench.store.get(keys.dead).state) == "ready"  # type: ignore[union-attr]


def test_a_missing_root_cannot_be_verified(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench()
    with pytest.raises(NotVerified, match="does not exist"):
        Verification(bench.config, tmp_path).run()
    assert not bench.path.exists()


@pytest.mark.parametrize("store", STORES)
def test_an_unused_root_is_intact(make_bench: Callable[..., Bench], tmp_path: Path, store: str) -> None:
    bench = make_bench(store)
    assert CliRunner().invoke(main, ["init", "--root", str(bench.path)]).exit_code == 0
    done = command(bench, "verify")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "no faults; there are no events and no messages")
    bench.open().close()
    assert not verified(bench, tmp_path).faults


def test_a_database_of_the_cpp_system_is_a_note(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench()
    database = CppDatabase(bench.config.settings.sqlite_db_path, bench.clocks.wall_ms)
    database.message("one")
    database.db.close()
    report = verified(bench, tmp_path)
    assert [finding.kind for finding in report.findings] == [Kind.STORE_OF_CPP] and not report.faults


def test_an_index_that_does_not_match_its_table_is_reported_by_a_deep_check(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench().open()
    populate(bench)
    with closing(sqlite3.connect(bench.config.settings.sqlite_db_path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'dead', 'ready') WHERE name = 'msg_index_dead'")
    assert verified(bench, tmp_path, deep=True).counts[Kind.STORE_DAMAGED]


def test_the_store_of_another_root_is_reported_as_such(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench().open()
    populate(bench)
    database = bench.config.settings.sqlite_db_path
    bench.open()
    bench.store.begin()
    bench.store.facts.put("epoch", {"epoch": 1, "root": "another"})
    bench.store.commit()
    bench.close()
    assert database.exists()
    assert [finding.kind for finding in verified(bench, tmp_path).findings] == [Kind.STORE_FOREIGN]


def test_findings_beyond_a_thousand_of_a_kind_are_counted_only(
    make_bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom_daemon.maintenance.verify.findings.HELD_LIMIT", 1)
    bench = make_bench().open()
    message_removed(bench, populate(bench))
    report = verified(bench, tmp_path)
    assert report.counts[Kind.MESSAGE_MISSING] == 2
    assert len([finding for finding in report.findings if finding.kind is Kind.MESSAGE_MISSING]) == 1


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_says_that_a_root_is_intact(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    populate(bench)
    done = command(bench, "verify")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "no faults"), done.output
    assert "12 messages in 3 queues" in done.stdout
    shown = json.loads(command(bench, "verify", "--json", "--deep").stdout)
    assert shown["ok"] and shown["messages"] == 12 and shown["findings"] == [] and shown["asOfEvent"] > 20


def test_the_command_has_a_line_for_each_finding_and_exits_with_3(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    keys = populate(bench)
    message_removed(bench, keys)
    done = command(bench, "verify")
    assert done.exit_code == 3
    assert f"FAULT message-missing {keys.dead}: not in the store; event" in done.stdout
    assert "    a message that the store lacks; repair: restores it from its event" in done.stdout
    shown = json.loads(command(bench, "verify", "--json").stdout)
    assert not shown["ok"] and shown["counts"]["message-missing"] == 2
    assert {"kind", "fault", "where", "text", "repair"} == shown["findings"][0].keys()


@pytest.mark.parametrize("words", [["verify"], ["repair"], ["repair", "--apply"]], ids=" ".join)
def test_a_directory_without_a_root_is_not_called_intact(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(main, [*words, "--root", str(tmp_path)])
    assert done.exit_code == 1 and "is not a root: " in done.stderr
    assert not list(tmp_path.iterdir()), "looking changes nothing"


@pytest.mark.parametrize("words", [["verify"], ["local", "health"]], ids=" ".join)
def test_a_journal_under_a_link_is_refused_with_what_to_do(make_bench: Callable[..., Bench], words: list[str]) -> None:
    bench = make_bench().open()
    populate(bench)
    elsewhere = bench.path / "elsewhere"
    bench.journal_root.rename(elsewhere)
    bench.journal_root.symlink_to(elsewhere)
    done = CliRunner().invoke(main, [words[0], "--root", str(bench.path), *words[1:]])
    assert done.exit_code == 1 and f"is a symbolic link: set {elsewhere} in the configuration" in done.stderr


def test_unmounted_bodies_are_reported_with_their_own_path(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench("hybrid").open()
    populate(bench)
    bodies = bench.config.settings.hybrid_payload_root
    bodies.rename(bench.path / "elsewhere")
    for finding in (*verified(bench, tmp_path).findings, *without_database(bench, tmp_path)):
        assert finding.kind is not Kind.STORE_REFUSED or finding.text.startswith(f"{bodies}: ")
        assert str(tmp_path / "postroom-verify") not in finding.text


def without_database(bench: Bench, workspace: Path) -> list[Finding]:
    bench.config.settings.sqlite_db_path.unlink()
    found = verified(bench, workspace).findings
    assert {finding.kind for finding in found} == {Kind.STORE_MISSING, Kind.STORE_REFUSED}
    return found


@pytest.mark.parametrize("store", STORES)
def test_messages_that_only_a_missing_store_had_are_reported_before_it_is_rebuilt(
    make_bench: Callable[..., Bench], tmp_path: Path, store: str
) -> None:
    bench = make_bench(store, segment_bytes=1500).open()
    keys = populate(bench)
    bench.segments()[1].unlink()
    if store == "hybrid":
        payload_of(bench, keys.ready[-1]).unlink()
    store_gone(bench, keys)
    report = verified(bench, tmp_path)
    assert report.counts[Kind.STORE_MISSING] == report.counts[Kind.EVENTS_LOST] == 1
    assert report.counts[Kind.BODY_LOST] == (store == "hybrid")


def test_the_command_cannot_verify_something_that_is_not_a_root(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["verify", "--root", str(tmp_path / "nothing")])
    assert done.exit_code == 1 and "does not exist" in done.stderr


def test_every_kind_has_a_rule_and_is_documented(request: pytest.FixtureRequest) -> None:
    assert RULES.keys() == set(Kind)
    document = (request.config.rootpath / "docs" / "storage.md").read_text("utf-8")
    assert table() in document
