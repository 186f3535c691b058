"""The tree of payload files: what a crash leaves in it, and what an audit finds."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.platform.files import Files
from postroom_daemon.service.loop import Loop
from postroom_daemon.service.reload import Reloading
from postroom_daemon.stores.errors import StoreError
from postroom_daemon.stores.hybrid import payloads
from postroom_daemon.stores.hybrid import store as hybrid
from postroom_daemon.stores.hybrid.audit import HybridAudit
from postroom_daemon.stores.hybrid.index import LEAVING_KV
from postroom_daemon.stores.hybrid.threads import SYNC_THREADS, ParallelSync
from tests.conformance.bench import Bench
from tests.crash.faults import Killed

MakeBench = Callable[..., Bench]
LONG = "ü" * 120  # its directory is hashed


def audit_of(bench: Bench) -> HybridAudit:
    assert isinstance(bench.store.audit, HybridAudit)
    return bench.store.audit


def found(bench: Bench, contents: bool = True) -> list[tuple[str, str]]:
    return [(one.kind, one.path) for one in audit_of(bench).payload_findings(contents)]


def relative(bench: Bench, path: Path) -> str:
    return str(path.relative_to(bench.config.settings.hybrid_payload_root))


def tree(bench: Bench) -> dict[str, Any]:
    """All that lies in a root, with its bytes and times."""
    paths = sorted(bench.path.rglob("*"))
    return {str(path): (path.is_file() and path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def acknowledge(bench: Bench, queue: str = "q") -> None:
    lease = bench.do("consume_next", queue=queue)["lease"]
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])


def die(*arguments: Any, **options: Any) -> None:
    raise Killed


# --- after a crash ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["with its store", "without its store"])
def test_a_crash_between_the_end_of_a_message_and_the_removal_of_its_body_leaves_no_orphan(
    store: str, make_bench: MakeBench
) -> None:
    bench = make_bench("hybrid").open()
    bench.publish("q", "done")
    bench.publish("q", "stays")
    bench.files.unlink = die
    with pytest.raises(Killed):
        acknowledge(bench)
    assert len(bench.body_files()) == 2
    bench.close()
    bench.files = Files()
    bench.reopen(without_store=store == "without its store")
    (left,) = bench.body_files()
    assert b"stays" in left.read_bytes() and found(bench) == [] and bench.quarantined() == {}


def test_a_body_that_a_message_refers_to_is_never_taken_for_a_remnant_of_a_crash(make_bench: MakeBench) -> None:
    """A mended database may have rows of different moments."""
    bench = make_bench("hybrid").open()
    for queue in ("q", LONG):
        bench.publish(queue)
    leaving = [relative(bench, path) for path in bench.body_files()]
    bench.store.begin()
    bench.store.facts.put(LEAVING_KV, leaving)
    bench.store.commit()
    bench.store.applied = 0
    bench.store.recovery.finish_replay(clean=False)
    bench.reopen()
    assert len(bench.body_files()) == 2 and found(bench) == []


def test_bodies_of_a_group_that_was_not_committed_are_set_aside_at_the_next_start(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish("q", "kept")
    (kept,) = bench.body_files()
    (segment,) = bench.segments()
    journal = {path: path.read_bytes() for path in (segment, bench.journal_root / "recent") if path.exists()}
    bench.files.fdatasync = die
    with pytest.raises(Killed):
        bench.run(*(bench.make("publish", queue=queue, message="unborn") for queue in ("q", LONG)))
    bench.close()
    bench.files = Files()
    for path, before in journal.items():
        path.write_bytes(before)  # what was written and not synced is lost with the power
    bench.open()
    assert bench.body_files() == [kept] and found(bench) == []
    aside = [data for name, data in bench.quarantined().items() if ".json." in name]
    assert len(aside) == 2 and all(b"unborn" in data for data in aside)
    bench.publish("q", "again")
    assert len(bench.body_files()) == 2


def test_directories_that_were_empty_at_a_crash_are_removed_at_the_next_start(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    for queue in ("reply-1", "reply-2", "q"):
        bench.publish(queue)
    for queue in ("reply-1", "reply-2"):
        acknowledge(bench, queue)
    root = bench.config.settings.hybrid_payload_root
    assert len(list(root.iterdir())) == 3
    bench.reopen()
    assert [path.name for path in root.iterdir()] == ["q"]
    bench.publish("reply-1")
    assert len(bench.body_files()) == 2


def test_the_bodies_of_a_root_that_has_lost_journal_and_database_stay(make_bench: MakeBench) -> None:
    """The card with the bodies is the old one; whoever puts the rest back will need them."""
    bench = make_bench("hybrid").open()
    key = bench.publish()
    bench.close()
    for place in (bench.journal_root, bench.config.settings.sqlite_db_path.parent):
        shutil.copytree(place, bench.path / "kept" / place.name, ignore=shutil.ignore_patterns("payloads"))
    shutil.rmtree(bench.journal_root)
    bench.lose_store()
    bench.open()
    assert [kind for kind, _ in found(bench)] == ["orphan"] and bench.quarantined() == {}
    bench.close()
    shutil.rmtree(bench.journal_root)
    bench.lose_store()
    shutil.copytree(bench.path / "kept", bench.path, dirs_exist_ok=True)
    bench.open()
    assert bench.do("consume_next", queue="q", client="another")["message"]["messageKey"] == key


def test_many_files_that_are_not_from_a_crash_stay_where_they_are(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hybrid, "CRASH_FILES_LIMIT", 3)
    bench = make_bench("hybrid").open()
    bench.publish()
    (body,) = bench.body_files()
    for number in range(4):
        shutil.copy(body, body.with_name(f"{1000 + number:015d}-foreign.json"))
    bench.reopen()
    assert len(bench.body_files()) == 5
    body.with_name("000000000001003-foreign.json").unlink()
    bench.reopen()
    assert bench.body_files() == [body] and len(bench.quarantined()) == 3


def test_the_tree_is_not_scanned_after_an_orderly_stop(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    bench.stop()
    bench.close()
    listed: list[str] = []
    really = bench.files.listdir

    def telling(place: Any) -> list[str]:
        listed.append(os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else str(place))
        return list(really(place))

    bench.files.listdir = telling
    bench.open()
    assert not any("payloads" in place for place in listed)


def test_a_full_quarantine_does_not_block_the_start(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    (body,) = bench.body_files()
    stray = body.with_name("000000000000099-orphan.json")
    shutil.copy(body, stray)
    bench.close()

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    bench.files.rename = full
    bench.open()
    assert bench.body_files() == [body, stray]


def test_a_file_in_the_place_of_a_new_body_is_set_aside_and_not_overwritten(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    (body,) = bench.body_files()
    number, message = int(body.name[:15]), 2
    there = body.with_name(f"{number + 1:015d}-message-{message}.json")
    there.write_bytes(b"somebody's")
    key = bench.publish("q", "new")
    assert b"new" in there.read_bytes() and b"new" in bench.store.bodies.envelope(key)
    assert list(bench.quarantined().values()) == [b"somebody's"]


def calls_of(bench: Bench, *names: str) -> list[str]:
    """The calls of these names that the bench makes from now on."""
    done: list[str] = []

    def reported(name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def telling(fd: int) -> None:
            done.append(name)
            call(fd)

        return telling

    for name in names:
        setattr(bench.files, name, reported(name, getattr(bench.files, name)))
    return done


def test_bodies_stored_without_a_sync_are_durable_with_the_next_checkpoint(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid", **{"journal.durability": "none"}).open()
    done = calls_of(bench, "fsync", "fdatasync", "syncfs")
    bench.publish()
    assert done == []
    for _ in range(2):
        bench.store.disk.checkpoint()
        assert done == ["syncfs"]


def test_with_durability_interval_bodies_are_synced_before_their_events(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid", **{"journal.durability": "interval"}).open()
    mailbox = Mailbox(bench.config.settings, Files(), lambda reason: None, lambda: False)
    done = calls_of(bench, "fdatasync", "syncfs")
    bench.publish()
    before_turns: list[list[str]] = []
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"!")  # the loop waits for nothing

    class OneTurn:
        """The signals of the loop: it is stopped after its first turn."""

        take_reload = staticmethod(lambda: False)

        def __init__(self) -> None:
            self.read_fd = read_fd

        @property
        def stopped(self) -> bool:
            before_turns.append(list(done))
            return len(before_turns) > 1

    Loop(Reloading(bench.config, lambda: bench.config), bench.live, [mailbox], cast(Any, OneTurn())).run()
    assert before_turns == [[], ["syncfs", "fdatasync"]]
    mailbox.close()
    os.close(read_fd)
    os.close(write_fd)


def test_many_files_are_synced_at_once_and_none_is_in_use_after_one_has_failed() -> None:
    files, failed, synced = Files(), threading.Event(), set()

    def fsync(fd: int) -> None:
        if fd == 0:
            failed.set()
            raise OSError(errno.EIO, "no")
        failed.wait()
        synced.add(fd)

    files.fsync = fsync
    parallel = ParallelSync(files)
    with pytest.raises(OSError, match="no"):
        parallel.sync(range(40))
    assert synced == set(range(40)) - set(range(0, 40, SYNC_THREADS))
    parallel.sync([5])
    parallel.close()


def test_a_disk_that_became_read_only_is_reported(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make_bench("hybrid").open()
    really = os.fstatvfs
    read_only = SimpleNamespace(f_flag=really(0).f_flag | os.ST_RDONLY)
    monkeypatch.setattr(os, "fstatvfs", lambda fd: read_only)
    assert "read-only" in bench.do("health")["checks"]["store"]["error"]


# --- the audit --------------------------------------------------------------------------------------------------------


def test_an_audit_reports_faults_and_changes_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid", **{"hybrid.inlineBelowBytes": "60"}).open()
    root = bench.config.settings.hybrid_payload_root
    for queue in ("q", LONG, ".hidden"):
        for number in range(4):
            bench.publish(queue, f"{number}" * 80)
        bench.publish(queue, "inline")
    assert found(bench) == []
    by_queue = [list(files) for _, files in itertools.groupby(bench.body_files(), key=lambda path: path.parent)]
    gone, cut, flipped, sound = by_queue[0]
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    flipped.write_bytes(flipped.read_bytes().replace(b"2", b"3", 1))
    orphan = sound.with_name("000000000000001-orphan.json")
    shutil.copy(sound, orphan)
    misplaced = root / "q" / "00000007" / orphan.name
    misplaced.parent.mkdir()
    shutil.copy(sound, misplaced)
    strays = [root / "notes.txt", root / "q" / "notes.txt", sound.with_name("notes.txt"), root / "q" / "7"]
    for stray in strays[:3]:
        stray.write_text("left by a technician")
    strays[3].mkdir()
    (root / "lost+found").mkdir()
    (root / ".lost").touch()
    moved = by_queue[1][0]
    moved.rename(root / "other")
    shutil.rmtree(by_queue[2][0].parent)
    expected = [
        ("missing", gone),
        ("wrong", cut),
        ("wrong", flipped),
        ("orphan", orphan),
        ("misplaced", misplaced),
        *(("stray", stray) for stray in strays),
        ("missing", moved),
        ("stray", root / "other"),
        *(("missing", path) for path in by_queue[2]),
    ]
    before = tree(bench)
    assert sorted(found(bench)) == sorted((kind, relative(bench, path)) for kind, path in expected)
    without = sorted(found(bench, contents=False))
    assert without == sorted((kind, relative(bench, path)) for kind, path in expected if path != flipped)
    assert tree(bench) == before


def test_an_audit_names_the_message_whose_body_is_wrong(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    key = bench.publish()
    (body,) = bench.body_files()
    body.unlink()
    (missing,) = audit_of(bench).payload_findings()
    assert (missing.key, missing.kind) == (key, "missing")
    body.mkdir()
    (wrong,) = audit_of(bench).payload_findings()
    assert (wrong.key, wrong.kind) == (key, "wrong") and "no regular file" in wrong.text


def test_an_audit_goes_shard_by_shard_through_all_queues(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "SHARD_SPAN", 3)
    bench = make_bench("hybrid").open()
    for number in range(30):
        bench.publish(("b", "B", "ü", "a/b", LONG)[number % 5], str(number))
    for _ in range(3):
        acknowledge(bench, "b")
    assert found(bench) == []
    for path in bench.body_files()[::2]:
        path.unlink()
    bench.store.disk.checkpoint()
    assert len(found(bench)) == 14 and {kind for kind, _ in found(bench)} == {"missing"}


def test_an_unreadable_directory_is_reported_and_its_bodies_are_not_called_missing(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish("a")
    bench.publish("b")
    really = bench.files.listdir

    def unreadable(fd: int) -> list[str]:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("a/00000000"):
            raise OSError(errno.EIO, "no")
        return list(really(fd))

    bench.files.listdir = unreadable
    assert found(bench) == [("unreadable", "a/00000000")]


def test_foreign_files_go_to_quarantine_and_bodies_of_messages_do_not(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    root = bench.config.settings.hybrid_payload_root
    for queue in ("q", LONG):
        bench.publish(queue, "body of " + queue)
        body = bench.body_files()[-1]
        orphan = body.with_name(body.name.replace("message", "orphan"))
        shutil.copy(body, orphan)
        with pytest.raises(StoreError, match="a message refers to it"):
            audit_of(bench).set_orphan_aside(relative(bench, body))
    (root / "stray").write_text("left by a technician")
    before = {path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for finding in list(audit_of(bench).payload_findings()):
        assert finding.kind in ("orphan", "stray")
        audit_of(bench).set_orphan_aside(finding.path)
    assert found(bench) == [] and len(bench.body_files()) == 2
    assert set(bench.quarantined().values()) == before and len(bench.quarantined()) == 3


def test_quarantine_may_lie_on_another_file_system(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    (body,) = bench.body_files()
    orphan = body.with_name(body.name.replace("message", "orphan"))
    shutil.copy(body, orphan)
    really = bench.files.rename

    def across(source: Any, target: Any, **options: Any) -> None:
        if "src_dir_fd" not in options:
            raise OSError(errno.EXDEV, "another file system")
        really(source, target, **options)

    bench.files.rename = across
    really_write = bench.files.write

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    bench.files.write = full
    with pytest.raises(StoreError):
        audit_of(bench).set_orphan_aside(relative(bench, orphan))
    assert bench.body_files() == [body, orphan] and bench.quarantined() == {}
    bench.files.write = really_write
    audit_of(bench).set_orphan_aside(relative(bench, orphan))
    assert bench.body_files() == [body]
    assert list(bench.quarantined().values()) == [body.read_bytes()]
