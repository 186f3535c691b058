"""Several real users of one mailbox: its modes, what they put there, and who they are while they do it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.daemon import Daemon, Fields, Sent

#: Uids that nobody has.
ANNA, BERT, CARL = 4101, 4102, 4103
#: Everybody may drop, nobody may list, and nobody may take what is another's.
DROP = 0o3733


def need_root() -> None:
    """Only root can be several users."""
    if os.geteuid():
        text = "this test acts as several users, which only root can"
        assert not os.environ.get("CI"), text
        pytest.skip(text)


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Be another user for the length of a block."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def share(daemon: Daemon) -> None:
    """Lay out its mailbox for several users."""
    for path, mode in ((daemon.root, 0o711), (daemon.ipc, 0o711), (daemon.requests, DROP), (daemon.responses, DROP)):
        path.mkdir(exist_ok=True)
        path.chmod(mode)


def client_of(uid: int) -> str:
    """The client id of a user."""
    return f"user-{uid}"


def send_as(daemon: Daemon, uid: int, command: str, payload: Fields, **options: str) -> Sent:
    """A user makes its response directory, and puts a request into the mailbox."""
    sent = daemon.request(command, payload, client_id=client_of(uid), **options)
    put_as(daemon, uid, sent)
    return sent


def put_as(daemon: Daemon, uid: int, sent: Sent) -> None:
    """A user puts a request into the mailbox."""
    with acting_as(uid):
        box = daemon.responses / sent.client_id
        if not box.exists():
            box.mkdir()
            box.chmod(0o770)
        daemon.put(sent.data, sent.name)


def publish_as(daemon: Daemon, uid: int, count: int, queue: str = "q") -> list[Sent]:
    """A user publishes many messages, numbered from 0."""
    return [send_as(daemon, uid, "publish", {"queue": queue, "message": str(number)}) for number in range(count)]


def spilled_files(daemon: Daemon) -> list[Path]:
    """The spilled files, in the order of each user's queue, except those that the daemon has skipped."""
    found = []
    for place, directories, names in os.walk(daemon.ipc / "held"):  # it passes over directories that go meanwhile
        if ".bad-" not in place:
            links = [name for name in directories if os.path.islink(os.path.join(place, name))]
            found += [Path(place, name) for name in (*names, *links)]
    return sorted(found)


def code(daemon: Daemon, sent: Sent) -> str:
    """``OK``, or the code with which a request was refused."""
    answer = daemon.answer(sent)
    return "OK" if answer["ok"] else str(answer["error"]["code"])


def who_published(daemon: Daemon) -> list[tuple[int, str]]:
    """The uid and the request of each message that was published, in the order of the journal."""
    return [(event["by"]["uid"], event["by"]["request"]) for event in daemon.events("published")]
