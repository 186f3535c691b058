"""A disk that lies: the daemon starts whatever it finds, delivers what is intact, and throws no byte away."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_event
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon

COUNT = 30


Filled = Callable[[str, bool], Path]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """The root of a daemon on a store that was killed with 30 messages in its queue: made once, to be copied. Its store
    may be level with its journal."""

    @cache
    def root(backend: str, level: bool) -> Path:
        daemon = Daemon(tmp_path_factory.mktemp("filled") / "root", backend=backend)
        try:
            fill(daemon, level)
        finally:
            daemon.kill()
        return daemon.root

    return root


@pytest.fixture
def damaged(make_daemon: MakeDaemon, filled: Filled) -> Daemon:
    """A daemon that was killed with 30 messages in its queue, and is about to be damaged."""
    return copied(filled, make_daemon(), level=False)


@pytest.fixture
def level(make_daemon: MakeDaemon, filled: Filled) -> Daemon:
    """As ``damaged``, and its store has all that its journal tells."""
    return copied(filled, make_daemon(), level=True)


def copied(filled: Filled, daemon: Daemon, level: bool) -> Daemon:
    shutil.copytree(filled(daemon.backend, level), daemon.root, ignore=shutil.ignore_patterns("lane.sock"))
    daemon.forget_recent()
    daemon.audited = False
    return daemon


def fill(daemon: Daemon, level: bool = False) -> None:
    """Publish, and kill the daemon; if need be, not before its store is level with the journal."""
    daemon.start()
    for number in range(COUNT):
        daemon.publish("q", f"message {number}")
    if level:
        daemon.wait_for_store()
    # A request that is still there would be executed again by a daemon that has lost its memory.
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "the last request is taken away")
    daemon.kill()
    daemon.audited = False


def delivered(daemon: Daemon) -> list[str]:
    """All messages of the queue, each acknowledged."""
    found = []
    while (answer := daemon.ask("consume_next", queue="q"))["message"]:
        found.append(answer["message"]["payload"])
        daemon.settle("ack", answer)
    return found


def everything(count: int = COUNT) -> list[str]:
    return [f"message {number}" for number in range(count)]


def quarantined(daemon: Daemon) -> bytes:
    """All that was set aside."""
    if not daemon.quarantine.is_dir():
        return b""
    return b"\n".join(path.read_bytes() for path in sorted(daemon.quarantine.iterdir()))


def last_segment(daemon: Daemon) -> Path:
    return daemon.segments()[-1]


def serves_on(daemon: Daemon, events_lost: bool = False) -> None:
    """It takes new messages, over another crash as well, and tells whether events are lost."""
    assert daemon.ask("health")["status"] == ("degraded" if events_lost else "ok")
    daemon.publish("q", "afterwards")
    daemon.restart(kill=True)
    assert delivered(daemon) == ["afterwards"]
    assert "Traceback" not in daemon.log()


def flip_bits(daemon: Daemon, rounds: int, seed: int) -> None:
    """Start from a journal with one flipped bit, again and again, and judge what is delivered."""
    path = last_segment(daemon)
    data, rng = path.read_bytes(), random.Random(seed)
    bodies, kept = daemon.root / "data" / "payloads", daemon.root / "bodies"
    if bodies.is_dir():  # those in files, which go with their messages
        shutil.copytree(bodies, kept)
    for _ in range(rounds):
        hurt = bytearray(data)
        place = rng.randrange(len(hurt))
        hurt[place] ^= 1 << rng.randrange(8)
        for segment in daemon.segments():
            segment.unlink()
        path.write_bytes(hurt)
        daemon.forget_recent()
        daemon.forget_store()
        if kept.is_dir():
            shutil.copytree(kept, bodies, dirs_exist_ok=True)
        daemon.start()
        found = delivered(daemon)
        missing = set(everything()) - set(found)
        assert found == [text for text in everything() if text in found], place
        assert len(missing) <= 2, (place, missing)  # a flipped newline joins two lines
        daemon.kill()


# --- the end of the journal ------------------------------------------------------------------------------------------

TAILS: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda data: data + random.Random(1).randbytes(5000),
    "garbage with newlines": lambda data: data + b"gar\nbage\n" * 100,
    "NULs": lambda data: data + bytes(4096),
    "half an event": lambda data: data + b'{"id":99999,"epoch":1,"req":99999,"grp":99',
    "an event with a wrong checksum": lambda data: data + b'{"id":1,"crc":"00000000"}\n',
    "JSON that is no event": lambda data: data + b'[1,2,3]\n"text"\n\n',
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("store", ["with its store", "without its store"])
def test_bytes_appended_to_the_journal_are_cut_off_and_quarantined(damaged: Daemon, tail: str, store: str) -> None:
    path = last_segment(damaged)
    data = path.read_bytes()
    path.write_bytes(TAILS[tail](data))
    if store == "without its store":
        damaged.forget_store()
    damaged.start()
    assert TAILS[tail](data)[len(data) :] in quarantined(damaged)
    assert path.read_bytes().startswith(data)
    assert delivered(damaged) == everything()
    damaged.events()  # every line is intact again
    serves_on(damaged)


@on_every_store
@pytest.mark.parametrize("store", ["with its store", "without its store"])
def test_a_last_line_that_was_cut_in_half_costs_at_most_its_message(level: Daemon, store: str) -> None:
    damaged = level
    path = last_segment(damaged)
    lines = path.read_bytes().splitlines(keepends=True)
    half = lines[-1][: len(lines[-1]) // 2]
    path.write_bytes(b"".join(lines[:-1]) + half)
    if store == "without its store":
        damaged.forget_store()
    damaged.start()
    assert half in quarantined(damaged)
    # The store is the fold of an event that the journal has lost: its message is there nevertheless.
    assert delivered(damaged) == everything(COUNT if store == "with its store" else COUNT - 1)
    serves_on(damaged, events_lost=store == "without its store")


def test_a_journal_cut_at_any_byte_of_its_end_starts(damaged: Daemon) -> None:
    path = last_segment(damaged)
    data = path.read_bytes()
    for cut in (1, 2, 50, len(data.splitlines()[-1]) - 1, len(data.splitlines()[-1]) + 1, 700):
        path.write_bytes(data[:-cut])
        damaged.forget_recent()
        damaged.forget_store()
        damaged.start()
        whole = data[:-cut].rpartition(b"\n")[0].count(b'"published"')
        assert damaged.counts("q") == {"ready": whole}
        damaged.kill()
        for segment in damaged.segments():
            if segment != path:
                segment.unlink()


# --- the middle of the journal ---------------------------------------------------------------------------------------


@on_every_store
@pytest.mark.parametrize("store", ["with its store", "without its store"])
def test_one_flipped_bit_costs_at_most_the_message_it_hit(level: Daemon, store: str) -> None:
    damaged = level
    path = last_segment(damaged)
    data = bytearray(path.read_bytes())
    if damaged.backend == "hybrid":  # the digest of the body
        place = [found.end() for found in re.finditer(b'"blake2b":"', data)][11]
    else:
        place = data.index(b'"message 11"') + 4
    data[place] ^= 1
    hurt = bytes(data).splitlines(keepends=True)[bytes(data[:place]).count(b"\n")]
    path.write_bytes(data)
    if store == "without its store":
        damaged.forget_store()
    damaged.start()
    assert hurt in quarantined(damaged)
    assert bytes(data) in path.read_bytes(), "damage before the end is not cut"
    expected = everything()
    if store == "without its store":
        expected.remove("message 11")
    assert delivered(damaged) == expected
    # The filesystem store is folded from its last checkpoint: it has not seen the event either.
    serves_on(damaged, events_lost=store == "without its store" or damaged.backend == "filesystem")


@on_every_store
def test_bits_flipped_anywhere_never_stop_the_start_nor_deliver_a_wrong_payload(damaged: Daemon) -> None:
    flip_bits(damaged, rounds=5, seed=20)


@on_every_store
def test_a_lost_lease_event_does_not_stop_the_fold_of_later_events(damaged: Daemon) -> None:
    damaged.start()
    damaged.settle("ack", damaged.consume("q"))
    damaged.kill()
    path = last_segment(damaged)
    data = bytearray(path.read_bytes())
    data[data.index(b'"leased"') + 2] ^= 1
    path.write_bytes(data)
    damaged.forget_recent()
    damaged.forget_store()
    damaged.start()
    assert set(everything()[1:]) <= set(delivered(damaged)) <= set(everything())
    serves_on(damaged, events_lost=True)


def test_empty_segments_and_foreign_files_are_ignored(damaged: Daemon) -> None:
    folder = damaged.root / "journal"
    (folder / "00000000000000009999.jsonl").touch()
    (folder / "notes.txt").write_text("left by a technician")
    (folder / "0000000000000000000x.jsonl").write_text("{}")
    damaged.start()
    assert delivered(damaged) == everything()
    assert (folder / "notes.txt").exists()
    serves_on(damaged)


@on_every_store
def test_without_its_journal_the_messages_of_the_store_are_delivered(level: Daemon) -> None:
    damaged = level
    last_id = damaged.events()[-1]["id"]
    for segment in damaged.segments():
        segment.unlink()
    damaged.start()
    first = damaged.events()[0]
    assert (first["type"], first["id"]) == ("gap", last_id + 1)
    assert delivered(damaged) == everything()
    serves_on(damaged, events_lost=damaged.backend == "filesystem")  # message files do not show what queues lost


# --- the store -------------------------------------------------------------------------------------------------------


@on_every_store
def test_a_missing_store_is_rebuilt(damaged: Daemon) -> None:
    damaged.forget_store()
    damaged.start()
    assert delivered(damaged) == everything()
    serves_on(damaged)


def garbage(data: bytes) -> bytes:
    return random.Random(3).randbytes(len(data))


STORES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": garbage,
    "NULs": lambda data: bytes(len(data)),
    "a page of NULs in front": lambda data: bytes(4096) + data[4096:],
    "half of itself": lambda data: data[: len(data) // 2],
    "text": lambda data: b"this is no database\n" * 500,
    "one page of garbage inside": lambda data: data[:8192] + garbage(data[8192:12288]) + data[12288:],
}


@on_every_store
@pytest.mark.parametrize("store", STORES)
def test_an_overwritten_store_is_set_aside_and_rebuilt(damaged: Daemon, store: str) -> None:
    damaged.start()
    damaged.stop()  # all of a database is in its file itself
    written = [STORES[store](path.read_bytes()) for path in damaged.store_files()]
    for path, data in zip(damaged.store_files(), written, strict=True):
        path.write_bytes(data)
    damaged.start()
    assert delivered(damaged) == everything()
    # A database that opens is written to before its bad page is met: its first page has changed since.
    assert all(data[4096:] in quarantined(damaged) for data in written)
    serves_on(damaged)


def test_a_damaged_page_of_bodies_blocks_no_other_message(make_daemon: MakeDaemon) -> None:
    """The journal has every body; one message at the head that the database cannot read must not block the queue."""
    damaged = make_daemon(backend="sqlite")
    fill(damaged)
    damaged.start()
    for number in range(COUNT, 200):
        damaged.publish("q", f"message {number}", attributes={"pad": "x" * 400})
    damaged.stop()
    path = damaged.root / "data" / "yirangmq.db"
    data = path.read_bytes()
    middle = len(data) // 2 // 4096 * 4096
    path.write_bytes(data[:middle] + garbage(data[: 5 * 4096]) + data[middle + 5 * 4096 :])
    damaged.start()
    assert delivered(damaged) == everything(200)
    assert damaged.ask("health")["status"] == "ok"


@on_every_store
def test_a_store_and_a_journal_that_are_both_garbage_still_start(damaged: Daemon) -> None:
    lost = []
    for path in (*damaged.segments(), *damaged.store_files()):
        path.write_bytes(garbage(path.read_bytes()))
        lost.append(path.read_bytes())
    damaged.start()
    kept = quarantined(damaged) + b"".join(path.read_bytes() for path in damaged.store_files())
    assert all(data in kept for data in lost[:2]), "journal and store are kept"
    serves_on(damaged, events_lost=True)


@on_every_store
def test_intact_lines_stay_intact_whatever_is_written_after_them(damaged: Daemon) -> None:
    """Recovery never changes a line that holds."""
    before = last_segment(damaged).read_bytes().splitlines()
    damaged.start()
    damaged.publish("q", "more")
    damaged.kill()
    after = b"".join(path.read_bytes() for path in damaged.segments()).splitlines()
    assert after[: len(before)] == before
    for line in after:
        try:
            decode_event(line)
        except DamagedRecord as error:
            raise AssertionError(line) from error
