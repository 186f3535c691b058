"""set_policy, get_policy, set_policy_patterns, get_policy_patterns: the policies that are set at run time; and the
policy with which a request creates a queue."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import orjson

from postroom_common.errors import CommandError, ConfigurationError
from postroom_common.events import EventType
from postroom_common.policy import Layer, read_layer, without_nulls
from postroom_common.protocol import POLICY_PATTERNS_LIMIT, ErrorCode

from ...model.facts import FACT_POLICY_PATTERNS
from ...model.records import NO_LAYER
from ...policy.access_rules import Verb
from ...policy.schema import NamePattern, check_schema
from ..context import Context, Decision, Draft
from ..fields import Fields
from ..replies import patterns_to_wire, policy_to_wire
from .addresses import queue_created
from .lookup import existing_queue, policy_of

#: Keys of ``createWith`` for which one must be allowed to operate the queue: an address is a name of its own, a schema
#: takes space that no quota counts, and a pipe reaches other queues.
_FOR_OPERATORS: Final = frozenset({"dlq.queue", "validation.schema", "pipe.to"})
#: Pipes that may follow each other.
_PIPE_STEPS: Final = 16
#: Maximum size of all policy patterns as JSON.
PATTERNS_BYTES_LIMIT: Final = 256 * 1024


def set_policy(context: Context, fields: Fields) -> Decision:
    """Override configured policy keys; null removes the override of a key, {} removes all of them. Creates the queue.

    Raises ``CommandError`` for an unknown key, a wrong type or a value out of range.
    """
    queue = fields["queue"]
    context.require(Verb.OPERATE, queue)
    record = context.store.queue(queue)
    layer, removed = _read(fields["policy"], "policy")
    _check_address(context, layer, queue, "policy")
    _check_pipe(context, layer, queue)
    before = record.override if record and fields["policy"] else {}
    override = {path: value for path, value in before.items() if path not in removed} | layer
    drafts: list[Draft] = []
    if record:
        if layer.get("kind", record.kind) != record.kind:
            raise _invalid(f"policy.kind: {queue!r} is a {record.kind}, and stays one")
        if fields["createWith"] is not None:  # a mistyped key must not pass because the queue exists
            check_creation(fields["createWith"])
        created_with = record.created_with
    else:
        kind = {"kind": layer["kind"]} if "kind" in layer else {}
        created_with = creation_layer(context, queue, (fields["createWith"] or {}) | kind)
        drafts.append(queue_created(context, queue, created_with))
    policy = context.policies.resulting(queue, override, created_with).to_wire()
    drafts.append({"type": EventType.POLICY_SET, "queue": queue, "override": override, "policy": policy})
    return Decision(drafts)


def get_policy(context: Context, fields: Fields) -> Decision:
    """The policy in force; with ``createWith``, also that of a queue that does not exist, as if it were created with
    it. Raises ``CommandError`` (ERR_QUEUE_NOT_FOUND)."""
    queue, create_with = fields["queue"], fields["createWith"]
    if create_with is None:
        existing_queue(context, queue, None)
    else:
        context.require(None, queue)
        check_creation(create_with)
    record = context.store.queue(queue)
    data = policy_to_wire(queue, context.store, context.policies)
    override, created_with = (record.override, record.created_with) if record else (NO_LAYER, NO_LAYER)
    if record is None:
        created_with = creation_layer(context, queue, create_with)
        data["policy"] = context.policies.resulting(queue, override, created_with).to_wire()
    if fields["explain"]:
        data["explanation"] = context.policies.explain(queue, override, created_with)
    return Decision(data=data)


def set_policy_patterns(context: Context, fields: Fields) -> Decision:
    """Replace the list of policy patterns. Raises ``CommandError`` for an invalid list."""
    patterns = read_patterns(fields["patterns"])
    for number, one in enumerate(patterns):
        _check_address(context, one["policy"], "", f"patterns[{number}].policy")
    return Decision([{"type": EventType.POLICY_PATTERNS_SET, "patterns": patterns}])


def get_policy_patterns(context: Context, fields: Fields) -> Decision:
    """The policy patterns in force."""
    patterns = patterns_to_wire(context.store.facts.get(FACT_POLICY_PATTERNS) or [])
    return Decision(data={"patterns": patterns, "asOfEvent": context.store.applied})


def read_patterns(items: list[Any]) -> list[dict[str, Any]]:
    """Check policy patterns, and return them as they are stored: each with its ``pattern``, and ``policy`` as a layer.
    Raises ``CommandError`` (ERR_INVALID_REQUEST) with the place of what is wrong."""
    if len(items) > POLICY_PATTERNS_LIMIT:
        raise _invalid(f"patterns has {len(items):,} items; at most {POLICY_PATTERNS_LIMIT} are allowed")
    patterns = []
    for number, item in enumerate(items):
        place = f"patterns[{number}]"
        if type(item) is not dict or type(item.get("pattern")) is not str or set(item) - {"pattern", "policy"}:
            raise _invalid(f"{place} must be an object with pattern, a string, and policy")
        if type(item.get("policy", {})) is not dict:
            raise _invalid(f"{place}.policy must be an object")
        try:
            NamePattern(item["pattern"])
        except ValueError as error:
            raise _invalid(f"{place}.pattern: {error}") from None
        patterns.append({"pattern": item["pattern"], "policy": _read(item.get("policy", {}), f"{place}.policy")[0]})
    if len(orjson.dumps(patterns)) > PATTERNS_BYTES_LIMIT:
        raise _invalid(f"patterns must be at most {PATTERNS_BYTES_LIMIT:,} bytes of JSON")
    return patterns


def creation_layer(context: Context, queue: str, policy: dict[str, Any]) -> Layer:
    """The layer of a queue that a request is about to create with ``policy``: ``createWith``. What the configuration
    sets stays in force against a user who may not operate the queue. Raises ``CommandError``, as ``set_policy`` does,
    also for keys that only such a user may set."""
    layer = check_creation(policy)
    if layer and not context.may(Verb.OPERATE, queue):
        if not _FOR_OPERATORS.isdisjoint(layer):
            context.require(Verb.OPERATE, queue)
        configured = context.policies.configured_keys(queue)
        layer = {path: value for path, value in layer.items() if path not in configured}
    _check_address(context, layer, queue, "createWith")
    _check_pipe(context, layer, queue)
    return layer


def check_creation(policy: dict[str, Any]) -> Layer:
    """The layer that ``createWith`` is. Raises ``CommandError`` (ERR_INVALID_REQUEST)."""
    return _checked(orjson.dumps(policy))


@lru_cache(maxsize=64)
def _checked(policy: bytes) -> Layer:
    """``createWith`` as a layer; remembered because a client may send the same one with each request."""
    return _read(orjson.loads(policy), "createWith")[0]


def _read(policy: dict[str, Any], where: str) -> tuple[Layer, set[str]]:
    """A policy of a request as a layer, and its keys that are null. Raises ``CommandError`` (ERR_INVALID_REQUEST)."""
    corrections: list[str] = []
    try:
        given, removed = without_nulls(policy)
        layer = read_layer(given, where, corrections.append)
        check_schema(layer, where)
    except ConfigurationError as error:
        raise _invalid(str(error)) from None
    if corrections:
        raise _invalid("; ".join(one.partition(", using")[0] for one in corrections))
    return layer, removed


def _check_address(context: Context, layer: Layer, queue: str, where: str) -> None:
    """Raise ``CommandError`` if a layer sets a dead-letter address (``dlq.queue``) that is the name of a queue."""
    dlq = layer.get("dlq.queue")
    if not dlq:
        return
    context.require(Verb.OPERATE, dlq)  # no queue can have that name any more
    if dlq == queue or context.store.queue(dlq) is not None:
        raise _invalid(f"{where}.dlq.queue: there is a queue {dlq!r}; choose another name")


def _check_pipe(context: Context, layer: Layer, queue: str) -> None:
    """Raise ``CommandError`` if a layer makes a pipe to a queue that the user may not operate, or one that comes back
    to its beginning."""
    targets: list[str] = layer.get("pipe.to", [])
    for target in targets:
        context.require(Verb.OPERATE, target)
    if leads_to(context, targets, queue):
        raise _invalid(f"pipe.to: what leaves {queue!r} would come back to it")


def leads_to(context: Context, targets: list[str], queue: str) -> bool:
    """Whether what is passed on to ``targets`` comes to a queue, or takes more steps than it may."""
    for _ in range(_PIPE_STEPS):
        if queue in targets:
            return True
        targets = [*dict.fromkeys(to for name in targets for to in policy_of(context, name).pipe_to)]
        if not targets:
            return False
    return True


def _invalid(text: str) -> CommandError:
    return CommandError(ErrorCode.INVALID_REQUEST, text)
