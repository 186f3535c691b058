"""A server that the test drives step by step, in its own process or in one that may be killed; and its client."""

from __future__ import annotations

import itertools
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from postroom_daemon.broker.failures import FATAL
from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.journal.journal import JournalUnknown
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.errors import StoreError
from tests.conformance.bench import Bench

Fields = dict[str, Any]

#: Groups to wait for what the daemon does without a request.
PATIENCE = 20
#: How often a server is started again under a persistent fault.
STARTS = 2


@dataclass
class Sent:
    """A request and all answers to it. ``overtaken_by`` lists the requests about the same lease that were sent before
    this one had an answer."""

    request_id: str
    command: str
    payload: Fields
    answers: list[Fields] = field(default_factory=list)
    overtaken_by: list[str] = field(default_factory=list)

    @property
    def answer(self) -> Fields | None:
        return self.answers[0] if self.answers else None

    @property
    def data(self) -> Fields:
        """The data of the answer; empty without a successful one."""
        return (self.answer or {}).get("data") or {}

    @property
    def code(self) -> str:
        if self.answer is None:
            return "none"
        return "OK" if self.answer["ok"] else str(self.answer["error"]["code"])


class Server:
    """Does the steps of the daemon's loop. After an error with unknown outcome on the disk it reopens the root."""

    def __init__(self, root: Path, backend: str, segment_bytes: int, files: Files, first_id: int = 1) -> None:
        flags = {"storage.reserveBytes": str(2**18), "storage.minFreeBytes": "0", "sqlite.synchronous": "NORMAL"}
        self.bench = Bench(root, backend, segment_bytes, **flags)
        self.bench.ids = itertools.count(first_id)
        self.bench.files = files
        self.mailbox: Mailbox | None = None
        self.problem = ""
        self._rewrite = False
        self._turns = 0

    def open(self) -> bool:
        """Open the root. Returns whether that succeeded; ``problem`` is the reason if not."""
        try:
            self.bench.open(self._rewrite)
            self._rewrite = False
            settings, release = self.bench.config.settings, self.bench.live.reserve.release
            self.mailbox = Mailbox(settings, self.bench.files, lambda reason: None, release)
            return True
        except (StartError, OSError) as error:
            self.close()
            self.problem = str(error)
            return False

    def serves(self) -> bool:
        """Whether the root is open."""
        return self.mailbox is not None

    def close(self) -> None:
        """Release everything without writing, as a killed process does."""
        if self.mailbox:
            self.mailbox.close()
        self.mailbox = None
        self.bench.close()

    def turn(self) -> None:
        """One turn of the loop."""
        self._guarded(self._turn)

    def _turn(self) -> None:
        assert self.mailbox
        try:
            calls = self.mailbox.collect()
        except OSError:
            calls = []
        for call in calls:
            self.bench.live.broker.submit(call)
        live = self.bench.live
        live.broker.run_group()
        self._turns += 1
        if self._turns % 2:  # files are written for one group, or for several
            live.store.disk.tidy()

    def tick(self) -> None:
        """Do the periodic work of the loop."""
        self._guarded(self._tick)

    def _tick(self) -> None:
        live = self.bench.live
        assert self.mailbox
        try:
            self.mailbox.check()
            self.mailbox.tick(live.clock.now(), live.clock.now().wall)
        except OSError:
            pass
        live.reserve.tick()
        live.store.disk.tidy()

    def checkpoint(self) -> None:
        """Do the periodic work of the loop, and a checkpoint."""
        self._guarded(self._checkpoint)

    def _checkpoint(self) -> None:
        self._tick()
        live = self.bench.live
        try:
            live.journal.drop_segments(live.store.disk.checkpoint(), 0, 1, 0)
        except (OSError, StoreError):
            pass

    def stop(self) -> None:
        """Stop cleanly."""
        self._guarded(self._stop)
        self.close()

    def _stop(self) -> None:
        self.bench.live.broker.stop()
        self._checkpoint()

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.bench.clocks.pass_ms(milliseconds)

    def _guarded(self, step: Any) -> None:
        for _ in range(STARTS):
            if self.mailbox is None and not self.open():
                continue
            try:
                step()
                return
            except (*FATAL, StoreError) as error:
                self._rewrite |= isinstance(error, JournalUnknown)
                self.close()


class Steps(Protocol):
    """What a client needs of a server."""

    bench: Bench
    problem: str

    def open(self) -> bool: ...
    def serves(self) -> bool: ...
    def turn(self) -> None: ...
    def tick(self) -> None: ...
    def checkpoint(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def pass_ms(self, milliseconds: int) -> None: ...


class Client:
    """Sends requests to a server through the mailbox and keeps the answers."""

    server: Steps

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sent: list[Sent] = []
        self.ipc = server.bench.path / "ipc"
        self.numbers = itertools.count(1)

    def put(self, command: str, **payload: Any) -> Sent:
        """Put a request into the mailbox."""
        number = next(self.numbers)
        sent = Sent(f"r{number}", command, payload)
        whole = {"requestId": sent.request_id, "clientId": "c", "command": command, "payload": payload}
        name = f"{number:06d}.json"
        (self.ipc / "requests").mkdir(parents=True, exist_ok=True)
        temporary = self.ipc / "requests" / (name + ".tmp")
        temporary.write_text(json.dumps(whole))
        temporary.rename(self.ipc / "requests" / name)
        for earlier in self.sent:
            if not earlier.answers and "leaseId" in payload and earlier.payload.get("leaseId") == payload["leaseId"]:
                earlier.overtaken_by.append(sent.request_id)
        self.sent.append(sent)
        return sent

    def ask(self, command: str, **payload: Any) -> Sent:
        """Send a request and let the server do one turn."""
        sent = self.put(command, **payload)
        self.turn()
        return sent

    def turn(self) -> None:
        """Let the server do one turn, and take the responses."""
        self.server.turn()
        self.take()

    def take(self) -> None:
        """Take the responses that are there."""
        box = self.ipc / "responses" / "c"
        by_id = {sent.request_id: sent for sent in self.sent}
        for path in sorted(box.glob("*.json")) if box.is_dir() else ():
            by_id[path.stem].answers.append(json.loads(path.read_bytes()))
            path.unlink()

    def waiting(self) -> list[str]:
        """Requests that are still in the mailbox."""
        return [name for name in os.listdir(self.ipc / "requests") if name.endswith(".json")]

    def settle(self, lease: Fields, command: str, **fields: Any) -> Sent:
        """ack, nack, release or extend_lease of a delivery."""
        return self.ask(command, messageKey=lease["messageKey"], leaseId=lease["leaseId"], **fields)


logging.getLogger("postroom_daemon").addHandler(logging.NullHandler())
