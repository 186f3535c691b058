"""One writer at a time for a place of tables."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from .errors import EnvironmentProblem, Occupied
from .storage import Storage


@contextmanager
def locked(storage: Storage, path: str, who: str) -> Iterator[None]:
    """Hold a lock for the time of the block.

    On a local file system it ends with the process that holds it, however that ends. Elsewhere it is a file, which
    stays where a process is killed; then somebody has to delete it, and the error says which.

    :raises Occupied: somebody else holds it.
    """
    note = json.dumps(
        {
            "who": who,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    local = storage.local(path)
    with _locked_locally(local, note) if local else _locked_by_file(storage, path, note):
        yield


@contextmanager
def _locked_locally(path: Path, note: str) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{path}: {error.strerror}; nothing can be written there") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Occupied(f"{path.parent} is being written by {_described(file.read())}; try again later") from None
        file.truncate(0)
        file.write(note)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


@contextmanager
def _locked_by_file(storage: Storage, path: str, note: str) -> Iterator[None]:
    if not storage.create_text(path, note):
        raise Occupied(
            f"{storage.location} is being written by {_described(storage.read_text(path))}; try again later,"
            f" or delete {path} if that process is gone"
        )
    try:
        yield
    finally:
        storage.delete(path)


def _described(note: str) -> str:
    try:
        known = json.loads(note)
        return f"{known['who']} (process {known['pid']} on {known['host']}, since {known['since']})"
    except (ValueError, KeyError, TypeError):  # its writer is just writing it
        return "another process"
