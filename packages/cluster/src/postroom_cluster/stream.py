"""The stream: where groups are appended, by whom knows its end, and read by everybody."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from .batches import Batches
from .errors import NotAppended, StreamUnavailable
from .groups import Author, Group, Stored, headers_of, read_stored

log = logging.getLogger(__name__)

#: The stream's description ends with the node that may append to the empty stream. (Metadata would be the place, but
#: servers before 2.10 drop them.)
_DESCRIPTION: Final = "Journal of a Postroom cluster, begun by "
#: Time (s) for one answer of the servers.
_ANSWER_S: Final = 2.0
#: Time (s) between two attempts to append, if the servers do not answer or have no leader.
_PAUSE_S: Final = 0.25
#: The status of an answer if nobody has taken a message.
_NO_RESPONDERS: Final = "503"
#: How long (s) groups gather before a follower asks for them.
_GATHER_S: Final = 0.2
#: Texts for errors of JetStream whose own say nothing about a cluster.
_TEXTS: Final = {
    10058: "the cluster has a stream already: nodes join it with postroom-cluster run",
    10059: "the cluster has no stream: has postroom-cluster create run, and are cluster.name and nats.domain right?",
}


class State(NamedTuple):
    """The stream's first and last sequence, the node that may append while it is empty, and when it was created."""

    first: int
    last: int
    first_node: str
    created: str


class Stream:
    """The stream of a cluster, over one connection."""

    def __init__(self, connection: Client, cluster: str, domain: str = "") -> None:
        self.name = f"POSTROOM_{cluster}"
        self.subject = f"postroom.{cluster}.journal"
        self._connection = connection
        self._domain = domain
        self._jetstream: JetStreamContext = connection.jetstream(domain=domain or None, timeout=_ANSWER_S)
        #: Where answers to appends arrive, how many there were, and the one that is waited for.
        self._inbox = ""
        self._sent = 0
        self._answer: tuple[str, asyncio.Future[Msg]]
        #: Why nothing was appended or read lately; empty if it was.
        self.problem = ""

    async def create(self, first_node: str, replicas: int, max_bytes: int) -> bool:
        """Create the stream, empty. Return whether it is new: a stream with the same settings stays as it is. Raises
        ``StreamUnavailable``."""
        with _translated():
            is_new = not await self._exists()
            await self._jetstream.add_stream(
                api.StreamConfig(
                    name=self.name,
                    description=_DESCRIPTION + first_node,
                    subjects=[self.subject],
                    retention=api.RetentionPolicy.LIMITS,
                    storage=api.StorageType.FILE,
                    num_replicas=replicas,
                    discard=api.DiscardPolicy.OLD,
                    max_bytes=max_bytes,
                    deny_delete=True,
                    deny_purge=True,
                )
            )
        return is_new

    async def _exists(self) -> bool:
        try:
            await self._jetstream.stream_info(self.name)
        except js_errors.NotFoundError:
            return False
        return True

    async def info(self) -> api.StreamInfo:
        """What the servers know of the stream. Raises ``StreamUnavailable``."""
        with _translated():
            return await self._jetstream.stream_info(self.name)

    async def state(self) -> State:
        """Its first and last sequence. Raises ``StreamUnavailable``."""
        info = await self.info()
        _, _, first_node = (info.config.description or "").partition(_DESCRIPTION)
        return State(info.state.first_seq, info.state.last_seq, first_node, str(info.created))

    async def at(self, sequence: int) -> Stored | None:
        """The group at a place; None if there is none. Raises ``StreamUnavailable``."""
        with _translated():
            try:
                found = await self._jetstream.get_msg(self.name, seq=sequence)
            except js_errors.NotFoundError as error:
                if error.err_code != 10037:  # 10037: no such message; else there is no such stream
                    raise
                return None
        return read_stored(sequence, found.headers, found.data)

    async def append(self, group: Group, author: Author, after: int) -> int:
        """Append a group at the place ``after`` + 1; return that. Tries until it is known who has the place, however
        long that takes. Raises ``NotAppended`` if it is somebody else, or if no server takes the group.

        An error does not show whether a group was appended: its answer may have been lost, or it may be on its way
        still. Only what stands at the place decides, and it never changes.
        """
        headers = headers_of(group, author)
        headers |= {api.Header.EXPECTED_LAST_SEQUENCE: str(after), api.Header.EXPECTED_STREAM: self.name}
        while True:
            try:
                sequence = await self._publish(group.lines, headers)
                if sequence == after + 1:
                    self.problem = ""
                    return after + 1
                self.problem = f"the servers have appended at {sequence} in place of {after + 1}"
            except nats.errors.MaxPayloadError:
                raise NotAppended(
                    f"a group of {len(group.lines)} bytes is larger than max_payload of the servers"
                ) from None
            except (nats.errors.Error, TimeoutError, OSError) as error:
                self.problem = _text(error)
            try:
                stored = await self.at(after + 1)
            except StreamUnavailable as error:
                self.problem = str(error)
                stored = None
            if stored and (stored.author, stored.group) == (author, group):
                self.problem = ""
                return after + 1
            if stored:
                other = stored.author
                raise NotAppended(f"{other.node} leads", other.node, other.address)
            await asyncio.sleep(_PAUSE_S)

    async def _publish(self, lines: bytes, headers: dict[str, str]) -> int:
        """Send a group; return the sequence that the servers answer. One inbox takes all answers, each under a subject
        of its own: ``JetStreamContext.publish`` does the same with half more CPU."""
        if not self._inbox:
            inbox = self._connection.new_inbox()
            await self._connection.subscribe(f"{inbox}.*", cb=self._take_answer)
            self._inbox = inbox
        self._sent += 1
        reply = f"{self._inbox}.{self._sent}"
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._answer = reply, answer
        await self._connection.publish(self.subject, lines, reply=reply, headers=headers)
        async with asyncio.timeout(_ANSWER_S):
            message = await answer
        if (message.headers or {}).get(api.Header.STATUS) == _NO_RESPONDERS:
            raise js_errors.NoStreamResponseError
        fields = json.loads(message.data)
        if "error" in fields:
            raise js_errors.APIError.from_error(fields["error"])
        return int(fields["seq"])

    async def _take_answer(self, message: Msg) -> None:
        reply, answer = self._answer
        if message.subject == reply and not answer.done():  # another one comes too late
            answer.set_result(message)

    async def groups(self, after: int) -> AsyncGenerator[list[Stored], None]:
        """All groups behind a place, and those that come, in order and without gaps, as many together as have come.
        Ends never. Raises ``StreamUnavailable`` if the servers fall silent, or no longer have what comes next."""
        batches = Batches(self._connection, self._jetstream, self.name, self._domain)
        with _translated():
            try:
                await batches.begin(after)
                while True:
                    read = []
                    for message in await batches.next():
                        metadata = message.metadata
                        sequence = metadata.sequence.stream
                        if sequence != after + 1:
                            raise StreamUnavailable(f"the stream has sent {sequence} in place of {after + 1}")
                        after = sequence
                        read.append(read_stored(sequence, message.headers, message.data, metadata.num_pending))
                    self.problem = ""
                    if read:
                        yield read
                        if not read[-1].pending:
                            await asyncio.sleep(_GATHER_S)
            finally:
                await batches.end()


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of the library as ``StreamUnavailable``."""
    try:
        yield
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise StreamUnavailable(_text(error)) from error


def _text(error: BaseException) -> str:
    if isinstance(error, js_errors.APIError):
        if error.err_code in _TEXTS:
            return _TEXTS[error.err_code]
        return f"{error.description} (error {error.err_code})"
    if isinstance(error, js_errors.NoStreamResponseError):
        return "the stream has no leader, or does not exist"
    if isinstance(error, TimeoutError):
        return "the servers do not answer"
    return str(error) or type(error).__name__
