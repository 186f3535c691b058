"""A real daemon on a root of its own, a client made of plain files, and the journal as it stands on the disk."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from postroom_common.events import Event, decode_event
from postroom_daemon.config.config import load
from postroom_daemon.root.open_root import Sources, open_root
from postroom_daemon.stores.base import Store
from tests.wire.forked import Forked, run_command

#: Longest wait for anything, on a loaded machine.
PATIENCE_S = 60

T = TypeVar("T")
Fields = dict[str, Any]


def wait_until(condition: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Look at ``condition`` until it holds; what it came to. Fails with ``what`` after ``patience_s``."""
    ends, pause_s = time.monotonic() + patience_s, 0.0005
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < ends, f"waited in vain until {what}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)


@dataclass(frozen=True)
class Sent:
    """A request that was put into the mailbox."""

    name: str
    request_id: str
    client_id: str
    data: bytes


class Daemon:
    """``postroomd run`` on ``root``, and requests to it. ``flags`` and ``config`` are its configuration.

    Its store is ``backend``; if that is empty, what the environment says (``POSTROOM_BACKEND``), or the default.
    """

    def __init__(
        self,
        root: Path,
        *flags: str,
        config: Fields | None = None,
        wrapper: tuple[str, ...] = (),
        backend: str = "",
    ) -> None:
        self.root = root
        self.ipc = root / "ipc"
        self.requests, self.responses, self.dead = (self.ipc / name for name in ("requests", "responses", "dead"))
        self.quarantine = root / "quarantine"
        self.log_path = root.with_name(root.name + ".log")
        self.environment = dict(os.environ)
        if backend:
            self.environment["POSTROOM_BACKEND"] = backend
        self.environment.setdefault("POSTROOM_HYBRID_INLINE_BELOW_BYTES", "0")  # small messages have files, too
        self.stdin = subprocess.DEVNULL
        #: What a test has damaged on purpose cannot be audited, and may be complained about.
        self.audited = True
        self._words = ["run", "--root", str(root), *flags]
        self._wrapper = wrapper
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | Forked | None = None
        if config is not None:
            root.mkdir(exist_ok=True)
            (root / "config.json").write_text(json.dumps(config))

    # --- the process ------------------------------------------------------------------------------------------

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process is not None, "the daemon was not started"
        return self._process

    def start(self, ready: bool = True) -> Daemon:
        """Start it and, by default, wait until it answers ``health``."""
        self._process = Forked(self._words, self.environment, self.log_path) if self._is_plain() else self._executed()
        if ready:
            self.wait(self.requests.is_dir, "the mailbox is there")
            self.ask("health")
        return self

    def _is_plain(self) -> bool:
        """Whether nothing is asked for that a process has from its beginning."""
        changed = {name for name, _ in self.environment.items() ^ os.environ.items()}
        own = all(name.startswith(("POSTROOM_", "PYTEST_")) for name in changed)
        return own and not self._wrapper and self.stdin == subprocess.DEVNULL

    def _executed(self) -> subprocess.Popen[bytes]:
        command = [*self._wrapper, sys.executable, "-m", "postroom_daemon", *self._words]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(command, stdin=self.stdin, stdout=log, stderr=log, env=self.environment)

    def tool(self, command: str, *arguments: str | Path, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Another command of ``postroomd`` on its root."""
        return run_command([command, "--root", str(self.root), *map(str, arguments)], self.environment, data)

    def wait(self, condition: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
        """As ``wait_until``; fails at once when the daemon has ended."""

        def condition_while_alive() -> T:
            value = condition()
            assert value or self.process.poll() is None, f"the daemon ended with {self.process.poll()}, before {what}"
            return value

        return wait_until(condition_while_alive, what, patience_s)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and the orderly end that must follow."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log()

    def restart(self, kill: bool = False) -> None:
        """Stop (or kill) it and start it again."""
        self.kill() if kill else self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: what is put into the mailbox now is one group later."""
        self.process.send_signal(signal.SIGSTOP)

        def stopped() -> bool:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

        wait_until(stopped, "the daemon is stopped")

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What it has written to standard output and error."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def resident_kb(self) -> int:
        """Its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    # --- requests ---------------------------------------------------------------------------------------------

    def new_name(self) -> str:
        """A request file's name that sorts behind the earlier ones."""
        return f"{time.time_ns():020d}-{next(self._numbers):06d}.json"

    def put(self, data: bytes, name: str = "") -> str:
        """Put bytes into the mailbox as a client does; the file's name.

        On a full disk it retries until they fit: the daemon releases its reserve step by step, and its store may be
        faster to use a step than the client.
        """
        name = name or self.new_name()
        temporary = self.requests / (name + ".tmp")
        wait_until(lambda: _fits(temporary, data), "a request fits on the disk")
        temporary.rename(self.requests / name)
        return name

    def request(
        self, command: str, payload: Fields, request_id: str = "", client_id: str = "wire", **envelope: Any
    ) -> Sent:
        """A request that is not sent yet."""
        request_id = request_id or f"r-{time.time_ns()}-{next(self._numbers)}"
        whole = {"requestId": request_id, "clientId": client_id, "command": command, **envelope, "payload": payload}
        return Sent(self.new_name(), request_id, client_id, json.dumps(whole).encode())

    def send(self, command: str, payload: Fields, **options: Any) -> Sent:
        """Put a request into the mailbox; see ``request`` for the options."""
        sent = self.request(command, payload, **options)
        self.put(sent.data, sent.name)
        return sent

    def answer_path(self, sent: Sent) -> Path:
        """Where the response to a request appears."""
        return self.responses / sent.client_id / f"{sent.request_id}.json"

    def answer(self, sent: Sent, patience_s: float = PATIENCE_S) -> Fields:
        """Wait for the whole response to a request, and take it."""
        path = self.answer_path(sent)
        self.wait(path.exists, f"there is an answer to {sent.data[:300]!r}", patience_s)
        response: Fields = json.loads(path.read_bytes())
        path.unlink()
        assert response["requestId"] == sent.request_id
        return response

    def again(self, sent: Sent, name: str = "") -> Fields:
        """Send the very same bytes once more, by default under the same name; the response.

        RACE: the daemon removes a request just after its response is there. A file put under the same name between its
        last look at the name and the removal would go with it: so the first one must be gone.
        """
        if not name:
            self.wait(lambda: not (self.requests / sent.name).exists(), f"{sent.name} is taken")
        self.put(sent.data, name or sent.name)
        return self.answer(sent)

    def ask(self, command: str, **payload: Any) -> Fields:
        """The data of a command that must succeed."""
        response = self.answer(self.send(command, payload))
        assert response["ok"], response
        data: Fields = response["data"]
        return data

    def refusal(self, command: str, **payload: Any) -> str:
        """The code with which a command is refused."""
        response = self.answer(self.send(command, payload))
        assert not response["ok"], response
        code: str = response["error"]["code"]
        return code

    # --- short forms ------------------------------------------------------------------------------------------

    def publish(self, queue: str, message: Any = "x", **fields: Any) -> str:
        """Publish; the message's key."""
        key: str = self.ask("publish", queue=queue, message=message, **fields)["messageKey"]
        return key

    def consume(self, queue: str, **fields: Any) -> Fields:
        """Lease a message that must be there: the reply's data."""
        data = self.ask("consume_next", queue=queue, **fields)
        assert data["message"], f"nothing to consume from {queue}"
        return data

    def settle(self, command: str, delivery: Fields, **fields: Any) -> Fields:
        """ack, nack, release or extend_lease of a delivery."""
        return self.ask(command, **receipt(delivery), **fields)

    def counts(self, queue: str) -> dict[str, int]:
        """Messages of a queue by state, those without any left out."""
        metrics = self.ask("status", queue=queue)["metrics"]
        return {state: count for state, count in metrics.items() if count}

    def reason(self, name: str) -> str:
        """Wait until a request was set aside; why."""
        path = self.dead / (name + ".reason")
        self.wait(path.exists, f"{name!r} is set aside")
        reason: str = json.loads(path.read_bytes())["reason"]
        return reason

    # --- the store --------------------------------------------------------------------------------------------

    @property
    def backend(self) -> str:
        """The name of its store."""
        return self.environment.get("POSTROOM_BACKEND") or "sqlite"

    def store_files(self) -> list[Path]:
        """The files of its store, but for the bodies that are in no journal (hybrid)."""
        data = self.root / "data"
        found = sorted(path for path in data.rglob("*") if path.is_file())
        return [path for path in found if path.relative_to(data).parts[0] != "payloads"]

    def wait_for_store(self) -> None:
        """Wait until the store has committed all events of the journal; the last one is about a message that stays."""
        last_id = self.events()[-1]["id"]
        if self.backend == "filesystem":
            self.wait(lambda: last_id in self._events_in_names(), f"a file shows event {last_id}")
            return
        self.wait(lambda: self._committed() == last_id, f"event {last_id} is committed")

    def _events_in_names(self) -> list[int]:
        """The last events of messages, from the names of their files."""
        names = (path.name for path in (self.root / "data" / "fs").rglob("*~v*.json"))
        return [int(name.partition("~v")[2].partition("~")[0].removesuffix(".json")) for name in names]

    def _committed(self) -> int:
        """The last event in the database on the disk, which the daemon has for itself: a copy of it is asked. 0 if the
        daemon has written while it was copied, so that its files do not belong together."""
        with tempfile.TemporaryDirectory() as directory:
            for path in (self.root / "data").glob("yirangmq.db*"):
                shutil.copy(path, directory)
            with contextlib.closing(sqlite3.connect(Path(directory) / "yirangmq.db")) as database:
                try:
                    row = database.execute("SELECT value FROM kv WHERE key = 'fact:applied'").fetchone()
                except sqlite3.DatabaseError:
                    return 0
        return int(row[0]) if row else 0

    def forget_recent(self) -> None:
        """Remove the second copy of the last groups, which would repair the journal's end."""
        (self.root / "journal" / "recent").unlink(missing_ok=True)

    def forget_store(self) -> None:
        """Remove everything that can be rebuilt from the journal."""
        for path in self.store_files():
            path.unlink()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Store]:
        """The store of a stopped daemon."""
        with contextlib.closing(open_root(load(self.root, None, self.environment, {}), Sources())) as root:
            yield root.store

    # --- the journal ------------------------------------------------------------------------------------------

    def segments(self) -> list[Path]:
        """The journal's files, oldest first."""
        return sorted((self.root / "journal").glob("*.jsonl"))

    def events(self, *types: str) -> list[Event]:
        """All events on the disk (of some types); every line must be intact, but for one that is being written."""
        found = []
        for path in self.segments():
            lines = path.read_bytes().split(b"\n")
            for line in lines[:-1]:
                event = decode_event(line)
                if not types or event["type"] in types:
                    found.append(event)
        return found


def _fits(path: Path, data: bytes) -> bool:
    """Write a file. False, and no file, if the disk is full."""
    try:
        path.write_bytes(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


def receipt(delivery: Fields) -> Fields:
    """What settles a delivery."""
    return {"messageKey": delivery["message"]["messageKey"], "leaseId": delivery["lease"]["leaseId"]}
