"""Requests beyond a user's share, whatever file call fails: none is lost, and their order stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox import Mailbox, request_files
from postroom_daemon.doors.mailbox import spill as held
from postroom_daemon.doors.mailbox import user_queues as lines
from postroom_daemon.model.request import Answer
from postroom_daemon.platform.clock import Now
from postroom_daemon.platform.files import Files

FILES = 16
FLAGS = {"limits.userShareRequests": "3", "limits.userTurnRequests": "1"}
#: The calls that are counted, and fail or kill.
CALLS = ("open", "read", "fstat", "stat", "listdir", "rename", "unlink", "mkdir", "rmdir")


class Killed(BaseException):
    """The process ends here."""


class Failing(Files):
    """Files of which one call fails."""

    def __init__(self, at: int, error: Callable[[], BaseException]) -> None:
        super().__init__()
        self.made = 0
        self._at = at
        self._error = error
        for name in CALLS:
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.made += 1
            if self.made == self._at:
                raise self._error()
            return call(*arguments, **options)

        return counted


def serve(root: Path, files: Files) -> Mailbox:
    return Mailbox(load(root, None, {}, FLAGS).settings, files, lambda reason: None)


def prepare(root: Path) -> None:
    """A mailbox that several users could share, with requests in it."""
    serve(root, Files()).close()
    requests = root / "ipc" / "requests"
    requests.chmod(0o733)
    for number in range(FILES):
        whole = {"requestId": f"r{number}", "clientId": "c", "command": "status", "payload": {"queue": "q"}}
        (requests / f"{number:03d}.tmp").write_text(json.dumps(whole))
        (requests / f"{number:03d}.tmp").rename(requests / f"{number:03d}.json")


def work_off(mailbox: Mailbox, done: list[str]) -> bool:
    """Answer what is next, as the loop does. Whether there was something."""
    calls = mailbox.collect()
    for call in calls:
        done.append(call.wire.request_id)
        call.on_answer(Answer({}))
    return bool(calls) or mailbox.has_backlog


def left(root: Path) -> list[Path]:
    ipc = root / "ipc"
    return [path for name in ("requests", "held", "dead") for path in (ipc / name).rglob("*") if path.is_file()]


def each_call(tmp_path: Path, error: Callable[[], BaseException]) -> Iterator[tuple[Path, Failing]]:
    """A root for each file call of its life, with the files of which that one fails."""
    number, made = 0, 0
    while made >= number:
        number += 1
        root = tmp_path / str(number)
        prepare(root)
        files = Failing(number, error)
        yield root, files
        made = files.made


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few files are many, and what is left for a while is looked at again at once."""
    monkeypatch.setattr(held, "BATCH", 5)
    monkeypatch.setattr(lines, "MOVED_A_STEP", 5)
    monkeypatch.setattr(lines, "_ALONE", 3)
    monkeypatch.setattr(lines, "_NEARLY_ALONE", 3)
    monkeypatch.setattr(lines, "_PAUSE_MS", 0)
    monkeypatch.setattr(request_files, "SETTLE_MS", 0)


def test_killed_at_any_file_call_the_next_daemon_does_the_rest_in_order(tmp_path: Path) -> None:
    killed = 0
    for root, files in each_call(tmp_path, Killed):
        done: list[str] = []
        try:
            mailbox = serve(root, files)
            try:
                while work_off(mailbox, done):
                    pass
            finally:
                mailbox.close()  # what a process has open goes with it
        except Killed:
            killed += 1
        again = work_off_all(root)
        if again[:1] == done[-1:]:
            done.pop()  # answered, and still there: it is a repeat
        assert [*done, *again] == [f"r{number}" for number in range(FILES)], f"call {files.made}"
        assert left(root) == []
    assert killed > 150


def test_an_error_of_any_file_call_loses_no_request(tmp_path: Path) -> None:
    for root, files in each_call(tmp_path, lambda: OSError(errno.EIO, os.strerror(errno.EIO))):
        done: list[str] = []
        try:
            mailbox = serve(root, files)
        except OSError:
            done += work_off_all(root)
        else:
            for _ in range(3 * FILES):
                try:
                    work_off(mailbox, done)
                    if mailbox.figures()["unanswerable"]:
                        mailbox.tick(Now(0, 0), 0)
                except OSError:
                    continue
            mailbox.close()
        assert sorted(set(done)) == sorted(f"r{number}" for number in range(FILES)), f"call {files.made}"
        assert len(done) <= FILES + 1
        assert left(root) == [], f"call {files.made}"


def work_off_all(root: Path) -> list[str]:
    done: list[str] = []
    mailbox = serve(root, Files())
    while work_off(mailbox, done):
        pass
    mailbox.close()
    return done


def test_foreign_files_in_held_are_left_alone(tmp_path: Path) -> None:
    prepare(tmp_path)
    place = tmp_path / "ipc" / "held"
    for path in ("notes.txt", "4101/0000000003/notes.txt", "4101/notes.txt", "4101/0000000004", "unfit"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("somebody's")
    assert len(work_off_all(tmp_path)) == FILES
    assert [path.read_text() for path in place.rglob("*") if path.is_file()] == ["somebody's"] * 5


def test_a_directory_with_the_name_of_a_request_does_not_stop_spilling(tmp_path: Path) -> None:
    prepare(tmp_path)
    files = Files()
    swapped = tmp_path / "ipc" / "requests" / "003.json"

    def rename(source: str, target: str, **options: Any) -> None:
        if source == swapped.name and "held" not in str(target) and ".bad" not in target:
            if not swapped.is_dir():
                swapped.unlink()
                swapped.mkdir()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # as for who is not root
        os.rename(source, target, **options)

    files.rename = rename
    mailbox = serve(tmp_path, files)
    done: list[str] = []
    while work_off(mailbox, done):
        pass
    mailbox.close()
    assert done == [f"r{number}" for number in range(FILES) if number != 3]
    assert (tmp_path / "ipc" / "requests" / ".bad-1").is_dir()


def test_if_held_is_removed_the_other_requests_are_served_from_where_they_are(tmp_path: Path) -> None:
    prepare(tmp_path)
    mailbox = serve(tmp_path, Files())
    done: list[str] = []
    while not list((tmp_path / "ipc" / "held").rglob("*.json")):
        work_off(mailbox, done)
    lost = len(list((tmp_path / "ipc" / "held").rglob("*.json")))
    shutil.rmtree(tmp_path / "ipc" / "held")
    for _ in range(10 * FILES):
        if not work_off(mailbox, done):
            break
    assert not mailbox.has_backlog, "it would look for ever for what is not there"
    assert len(done) >= FILES - lost
    mailbox.close()
    assert left(tmp_path) == []
