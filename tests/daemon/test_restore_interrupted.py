"""postroomd restore that is interrupted: all or nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from postroom_daemon.maintenance.restore import RestoreError, RestorePoint, RestoreRequest
from postroom_daemon.model.facts import FACT_LOADING
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import StartError
from postroom_daemon.root.swap import MARKER_NAME, SwapError
from tests.conformance.bench import Bench
from tests.crash.faults import FewerCalls, Killed
from tests.daemon.origin import MakeBench, Origin, messages, on_every_store, picture_of, restored, stored_state


@on_every_store
def test_killed_before_any_file_operation_the_root_is_the_old_one_or_waits_for_the_same_restore(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    origin = Origin.begin(make_bench(backend, segment_bytes=1500))
    origin.work(12)
    manifest = origin.back_up(tmp_path / "backup.tar")
    origin.bench.open()
    origin.work(8)
    events = origin.end()
    new, old = origin.state_at(events, manifest.event), origin.state_at(events, events[-1]["id"])
    assert new != old
    counting = FewerCalls(10_000)
    rehearsal = copy_of(origin, make_bench)
    restored(rehearsal, tmp_path / "backup.tar", files=counting, replace=True)
    calls = 10_000 - counting.left
    refused = served = 0
    # While it prepares, every few calls; every one of those that put it into place.
    for number in [*range(0, calls - 40, 4), *range(calls - 40, calls)]:
        bench = copy_of(origin, make_bench)
        with pytest.raises(Killed):
            restored(bench, tmp_path / "backup.tar", files=FewerCalls(number), replace=True)
        try:
            bench.open()
            bench.store.disk.checkpoint()
            served += 1
            bench.close()
            assert stored_state(bench.config.settings) in (old, new), number
        except StartError as error:
            assert "restore was interrupted: run the same" in str(error)
            refused += 1
        restored(bench, tmp_path / "backup.tar", replace=True)
        assert stored_state(bench.config.settings) == new, number
        assert not list(bench.path.rglob("*.restoring*")), number
        assert not (bench.path / MARKER_NAME).exists()
        ids = [event["id"] for event in bench.events()]
        assert ids == list(range(1, len(ids) + 1)), number
        shutil.rmtree(bench.path)
    assert refused > 20
    assert served > 3


def copy_of(origin: Origin, make_bench: MakeBench) -> Bench:
    """A bench on a copy of a root that nobody has open."""
    bench = make_bench(origin.settings.backend, segment_bytes=1500)
    shutil.copytree(origin.bench.path, bench.path)
    bench.clocks = origin.bench.clocks
    return bench


def test_another_restore_finishes_the_one_that_was_interrupted_and_does_no_more(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    origin = Origin.begin(make_bench())
    manifest = origin.back_up(tmp_path / "first")
    origin.bench.open()
    origin.publish()
    origin.back_up(tmp_path / "second")
    marked = False

    class Marked(Files):
        def __init__(self) -> None:
            super().__init__()
            rename = self.rename

            def dying(source: Any, target: Any, **options: Any) -> None:
                nonlocal marked
                if marked:
                    raise Killed
                rename(source, target, **options)
                marked = target == MARKER_NAME

            self.rename = dying

    with pytest.raises(Killed):
        restored(origin.bench, tmp_path / "first", replace=True, files=Marked())
    with pytest.raises(StartError, match="interrupted"):
        origin.bench.open()
    with pytest.raises(RestoreError, match=f"{tmp_path / 'first'} .* finished now, up to event {manifest.event}"):
        restored(origin.bench, tmp_path / "second", replace=True)
    assert messages(origin) == 0
    restored(origin.bench, tmp_path / "second", replace=True)
    assert messages(origin) == 1


def test_a_damaged_list_of_renames_is_reported_and_left_alone(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    origin.back_up(tmp_path / "backup")
    for data in (b"{}", b"\0\0"):
        (origin.bench.path / MARKER_NAME).write_bytes(data)
        with pytest.raises(SwapError, match="is damaged"):
            restored(origin.bench, tmp_path / "backup", replace=True)
        assert (origin.bench.path / MARKER_NAME).read_bytes() == data


def test_a_disk_that_fills_up_leaves_the_root_as_it_was(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench("filesystem"))
    origin.work(40)
    origin.back_up(tmp_path / "backup")
    before = picture_of(origin.bench.path)
    full = Files()

    def write(fd: int, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    full.write = write
    with pytest.raises(Exception, match="No space left"):
        restored(origin.bench, tmp_path / "backup", replace=True, files=full)
    assert picture_of(origin.bench.path) == before


def test_the_configuration_file_names_the_backend_that_was_chosen(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench("filesystem"))
    origin.publish()
    origin.back_up(tmp_path / "backup")
    (origin.bench.path / "config.json").write_text('{"backend": "sqlite", "nodeId": "here"}')
    done = restored(origin.bench, tmp_path / "backup", replace=True, write_backend=True)
    assert '"backend": "filesystem"' in (origin.bench.path / "config.json").read_text()
    assert '"nodeId": "here"' in (origin.bench.path / "config.json").read_text()
    assert '"backend": "sqlite"' in (Path(done.replaced[0]) / "config.json").read_text()


def test_a_restore_begun_by_an_earlier_version_is_recognised() -> None:
    request = RestoreRequest(Path("/backup"), RestorePoint(event=3), replace=True)
    assert request.text == (
        "Request(backup=PosixPath('/backup'), wish=Wish(event=3, wall_ms=None, end=False), journal=None, payloads=None,"
        " replace=True, write_backend=False)"
    )


@on_every_store
def test_a_store_that_was_not_loaded_to_its_end_is_not_opened(make_bench: MakeBench, backend: str) -> None:
    bench = make_bench(backend).open()
    bench.store.begin()
    bench.store.facts.put(FACT_LOADING, {"after": "msg:q:a"})
    bench.store.commit()
    bench.store.disk.checkpoint()
    bench.close()
    with pytest.raises(StartError, match="repeat the restore"):
        bench.open()
