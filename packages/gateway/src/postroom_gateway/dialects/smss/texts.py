"""Why a request is refused: the texts of smss, as far as it has one. Its clients show them, and compare none."""

from __future__ import annotations

from typing import Final

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

NOT_SUPPORTED: Final = "don't support action"
WRONG_NAME: Final = "topic name MUST be less than 128 char and NOT contains space/enter/tab"
WRONG_EXPIRY: Final = "expire MUST more than 10s"
TOPIC_EXISTS: Final = "topic exist"
NO_TOPIC: Final = "topic not exist"
NO_NAME: Final = "topic name is required"
SHORT_PAYLOAD: Final = "invalid request, payload size must be more than 8"
WRONG_PAYLOAD: Final = "invalid pub payload"
WRONG_DELAY: Final = "invalid delay request"
SHORT_DELAY: Final = "delay time must be more than 1 second"
LONG_DELAY: Final = "delay time must be at most 366 days"
NO_EVENT: Final = "can't find event id"
WRONG_REPLICA_EVENT: Final = "invalid replica eventId"


class Refused(Exception):
    """A request is refused; the connection goes on. ``kind`` is what the metrics count."""

    def __init__(self, text: str, kind: str = "invalid") -> None:
        super().__init__(text)
        self.text = text
        self.kind = kind


class TopicGone(Refused):
    """There is no such topic, or it was deleted."""

    def __init__(self) -> None:
        super().__init__(NO_TOPIC, "topic_not_exist")


def refusal(error: CommandError) -> Refused:
    """What a client gets for a refusal of the daemon."""
    if error.code == ErrorCode.QUEUE_NOT_FOUND:
        return TopicGone()
    kind = error.code.removeprefix("ERR_").lower()
    if error.code == ErrorCode.QUEUE_EXISTS:
        return Refused(TOPIC_EXISTS, kind)
    if error.code == ErrorCode.POSITION_NOT_FOUND:
        return Refused(NO_EVENT, kind)
    if error.code == ErrorCode.POSITION_TRIMMED:
        return Refused(f"{NO_EVENT},because file not exist: {error.message}", kind)
    return Refused(error.message, kind)
