"""What the pipeline does in an object store, which has neither renames nor exclusive creation: in a server of S3 on
this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, count
from threading import Barrier, Semaphore
from typing import Any, cast

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from postroom_pipeline.errors import EnvironmentProblem, Occupied
from postroom_pipeline.schema.table import Table
from postroom_pipeline.spark import warehouse as module
from postroom_pipeline.spark.arrow_storage import ArrowStorage
from postroom_pipeline.spark.warehouse import LOCK, STAGING, Warehouse, locked

COLUMNS = StructType([StructField("event", LongType()), StructField("day", StringType())])
EVENTS = Table("events", COLUMNS, key=("event",), partition=("day",))


@pytest.fixture
def storage(bucket: str) -> ArrowStorage:
    return ArrowStorage(bucket)


def test_files_are_written_listed_read_renamed_and_deleted(storage: ArrowStorage) -> None:
    path = storage.join("a b", "day=1%3A", "x")
    assert not storage.renames_directories
    assert not storage.exists(path)
    storage.write_text(path, "text é")
    assert storage.read_text(path) == "text é"
    storage.write_text(path, "other")
    assert (storage.read_text(path), storage.size(storage.location)) == ("other", 5)
    assert storage.files_below(storage.location) == ["a b/day=1%3A/x"]
    (entry,) = storage.entries(storage.join("a b"))
    assert (entry.name, entry.path, entry.is_directory) == ("day=1%3A", storage.join("a b", "day=1%3A"), True)
    storage.rename(path, storage.join("c", "y"))
    assert storage.files_below(storage.location) == ["c/y"]
    storage.write_text(path, "text")
    with pytest.raises(EnvironmentProblem, match="/c/y already exists"):
        storage.rename(path, storage.join("c", "y"))
    storage.delete(storage.join("c"))
    storage.delete(storage.join("c"))
    storage.delete(path)
    assert storage.files_below(storage.location) == []
    assert storage.entries(storage.join("none")) == []


def test_the_names_of_hadoop_for_this_store_are_understood(bucket: str) -> None:
    storage = ArrowStorage(bucket.replace("s3://", "s3a://"))
    storage.write_text(storage.join("x"), "text")
    assert [entry.path for entry in storage.entries(storage.location)] == [f"{storage.location}/x"]
    assert storage.location.startswith("s3a://")


@pytest.mark.parametrize("before", [[], ["old"]], ids=["no file", "a file"])
def test_a_write_whose_lines_fail_leaves_what_was_there(storage: ArrowStorage, before: list[str]) -> None:
    path = storage.join("lines")
    for text in before:
        storage.write_text(path, text)

    def lines() -> Iterator[str]:
        yield "x" * (20 << 20)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        storage.write_lines(path, lines())
    assert storage.files_below(storage.location) == ["lines" for _ in before]
    assert [storage.read_text(path) for _ in before] == before


def test_many_lines_are_written(storage: ArrowStorage) -> None:
    path = storage.join("lines")
    storage.write_lines(path, ("0123456789abcdef" * 4096 for _ in range(500)))
    assert storage.size(path.rpartition("/")[0]) == 500 * 65_536
    assert storage.read_text(path) == "0123456789abcdef" * 4096 * 500


class Killed(BaseException):
    """Ends a run where it stands, as a kill does: nobody catches it."""


def test_a_run_that_is_killed_anywhere_in_its_moves_is_finished_by_the_next(
    storage: ArrowStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "storage_of", lambda session, location: ArrowStorage(location))
    old = {"day=1/a": "1", "day=2/b": "2", "day=3/c": "3"}
    new = {"day=1/a": "1", "day=2/x": "7", "day=4/y": "8"}
    seen = set()
    for calls in count(1):
        home = Warehouse(cast("Any", None), storage.join(str(calls)))
        for name, text in old.items():
            home.storage.write_text(home.storage.join("events", name), text)
        for name in ("day=2/x", "day=4/y"):
            home.storage.write_text(home.storage.join(STAGING, "run", "new", name), new[name])
        left = [calls]
        for method in ("rename", "delete", "write_text"):
            monkeypatch.setattr(home.storage, method, dying(getattr(home.storage, method), left))
        try:
            home._plan_and_move("run", EVENTS, replace=["day=2", "day=4"], remove=["day=3"])
            assert contents(storage.join(str(calls))) == new
            break
        except Killed:
            after = Warehouse(cast("Any", None), storage.join(str(calls)))
            with after.writing("test"):
                pass
            assert contents(storage.join(str(calls))) in (old, new)
            seen.add(contents(storage.join(str(calls))) == new)
    assert seen == {False, True}


def dying(call: Callable[..., object], left: list[int]) -> Callable[..., object]:
    """``call``, which kills the run when nothing is left."""

    def instead(*arguments: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return call(*arguments)

    return instead


def contents(location: str) -> dict[str, str]:
    """All texts below a location but those of the table's directory, by path."""
    storage = ArrowStorage(location)
    paths = storage.files_below(location)
    return {path.removeprefix("events/"): storage.read_text(storage.join(path)) for path in paths}


def test_of_many_runs_that_begin_at_once_at_most_one_writes(storage: ArrowStorage) -> None:
    together = Barrier(4, timeout=60)
    inside: list[int] = []
    writers: list[int] = []

    def begin(number: int) -> None:
        for _ in range(10):
            together.wait()
            try:
                with locked(storage, storage.join(LOCK), f"run {number}"):
                    inside.append(number)
                    together.wait()
                    writers.append(len(inside))
                    together.wait()
                    inside.remove(number)
            except Occupied:
                together.wait()
                together.wait()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))
    assert {*writers} <= {1}
    with locked(storage, storage.join(LOCK), "the next"):
        assert storage.files_below(storage.location) == [LOCK]
    assert storage.files_below(storage.location) == []


class InTurns:
    """A storage that makes each call when it is its caller's turn."""

    def __init__(self, storage: ArrowStorage) -> None:
        self._storage = storage
        self.location = storage.location
        self.may, self.did = Semaphore(0), Semaphore(0)
        self.is_done = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)

        def instead(*arguments: object) -> object:
            self.may.acquire()
            try:
                return method(*arguments)
            finally:
                self.did.release()

        return instead if name in ("exists", "write_text", "entries", "delete", "read_text") else method


def test_whatever_the_order_of_their_steps_of_two_runs_at_most_one_writes() -> None:
    """Every order of the steps of two runs; each that has the lock writes for ever."""
    steps = 6
    winners = set()
    for number, turns in enumerate(combinations(range(2 * steps), steps)):
        shared = ArrowStorage(f"mock:///lock/{number}")
        storages = [InTurns(shared) for _ in range(2)]
        inside: list[int] = []

        def begin(who: int) -> None:
            storage = storages[who]  # noqa: B023 - the threads end before the next round
            try:
                if not module._other_holder(cast("Any", storage), storage.location + "/" + LOCK, "{}"):
                    inside.append(who)  # noqa: B023 - see above
            finally:
                storage.is_done = True
                storage.did.release()

        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(begin, who) for who in range(2)]
            for place in range(2 * steps):
                storage = storages[place in turns]
                if not storage.is_done:
                    storage.may.release()
                    storage.did.acquire()
            for storage in storages:
                for _ in range(steps):
                    storage.may.release()
            for end in ends:
                end.result()
        assert len(inside) <= 1, turns
        winners.add(tuple(inside))
    assert winners == {(), (0,), (1,)}


def test_what_a_killed_run_has_left_of_a_lock_is_named(storage: ArrowStorage) -> None:
    for name in (LOCK, f"{LOCK}.0123"):
        left = storage.join(name)
        storage.write_text(left, '{"who": "ingest", "pid": 7, "host": "h", "since": "2026"}')
        with (
            pytest.raises(Occupied, match=rf"by ingest \(process 7 on h, since 2026\); .* delete {left} if"),
            locked(storage, storage.join(LOCK), "follow"),
        ):
            pass
        assert storage.files_below(storage.location) == [name]
        storage.delete(left)
