"""Gathering: publishes to a queue with a window become the parts of one message, which is ready at the window's end.

A message takes parts until it is ready, by time alone. Its queue's record names it, so that a part costs the same
however many there are.
"""

from __future__ import annotations

from typing import Final

import orjson

from postroom_common.body import Part, encode_gathered
from postroom_common.events import EventType
from postroom_common.policy import Policy
from postroom_common.protocol import APPENDED_PARTS_LIMIT, GATHERED_BYTES_LIMIT, State

from ...model.records import Entry, QueueRecord
from ..admission import Claim, count_for_publisher, has_space
from ..context import Context, Draft
from ..fields import Fields
from .options import attributes_in, carried_in, check_trace

#: In place of an account: a message that gathers everyone's parts.
EVERYONE: Final = "*"


def gathers(fields: Fields, parts: tuple[Part, ...], claim: Claim | None) -> bool:
    """Whether a publish is gathered with others by a queue that gathers. One that says when, in which order or to whom
    it is delivered is a message of its own, and so is one with a claim that lasts as long as its message."""
    own = fields["delayMs"] or fields["orderingKey"] or fields["targetConsumerId"] or fields["deliverAt"] is not None
    return bool(not own and len(parts) == 1 and (claim is None or claim.until))


def part_of(fields: Fields, part: Part) -> Part:
    """The body of a publish with what else it says, as a part. Raises ``CommandError``."""
    check_trace(fields["traceparent"])
    return part._replace(attributes=attributes_in(fields), carried=carried_in(fields))


def whose(context: Context) -> str:
    """The account whose parts a message gathers, if it has a quota of stored bytes, for which these count; else
    everyone's."""
    account = context.who.account
    return EVERYONE if context.usage is None or account in context.quotas.exempt else str(account)


def begin(context: Context, draft: Draft, policy: Policy, part: Part) -> bytes:
    """Make a new message gather parts from now on, beginning with this one. Returns the message as it is stored."""
    draft["dueEngineMs"] = context.now.engine + policy.gather_ms
    draft["gathering"] = whose(context)
    return encode_gathered(part)


def append(
    context: Context, fields: Fields, policy: Policy, record: QueueRecord | None, part: Part, claim: Claim | None
) -> Draft | None:
    """The event that appends a part to the message that the queue gathers, recorded as pending; None if there is no
    such message, or the part does not fit. Raises ``CommandError`` (ERR_QUOTA_EXCEEDED)."""
    queue, pending, account = fields["queue"], context.pending, whose(context)
    entry = pending.gathering_entries.get((queue, account)) or _entry_that_gathers(context, queue, account, record)
    if entry is None or entry.parts >= APPENDED_PARTS_LIMIT:
        return None
    stored = orjson.dumps(part.stored())
    size = len(stored)
    most = policy.max_message_bytes or GATHERED_BYTES_LIMIT
    if entry.size + size > most or not has_space(context, queue, record, policy, size):
        return None
    draft: Draft = {"type": EventType.PART_APPENDED, "queue": queue, "key": entry.key, "part": entry.parts + 1}
    if fields["deduplicationKey"]:
        draft["deduplicationKey"] = fields["deduplicationKey"]
    if context.who.account not in context.quotas.exempt:
        count_for_publisher(context, draft, size)
    if claim:
        draft["claim"] = claim.to_json()
        pending.claims[queue, claim.name] = entry.key
    draft["content"] = orjson.Fragment(stored)
    entry.parts += 1
    entry.size += size
    pending.gathering_entries[queue, account] = entry
    pending.published[queue] = pending.published.get(queue, 0) + 1
    pending.add(queue, 0, size)
    return draft


def _entry_that_gathers(context: Context, queue: str, account: str, record: QueueRecord | None) -> Entry | None:
    """The message to which parts of an account are appended now, as a copy."""
    now, key = context.now.engine, record.gathering_keys.get(account) if record else None
    entry = context.store.get(key) if key else None
    if entry is None or entry.state is not State.GATHERING or entry.queue != queue or entry.due <= now:
        return None
    if 0 < entry.expires <= now:
        return None
    return entry.copy()
