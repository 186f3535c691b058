"""A directory of the C++ system's filesystem backend is imported completely or not at all, also after a crash."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from postroom_common.protocol import State
from postroom_daemon.cli import main
from postroom_daemon.maintenance.import_cpp import CppImport, ImportRefused, import_cpp
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import Sources, StartError
from tests.conformance.bench import Bench, CountedIds, picture
from tests.crash.faults import FewerCalls, Killed
from tests.daemon.cpp_database import CppDatabase
from tests.daemon.cpp_files import CppDirectory, guid
from tests.daemon.cpp_states import check_imported
from tests.wire.daemon import wait_until

MakeBench = Callable[..., Bench]
MINUTE = 60_000


def directory(bench: Bench) -> CppDirectory:
    """A directory of the C++ system where the bench's store will be."""
    bench.path.mkdir(parents=True, exist_ok=True)
    return CppDirectory(bench.config.settings.filesystem_root, bench.clocks.wall_ms)


def import_into(bench: Bench, accept_loss: bool = False) -> CppImport:
    """Import as ``postroomd import cpp`` does."""
    sources = Sources(bench.files, bench.clocks.clock, CountedIds(bench.ids))
    return import_cpp(bench.config, sources, accept_loss)


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def every_state(old: CppDirectory) -> dict[str, str]:
    """A message in each state that there is. Their keys by what they are."""
    now = old.now
    return {
        "first": old.message(9, createdAt=now - 50 * MINUTE, priority=2, attributes='{"k":"v"}', payload="text"),
        "ready": old.message(2, createdAt=now - 40 * MINUTE),
        "requeued": old.message(3, createdAt=now - 30 * MINUTE, attempt=3),
        "delayed": old.message(4, "delayed", availableAt=now + 5 * MINUTE),
        "due": old.message(5, "delayed", createdAt=now - 20 * MINUTE, availableAt=now - MINUTE),
        "retried": old.message(6, "delayed", createdAt=now - 10 * MINUTE, availableAt=now + 7 * MINUTE, attempt=2),
        "leased": old.message(7, "inflight", createdAt=now - 9 * MINUTE, until=now + 20_000, attempt=1),
        "over": old.message(8, "inflight", createdAt=now - 8 * MINUTE, until=now - 5_000, attempt=1),
        "dead": old.message(10, "dlq", createdAt=now - 70 * MINUTE, attempt=5, dlqAt=now - MINUTE,
                            dlqReason="retry limit exceeded (attempt 5)"),
        "nacked": old.message(11, "dlq", queue="other", attempt=1, dlqAt=now - 2 * MINUTE, dlqReason="bad value"),
        "targeted": old.message(12, createdAt=now - 5 * MINUTE, targetConsumerId="worker-7", queue="other"),
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["filesystem", "sqlite", "hybrid"])
def test_every_message_is_there_in_its_state_with_its_body_and_its_age(make_bench: MakeBench, backend: str) -> None:
    bench = make_bench(backend)
    keys = every_state(directory(bench))
    import_into(bench)
    bench.open()
    check_imported(bench, keys, reason_of_nacked="bad value")


def test_messages_come_in_the_order_in_which_they_were_published_there(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    for number, age in ((3, 5), (7, 9), (1, 7)):
        old.message(number, createdAt=old.now - age * MINUTE)
    import_into(bench)
    bench.open()
    taken = [bench.do("consume_next", queue="telemetry")["message"]["messageId"] for _ in range(3)]
    assert taken == [guid(7), guid(1), guid(3)]


@pytest.mark.parametrize("proof", [{"leaseId": guid(0x1007)}, {"consumerId": "w1"}])
def test_the_consumer_that_has_a_message_settles_it_as_before(make_bench: MakeBench, proof: dict[str, str]) -> None:
    bench = make_bench("filesystem")
    key = directory(bench).message(7, "inflight", attempt=1)
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"] is None
    assert bench.send("ack", messageKey=key, consumerId="w2").code == "ERR_LEASE_MISMATCH"
    bench.do("ack", messageKey=key, **proof)
    assert bench.store.get(key) is None


def test_a_policy_counts_where_the_configuration_says_something_else(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    old.policy("telemetry", visibilityTimeoutSec=30, retry={"limit": 9, "backoff": "fixed", "initialDelaySec": 1})
    old.message(1)
    import_into(bench)
    bench.open()
    assert bench.do("get_policy", queue="telemetry")["override"] == {"retry": {"limit": 9, "backoff": "fixed"}}


def test_a_queue_whose_name_has_a_slash_and_one_named_meta_are_imported(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    keys = [old.message(1, queue="a/b"), old.message(2, queue="meta"), old.message(3, queue="inbox")]
    import_into(bench)
    bench.open()
    for queue, key in zip(("a/b", "meta", "inbox"), keys, strict=True):
        assert bench.do("consume_next", queue=queue)["message"]["messageKey"] == key


# --- what a crash leaves --------------------------------------------------------------------------------------------


def test_a_message_in_flight_without_its_lease_was_delivered_to_nobody_and_is_ready(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    key = old.message(1, "inflight", lease=False)
    torn = old.message(2, "inflight", attempt=1)
    (old.root / "meta/leases" / f"{torn.replace(':', '_')}.json").write_text('{"messageKey": "msg:te')
    import_into(bench)
    bench.open()
    entries = [bench.store.get(one) for one in (key, torn)]
    assert [(entry.state, entry.attempt) for entry in entries if entry] == [(State.READY, 0), (State.READY, 1)]


def test_a_lease_that_was_written_before_its_message_counts_its_attempt(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    key = old.message(1, "inflight", attempt=0)
    lease = {"messageKey": key, "consumerId": "w1", "leaseId": guid(9), "leaseUntil": old.now + 9000, "attempt": 1}
    old.fact("leases", key, lease)
    import_into(bench)
    bench.open()
    entry = bench.store.get(key)
    assert entry is not None and (entry.state, entry.attempt, entry.consumer_id) == (State.INFLIGHT, 1, "w1")


def test_of_a_message_in_two_states_the_later_one_counts_and_leases_of_others_are_ignored(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    old.message(1, "inflight", attempt=2)
    dead = old.message(1, "dlq", attempt=2, dlqReason="bad", dlqAt=old.now)
    ready = old.message(2, attempt=1)
    old.fact("leases", ready, {"leaseId": guid(1), "consumerId": "w", "leaseUntil": old.now + 9000, "attempt": 1})
    old.message(3, "acked")
    done = import_into(bench)
    assert done.counts == {"queues": 1, "messages dlq": 1, "messages ready": 1} and done.unusable == 1
    bench.open()
    entries = [bench.store.get(key) for key in (dead, ready)]
    assert [entry.state for entry in entries if entry] == [State.DEAD, State.READY]


def test_files_that_were_being_written_are_no_messages_and_are_counted(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    old.message(1)
    old.path(2, "ready").with_suffix(".json.tmp").write_text('{"key": "msg:te')
    done = import_into(bench)
    assert (done.counts["messages ready"], done.unusable, done.unfinished) == (1, 0, 1)


def test_a_torn_file_is_set_aside_with_the_reason(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    old.message(1)
    old.path(2, "ready").write_text('{"key": "msg:te')
    done = import_into(bench)
    assert done.unusable == 1
    (data,) = (data for name, data in bench.quarantined().items() if ".rows." in name)
    (row,) = map(orjson.loads, data.splitlines())
    assert row["reason"] == "its value is no JSON object" and row["row"]["content"] == '{"key": "msg:te'


def test_killed_at_any_file_operation_it_is_imported_completely_by_the_same_command(make_bench: MakeBench) -> None:
    clean = make_bench("filesystem", segment_bytes=1500)
    keys = list(every_state(directory(clean)).values())
    counting = FewerCalls(10**9)
    clean.files = counting
    import_into(clean)
    used = 10**9 - counting.left
    clean.open()
    there = picture(clean.store, keys)["entries"].keys()
    for calls in range(0, used, 5):
        bench = make_bench("filesystem", segment_bytes=1500)
        old = directory(bench)
        every_state(old)
        files = contents(old.root)
        bench.files = FewerCalls(calls)
        try:
            import_into(bench)
        except (Killed, StartError):
            pass
        bench.files = Files()
        try:
            bench.open()  # either all of it is there, or it says what to do
        except StartError as error:
            assert "postroomd import cpp" in str(error)
            import_into(bench)
            bench.open()
        assert picture(bench.store, keys)["entries"].keys() == there, calls
        assert contents(old.root.with_name("fs.before-migration")) == files
        bench.close()


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["filesystem", "sqlite", "hybrid"])
def test_a_start_before_the_import_says_what_to_do_and_changes_nothing(make_bench: MakeBench, backend: str) -> None:
    bench = make_bench(backend)
    directory(bench).message(1)
    there = contents(bench.path)
    with pytest.raises(StartError, match=f"postroomd import cpp --root {bench.path}"):
        bench.open()
    assert contents(bench.path) == there


@pytest.mark.parametrize("backend", ["filesystem", "sqlite", "hybrid"])
def test_a_start_before_the_files_were_put_there_does_not_bar_their_import(make_bench: MakeBench, backend: str) -> None:
    bench = make_bench(backend).open()
    bench.do("status", queue="telemetry")
    bench.do("consume_next", queue="telemetry")
    bench.stop()
    bench.close()
    root = bench.config.settings.filesystem_root
    root.rename(root.with_name("empty")) if root.exists() else None
    key = directory(bench).message(1)
    if root.with_name("empty").exists():  # as who copies the old files into the directory that is there
        shutil.copytree(root.with_name("empty"), root, dirs_exist_ok=True)
    import_into(bench)
    bench.open()
    assert bench.store.get(key)


def test_a_root_that_is_in_use_is_refused_and_its_start_is_not(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish()
    bench.stop()
    bench.close()
    root = bench.config.settings.filesystem_root
    path = root / "telemetry/inbox" / f"{guid(1)}.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(ImportRefused, match="already has messages or settings of queues"):
        import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="q")["message"]


def test_a_directory_that_is_also_the_store_of_another_root_is_refused(make_bench: MakeBench) -> None:
    used = make_bench("filesystem").open()
    key = used.publish("telemetry")
    used.store.disk.tidy()
    used.stop()
    used.close()
    root = used.config.settings.filesystem_root
    (root / "telemetry/inbox" / f"{guid(1)}.json").write_text("{}")
    other = make_bench("sqlite", **{"filesystem.root": str(root)})
    with pytest.raises(ImportRefused, match="also of a store of postroomd"):
        import_into(other)
    used.open()
    assert used.store.get(key)


def test_a_journal_that_has_lost_its_first_segments_has_had_messages(make_bench: MakeBench) -> None:
    bench = make_bench("sqlite", segment_bytes=500).open()
    bench.publish()
    for _ in range(5):
        bench.stop()
        bench.reopen()
    bench.stop()
    bench.close()
    assert len(bench.segments()) > 1
    bench.segments()[0].unlink()
    directory(bench).message(1)
    with pytest.raises(ImportRefused, match="already has messages"):
        import_into(bench)


def test_a_store_without_its_journal_is_not_replaced(make_bench: MakeBench) -> None:
    bench = make_bench("sqlite").open()
    bench.publish()
    bench.stop()
    bench.close()
    shutil.rmtree(bench.journal_root)
    directory(bench).message(1)
    with pytest.raises(ImportRefused, match="is a store whose journal is missing"):
        import_into(bench)


def test_where_most_files_cannot_be_used_nothing_changes_unless_the_loss_is_accepted(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    key = old.message(1)
    for number in (2, 3):
        old.path(number, "ready").write_text("")
    there = contents(old.root)
    with pytest.raises(ImportRefused, match=r"2 of 3 messages cannot be used .*--accept-loss"):
        import_into(bench)
    assert contents(old.root) == there and not bench.segments() and not bench.quarantined()
    import_into(bench, accept_loss=True)
    bench.open()
    assert bench.store.get(key)


def test_it_is_refused_while_the_daemon_of_the_cpp_system_runs_there(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench("filesystem")
    directory(bench).message(1)
    program = tmp_path / "MainMQ"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    with subprocess.Popen([program, "600"], cwd=bench.path) as process:
        try:
            wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "MainMQ\n", "it runs")
            with pytest.raises(ImportRefused, match=r"MainMQ runs: stop the C\+\+ daemon"):
                import_into(bench)
        finally:
            process.kill()
    import_into(bench)


# --- the command ----------------------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    return done.exit_code, done.output


def test_the_command_imports_and_a_second_one_says_where_the_imported_data_is(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    every_state(old)
    there = contents(old.root)
    words: tuple[str | Path, ...] = ("import", "cpp", "--root", bench.path, "--backend", "filesystem")
    status, output = run(*words, "--check")
    assert status == 0 and "would import 3 messages delayed, 2 messages dlq, 2 messages inflight" in output
    assert contents(old.root) == there
    status, output = run(*words)
    assert status == 0 and f"the old data is {old.root}.before-migration" in output
    assert contents(Path(f"{old.root}.before-migration")) == there
    status, output = run(*words)
    assert status == 1 and f"was imported already; it is in {old.root}.before-migration now" in output
    assert run("verify", "--root", bench.path, "--backend", "filesystem")[0] == 0


def test_verify_shows_files_that_were_not_imported(make_bench: MakeBench) -> None:
    for backend in ("filesystem", "sqlite"):
        bench = make_bench(backend)
        directory(bench).message(1)
        status, output = run("verify", "--root", bench.path, "--backend", backend)
        assert status == 0 and "store-of-cpp" in output and "postroomd import cpp" in output


def test_of_two_stores_of_the_cpp_system_that_of_the_backend_is_imported_and_the_other_is_named(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("filesystem")
    key = directory(bench).message(1)
    database = CppDatabase(bench.config.settings.sqlite_db_path, bench.clocks.wall_ms)
    database.message("A")
    database.close()
    done = import_into(bench)
    assert done.others == (bench.config.settings.sqlite_db_path,)
    bench.open()
    assert bench.store.get(key)


def test_a_directory_that_cannot_be_renamed_is_refused_before_anything_changes(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = make_bench("sqlite", **{"filesystem.root": str(tmp_path / "elsewhere/fs")})
    old = directory(bench)
    old.message(1)
    really = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: path != old.root.parent and really(path, mode, **more))
    with pytest.raises(ImportRefused, match="cannot be written to"):
        import_into(bench)


def test_the_result_as_json_names_everything(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = directory(bench)
    old.message(1)
    status, output = run("import", "cpp", "--root", bench.path, "--backend", "filesystem", "--json")
    shown: dict[str, Any] = orjson.loads(output.splitlines()[-1])
    assert status == 0 and shown == {
        "ok": True, "checked": False, "database": str(old.root), "counts": {"queues": 1, "messages ready": 1},
        "unusableRows": 0, "unfinishedFiles": 0, "old": f"{old.root}.before-migration", "oldBodies": [],
        "otherData": [],
    }  # fmt: skip
