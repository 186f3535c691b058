"""The mailbox where several users meet: whose file, whose box."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from postroom_daemon.config import load
from postroom_daemon.files import Files
from postroom_daemon.mailbox import Mailbox
from postroom_daemon.mailbox.request_files import MailboxTaken

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

    def put(self, client: str) -> None:
        request = {"requestId": "r1", "clientId": client, "command": "status", "payload": {"queue": "q"}}
        path = self.root / "ipc" / "requests" / "r1.json"
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


def test_nobody_acts_as_a_client_whose_box_is_another_users(office: Office) -> None:
    mailbox = office.serve(OwnedBy(STRANGER))
    office.box("victim").mkdir()
    office.put("victim")
    assert mailbox.collect() == []
    assert office.reasons == ["client id victim belongs to another user: use one of your own"]
    assert list(office.box("victim").iterdir()) == []


def test_a_stranger_without_a_box_is_told_to_make_one(office: Office) -> None:
    mailbox = office.serve(OwnedBy(STRANGER))
    office.put("newcomer")
    assert mailbox.collect() == []
    assert "make responses/newcomer" in office.reasons[0]


def test_the_daemons_own_user_gets_a_box(office: Office) -> None:
    mailbox = office.serve(Files())
    office.put("own")
    (call,) = mailbox.collect()
    assert (call.who.client_id, call.who.uid) == ("own", os.geteuid())
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
    with pytest.raises(MailboxTaken, match="another daemon serves"):
        office.serve(Files())
