"""Errors: one root class, one class for each error code of the protocol, and the client's own.

``ERRORS_BY_CODE`` maps a code to its class. A code that this client does not know raises plain ``ServerError``.
"""

from ._compat import PY2, text_type


class PostroomError(Exception):
    """Root of all errors that the client raises on purpose."""

    def __str__(self):
        text = self.args[0] if self.args else ""
        return text.encode("utf-8") if PY2 and isinstance(text, text_type) else text


class InvalidArgument(PostroomError, ValueError):
    """A value cannot be sent; the text names it. Nothing was written."""


class MailboxError(PostroomError):
    """The mailbox directory cannot be used: permissions, disk space, or a file that does not belong there."""


class BadResponse(MailboxError):
    """The daemon cannot have written this response file. Whether the request was executed is unknown."""


class NoAnswer(PostroomError):
    """A request got no answer; ``request`` can be sent again with ``Client.send``."""

    def __init__(self, message, request=None):
        PostroomError.__init__(self, message)
        self.request = request


class RequestTimeout(NoAnswer):
    """A daemon runs but did not answer in time. The request may have been executed.

    ``client.send(error.request)`` sends the same bytes again. It returns the first answer if the request was executed.
    """


class DaemonNotRunning(NoAnswer):
    """No answer came in time, and no daemon serves this mailbox."""


class RequestRejected(NoAnswer):
    """The daemon rejected the request without an answer; the text contains the reason."""


class RequestWithdrawn(NoAnswer):
    """The caller withdrew the request before it was answered."""


class NoReply(PostroomError):
    """Nobody replied to a ``Client.request`` in time. Its message may have been processed, or still be in flight."""


class WorkerFailed(PostroomError):
    """A process of a worker ended with an error."""


class ServerError(PostroomError):
    """The daemon refused a request: ``code`` for programs, ``message`` for people. ``data`` is a dictionary with more
    for programs, if the code has any, else None."""

    def __init__(self, code, message, data=None):
        PostroomError.__init__(self, "%s: %s" % (code, message))
        self.code = code
        self.message = message
        self.data = data

    def __reduce__(self):
        return (type(self), (self.code, self.message, self.data))


class InvalidRequest(ServerError):
    """ERR_INVALID_REQUEST: a required field is missing, or a value is outside what the field allows."""


class ParseError(ServerError):
    """ERR_PARSE_ERROR: a field has the wrong JSON type."""


class UnknownCommand(ServerError):
    """ERR_UNKNOWN_COMMAND: this daemon does not know the command."""


class DeadlineExpired(ServerError):
    """ERR_TIMEOUT: the deadline had passed before the daemon read the request. Nothing was done."""


class Forbidden(ServerError):
    """ERR_FORBIDDEN: this user may not act as this client, or may not do this."""


class QueueNotFound(ServerError):
    """ERR_QUEUE_NOT_FOUND: the queue does not exist."""


class QueueExists(ServerError):
    """ERR_QUEUE_EXISTS: a queue or log has this name already. Nothing was changed."""


class WrongKind(ServerError):
    """ERR_WRONG_KIND: the command is for a queue, and this is a log, or the other way round. Nothing was changed."""


class MessageNotFound(ServerError):
    """ERR_MESSAGE_NOT_FOUND: the message was acknowledged or dropped, or never existed."""


class LeaseExpired(ServerError):
    """ERR_LEASE_EXPIRED: the message is not leased, or the lease is over. Nothing was changed."""


class LeaseMismatch(ServerError):
    """ERR_LEASE_MISMATCH: the message has another lease or another consumer. Nothing was changed."""


class BadState(ServerError):
    """ERR_BAD_STATE: the message is not in a state that the command allows. Nothing was changed."""


class ValidationFailed(ServerError):
    """ERR_VALIDATION_FAILED: the message violates the queue's schema. Nothing was stored."""


class DlqNotFound(ServerError):
    """ERR_DLQ_NOT_FOUND: no dead letter has this key."""


class Paused(ServerError):
    """ERR_PAUSED: publishing to this queue is paused."""


class Draining(ServerError):
    """ERR_DRAINING: the daemon accepts no new messages, because it is about to be stopped."""


class QueueFull(ServerError):
    """ERR_QUEUE_FULL: the queue has as many messages or bytes as its policy allows. Nothing was stored."""


class RateLimited(ServerError):
    """ERR_RATE_LIMITED: messages are published faster than the queue's policy allows. Nothing was stored."""


class QuotaExceeded(ServerError):
    """ERR_QUOTA_EXCEEDED: this user has reached a quota; the text names it. Nothing was done."""


class MessageTooLarge(ServerError):
    """ERR_MESSAGE_TOO_LARGE: the message is larger than the queue's policy allows. Nothing was stored."""


class DuplicateMessage(ServerError):
    """ERR_DUPLICATE_MESSAGE: another message has this name, or the same parts. Nothing was changed."""


class PartNotFound(ServerError):
    """ERR_PART_NOT_FOUND: the message has no part of this name."""


class PositionTrimmed(ServerError):
    """ERR_POSITION_TRIMMED: records after this position are no longer kept: the reader was overtaken."""


class PositionNotFound(ServerError):
    """ERR_POSITION_NOT_FOUND: the log has no record at this position."""


class ReaderNotFound(ServerError):
    """ERR_READER_NOT_FOUND: the log has no reader of this name."""


class QueueNotEmpty(ServerError):
    """ERR_QUEUE_NOT_EMPTY: a queue with messages cannot be deleted. Nothing was changed."""


class ScheduleNotFound(ServerError):
    """ERR_SCHEDULE_NOT_FOUND: no schedule has this name."""


class StorageFull(ServerError):
    """ERR_STORAGE_FULL: the disk is too full for another message; ack and nack still work."""


class StorageFailed(ServerError):
    """ERR_STORAGE_FAILED: a write to the disk failed. Nothing was changed."""


class NotLeader(ServerError):
    """ERR_NOT_LEADER: this node of a cluster follows. ``data`` has ``leader`` and ``address``; empty if unknown."""


class AnswerLost(ServerError):
    """ERR_ANSWER_LOST: the request was executed, but its answer is lost. Never send it as a new request."""


class InternalError(ServerError):
    """ERR_INTERNAL_ERROR: a fault in the daemon. Nothing was changed."""


ERRORS_BY_CODE = {
    "ERR_INVALID_REQUEST": InvalidRequest,
    "ERR_PARSE_ERROR": ParseError,
    "ERR_UNKNOWN_COMMAND": UnknownCommand,
    "ERR_TIMEOUT": DeadlineExpired,
    "ERR_FORBIDDEN": Forbidden,
    "ERR_QUEUE_NOT_FOUND": QueueNotFound,
    "ERR_QUEUE_EXISTS": QueueExists,
    "ERR_WRONG_KIND": WrongKind,
    "ERR_MESSAGE_NOT_FOUND": MessageNotFound,
    "ERR_LEASE_EXPIRED": LeaseExpired,
    "ERR_LEASE_MISMATCH": LeaseMismatch,
    "ERR_BAD_STATE": BadState,
    "ERR_VALIDATION_FAILED": ValidationFailed,
    "ERR_DLQ_NOT_FOUND": DlqNotFound,
    "ERR_PAUSED": Paused,
    "ERR_DRAINING": Draining,
    "ERR_QUEUE_FULL": QueueFull,
    "ERR_RATE_LIMITED": RateLimited,
    "ERR_QUOTA_EXCEEDED": QuotaExceeded,
    "ERR_MESSAGE_TOO_LARGE": MessageTooLarge,
    "ERR_DUPLICATE_MESSAGE": DuplicateMessage,
    "ERR_PART_NOT_FOUND": PartNotFound,
    "ERR_POSITION_TRIMMED": PositionTrimmed,
    "ERR_POSITION_NOT_FOUND": PositionNotFound,
    "ERR_READER_NOT_FOUND": ReaderNotFound,
    "ERR_QUEUE_NOT_EMPTY": QueueNotEmpty,
    "ERR_SCHEDULE_NOT_FOUND": ScheduleNotFound,
    "ERR_STORAGE_FULL": StorageFull,
    "ERR_STORAGE_FAILED": StorageFailed,
    "ERR_NOT_LEADER": NotLeader,
    "ERR_ANSWER_LOST": AnswerLost,
    "ERR_INTERNAL_ERROR": InternalError,
}
