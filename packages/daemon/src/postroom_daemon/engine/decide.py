"""decide: turns a command and the state into events or an error.

It changes no state, does no I/O and reads no clock. A decision depends only on the state, the given time, the policies
and the source of ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from postroom_common.protocol import Command

from .context import Context, Decision
from .fields import Fields, read_fields
from .verbs import (
    batches,
    consume,
    deadletters,
    drafting,
    imports,
    inspection,
    logs,
    operation,
    policies,
    publish,
    queues,
    schedules,
    settle,
    state,
)

VERBS: Final[dict[Command, Callable[[Context, Fields], Decision]]] = {
    Command.PUBLISH: publish.publish,
    Command.PUBLISH_BATCH: batches.publish_batch,
    Command.DRAFT: drafting.draft,
    Command.SET: drafting.set_part,
    Command.APPEND: logs.append,
    Command.CONSUME_NEXT: consume.consume_next,
    Command.ACK: settle.ack,
    Command.ACK_BATCH: batches.ack_batch,
    Command.ACK_AND_PUBLISH: batches.ack_and_publish,
    Command.NACK: settle.nack,
    Command.NACK_BATCH: batches.nack_batch,
    Command.RELEASE: settle.release,
    Command.EXTEND_LEASE: settle.extend_lease,
    Command.ACTIVATE: settle.activate,
    Command.ABANDON: settle.abandon,
    Command.READ: logs.read,
    Command.MOVE_READER: logs.move_reader,
    Command.DELETE_READER: logs.delete_reader,
    Command.LIST_READERS: logs.list_readers,
    Command.STATUS: queues.status,
    Command.HEALTH: queues.health,
    Command.METRICS: queues.metrics,
    Command.LIST_QUEUES: queues.list_queues,
    Command.QUEUE_STATISTICS: queues.queue_statistics,
    Command.LIST_DLQ: deadletters.list_dlq,
    Command.COUNT_DLQ: deadletters.count_dlq,
    Command.REPROCESS_DLQ: deadletters.reprocess_dlq,
    Command.DROP_DLQ: deadletters.drop_dlq,
    Command.QUARANTINE_DLQ: deadletters.quarantine_dlq,
    Command.LIST_CONSUMERS: inspection.list_consumers,
    Command.LIST_INFLIGHT: inspection.list_inflight,
    Command.BROWSE: inspection.browse,
    Command.GET_MESSAGE: inspection.get_message,
    Command.HOLD: operation.hold,
    Command.UNHOLD: operation.unhold,
    Command.MOVE: operation.move,
    Command.PURGE: operation.purge,
    Command.CREATE_QUEUE: queues.create_queue,
    Command.DELETE_QUEUE: operation.delete_queue,
    Command.DRAIN: operation.drain,
    Command.PAUSE: queues.pause,
    Command.RESUME: queues.resume,
    Command.SET_POLICY: policies.set_policy,
    Command.GET_POLICY: policies.get_policy,
    Command.SET_POLICY_PATTERNS: policies.set_policy_patterns,
    Command.GET_POLICY_PATTERNS: policies.get_policy_patterns,
    Command.SET_SCHEDULE: schedules.set_schedule,
    Command.DELETE_SCHEDULE: schedules.delete_schedule,
    Command.LIST_SCHEDULES: schedules.list_schedules,
    Command.READ_STATE: state.read_state,
    Command.IMPORT_STATE: imports.import_state,
}
#: Commands that change nothing.
QUERIES: Final = frozenset(
    {
        Command.STATUS,
        Command.HEALTH,
        Command.METRICS,
        Command.LIST_QUEUES,
        Command.QUEUE_STATISTICS,
        Command.LIST_DLQ,
        Command.COUNT_DLQ,
        Command.GET_POLICY,
        Command.GET_POLICY_PATTERNS,
        Command.LIST_CONSUMERS,
        Command.LIST_INFLIGHT,
        Command.BROWSE,
        Command.GET_MESSAGE,
        Command.LIST_SCHEDULES,
        Command.READ_STATE,
        Command.READ,
        Command.LIST_READERS,
    }
)
#: Commands that add messages: on a full disk they wait, while all others are executed.
ADDING: Final = frozenset(
    {
        Command.PUBLISH,
        Command.PUBLISH_BATCH,
        Command.DRAFT,
        Command.SET,
        Command.APPEND,
        Command.ACK_AND_PUBLISH,
        Command.IMPORT_STATE,
    }
)


def decide(command: Command, payload: dict[str, Any], context: Context) -> Decision:
    """The decision about ``command`` in the current state.

    Raises ``CommandError`` if it is refused. Raises ``BodyLost``, ``BodyUnread`` or ``consume.Expired`` for a message
    that must be handled before the request can be decided."""
    return VERBS[command](context, read_fields(command, payload))
