"""What can go wrong between a daemon, this process and the stream."""

from __future__ import annotations

from postroom_common.errors import PostroomError


class DaemonGone(PostroomError):
    """The connection to the daemon has ended, or the daemon does what its protocol does not allow."""


class DaemonRefuses(DaemonGone):
    """The daemon says why it ends the connection, or is another node's: the next attempt mostly ends the same way."""


class HelloRepeated(PostroomError):
    """The daemon has opened its root again: what was agreed with it before is void."""


class StreamUnavailable(PostroomError):
    """The stream does not answer, or does not exist. It may be there later."""


class NotAppended(PostroomError):
    """A group will never be in the stream: another node has appended, or the stream cannot take it.

    ``leader`` and ``address`` are those of the other node; empty if there is none.
    """

    def __init__(self, text: str, leader: str = "", address: str = "") -> None:
        super().__init__(text)
        self.leader = leader
        self.address = address


class MustBeSeeded(PostroomError):
    """The stream does not continue this node's journal: it needs a backup of another node."""
