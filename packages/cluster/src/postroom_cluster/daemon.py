"""The connection to the daemon: frames as on the lane, over ``cluster.sock``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from postroom_common.errors import PostroomError
from postroom_common.lane import FrameReader, encode_frame

from .errors import DaemonGone, DaemonRefuses, HelloRepeated
from .groups import Group, Stored, crc_of

#: Version of the protocol.
VERSION: Final = 1
#: Largest frame: a group is smaller than the largest message that any NATS server takes.
_FRAME_BYTES: Final = 64 * 2**20 + 4096
_READ_BYTES: Final = 256 * 1024
#: Time (s) for a connection with its hello, and for the answer to a question.
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 60.0


class Hello(NamedTuple):
    """What the daemon says of its root when it has opened it. ``first_id`` is the oldest event that its journal has."""

    node: str
    root: str
    epoch: int
    first_id: int
    last_id: int
    is_leader: bool
    address: str


class Daemon:
    """One connection. A task reads it; whoever waits for something from it gets ``HelloRepeated`` if the daemon has
    opened its root again, and ``DaemonGone`` if the connection has ended."""

    def __init__(self, cluster: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._cluster = cluster
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(_FRAME_BYTES)
        self._changed = asyncio.Event()
        self._hello: Hello | None = None
        self._is_new = False
        self._gone = ""
        self._answers: list[dict[str, Any]] = []
        self._groups: list[Group] = []
        #: The last event that a follower has applied, of those that were sent to it on this connection.
        self.applied = 0
        #: What the daemon reported last, and when, by the loop's clock.
        self.status: dict[str, Any] = {}
        self.heard_s = asyncio.get_running_loop().time()
        self._is_asking = False
        #: What the daemon could not do; it closes the connection then.
        self.failure = ""
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, path: Path, cluster: str) -> Daemon:
        """Connect to a socket, for the cluster of this name. Raises ``DaemonGone``."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                return cls(cluster, *await asyncio.open_unix_connection(path))
        except (OSError, TimeoutError) as error:
            raise DaemonGone(f"{path}: {getattr(error, 'strerror', None) or 'no answer'}") from None

    async def close(self) -> None:
        """End the connection."""
        self._task.cancel()
        self._writer.close()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- what the daemon says -----------------------------------------------------------------------------------------

    async def hello(self) -> Hello:
        """The newest hello; ``last_id`` counts what was applied since. What the daemon said before it is forgotten."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                while not self._hello:
                    self._check()
                    await self._wait()
        except TimeoutError:
            raise DaemonGone("the daemon says no hello") from None
        self._is_new = False
        self._check()
        return self._hello._replace(last_id=self.applied)

    async def group(self) -> Group:
        """The next group of a leader."""
        while not self._groups:
            self._check()
            await self._wait()
        self._check()
        return self._groups.pop(0)

    async def until_applied(self, event_id: int) -> None:
        """Wait until a follower has applied an event."""
        while self.applied < event_id:
            self._check()
            await self._wait()
        self._check()

    async def until_void(self) -> None:
        """Wait for the next hello or the end, which are raised."""
        while True:
            self._check()
            await self._wait()

    async def has(self, event_id: int, crc: str) -> bool:
        """Whether the daemon has an event with this checksum. Raises as ``_ask``."""
        answer = await self._ask({"ask": event_id})
        return bool(answer["crc"] == crc)

    async def truncate(self, last_id: int) -> None:
        """Let a follower end its journal behind an event. Raises ``DaemonRefuses`` if it cannot: it says why."""
        await self._ask({"truncate": {"after": last_id}})
        self.applied = last_id

    # --- what it is sent ----------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """Let it open its root as the leader of an epoch. A new hello and its first group follow."""
        self._send({"lead": {"epoch": epoch}})

    def follow(self, leader: str, address: str, problem: str = "") -> None:
        """Let it follow, and refer its clients to a leader; empty: there is none. Its health shows a problem."""
        place = {"leader": leader or None, "address": address or None}
        self._send({"follow": {**place, "problem": problem, "cluster": self._cluster}})

    async def apply(self, batch: list[Stored]) -> None:
        """Give a follower groups, at once: it applies together what it reads together. Waits only for the socket."""
        self._check()
        frames = []
        for stored in batch:
            group = stored.group
            place = {"sequence": stored.sequence, "pending": stored.pending}
            header = {"apply": {"first": group.first, "last": group.last, "epoch": group.epoch, **place}}
            frames.append(encode_frame(json.dumps(header).encode(), group.lines))
        try:
            self._writer.write(b"".join(frames))
            await self._writer.drain()
        except OSError as error:
            raise DaemonGone(f"the connection to the daemon broke: {error}") from None

    def confirm(self, group: Group, sequence: int) -> None:
        """A group is in the stream."""
        self._send({"confirmed": group.last, "epoch": group.epoch, "sequence": sequence})

    def refuse(self, reason: str, leader: str, address: str) -> None:
        """A group will never be in the stream."""
        self._send({"refused": reason, "leader": leader or None, "address": address or None})

    # ------------------------------------------------------------------------------------------------------------------

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        self._check()
        self._writer.write(encode_frame(json.dumps(header).encode(), body))

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question. Raises ``DaemonRefuses`` if the daemon ends the connection instead, as when the
        disk has no space for a group that it was given before."""
        self._answers.clear()
        self._send(question)
        self._is_asking = True
        try:
            async with asyncio.timeout(_ANSWER_S):
                while not self._answers:
                    self._check()
                    await self._wait()
        except TimeoutError:
            raise DaemonGone(f"the daemon does not answer {question}") from None
        finally:
            self._is_asking = False
        answer = self._answers.pop()
        if "failed" in answer:
            raise DaemonRefuses(answer["failed"])
        return answer

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check(self) -> None:
        if self._gone:
            raise DaemonRefuses(self._gone) if self.failure else DaemonGone(self._gone)
        if self._is_new:
            raise HelloRepeated("the daemon has opened its root again")

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(_READ_BYTES):
                self._frames.feed(data)
                while frame := self._frames.next():
                    self._take(json.loads(frame.header), frame.body)
                    self._changed.set()
            self._gone = self.failure or "the daemon has closed the connection"
        except (OSError, PostroomError) as error:
            self._gone = f"the connection to the daemon broke: {error}"
        except (KeyError, TypeError, ValueError) as error:
            self._gone = f"the daemon has sent a frame that is invalid: {error!r}"
        finally:
            self._changed.set()

    def _take(self, header: dict[str, Any], body: bytes) -> None:
        self.heard_s = asyncio.get_running_loop().time()
        if fields := header.get("hello"):
            if fields["version"] != VERSION:
                raise ValueError(f"the daemon speaks version {fields['version']} of the protocol, not {VERSION}")
            self._is_new = self._hello is not None
            self._hello = Hello(
                fields["node"], fields["root"], fields["epoch"], fields["firstId"], fields["lastId"],
                fields["role"] == "leader", fields.get("address") or "",
            )  # fmt: skip
            self.applied = self._hello.last_id
            self._groups.clear()
        elif fields := header.get("group"):
            self._groups.append(Group(fields["first"], fields["last"], fields["epoch"], crc_of(body), body))
        elif "applied" in header:
            self.applied = header["applied"]
        elif "crc" in header or "truncated" in header:
            self._answers.append(header)
        elif "status" in header:
            self.status = header["status"]
        elif "failed" in header:
            self.failure = str(header["failed"])
            if self._is_asking:
                self._answers.append(header)
