"""Requests of ``orderMessage`` that are executed without a task: many of them wait, most of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroom_common.errors import CommandError, PostroomError

from ...contract import MessagePeer, WaitEnded
from .errors import RpcError, aborted, unavailable
from .methods import order_of, refusal
from .queues import Ordered, Queues
from .rpc import encode_error, encode_result


class Order:
    """One request of ``size`` bytes. ``ended`` is called when it ends."""

    def __init__(
        self, peer: MessagePeer, queues: Queues, request_id: str, size: int, ended: Callable[[Order], None]
    ) -> None:
        self.request_id = request_id
        self._peer = peer
        self._queues = queues
        self._size = size
        self._ended = ended
        self._began_s = peer.begin(size, is_waiting=True)
        self._end_wait: Callable[[], None] | None = None

    def begin(self, params: list[Any]) -> None:
        """Ask the daemon. It may be answered at once."""
        try:
            queue, with_lease = order_of(params)
        except RpcError as error:
            self._refuse(error)
        else:
            self._end_wait = self._queues.begin_order(queue, with_lease, self._answered)

    def abort(self) -> None:
        """The client does not want the answer any more."""
        self._stop_waiting()
        self._refuse(aborted())

    def give_up(self) -> None:
        """The connection has ended."""
        self._stop_waiting()
        self._end("")

    def _stop_waiting(self) -> None:
        if self._end_wait:
            self._end_wait()

    def _answered(self, outcome: Ordered | PostroomError | RpcError) -> None:
        if isinstance(outcome, Ordered):
            self._peer.send(encode_result(self.request_id, outcome.encoded()))
            if not self._peer.is_open:
                self._queues.begin_return(outcome)
            self._end("ok")
        elif isinstance(outcome, RpcError):
            self._refuse(outcome)
        elif isinstance(outcome, CommandError):
            self._refuse(refusal(outcome))
        elif isinstance(outcome, WaitEnded):  # the gateway stops, and closes the connection: the client asks again
            self._end("ended")
        else:
            self._refuse(unavailable(str(outcome)))

    def _refuse(self, error: RpcError) -> None:
        self._peer.send(encode_error(self.request_id, error))
        self._end(error.name)

    def _end(self, outcome: str) -> None:
        self._ended(self)
        self._peer.end(outcome, self._began_s, self._size, is_waiting=True)
