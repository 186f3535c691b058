"""One node: it follows the stream, leads when the leader is silent, and follows again when another leads."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from .daemon import Daemon, Hello
from .errors import DaemonGone, DaemonRefuses, HelloRepeated, MustBeSeeded, NotAppended, StreamUnavailable
from .groups import Author, Group, Stored
from .stream import State, Stream

log = logging.getLogger(__name__)
T = TypeVar("T")

#: How long (s) a node waits before it tries again what failed.
_PAUSE_S: Final = 0.5
_SEED_PAUSE_S: Final = 2.0
#: A daemon that has said nothing for so long (s) hangs, at the least: it reports its status each second.
_HANG_S: Final = 3.0
#: How often a node that is promoted tries to lead: the leader may append until it has yielded.
_ATTEMPTS: Final = 5
#: How often (s) a follower looks whether it should lead.
_LOOK_S: Final = 0.1


class Failover(NamedTuple):
    """When a follower leads: after ``after_s`` without a group, by itself only if ``is_automatic``."""

    after_s: float
    is_automatic: bool


class Position(NamedTuple):
    """A place in the stream that daemon and stream agree on: its sequence, the last event up to there and its checksum
    (empty if no group is at the place)."""

    sequence: int
    event_id: int
    crc: str = ""


class Node:
    """What a node is and does. ``daemon`` connections come one after the other; the stream is the same."""

    def __init__(self, name: str, run: str, stream: Stream, failover: Failover, address: str = "") -> None:
        self.name = name
        self._own_address = address
        self.run_id = run
        self.failover = failover
        self._stream = stream
        #: ``following``, ``leading`` or ``waiting``: for the daemon, for the stream, or to be seeded.
        self.role = "waiting"
        #: Why it neither follows nor leads; empty if it does.
        self.problem = "the node starts"
        self.epoch = 0
        self.leader = ""
        self.address = ""
        self.position = Position(0, 0)
        self.takeovers = 0
        self.refusals = 0
        #: How often this node is to try to lead, because an operator has asked for it.
        self.attempts = 0
        #: Asks a leader, by name, to yield to this node.
        self.ask_to_yield: Callable[[str], Awaitable[None]] | None = None
        #: Whether this leader is to follow, because an operator has promoted another node.
        self.is_yielding = False
        self._heard_s = 0.0
        #: When the stream was created, and the highest sequence of it that was ever seen.
        self._created = ""
        self._seen = 0
        #: Behind which place the daemon will append, if it opens its root as the leader.
        self._candidacy: Position | None = None

    async def serve(self, daemon: Daemon) -> NoReturn:
        """Serve one connection until it ends. Raises ``DaemonGone``."""
        while True:
            try:
                await self._serve_root(daemon, await daemon.hello())
            except HelloRepeated:
                self.role = "waiting"
            except (StreamUnavailable, MustBeSeeded) as error:
                if str(error) != self.problem:
                    log.warning("this node waits: %s", error)
                self.role, self.problem = "waiting", str(error)
                with suppress(HelloRepeated):
                    daemon.follow(self.leader, self.address, self.problem)
                await asyncio.sleep(_PAUSE_S if isinstance(error, StreamUnavailable) else _SEED_PAUSE_S)
            except DaemonGone as error:
                self.role, self.problem = "waiting", str(error)
                raise

    def status(self) -> dict[str, Any]:
        """What others may know of this node. ``silentMs`` is the time since the leader's last sign of life."""
        return {
            "node": self.name,
            "role": self.role,
            "problem": self.problem,
            "epoch": self.epoch,
            "leader": self.leader,
            "address": self.address,
            "sequence": self.position.sequence,
            "lastId": self.position.event_id,
            "silentMs": int((_now() - self._heard_s) * 1000) if self.role == "following" else 0,
            "automatic": self.failover.is_automatic,
            "takeovers": self.takeovers,
            "refusals": self.refusals,
            "wallMs": int(time.time() * 1000),
        }

    async def _serve_root(self, daemon: Daemon, hello: Hello) -> None:
        """Serve a root from its opening until it is opened again."""
        if hello.node != self.name:
            raise DaemonRefuses(
                f"cluster.node is {self.name}, but the nodeId of the daemon is {hello.node}: set both to one name"
            )
        author = Author(self.name, self.run_id, hello.root, self._own_address or hello.address)
        self.epoch = max(self.epoch, hello.epoch)
        if self._candidacy and hello.is_leader:
            position, self._candidacy = self._candidacy, None
            await first_of(self._lead(daemon, author, position), daemon.until_void())
        elif hello.is_leader:
            daemon.follow(self.leader, self.address)  # nobody has asked it to lead
        else:
            self._candidacy = None
            place = await self._follow(daemon, author, await self._agree(daemon, hello))
            self.epoch += 1
            self._candidacy = place
            daemon.lead(self.epoch)
        self.role, self.problem = "waiting", "the daemon opens its root"
        await daemon.until_void()

    def promote(self) -> str:
        """Try to lead, however alive the leader is. Returns the leader, which is to yield; empty: there is none."""
        self.attempts = 0 if self.role == "leading" else _ATTEMPTS
        return self.leader if self.attempts else ""

    # --- where the node is --------------------------------------------------------------------------------------------

    async def _agree(self, daemon: Daemon, hello: Hello) -> Position:
        """The last group that both have; events of the daemon behind it are put aside. Raises ``MustBeSeeded``."""
        state = await self._stream.state()
        if state.created != self._created:
            self._created, self._seen = state.created, 0
        if state.last < self._seen:
            raise StreamUnavailable(f"the servers that answer are behind: they have {state.last} of {self._seen}")
        if not state.last:
            return Position(0, hello.last_id)
        last = await self._stream.at(state.last)
        if not last:
            raise StreamUnavailable("the stream has lost its newest message")
        if hello.root and last.author.root != hello.root:  # a new node has none yet
            raise MustBeSeeded(f"the cluster's root is {last.author.root}, this node's is {hello.root}: seed this node")
        self.epoch = max(self.epoch, last.group.epoch)
        self._note_leader(last.author)
        position = await self._common(daemon, hello, state)
        if (
            position.event_id < hello.last_id
            and not hello.is_leader
            and not await self._ends_within(daemon, hello, position, state)
        ):
            log.warning(
                "events %d to %d of this node are not in the stream: they are put aside",
                position.event_id + 1,
                hello.last_id,
            )
            await daemon.truncate(position.event_id)
        return position

    async def _common(self, daemon: Daemon, hello: Hello, state: State) -> Position:
        """The last group that both have. Journals that agree on an event agree on all before it, so that it is found
        by halving."""
        low, high = state.first - 1, state.last  # both have low, or it is before the stream; high is to be tried
        event_id, crc = 0, ""
        while low < high:
            middle = (low + high + 1) // 2
            stored = await self._stream.at(middle)
            if not stored:
                raise StreamUnavailable(f"the stream has no message {middle}")
            group = stored.group
            if group.last <= hello.last_id and (group.last < hello.first_id or await daemon.has(group.last, group.crc)):
                low, event_id, crc = middle, group.last, group.crc
            else:
                high = middle - 1
        if event_id:
            return Position(low, event_id, crc)
        stored = await self._stream.at(state.first)
        if not stored:
            raise StreamUnavailable("the stream's oldest message has just been deleted")
        before = stored.group.first - 1
        if hello.last_id < before or (hello.last_id > before and state.first > 1):
            raise MustBeSeeded(
                f"the stream begins with event {before + 1}, and this node's journal ends with {hello.last_id} or goes"
                " another way: seed this node"
            )
        return Position(low, before)

    async def _ends_within(self, daemon: Daemon, hello: Hello, position: Position, state: State) -> bool:
        """Whether the daemon has a part of the group behind a position and nothing else, as after a restore from the
        backup of a leader at work. It takes the whole group."""
        if position.sequence >= state.last:
            return False
        stored = await self._stream.at(position.sequence + 1)
        if not stored:
            raise StreamUnavailable(f"the stream has no message {position.sequence + 1}")
        crc = stored.group.crc_at(hello.last_id)
        return bool(crc) and await daemon.has(hello.last_id, crc)

    # --- to follow ----------------------------------------------------------------------------------------------------

    async def _follow(self, daemon: Daemon, author: Author, position: Position) -> Position:
        """Pass groups on to the daemon until this node should lead. Raises what ends it."""
        self.role, self.problem = "following", ""
        self._go_to(position)
        self._heard_s = _now()
        daemon.follow(self.leader, self.address)
        await first_of(self._pass_on(daemon, author), self._until_silent(daemon), daemon.until_void())
        return self.position

    async def _pass_on(self, daemon: Daemon, author: Author) -> None:
        async with aclosing(self._stream.groups(self.position.sequence)) as batches:
            async for batch in batches:
                before = self.position.event_id
                for stored in batch:
                    self._pass_by(daemon, author, stored)
                await daemon.apply([stored for stored in batch if not stored.group.is_beat])
                await daemon.until_applied(before)

    def _pass_by(self, daemon: Daemon, author: Author, stored: Stored) -> None:
        """Note a group that the daemon is to apply. Raises ``MustBeSeeded`` if it cannot."""
        group = stored.group
        if author.root and stored.author.root != author.root:
            raise MustBeSeeded(f"the cluster's root is {stored.author.root}: seed this node")
        if group.first != self.position.event_id + 1:
            raise MustBeSeeded(
                f"the stream goes on with event {group.first}, and this node has {self.position.event_id}:"
                " seed this node"
            )
        self._heard_s = _now()
        self.epoch = max(self.epoch, group.epoch)
        if self._note_leader(stored.author):
            log.info("%s leads in epoch %d", stored.author.node, group.epoch)
            daemon.follow(self.leader, self.address)
        self._go_to(Position(stored.sequence, group.last, group.crc))

    def _go_to(self, position: Position) -> None:
        self.position, self._seen = position, max(self._seen, position.sequence)

    def _note_leader(self, author: Author) -> bool:
        """Note who has appended last; return whether that has changed. A node that follows is not its own leader."""
        before = self.leader, self.address
        self.leader, self.address = (author.node, author.address) if author.node != self.name else ("", "")
        return before != (self.leader, self.address)

    async def _until_silent(self, daemon: Daemon) -> None:
        """Return when the stream has been silent for long enough, and the daemon has applied all of it."""
        patience_s = self.failover.after_s * random.uniform(1.0, 1.25)  # so that nodes do not try at once
        while True:
            await asyncio.sleep(_LOOK_S)
            silent_s = _now() - self._heard_s
            if not (self.attempts or (self.failover.is_automatic and silent_s > patience_s)):
                continue
            await daemon.until_applied(self.position.event_id)
            state = await self._stream.state()
            if state.last < self.position.sequence:
                raise StreamUnavailable("the stream ends before what this node has")
            if state.last > self.position.sequence:
                continue  # it comes
            if not state.last and state.first_node != self.name:
                continue
            log.warning("no group for %.1f s: this node tries to lead", silent_s)
            if self.attempts and self.leader and self.ask_to_yield:  # which may be another one than at the last attempt
                await self.ask_to_yield(self.leader)
            self.attempts = max(0, self.attempts - 1)
            return

    # --- to lead ------------------------------------------------------------------------------------------------------

    async def _lead(self, daemon: Daemon, author: Author, position: Position) -> None:
        """Append the daemon's groups, and beats between them, until one is refused. Raises what ends it."""
        self.position, self.is_yielding = position, False
        beat_s = self.failover.after_s / 3
        while not self.is_yielding:
            try:
                async with asyncio.timeout(beat_s):
                    group = await daemon.group()
            except TimeoutError:
                if self.role != "leading" or _now() - daemon.heard_s > max(beat_s, _HANG_S):
                    continue  # a daemon that hangs does not lead
                at = self.position
                group = Group(at.event_id + 1, at.event_id, self.epoch, at.crc)
            if group.first != self.position.event_id + 1:
                raise DaemonGone(f"the leader's group begins with {group.first}, not {self.position.event_id + 1}")
            try:
                sequence = await self._append(author, group)
            except NotAppended as error:
                self.refusals += 1
                self.leader, self.address = error.leader, error.address
                if group.is_beat:  # the daemon waits for no answer
                    log.warning("this node no longer leads: %s", error)
                    daemon.follow(error.leader, error.address)
                else:
                    log.warning("events %d to %d were refused: %s", group.first, group.last, error)
                    daemon.refuse(str(error), error.leader, error.address)
                return
            self._go_to(Position(sequence, group.last, group.crc))
            if group.is_beat:
                continue
            daemon.confirm(group, sequence)
            if self.role != "leading":
                self.role, self.problem, self.epoch = "leading", "", group.epoch
                self.leader, self.address = author.node, author.address
                self.takeovers += 1
                self.attempts = 0
                log.warning("this node leads in epoch %d", group.epoch)
        log.warning("this node no longer leads: an operator has promoted another one")
        self.leader = self.address = ""
        daemon.follow("", "")

    async def _append(self, author: Author, group: Group) -> int:
        """Append a group; return its sequence. A beat is given up after some time: a leader without a quorum ends to
        be one also if it has nothing to append. Raises ``NotAppended``."""
        try:
            async with asyncio.timeout(self.failover.after_s if group.is_beat else None):
                return await self._stream.append(group, author, self.position.sequence)
        except TimeoutError:
            raise NotAppended(f"no quorum: {self._stream.problem}") from None


async def first_of(work: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> T:
    """Run all until the first of them ends, cancel the others, and return or raise what came of it. Only the first
    argument has a result."""
    tasks: list[asyncio.Task[Any]] = [asyncio.ensure_future(one) for one in (work, *others)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        result: T = next(task for task in tasks if task in done).result()
        return result
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
