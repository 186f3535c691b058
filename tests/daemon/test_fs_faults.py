"""Calls that fail at a message's file of the filesystem store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from postroom_daemon.platform.files import Files
from tests.conformance.bench import Bench, seen_in

MakeBench = Callable[..., Bench]

#: What a disk, a file system or another user's hand answers to an attempt to add to one file.
REFUSED = (errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EACCES, errno.EPERM)


def fails(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class NothingIsAdded(Files):
    """Files that cannot be opened, or cannot be written, where something is to be added to them."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__()
        self._code, self._call = code, call
        self._appending: set[int] = set()
        really_open, really_write = self.open, self.write

        def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            is_message = flags & os.O_APPEND and "/q/" in f"/{path}"
            if is_message and call == "open":
                raise fails(code)
            fd: int = really_open(path, flags, *arguments, **options)
            self._appending.discard(fd)
            if is_message:
                self._appending.add(fd)
            return fd

        def write(fd: int, data: bytes) -> int:
            if fd in self._appending:
                really_write(fd, data[: len(data) // 2])
                raise fails(code)
            written: int = really_write(fd, data)
            return written

        self.open, self.write = open_, write


def fail_an_attempt(bench: Bench) -> str:
    """A nack, whose reason is kept in a line that is added to the message's file. Its answer."""
    lease = bench.do("consume_next", queue="q")["lease"]
    held = {"messageKey": lease["messageKey"], "leaseId": lease["leaseId"]}
    return bench.send("nack", **held, requeue=False, reason="never").code


@pytest.mark.parametrize("call", ["open", "write"])
@pytest.mark.parametrize("code", REFUSED)
def test_a_file_that_cannot_be_appended_to_is_rewritten_with_its_message(
    code: int, call: str, make_bench: MakeBench
) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("q", "kept")
    bench.close()
    bench.files = NothingIsAdded(code, call)
    bench.open()
    assert fail_an_attempt(bench) == "OK"
    bench.store.disk.tidy()
    assert b"kept" in bench.store.bodies.envelope(key)
    assert bench.store.pages.dead("q", (-1, -1), 1)[0].key == key
    assert not bench.quarantined()
    seen = seen_in(bench)
    bench.close()
    bench.files = Files()
    bench.open()
    assert seen_in(bench) == seen
    assert bench.do("list_dlq", queue="q")["messages"][0]["reason"] == "never"


def test_a_partly_appended_line_does_not_spoil_the_next(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("q", "kept")
    bench.close()
    bench.files = NothingIsAdded(errno.ENOSPC, "write")
    bench.open()
    assert fail_an_attempt(bench) == "OK"
    bench.store.disk.tidy()  # which stops half-way
    bench.close()
    bench.files = Files()
    bench.open()
    bench.store.disk.checkpoint()
    bench.reopen()
    assert bench.do("list_dlq", queue="q")["messages"][0]["reason"] == "never"
    assert b"kept" in bench.store.bodies.envelope(key)
