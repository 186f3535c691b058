"""Bodies that have left the memory are fetched before their turn, those that have not are left alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom_daemon.platform.files import Files
from postroom_daemon.stores.hybrid.threads import AHEAD
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture
def fetched() -> list[str]:
    """The names of the files that the kernel was told to fetch."""
    return []


@pytest.fixture
def cold(make_bench: MakeBench, fetched: list[str]) -> Bench:
    """A root whose bodies are never in memory, as far as the kernel tells."""
    bench = make_bench("hybrid").open()
    will_need = bench.files.will_need

    def noted(fd: int, length: int) -> None:
        fetched.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        will_need(fd, length)

    bench.files.is_cached = lambda fd: False
    bench.files.will_need = noted
    return bench


def consume(bench: Bench, count: int) -> list[str]:
    return [bench.do("consume_next", queue="q")["message"]["payload"] for _ in range(count)]


def test_the_bodies_after_one_that_was_not_in_memory_are_fetched(cold: Bench, fetched: list[str]) -> None:
    for number in range(5):
        cold.publish("q", f"body {number}")
    cold.publish("another", "not asked for")
    cold.store.disk.tidy()
    assert consume(cold, 1) == ["body 0"]
    cold.close()  # the threads have ended
    assert sorted(fetched) == [path.name for path in cold.body_files()[1:5]]


def test_while_half_of_the_window_is_read_the_rest_is_fetched_once(cold: Bench, fetched: list[str]) -> None:
    cold.run(*(cold.make("publish", queue="q", message=f"body {number}") for number in range(2 * AHEAD + 10)))
    cold.store.disk.tidy()
    half = AHEAD // 2
    assert consume(cold, half + 1) == [f"body {number}" for number in range(half + 1)]
    cold.close()
    assert sorted(fetched) == [path.name for path in cold.body_files()[1 : AHEAD + half + 1]]


def test_a_lost_body_is_skipped_and_those_after_it_are_fetched(cold: Bench, fetched: list[str]) -> None:
    for number in range(4):
        cold.publish("q", f"body {number}")
    lost = cold.body_files()[1]
    lost.unlink()
    assert consume(cold, 3) == ["body 0", "body 2", "body 3"]
    cold.close()
    assert fetched and lost.name not in fetched


def test_no_thread_runs_while_all_bodies_are_in_memory(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.files.is_cached = lambda fd: True
    for number in range(3):
        bench.publish("q", f"body {number}")
    bench.store.disk.tidy()
    assert consume(bench, 3) == ["body 0", "body 1", "body 2"]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def test_a_file_that_was_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    fd = os.open(path, os.O_RDONLY)
    try:
        assert Files().is_cached(fd)
    finally:
        os.close(fd)
