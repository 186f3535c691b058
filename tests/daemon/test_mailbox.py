"""The mailbox where several users meet: whose file, whose response directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode
from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox import Mailbox, MailboxLost, request_files, scanner, sweeper, unanswerable, watch
from postroom_daemon.doors.mailbox.request_files import MailboxBusy
from postroom_daemon.doors.mailbox.sweeper import SWEEP_EVERY_MS
from postroom_daemon.model.request import Answer
from postroom_daemon.platform.clock import Now
from postroom_daemon.platform.files import Files
from tests.conformance.bench import descriptors

STRANGER = 4001


class OwnedBy(Files):
    """Files as they are, but request files belong to another uid."""

    def __init__(self, uid: int) -> None:
        super().__init__()
        self.uid = uid
        self.fstat = self._fstat

    def _fstat(self, fd: int) -> Any:
        found = os.fstat(fd)
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".json"):
            return found
        facts = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**facts | {"st_uid": self.uid})


@dataclass
class Office:
    """Mailboxes on one root, and why requests were set aside."""

    root: Path
    reasons: list[str] = field(default_factory=list)
    opened: list[Mailbox] = field(default_factory=list)

    def serve(self, files: Files) -> Mailbox:
        self.opened.append(Mailbox(load(self.root, None, {}, {}).settings, files, self.reasons.append))
        return self.opened[-1]

    def put(self, client: str, name: str = "r1") -> None:
        request = {"requestId": name, "clientId": client, "command": "status", "payload": {"queue": "q"}}
        path = self.root / "ipc" / "requests" / f"{name}.json"
        path.with_suffix(".tmp").write_text(json.dumps(request))
        path.with_suffix(".tmp").rename(path)

    def box(self, client: str) -> Path:
        return self.root / "ipc" / "responses" / client


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    for mailbox in office.opened:
        mailbox.close()


def test_nobody_acts_as_a_client_whose_response_directory_is_another_users(office: Office) -> None:
    mailbox = office.serve(OwnedBy(STRANGER))
    office.box("victim").mkdir()
    office.put("victim")
    assert mailbox.collect() == []
    assert office.reasons == ["client id victim belongs to another user: use one of your own"]
    assert list(office.box("victim").iterdir()) == []


def test_a_user_without_a_response_directory_is_advised_to_make_one(office: Office) -> None:
    mailbox = office.serve(OwnedBy(STRANGER))
    office.put("newcomer")
    assert mailbox.collect() == []
    assert "make responses/newcomer" in office.reasons[0]


def test_the_daemons_own_user_gets_a_response_directory(office: Office) -> None:
    mailbox = office.serve(Files())
    office.put("own")
    (call,) = mailbox.collect()
    assert (call.who.client_id, call.who.account) == ("own", os.geteuid())
    assert office.box("own").stat().st_mode & 0o777 == 0o700


def test_a_mailbox_that_could_not_be_opened_can_be_opened_by_the_next_try(office: Office) -> None:
    files = Files()

    def broken(path: Path, mode: int = 0o700) -> int:
        if path.name == "responses":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return Files().open_directory(path, mode)

    files.open_directory = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="Too many open files"):
        office.serve(files)
    office.serve(Files())


def test_a_mailbox_that_is_served_is_not_served_twice(office: Office) -> None:
    office.serve(Files())
    with pytest.raises(MailboxBusy, match="another daemon serves"):
        office.serve(Files())


def test_a_request_of_a_user_who_is_being_looked_up_waits_for_the_lookup(office: Office) -> None:
    asked: list[int] = []

    def knows(uid: int) -> bool:
        asked.append(uid)
        return False

    settings = load(office.root, None, {}, {}).settings
    mailbox = Mailbox(settings, Files(), office.reasons.append, is_ready_for=knows)
    office.opened.append(mailbox)
    office.put("anna")
    assert mailbox.collect() == []
    assert asked == [os.geteuid()]
    assert (office.root / "ipc" / "requests" / "r1.json").exists()
    assert office.reasons == []


def test_a_removed_liveness_lock_is_created_again(office: Office) -> None:
    mailbox = office.serve(Files())
    mailbox.check()
    sign = office.root / "ipc" / "daemon.lock"
    sign.unlink()
    mailbox.check()
    with sign.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_directories_that_only_root_could_recreate_are_reported(office: Office) -> None:
    def refusing(*arguments: Any, **named: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    files = Files()
    mailbox = office.serve(files)
    responses = office.root / "ipc" / "responses"
    responses.chmod(0o3733)
    mailbox.check()
    responses.rmdir()
    files.mkdir = refusing
    with pytest.raises(MailboxLost, match=r"responses was removed, and only root can make it .* the mode 3733: start"):
        mailbox.check()


def test_old_responses_are_removed_a_few_at_a_time_with_requests_between(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_SLICE_NS", 0)
    monkeypatch.setattr(sweeper, "_SHORT_SLICE_NS", 0)
    mailbox = office.serve(Files())
    box = office.box("away")
    box.mkdir()
    for number in range(50):
        (box / f"{number}.json").touch()
    (box / "none.txt").touch()
    later = Now(SWEEP_EVERY_MS, 2**42)
    left = []
    for turn in range(60):
        assert len(mailbox.tick(later, 2**42)) == (turn > 0), "the request whose file was taken back"
        left.append(len(list(box.iterdir())))
        office.put("own")
        assert len(mailbox.collect()) == 1
        (office.root / "ipc" / "requests" / "r1.json").unlink()
    assert left[-1] == 1, "what is no response stays"
    assert all(before - after <= 2 for before, after in pairwise([51, *left])), "a slice between each two requests"


def test_a_sweep_that_the_end_of_the_daemon_interrupts_leaves_no_descriptor_open(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_SLICE_NS", 0)
    for client in ("first", "second"):
        office.box(client).mkdir(parents=True)
        (office.box(client) / "r.json").touch()
    for steps in range(1, 8):
        before = descriptors(office.root)
        mailbox = office.serve(Files())
        for _ in range(steps):
            mailbox.tick(Now(SWEEP_EVERY_MS, 0), 0)
        office.opened.remove(mailbox)
        mailbox.close()
        assert descriptors(office.root) <= before


def test_waits_of_clients_that_have_gone_end_although_the_disk_refuses_the_sweep(office: Office) -> None:
    files = Files()
    mailbox = office.serve(files)
    office.put("own")
    (request,) = mailbox.collect()
    (office.root / "ipc" / "requests" / "r1.json").unlink()

    def refusing(directory: int) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    files.listdir = refusing
    assert mailbox.tick(Now(SWEEP_EVERY_MS, 2**42), 2**42) == [request]


def test_a_response_directory_removed_during_a_sweep_is_skipped(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_SLICE_NS", 0)
    monkeypatch.setattr(sweeper, "_SHORT_SLICE_NS", 0)
    mailbox = office.serve(Files())
    for client in ("first", "second"):
        office.box(client).mkdir()
        (office.box(client) / "r.json").touch()
    mailbox.tick(Now(SWEEP_EVERY_MS, 2**42), 2**42)
    for client in ("first", "second"):
        (office.box(client) / "r.json").unlink()
        office.box(client).rmdir()
    for _ in range(6):
        mailbox.tick(Now(SWEEP_EVERY_MS, 2**42), 2**42)
    assert list(office.box("").iterdir()) == []


def test_a_name_that_is_set_aside_repeatedly_gets_a_free_name_quickly(office: Office) -> None:
    files = Files()
    looks: list[str] = []

    def stat(name: Any, **options: Any) -> os.stat_result:
        looks.append(str(name))
        return os.stat(name, **options)

    mailbox = office.serve(files)
    files.stat = stat
    requests = office.root / "ipc" / "requests"
    for _ in range(100):
        (requests / "same.json").symlink_to("nothing")
        assert mailbox.collect() == []
        assert len(looks) < 30
        looks.clear()
    assert len(list((office.root / "ipc" / "dead").glob("same*.json"))) == 100


# --- answers that cannot be written --------------------------------------------------------------------------------


class NoWrites(Files):
    """Files as they are, but the disk of the response directories refuses new files with ``code`` while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.code = 0
        self.looks = 0
        self.access = self._access
        self.open = self._open

    def _access(self, *arguments: Any, **options: Any) -> bool:
        self.looks += 1
        return os.access(*arguments, **options)

    def _open(self, name: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if self.code and flags & os.O_CREAT and "responses" in os.readlink(f"/proc/self/fd/{options['dir_fd']}"):
            raise OSError(self.code, os.strerror(self.code))
        return os.open(name, flags, *arguments, **options)


def test_an_answer_that_cannot_be_written_as_json_is_followed_by_an_error(office: Office) -> None:
    mailbox = office.serve(Files())
    office.put("own")
    (request,) = mailbox.collect()
    with pytest.raises(TypeError):
        request.on_answer(Answer({"what": object()}))
    request.on_answer(Answer(error=CommandError(ErrorCode.ANSWER_LOST, "executed")))
    assert json.loads((office.box("own") / "r1.json").read_text())["error"]["code"] == ErrorCode.ANSWER_LOST


def test_a_file_of_a_waiting_request_that_cannot_be_looked_at_is_closed(office: Office) -> None:
    files = Files()
    mailbox = office.serve(files)
    office.put("own")
    (request,) = mailbox.collect()
    before = descriptors(office.root)

    def broken(*arguments: object, **options: object) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    files.stat = files.fstat = broken
    with pytest.raises(OSError, match="Input/output error"):
        request.alive()
    assert descriptors(office.root) == before


def served(mailbox: Mailbox) -> list[str]:
    """What is collected next, and answered."""
    requests = mailbox.collect()
    for request in requests:
        request.on_answer(Answer({}))
    return [request.wire.request_id for request in requests]


class Listing(Files):
    """Files as they are, and how often a directory was listed."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.listdir = self._listdir

    def _listdir(self, *arguments: Any) -> list[str]:
        self.lists += 1
        return os.listdir(*arguments)


def test_requests_that_are_renamed_in_are_read_in_their_order_without_a_scan(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "SCAN_EVERY_NS", sys.maxsize)
    files = Listing()
    mailbox = office.serve(files)
    assert served(mailbox) == []
    files.lists = 0
    for names in (["r1"], ["r2", "r3"], ["r4", "r5", "r5"]):
        for name in names:
            office.put("own", name)
        assert served(mailbox) == list(dict.fromkeys(names))
    assert files.lists == 0


def test_if_more_requests_arrive_than_the_watch_reports_at_once_all_are_read(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_READ_BYTES", 1024)
    mailbox = office.serve(Files())
    assert served(mailbox) == []
    names = [f"r{number:02}" for number in range(100)]
    for name in names:
        office.put("own", name)
    assert served(mailbox) == names


def test_if_the_kernel_has_dropped_events_all_requests_are_read(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = office.serve(Files())
    assert served(mailbox) == []
    office.put("own", "r1")
    office.put("own", "r2")
    overflow = watch._EVENT.pack(-1, 0x4000, 0, 0)  # IN_Q_OVERFLOW
    monkeypatch.setattr(watch, "os", SimpleNamespace(read=lambda fd, size: overflow))
    assert served(mailbox) == ["r1", "r2"]


def test_a_request_that_was_not_renamed_in_is_read_although_others_are_renamed_in_all_the_time(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = office.serve(Files())
    assert served(mailbox) == []
    office.put("own", "copied")
    renamed = office.root / "ipc" / "requests" / "copied.json"
    copy = renamed.read_bytes()
    renamed.unlink()
    assert served(mailbox) == []
    renamed.write_bytes(copy)
    office.put("own", "renamed")
    monkeypatch.setattr(scanner, "SCAN_EVERY_NS", 0)
    assert served(mailbox) == ["copied", "renamed"]


def test_a_response_directory_is_tried_once_and_again_when_it_has_changed(office: Office) -> None:
    files = NoWrites()
    mailbox = office.serve(files)
    office.box("own").mkdir()
    for _ in range(5):
        office.put("own")
        (request,) = mailbox.collect()
        request.on_answer(Answer({}))
    assert files.looks == 1
    office.box("own").chmod(0o750)
    office.put("own")
    assert len(mailbox.collect()) == 1
    assert files.looks == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_after_an_answer_that_could_not_be_written_no_request_of_the_client_is_executed_until_one_can(
    office: Office, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(request_files, "SETTLE_MS", 0)
    files = NoWrites()
    mailbox = office.serve(files)
    office.put("own", "r1")
    (first,) = mailbox.collect()
    files.code = code
    first.on_answer(Answer({"first": True}))
    office.put("own", "r2")
    assert mailbox.collect() == []
    assert mailbox.figures()["unanswerable"] == 2
    mailbox.tick(Now(1000, 1000), 1000)
    assert mailbox.check_health()["ok"] is False
    assert os.strerror(code) in mailbox.check_health()["error"]
    files.code = 0
    mailbox.tick(Now(2000, 2000), 2000)
    assert mailbox.check_health() == {"ok": True}
    repeat, second = mailbox.collect()
    assert (repeat.key, second.wire.request_id) == (first.key, "r2")
    second.on_answer(Answer({}))
    assert [path.name for path in office.box("own").iterdir()] == ["r2.json"], "no trace of the check"
    assert office.reasons == []


def test_unanswerable_requests_beyond_a_users_share_stay_and_are_executed_as_well(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_files, "SETTLE_MS", 0)
    files = NoWrites()
    files.access = lambda *arguments, **options: False
    mailbox = office.serve(files)
    office.box("own").mkdir()
    for number in range(502):
        office.put("own", f"r{number}")
    while mailbox.figures()["unanswerable"] < 500:
        assert mailbox.collect() == []
    assert len(list((office.root / "ipc" / "requests").iterdir())) == 502
    files.access = os.access
    mailbox.tick(Now(1000, 1000), 1000)
    executed: list[Any] = []
    while mailbox.figures()["waiting"] or len(executed) < 502:
        executed += mailbox.collect()
    assert sorted(request.wire.request_id for request in executed) == sorted(f"r{number}" for number in range(502))
    assert office.reasons == []


def test_a_client_is_named_again_in_the_log_after_a_while(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = NoWrites()
    files.access = lambda *arguments, **options: False
    mailbox = office.serve(files)
    office.box("own").mkdir()
    office.put("own")
    mailbox.collect()
    mailbox.tick(Now(1000, 1000), 1000)
    assert len(caplog.messages) == 1
    monkeypatch.setattr(unanswerable, "_LOG_EVERY_S", 0.0)
    mailbox.tick(Now(2000, 2000), 2000)
    assert "requests of client 'own' (1) are still not executed" in caplog.messages[1]


def test_a_backlog_that_the_watch_has_seen_is_read_by_arrival_without_a_look_at_each_file(office: Office) -> None:
    looked_at: list[str] = []
    files = Files()

    def stat(path: Any, **options: Any) -> os.stat_result:
        looked_at.append(os.fspath(path))
        return os.stat(path, **options)

    files.stat = stat
    mailbox = office.serve(files)
    assert mailbox.collect() == []
    names = [f"r{number * 7 % 40:02}" for number in range(40)]
    for name in names:
        office.put("own", name)
    groups = [{one.wire.request_id for one in mailbox.collect(8)} for _ in range(6)]
    assert groups == [{*names[at : at + 8]} for at in range(0, 40, 8)] + [set()]
    assert [path for path in looked_at if path.endswith(".json")] == []
