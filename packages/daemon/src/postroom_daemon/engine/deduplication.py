"""Messages that are published a second time: a queue takes one of each key, by its policy.

A message is published under a claim, which is a fact of its queue: until a time, or for as long as the message is
there. The claim's name is a digest, so that it has one length whatever the key is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from postroom_common.body import Form, Part
from postroom_common.policy import Policy

from ..model.records import claim_fact
from .context import Context


@dataclass(frozen=True, slots=True)
class Claim:
    """What a message is published under. ``until``: engine ms; 0: while it is there."""

    name: str
    until: int

    def to_json(self) -> dict[str, Any]:
        """The claim as the event of the message has it."""
        return {"name": self.name, "untilEngineMs": self.until} if self.until else {"name": self.name}


def claim_of(context: Context, policy: Policy, key: str, parts: Sequence[Part]) -> Claim | None:
    """The claim of a message with this ``deduplicationKey`` ('': none) and body; None if it makes none."""
    if policy.deduplication == "off":
        return None
    if key:
        name = _digest(b"key", key.encode())
    elif policy.deduplicate_content:
        name = _digest(b"body", b"\0".join(map(_content, parts)))
    else:
        return None
    return Claim(name, context.now.engine + policy.deduplication_ms if policy.deduplication == "window" else 0)


def first_of(context: Context, queue: str, claim: Claim) -> str | None:
    """The key of the message that made a claim before, if it still counts."""
    pending, store = context.pending, context.store
    key = pending.claims.get((queue, claim.name))
    if key and (claim.until or key not in pending.settled):
        return key
    kept = store.get_kv(claim_fact(queue, claim.name))
    if kept is None:
        return None
    if kept["untilEngineMs"]:
        return kept["key"] if kept["untilEngineMs"] > context.now.engine else None
    entry = None if kept["key"] in pending.settled else store.get(kept["key"])
    return entry.key if entry and entry.queue == queue else None


def _content(part: Part) -> bytes:
    """What bodies that are the same have in common. The order of an object's keys says nothing."""
    return orjson.dumps(part.value(), option=orjson.OPT_SORT_KEYS) if part.form is Form.JSON else part.data


def _digest(kind: bytes, data: bytes) -> str:
    return blake2b(data, digest_size=16, person=kind).hexdigest()
