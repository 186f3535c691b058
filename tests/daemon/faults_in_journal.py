"""Faults in the journal."""

from __future__ import annotations

import shutil

from postroom_common.events import encode_event
from postroom_daemon.journal.segments import segment_name
from tests.conformance.bench import Bench
from tests.daemon.populated_root import Keys
from tests.daemon.segment_files import flip, line_starts


def journal_flip(bench: Bench, keys: Keys) -> None:
    path = bench.segments()[1]
    flip(path, line_starts(path)[2] + 30)


def journal_torn_request(bench: Bench, keys: Keys) -> None:
    """The first publish also creates the queue: damage one of its two events."""
    path = bench.segments()[0]
    at = path.read_bytes().index(b'"queue_created"')
    flip(path, at)


def journal_head_flip(bench: Bench, keys: Keys) -> None:
    flip(bench.segments()[1], 5)


def journal_segment_of_nothing(bench: Bench, keys: Keys) -> None:
    path = bench.segments()[1]
    path.write_bytes(bytes(path.stat().st_size))


def journal_segment_gone(bench: Bench, keys: Keys) -> None:
    bench.segments()[1].unlink()


def journal_end_gone(bench: Bench, keys: Keys) -> None:
    bench.segments()[-1].unlink()


def journal_gone(bench: Bench, keys: Keys) -> None:
    shutil.rmtree(bench.journal_root)


def journal_emptied(bench: Bench, keys: Keys) -> None:
    for path in bench.segments():
        path.unlink()


def journal_copy(bench: Bench, keys: Keys) -> None:
    path = bench.segments()[0]
    shutil.copy(path, path.with_name(segment_name(3)))


def journal_renamed(bench: Bench, keys: Keys) -> None:
    path = bench.segments()[1]
    path.rename(path.with_name(segment_name(int(path.stem) + 1)))


def journal_directory(bench: Bench, keys: Keys) -> None:
    (bench.journal_root / segment_name(10**6)).mkdir()


def journal_foreign(bench: Bench, keys: Keys) -> None:
    event = bench.events()[-1] | {"root": "another", "type": "clock_marked", "format": 1}
    event |= {"id": event["id"] + 1, "req": event["id"] + 1, "grp": event["id"] + 1}
    event.pop("crc")
    (bench.journal_root / segment_name(event["id"])).write_bytes(encode_event(event))
