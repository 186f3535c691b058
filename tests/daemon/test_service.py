"""What a root reports while it is opened, who may read its files, and what a reload changes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom_common.notify import Progress
from postroom_daemon.config.config import load
from postroom_daemon.config.settings import ATTRIBUTES, SETTINGS
from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.platform.files import Files
from postroom_daemon.service.reload import RELOADED, merged, put_in_force, waiting
from tests.conformance.bench import Bench


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The messages to a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        def messages() -> list[str]:
            found = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    found.append(manager.recv(4096).decode())
            return found

        yield messages


def test_a_replay_reports_its_progress(bench: Bench, reported: Callable[[], list[str]]) -> None:
    bench.publish()
    bench.close()
    bench.lose_store()
    reported()
    bench.open()
    (replay,) = [message for message in reported() if "replaying" in message]
    last_id = bench.live.journal.last_id
    assert replay.splitlines()[2].startswith("STATUS=replaying the journal: event ")
    assert replay.endswith(f" of {last_id}")


def test_long_work_asks_for_more_time_repeatedly(reported: Callable[[], list[str]]) -> None:
    progress = Progress("line", total=5000, every_s=0)
    for done in (1000, 2000):
        progress.at(done)
    assert reported() == [
        f"EXTEND_TIMEOUT_USEC=120000000\nWATCHDOG=1\nSTATUS=line {done} of 5,000" for done in ("1,000", "2,000")
    ]


def test_fast_work_does_not_report_all_the_time(reported: Callable[[], list[str]]) -> None:
    progress = Progress("line", total=5000, every_s=3600)
    for done in range(5000):
        progress.at(done)
    assert len(reported()) == 1


@pytest.mark.parametrize(("directory_mode", "file_mode"), [(0o700, 0o600), (0o2750, 0o640)])
def test_users_who_may_list_journal_and_traffic_may_read_their_files(
    make_bench: Callable[..., Bench], directory_mode: int, file_mode: int
) -> None:
    bench = make_bench(**{"traffic.enabled": "true"})
    directories = [bench.config.settings.journal_root, bench.config.settings.traffic_root]
    for directory in directories:
        directory.mkdir(parents=True)
        os.chmod(directory, directory_mode)
    bench.open()
    bench.publish()
    bench.live.journal.roll()
    assert bench.live.traffic
    bench.live.traffic.flush()
    files = [path for directory in directories for path in directory.glob("*.jsonl")]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {file_mode}


def test_each_setting_takes_effect_after_a_reload_or_is_reported_as_waiting(tmp_path: Path) -> None:
    before = load(tmp_path, None, {}, {})
    for key, name in ATTRIBUTES.items():
        other: Any = object()
        wanted = replace(before, settings=replace(before.settings, **{name: other}))
        now = merged(before, wanted)
        if key in RELOADED:
            assert getattr(now.settings, name) is other
            assert not waiting(now, wanted)
        else:
            assert now.settings == before.settings
            assert waiting(now, wanted) == [key]
    assert set(SETTINGS) >= RELOADED


def test_limits_of_users_traffic_and_journal_apply_from_the_reload_on(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**{"traffic.enabled": "true"}).open()
    mailbox = Mailbox(bench.config.settings, Files(), lambda reason: None, lambda: False, bench.live.quotas)
    wanted = replace(
        bench.config.settings,
        limits_user_pending_requests=1,
        journal_segment_bytes=65536,
        traffic_sample_every=7,
    )
    put_in_force(replace(bench.config, settings=wanted), bench.live, [mailbox])
    assert not bench.live.quotas.may_have_pending(os.geteuid() + 1, requests=2, size=10)
    assert bench.live.journal.segment_bytes == 65536
    assert bench.live.traffic
    assert bench.live.traffic.sample_every == 7
    mailbox.close()


def test_backlogs_of_any_number_of_queues_are_counted_in_steps(bench: Bench) -> None:
    for number in range(250):
        bench.publish(f"q{number}")
    for _ in range(3):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.live.broker.depths()["ready"] == 250
