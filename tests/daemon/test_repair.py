"""``postroomd repair``: each fault is repaired, intact data stays, and a stop at any moment leaves less to do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroom_daemon.cli import main
from postroom_daemon.maintenance.verify import Kind, Verification
from postroom_daemon.maintenance.verify.repair import NotRepaired, Repair
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import Sources
from tests.conformance.bench import Bench, CountedIds
from tests.daemon import faults_in_files, faults_in_journal, faults_in_store
from tests.daemon.faults import CASES, FAULTS, NAMES, STORES, Fault, faulty_root
from tests.daemon.maintenance_runs import command, repair_of, repaired
from tests.daemon.populated_root import Keys, files_below, populate, stop, take


def lost_bodies(fault: Fault, store: str, keys: Keys) -> set[str]:
    """Messages whose body is in no event, and was taken away with its file: no repair brings it back."""
    if fault.make in (faults_in_files.payload_gone, faults_in_files.payload_changed):
        return {keys.ready[0]}
    if store == "hybrid" and fault.make is faults_in_store.body_changed:
        return {keys.ready[1]}
    if store == "hybrid" and fault.make is faults_in_store.message_removed:
        return {keys.ready[2]}
    return set()


def deliver_all(bench: Bench) -> dict[str, Any]:
    """Let the daemon deliver everything, also what was leased: bodies by key."""
    found: dict[str, Any] = {}
    for queue in ("other", "work", "work"):
        bench.clocks.pass_ms(10**10)
        bench.do("status", queue=queue)
        while (delivery := bench.do("consume_next", queue=queue))["message"]:
            found[delivery["message"]["messageKey"]] = delivery["message"]["payload"]
            bench.do("ack", **{name: delivery["lease"][name] for name in ("messageKey", "leaseId")})
    return found


@pytest.mark.parametrize(("fault", "store"), CASES, ids=NAMES)
def test_each_fault_is_repaired_and_every_message_is_delivered(
    make_bench: Callable[..., Bench], tmp_path: Path, fault: Fault, store: str
) -> None:
    bench, keys = faulty_root(make_bench, fault, store)
    assert repaired(bench, tmp_path).before.counts[fault.kind]
    again = repair_of(bench, tmp_path).apply()
    assert (again.done, again.after) == ([], None), "a sound root is not touched"
    bench.open()
    letters = {letter["messageKey"] for letter in bench.do("list_dlq", queue="work")["messages"]}
    lost = lost_bodies(fault, store, keys)
    assert letters == {keys.dead} | lost
    delivered = deliver_all(bench)
    assert delivered.keys() == {*keys.ready, keys.delayed, keys.leased} - lost
    assert not {*keys.ended} & delivered.keys()
    assert all(str(body).startswith(("body", "later", "kept")) for body in delivered.values())
    bench.close()
    assert not Verification(bench.config, tmp_path, clock=bench.clocks.clock).run().faults


@pytest.mark.parametrize("store", STORES)
def test_removed_data_is_in_quarantine(make_bench: Callable[..., Bench], tmp_path: Path, store: str) -> None:
    bench, keys = faulty_root(make_bench, Fault(faults_in_store.message_back, Kind.MESSAGE_LEFT), store)
    repaired(bench, tmp_path)
    kept = b"".join(bench.quarantined().values())
    assert b"ghost" in kept and keys.ended[1].encode() in kept


def test_a_damaged_segment_is_copied_to_quarantine_completely(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench, _ = faulty_root(make_bench, Fault(faults_in_journal.journal_flip, Kind.JOURNAL_DAMAGED), "sqlite")
    damaged = bench.segments()[1].read_bytes()
    result = repaired(bench, tmp_path)
    assert damaged in bench.quarantined().values()
    assert any("rewritten without" in text for text in result.done)
    assert result.after is not None and result.after.counts[Kind.EVENTS_NOTED] == 1
    assert bench.events()[-2]["type"] == "loss_accepted" and bench.events()[-2]["folded"]


def test_lost_events_are_recorded(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench, _ = faulty_root(make_bench, Fault(faults_in_store.losses_known, Kind.EVENTS_LOST), "sqlite")
    repaired(bench, tmp_path)
    assert [event["ranges"] for event in bench.events() if event["type"] == "loss_accepted"] == [[[2, 3]]]
    assert bench.open().do("health")["status"] == "ok"


def test_if_the_journal_lacks_events_the_store_is_trusted(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """What has ended by an event that is lost does not come back."""
    bench = make_bench(segment_bytes=900).open()
    key = bench.publish("work", "done with")
    bench.publish("other", "x" * 900)
    bench.do("ack", **take(bench))
    bench.publish("other", "x" * 900)
    bench.publish("other", "last")
    stop(bench)
    holding = [path for path in bench.segments() if b'"acked"' in path.read_bytes()]
    holding[0].unlink()
    result = repaired(bench, tmp_path)
    assert result.before.counts[Kind.MESSAGE_UNCERTAIN] == 1
    assert bench.open().store.get(key) is None


class Stopped(BaseException):
    """The end of the process."""


class StoppingFiles(Files):
    """Ends the process at the n-th call that changes a file, before it or in the midst of it."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        for name in ("rename", "unlink", "rmdir", "mkdir", "fsync", "ftruncate", "write"):
            setattr(self, name, self._counted(name, getattr(self, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    call(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Stopped
            if self.left < 0:
                raise Stopped  # nothing happens after the end
            return call(*arguments, **options)

        return counted


KILLED = [
    ("journal_flip", "sqlite"),
    ("journal_head_flip", "hybrid"),
    ("message_back", "filesystem"),
    ("priority_changed", "hybrid"),
    ("body_changed", "filesystem"),
    ("body_changed", "hybrid"),
    ("payload_misplaced", "hybrid"),
    ("payload_changed", "hybrid"),
    ("file_damaged", "filesystem"),
    ("file_strange", "filesystem"),
    ("history_orphan", "sqlite"),
]


@pytest.mark.parametrize(("way", "store"), KILLED)
def test_a_repair_that_was_killed_anywhere_can_be_continued(
    make_bench: Callable[..., Bench], tmp_path: Path, way: str, store: str
) -> None:
    fault = next(fault for fault in FAULTS if fault.make.__name__ == way)
    step = 1
    while True:
        bench, keys = faulty_root(make_bench, fault, store)
        sources = Sources(StoppingFiles(step), bench.clocks.clock, CountedIds(bench.ids))
        try:
            Repair(bench.config, tmp_path, sources=sources).apply()
            break
        except Stopped:
            pass
        result = repair_of(bench, tmp_path).apply()
        assert not (result.after or result.before).faults, (step, result)
        bench.open()
        delivered = deliver_all(bench)
        assert delivered.keys() == {*keys.ready, keys.delayed, keys.leased} - lost_bodies(fault, store, keys), step
        bench.close()
        step += 7
    assert step > 8


def test_a_root_in_use_is_refused(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    done = command(bench, "repair", "--apply")
    assert done.exit_code == 1 and "stop" in done.stderr


def test_a_newer_format_is_left_alone(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    from postroom_common.events import encode_event

    bench = make_bench().open()
    populate(bench)
    event = bench.events()[-1] | {"format": 99}
    following = dict.fromkeys(("id", "req", "grp"), event["id"] + 1)
    event.pop("crc")
    with bench.segments()[-1].open("ab") as file:
        file.write(encode_event(event | following))
    before = files_below(bench.path)
    with pytest.raises(NotRepaired, match="newer version"):
        repair_of(bench, tmp_path).apply()
    assert files_below(bench.path) == before


def test_the_command_first_lists_the_fixes_and_then_reports_them(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    keys = populate(bench)
    faults_in_store.message_removed(bench, keys)
    before = files_below(bench.path)
    planned = command(bench, "repair")
    assert files_below(bench.path) == before
    assert planned.exit_code == 3 and "nothing was changed" in planned.stdout
    assert f"FAULT message-missing {keys.dead}" in planned.stdout and "restores it" in planned.stdout
    done = command(bench, "repair", "--apply")
    assert done.exit_code == 0 and f"done: {keys.dead}: put back from its event" in done.stdout
    assert done.stdout.splitlines()[-1] == "no faults"
    shown = json.loads(command(bench, "repair", "--apply", "--json").stdout)
    assert shown["ok"] and shown["done"] == [] and shown["after"] is None


def test_verify_does_not_create_a_missing_journal_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert CliRunner().invoke(main, ["init", "--root", str(root)]).exit_code == 0
    shutil.rmtree(root / "journal")
    before = files_below(root)
    done = CliRunner().invoke(main, ["verify", "--root", str(root)])
    assert done.exit_code == 0 and files_below(root) == before and not (root / "journal").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink(__file__, path)], ids=["a pipe", "a link"])
def test_something_in_the_place_of_a_body_is_quarantined_and_never_blocks(
    make_bench: Callable[..., Bench], make
) -> None:
    bench = make_bench(backend="hybrid").open()
    keys = populate(bench)
    path = faults_in_files.payload_of(bench, keys.ready[0])
    path.unlink()
    make(path)
    kind = path.lstat().st_mode
    done = command(bench, "repair", "--apply")
    assert done.exit_code == 0, done.stderr
    assert not os.path.lexists(path)
    assert kind in [kept.lstat().st_mode for kept in (bench.path / "quarantine").iterdir()]
