"""A data directory of smss is imported completely or not at all, with its event ids, and nothing in it is changed."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from postroom_daemon.cli import main
from postroom_daemon.maintenance.foreign_data import ImportRefused
from postroom_daemon.maintenance.import_smss import SmssImport, SmssSettings, import_smss
from postroom_daemon.model.facts import FACT_DAMAGE, FACT_LOSSES
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import Sources, StartError
from postroom_daemon.stores.log.records import records_of
from tests.conformance.bench import Bench, CountedIds
from tests.crash.faults import FewerCalls, Killed
from tests.daemon.log_work import log_record, segments
from tests.daemon.smss_store import HOUR, SmssStore, block

MakeBench = Callable[..., Bench]
Stored = list[tuple[int, int, bytes]]


@pytest.fixture
def old(tmp_path: Path, make_bench: MakeBench) -> SmssStore:
    """A data directory with a topic, ``order``, created a day ago."""
    store = SmssStore(tmp_path / "smss" / "data", Bench(tmp_path).clocks.wall_ms - 24 * HOUR)
    store.create("order")
    return store


def import_into(bench: Bench, old: SmssStore, **settings: object) -> SmssImport:
    """Import it as ``postroomd import smss`` does."""
    before = old.content()
    sources = Sources(bench.files, bench.clocks.clock, CountedIds(bench.ids))
    try:
        return import_smss(bench.config, old.path, SmssSettings(**settings), sources)  # type: ignore[arg-type]
    finally:
        assert old.content() == before


def imported(make_bench: MakeBench, old: SmssStore, backend: str = "sqlite", **settings: object) -> Bench:
    """An open root with what was in a data directory."""
    bench = make_bench(backend)
    import_into(bench, old, **settings)
    return bench.open()


def stored(bench: Bench, topic: str = "order") -> Stored:
    """The messages of a topic: event id, time, block. Numbers, files and facts of the root are sound."""
    log = log_record(bench, topic)
    found: Stored = []
    while (page := bench.store.logs.read(log.created, found[-1][0] if found else 0, 1000, 2**20)).records:
        found += [(position, wall, one) for wall, position, one in records_of(page.raw)]
    assert not bench.store.facts.get(FACT_LOSSES) and not bench.store.facts.get(FACT_DAMAGE)
    return found


def aside(bench: Bench) -> list[dict[str, object]]:
    """What was set aside."""
    files = [data for name, data in sorted(bench.quarantined().items()) if ".rows." in name]
    return [orjson.loads(line) for data in files for line in data.splitlines()]


# --- what comes over --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_topics_and_messages_come_with_their_event_ids_times_and_ends_and_stay_over_every_restart(
    make_bench: MakeBench, old: SmssStore, backend: str
) -> None:
    expected: Stored = []
    created, end = old.now, old.now + 48 * HOUR
    old.create("ends", end)
    for number in range(6):
        old.now += HOUR
        blocks = [block(b"%d.%d" % (number, one), {b"k": b"v"}) for one in range(3)]
        expected += zip(old.publish("order", *blocks), 3 * [old.now], blocks, strict=True)
        old.publish("ends", block(b"x"))
        old.file += number == 2
    gone = old.create("gone")
    old.publish("gone", block(b"x"))
    old.delete("gone")
    bench = imported(make_bench, old, backend)
    assert stored(bench) == expected and len(stored(bench, "ends")) == 6
    shown = {row["queue"]: row for row in bench.do("list_queues")["queues"]}
    assert [*shown] == ["ends", "order"]
    assert (shown["order"]["log"]["created"], shown["ends"]["log"]["created"]) == (1, 2)
    assert shown["ends"]["log"]["expireAtMs"] == end and not shown["order"]["log"]["expireAtMs"]
    assert shown["order"]["log"]["createdMs"] == created
    assert old.event_id > gone and bench.events()[0]["id"] == 1
    position = bench.do("append", queue="order", message="new")["first"]
    assert position > old.event_id
    everything = stored(bench)
    assert everything[:-1] == expected and everything[-1][0] == position
    for is_store_lost, are_logs_lost in ((True, False), (False, True), (True, True)):
        bench.close()
        if is_store_lost:
            bench.lose_store()
        if are_logs_lost:
            shutil.rmtree(bench.config.settings.logs_root)
        bench.open()
        assert stored(bench) == everything
    bench.clocks.pass_ms(48 * HOUR)
    bench.run()
    assert [row["queue"] for row in bench.do("list_queues")["queues"]] == ["order"]


def test_a_damaged_segment_of_imported_records_comes_back_from_the_journal(
    make_bench: MakeBench, old: SmssStore
) -> None:
    for number in range(40):
        old.publish("order", block(b"%d" % number * 20))
    bench = imported(make_bench, old)
    bench.do("append", queue="order", message="new")
    expected = stored(bench)
    bench.close()
    (path,) = segments(bench)
    data = bytearray(path.read_bytes())
    data[300:400] = bytes(100)
    path.write_bytes(data)
    (path.parent.parent / "state.json").unlink()
    bench.open()
    assert stored(bench) == expected


def test_delays_that_are_not_over_are_appended_when_they_are(make_bench: MakeBench, old: SmssStore) -> None:
    bench = make_bench()
    now = bench.clocks.wall_ms
    one, two = block(b"1", {b"k": b"v"}), block(b"2")
    done = old.delay("order", old.now + 1000, block(b"done"))
    old.delay("order", now + HOUR, one, two)
    old.delay("order", now - HOUR, block(b"late"))
    old.create("gone")
    old.delay("gone", now + HOUR, block(b"without a topic"))
    old.now += 1000
    (applied,) = old.apply("order", done, block(b"done"))
    old.delete("gone")
    assert import_into(bench, old).counts == {
        "topics": 1, "messages stored": 1, "messages delayed": 3, "delayed messages without a topic": 1,
    }  # fmt: skip
    bench.open().run()
    assert [body for _, _, body in stored(bench)] == [block(b"done"), block(b"late")]
    assert stored(bench)[0][0] == applied and bench.counts("order") == {"delayed": 2}
    bench.clocks.pass_ms(HOUR)
    bench.run()
    assert [body for _, _, body in stored(bench)][2:] == [one, two] and stored(bench)[1][0] > old.event_id


def test_a_topic_whose_creation_is_gone_never_ends_unless_somebody_says_when(
    make_bench: MakeBench, old: SmssStore
) -> None:
    for topic in ("a", "b"):
        old.create(topic, old.now + HOUR)
    ids = old.publish("a", block(b"1"), block(b"2"))
    (old.path / "binlog" / "0.log").unlink()
    bench, end = make_bench(), old.now + 99 * HOUR
    with pytest.raises(ImportRefused, match="no topic 'c' whose end"):
        import_into(bench, old, expire={"c": end})
    done = import_into(bench, old, expire={"b": end})
    assert (done.permanent, done.first_id, done.last_id) == (["a", "order"], 0, ids[-1] + 2)
    bench.open()
    assert [position for position, _, _ in stored(bench, "a")] == ids
    logs = {row["queue"]: row["log"] for row in bench.do("list_queues")["queues"]}
    assert {name: log["expireAtMs"] for name, log in logs.items()} == {"a": 0, "b": end, "order": 0}
    created = {name: log["created"] for name, log in logs.items()}
    assert created["a"] == ids[0] - 1 and len({*created.values()}) == 3
    assert bench.do("append", queue="b", message="x")["first"] > max(created.values())


def test_event_ids_that_smss_gave_twice_do_not_lose_messages(make_bench: MakeBench, old: SmssStore) -> None:
    first = old.publish("order", *(block(b"%d" % number) for number in range(5)))
    old.event_id, old.file = 0, 9
    old.create("again")
    second = old.publish("order", *(block(b"again %d" % number) for number in range(9)))
    assert second[0] == first[0] and second[-1] > first[-1]
    done = import_into(bench := make_bench(), old)
    assert done.counts["event ids that changed"] == 9
    bench.open()
    found = stored(bench)
    assert [position for position, _, _ in found[:5]] == first and found[5][0] > second[-1]
    assert [body[8:] for _, _, body in found[5:]] == [b"again %d" % number for number in range(9)]
    assert log_record(bench, "again").created != log_record(bench, "order").created


# --- damage -----------------------------------------------------------------------------------------------------------


def test_what_a_crash_has_cut_off_or_damage_has_destroyed_comes_from_the_binlog(
    make_bench: MakeBench, old: SmssStore
) -> None:
    expected = [one for number in range(9) for one in old.publish("order", block(b"%d" % number * 30), block(b"x"))]
    path, binlog = old.last_file("order"), old.path / "binlog" / "0.log"
    sound = path.read_bytes()
    for data in (sound[:-7], sound[:-200], sound[:300] + b"garbage" + sound[480:], b""):
        path.write_bytes(data)
        with binlog.open("ab") as file:
            file.write(b"\x2c\x00\x00\x00179581148")  # torn
        bench = imported(make_bench, old)
        assert [position for position, _, _ in stored(bench)] == expected
        reasons = {row["reason"] for row in aside(bench)}
        assert reasons == {"these bytes are no intact record"}
        bench.close()
    shutil.rmtree(old.directory("order"))
    bench = imported(make_bench, old)
    assert [position for position, _, _ in stored(bench)] == expected


def test_what_is_intact_behind_garbage_is_imported(make_bench: MakeBench, old: SmssStore) -> None:
    kept = old.publish("order", block(b"1"))
    (old.path / "topic" / "gone").symlink_to("nowhere")
    for path in (old.last_file("order"), old.path / "binlog" / "0.log"):  # as a disk that was full leaves them
        with path.open("ab") as file:
            file.write(struct.pack("<I", 45) + b"1795811484063\t1\t99\t17958" + bytes(2**21))
    kept += old.publish("order", block(b"2"))
    bench = imported(make_bench, old)
    assert [position for position, _, _ in stored(bench)] == kept
    rows = [row["row"] for row in aside(bench)]
    assert [row["file"] for row in rows] == ["topic/3/3/order/0.log", "binlog/0.log"]  # type: ignore[index]
    assert rows[0]["bytes"] == 2**21 + 28  # type: ignore[index]


def test_what_cannot_be_a_record_is_set_aside_and_most_of_it_must_be_accepted(
    make_bench: MakeBench, old: SmssStore
) -> None:
    (good,) = old.publish("order", block(b"1"))
    wrong = struct.pack("<II", 3, 9) + b"abc"  # no client can read it
    for _ in range(2):
        old.publish("order", wrong)
    bench = make_bench()
    with pytest.raises(ImportRefused, match=r"2 of 3 messages cannot be used .*headers.* --accept-loss"):
        import_into(bench, old)
    assert not bench.segments() and not bench.quarantined() and not list(bench.journal_root.glob("ta*"))
    import_into(bench, old, accept_loss=True)
    assert [position for position, _, _ in stored(bench.open())] == [good] and len(aside(bench)) == 2


# --- the root ---------------------------------------------------------------------------------------------------------


def test_what_is_no_data_directory_changes_or_has_a_second_import_is_refused(
    make_bench: MakeBench, old: SmssStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.publish("order", block(b"1"))
    bench = make_bench().open()
    bench.stop()
    bench.close()
    with pytest.raises(ImportRefused, match="has no directories topic and binlog: name the data directory"):
        import_smss(bench.config, old.path / "topic", SmssSettings(), Sources())
    states = iter(range(9))
    with monkeypatch.context() as patch:
        patch.setattr("postroom_daemon.maintenance.import_smss.files.SmssFiles.state", lambda files: next(states))
        with pytest.raises(ImportRefused, match="changes while it is read: stop smss"):
            import_into(bench, old)
    import_into(bench, old)
    with pytest.raises(ImportRefused, match=r"already has messages .*earlier import: import into a new root"):
        import_into(bench, old)
    assert len(stored(bench.open())) == 1


def test_a_failure_at_any_call_leaves_all_of_it_or_nothing(make_bench: MakeBench, old: SmssStore) -> None:
    ids, number, is_complete = old.publish("order", block(b"1"), block(b"2")), 0, False
    while not is_complete:
        bench = make_bench().open()
        bench.stop()
        bench.close()
        bench.files = FewerCalls(number)
        try:
            import_into(bench, old)
            is_complete = True
        except (Killed, StartError):
            number += 3
        bench.files = Files()
        bench.open()
        if not bench.do("list_queues")["queues"]:
            bench.close()
            import_into(bench, old)
            bench.open()
        assert [position for position, _, _ in stored(bench)] == ids, number
        bench.close()


def test_the_command_shows_what_it_would_do_does_it_once_and_leaves_a_sound_root(
    tmp_path: Path, old: SmssStore
) -> None:
    ids = old.publish("order", block(b"1"), block(b"2"))
    words = ["import", "smss", str(old.path.parent), "--root", str(tmp_path / "root")]
    checked = CliRunner().invoke(main, [*words, "--check"])
    assert checked.exit_code == 0 and "would import 2 messages stored, 1 topics; 0 rows" in checked.output
    assert not (tmp_path / "root").exists()
    wrong = CliRunner().invoke(main, [*words, "--expire", "order"])
    assert wrong.exit_code == 2 and "must be TOPIC=UNIX_MS" in wrong.output
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    shown = orjson.loads(done.stdout)
    assert shown["counts"] == {"topics": 1, "messages stored": 2}
    assert (shown["firstEvent"], shown["lastEvent"], shown["withoutEnd"]) == (1, ids[-1], [])
    assert CliRunner().invoke(main, words).exit_code == 1
    verified = CliRunner().invoke(main, ["verify", "--root", str(tmp_path / "root")])
    assert verified.exit_code == 0, verified.output
