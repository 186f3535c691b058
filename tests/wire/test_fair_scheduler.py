"""A mailbox that several users share: however many requests one user has pending, the others get their turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, Sent
from tests.wire.swaps import run_swaps
from tests.wire.users import (
    ANNA,
    BERT,
    CARL,
    acting_as,
    publish_as,
    send_as,
    spilled_files,
    who_published,
)

#: Small, so that few files are many.
SMALL = ("--limits-user-share-requests", "10", "--limits-user-turn-requests", "4")


def is_empty(daemon: Daemon) -> bool:
    return not list(daemon.requests.iterdir()) and not spilled_files(daemon)


def test_all_requests_of_a_very_busy_user_are_done_in_order(make_shared: MakeDaemon) -> None:
    daemon = make_shared(*SMALL).start()
    daemon.freeze()
    sent = publish_as(daemon, ANNA, 300)
    daemon.thaw()
    for one in sent:
        assert daemon.answer(one)["ok"]
    assert who_published(daemon) == [(ANNA, one.request_id) for one in sent]
    daemon.wait(lambda: is_empty(daemon), "all files are gone")


def test_users_who_send_little_do_not_wait_for_those_who_send_much(make_shared: MakeDaemon) -> None:
    daemon = make_shared(*SMALL).start()
    daemon.freeze()
    many = publish_as(daemon, ANNA, 300)
    few = [*publish_as(daemon, BERT, 3), *publish_as(daemon, CARL, 3)]
    daemon.thaw()
    for one in (*few, *many):
        assert daemon.answer(one)["ok"]
    order = [request for _, request in who_published(daemon)]
    assert max(order.index(one.request_id) for one in few) < 100


def test_requests_spilled_when_the_daemon_dies_are_done_once_and_in_order(make_shared: MakeDaemon) -> None:
    daemon = make_shared(*SMALL).start()
    sent: list[Sent] = []
    met = 0
    for _ in range(3):
        daemon.freeze()
        sent += publish_as(daemon, ANNA, 1000)
        daemon.thaw()
        daemon.wait((daemon.ipc / "held" / str(ANNA)).is_dir, "some are held")
        daemon.kill()
        met += bool(spilled_files(daemon))
        daemon.start()
    assert met, "all was worked off before each kill"
    for one in sent:
        assert daemon.answer(one)["ok"]
    assert who_published(daemon) == [(ANNA, one.request_id) for one in sent]
    daemon.wait(lambda: is_empty(daemon), "all files are gone")


def test_only_the_daemon_can_enter_the_directory_of_spilled_requests(make_shared: MakeDaemon) -> None:
    daemon = make_shared(*SMALL)
    (daemon.ipc / "held").mkdir(mode=0o777)
    daemon.start()
    assert (daemon.ipc / "held").stat().st_mode & 0o777 == 0o700


def test_a_spilled_request_waits_for_a_message_and_gets_it(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-share-requests", "1").start()
    daemon.freeze()
    waiting = [send_as(daemon, ANNA, "consume_next", {"queue": "q", "waitMs": 60_000}) for _ in range(20)]
    daemon.thaw()
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 20, "all wait")
    assert len(spilled_files(daemon)) == 19
    for number in range(20):
        daemon.publish("q", str(number))
    got = [daemon.answer(one)["data"]["message"]["payload"] for one in waiting]
    assert got == [str(number) for number in range(20)]
    daemon.wait(lambda: is_empty(daemon), "all files are gone")


def test_a_hard_link_to_another_users_file_is_not_queued_as_theirs(make_shared: MakeDaemon) -> None:
    daemon = make_shared(*SMALL).start()
    daemon.freeze()
    with acting_as(BERT):
        (daemon.responses / "box").mkdir(0o770)
        (daemon.responses / "box" / "keep").write_text("{}")
    for number in range(200):
        os.link(daemon.responses / "box" / "keep", daemon.requests / f"{number:03d}.json")
    sent = publish_as(daemon, BERT, 12)
    daemon.thaw()
    for one in sent:
        assert daemon.answer(one)["ok"]
    assert who_published(daemon) == [(BERT, one.request_id) for one in sent]
    assert "hard link" in daemon.reason("199.json")
    daemon.wait(lambda: is_empty(daemon), "all files are gone")


def test_of_very_many_files_that_are_not_requests_only_the_newest_are_retained(make_shared: MakeDaemon) -> None:
    daemon = make_shared().start()
    daemon.freeze()
    unfinished = daemon.requests / "unfinished.json.tmp"
    with acting_as(BERT):
        unfinished.touch()
    with acting_as(ANNA):
        for number in range(2500):
            (daemon.requests / f"{number:04d}").touch()
        (daemon.requests / "empty").mkdir()
        (daemon.requests / "full").mkdir()
        (daemon.requests / "full" / "inside").touch()
    daemon.thaw()

    def names() -> set[str]:
        daemon.ask("health")
        return set(os.listdir(daemon.requests))

    daemon.wait(lambda: len(names() & {f"{number:04d}" for number in range(2500)}) <= 1000, "the oldest are removed")
    assert {"2499", "full", unfinished.name} <= names()
    assert daemon.ask("metrics")["mailbox"]["straysRemoved"] >= 1500


def test_if_nothing_can_be_spilled_all_requests_are_still_done(make_shared: MakeDaemon) -> None:
    daemon = make_shared(*SMALL)
    held: Path = daemon.ipc / "held"
    held.mkdir()
    (held / str(ANNA)).write_text("in the way")
    daemon.start()
    daemon.freeze()
    sent = publish_as(daemon, ANNA, 60)
    daemon.thaw()
    for one in sent:
        assert daemon.answer(one)["ok"]
    assert who_published(daemon) == [(ANNA, one.request_id) for one in sent]


def test_very_many_invalid_requests_are_rejected_and_a_bounded_number_is_retained(
    make_shared: MakeDaemon,
) -> None:
    daemon = make_shared(*SMALL, "--ipc-dead-max-files", "20").start()
    daemon.freeze()
    makers: tuple[Callable[[Path], object], ...] = (
        os.mkfifo,
        lambda path: path.symlink_to(daemon.root / "config.json"),
        lambda path: path.write_bytes(bytes(5_000_000)),
        lambda path: path.write_bytes(b"[]"),
    )
    with acting_as(ANNA):
        for number in range(400):
            makers[number % len(makers)](daemon.requests / f"{number:03d}.json")
    few = publish_as(daemon, BERT, 3)
    daemon.thaw()
    for one in few:
        assert daemon.answer(one)["ok"]
    daemon.wait(lambda: is_empty(daemon), "all files are gone")
    assert sum(1 for _ in daemon.dead.iterdir()) <= 2 * 2 * 20
    assert daemon.ask("metrics")["mailbox"]["setAside"] == 400


@pytest.mark.slow
def test_files_that_change_at_each_look_are_neither_followed_nor_block_anybody(
    make_shared: MakeDaemon,
) -> None:
    daemon = make_shared("--limits-user-share-requests", "3", "--limits-user-turn-requests", "4").start()
    made = run_swaps(daemon, 2000, number=1)
    assert sum(made.values()) == 2000
    assert len(made) > 10
