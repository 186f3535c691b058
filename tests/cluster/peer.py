"""A daemon as postroom-cluster sees it, driven by hand: its journal is a list of lines in memory."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

from postroom_common.lane import FrameReader, encode_frame

#: How often (s) it reports that it lives.
STATUS_S = 0.1


class NotConfirmed(Exception):
    """A group was refused, or not confirmed in time: nobody is answered."""


def line_of(event_id: int, epoch: int, text: str) -> bytes:
    """A line of the journal."""
    body = f'{{"id":{event_id},"epoch":{epoch},"type":"published","text":{json.dumps(text)}'.encode()
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


class Peer:
    """A daemon of a node, at the socket ``path``."""

    def __init__(self, path: Path, node: str, root: str = "root-1", confirm_s: float = 5.0) -> None:
        self.path = path
        self.node = node
        self.root = root
        self.confirm_s = confirm_s
        self.epoch = 1
        #: The journal: line of event 1, 2, ...
        self.lines: list[bytes] = [line_of(1, 1, "the root begins")]
        #: Groups that were put aside.
        self.aside: list[bytes] = []
        self.is_leader = False
        #: Why it ends the connection instead of answering these questions.
        self.refusals: dict[str, str] = {}
        #: What the process beside it must never do, and did.
        self.failures: list[str] = []
        self._confirmation: asyncio.Future[None] | None = None
        self._unconfirmed = 0
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> Peer:
        self._server = await asyncio.start_unix_server(self._accept, self.path)
        self._spawn(self._report())
        return self

    async def stop(self) -> None:
        """End it at once, as a crash does; ``start`` starts it again from its journal."""
        if self._server:
            self._server.close()
            self.path.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer:
            self._writer.transport.abort()
        self._open_as_follower()

    async def publish(self, *texts: str) -> int:
        """Append a group; return its last event when it is confirmed. Raises ``NotConfirmed``."""
        async with self._one_at_a_time:
            if not self.is_leader:
                raise NotConfirmed("this node does not lead")
            return await self._append(*texts)

    def texts(self) -> list[str]:
        """What was published, in order."""
        found = [json.loads(line) for line in self.lines]
        return [str(one["text"]) for one in found if not one["text"].startswith("the ")]

    async def _append(self, *texts: str) -> int:
        first = len(self.lines) + 1
        made = [line_of(first + place, self.epoch, text) for place, text in enumerate(texts)]
        self.lines += made
        self._unconfirmed = len(made)
        last = len(self.lines)
        self._confirmation = asyncio.get_running_loop().create_future()
        self._send({"group": {"first": first, "last": last, "epoch": self.epoch}}, b"".join(made))
        try:
            async with asyncio.timeout(self.confirm_s):
                await self._confirmation
        except TimeoutError:
            self._open_as_follower()
            self._hello()
            raise NotConfirmed("no confirmation in time") from None
        return last

    def _open_as_follower(self) -> None:
        if self._unconfirmed:
            self.aside.append(b"".join(self.lines[-self._unconfirmed :]))
            del self.lines[-self._unconfirmed :]
        self._unconfirmed = 0
        self.is_leader = False
        if self._confirmation and not self._confirmation.done():
            self._confirmation.set_exception(NotConfirmed("the daemon follows"))
            self._confirmation.exception()

    def _hello(self) -> None:
        role = "leader" if self.is_leader else "follower"
        places = {"firstId": 1, "lastId": len(self.lines), "address": f"{self.node}:1"}
        self._send(
            {"hello": {"version": 1, "node": self.node, "root": self.root, "epoch": self.epoch, "role": role, **places}}
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer:
            self._writer.transport.abort()
        self._writer = writer
        self._keep(asyncio.current_task())
        self._open_as_follower()
        self._hello()
        frames = FrameReader(2**26)
        try:
            while data := await reader.read(2**16):
                frames.feed(data)
                while frame := frames.next():
                    self._take(json.loads(frame.header), frame.body)
        except OSError:
            pass
        except AssertionError as error:
            self.failures.append(str(error))
        finally:
            writer.transport.abort()
        if self._writer is writer:
            self._writer = None
            self._open_as_follower()

    def _take(self, header: dict[str, Any], body: bytes) -> None:
        if refused := self.refusals.keys() & header:
            self._send({"failed": self.refusals[refused.pop()]})
            self._writer.close()  # type: ignore[union-attr]
        elif "ask" in header:
            event_id = header["ask"]
            line = self.lines[event_id - 1] if event_id <= len(self.lines) else b""
            self._send({"crc": line[-11:-3].decode() or None, "id": event_id})
        elif "truncate" in header:
            after = header["truncate"]["after"]
            self.aside.append(b"".join(self.lines[after:]))
            del self.lines[after:]
            self._send({"truncated": after})
        elif "apply" in header:
            self._apply(header["apply"], body)
        elif "follow" in header:
            if self.is_leader:
                self._open_as_follower()
                self._hello()
        elif "lead" in header:
            self.epoch = header["lead"]["epoch"]
            self.is_leader = True
            self._hello()
            self._spawn(self._begin())
        elif "confirmed" in header:
            if self._confirmation and not self._confirmation.done() and header["confirmed"] == len(self.lines):
                self._unconfirmed = 0
                self._confirmation.set_result(None)
        elif "refused" in header:
            self._open_as_follower()
            self._hello()

    def _apply(self, fields: dict[str, Any], body: bytes) -> None:
        made = body.splitlines(keepends=True)
        known = len(self.lines) - fields["first"] + 1
        assert known >= 0, f"a gap: {fields} after {len(self.lines)}"
        assert self.lines[fields["first"] - 1 :][: len(made)] == made[:known], "an event was changed"
        self.lines += made[known:]
        self.epoch = max(self.epoch, fields["epoch"])
        self._send({"applied": len(self.lines)})

    async def _begin(self) -> None:
        async with self._one_at_a_time:
            try:
                if self.is_leader:
                    await self._append("the epoch begins")
            except NotConfirmed:
                pass

    async def _report(self) -> None:
        while True:
            self._send({"status": {}})
            await asyncio.sleep(STATUS_S)

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        if self._writer and not self._writer.is_closing():
            self._writer.write(encode_frame(json.dumps(header).encode(), body))

    def _spawn(self, work: Any) -> None:
        self._keep(asyncio.create_task(work))

    def _keep(self, task: Any) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
