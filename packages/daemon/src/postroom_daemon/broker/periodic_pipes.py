"""Pipes: a periodic task passes the ready messages of a queue on to logs, and the records of a log to queues.

What is passed on and what it leaves behind are one request: it happens exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import orjson

from postroom_common.body import Form, Message, Part, decode_message
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.log_blocks import block_of_part, open_block
from postroom_common.protocol import Command, ErrorCode, ReasonCode, State

from ..engine.context import Context, Draft
from ..engine.fields import common_fields
from ..engine.verbs.logs import appended
from ..engine.verbs.lookup import policy_of
from ..engine.verbs.policies import leads_to
from ..engine.verbs.publish import admit
from ..engine.verbs.settle import body_lost
from ..engine.verbs.terminations import dropped
from ..model.records import Entry, QueueRecord
from ..platform.logs import about
from ..stores.errors import BodyLost, BodyUnread
from ..stores.log.records import records_of

log = logging.getLogger(__name__)

#: The cursors that have the names of queues and logs with a pipe; those of which more is to be passed on at once; and
#: why those that are stuck are.
_PIPES: Final = "pipes"
_MORE: Final = "pipes: more to pass on"
_STUCK: Final = "pipes: stuck"
#: Messages, or records and their bytes, that one turn passes on from one queue or log.
_A_TURN: Final = 200
_BYTES_A_TURN: Final = 1024 * 1024
#: Attributes whose names mean something else in a record.
_OTHER_NAMES: Final = {name: f"attribute-{name}" for name in ("content-type", "postroom-encoding")}
#: What the readers of pipes are called, in front of the name of the queue.
_READER: Final = "pipe:"


def note_pipe(context: Context, record: QueueRecord) -> None:
    """Remember whether a queue or log has a pipe."""
    pipes: dict[str, None] = context.cursors.get(_PIPES, {})
    has_pipe = bool(context.policies.effective(record.name, record).pipe_to)
    if has_pipe and record.name not in pipes:
        context.cursors[_PIPES] = {**pipes, record.name: None}
    elif not has_pipe and record.name in pipes:
        context.cursors[_PIPES] = {name: None for name in pipes if name != record.name}


def has_more_to_pass_on(cursors: dict[str, Any]) -> bool:
    """Whether the pipes have something to do at once."""
    return bool(cursors.get(_MORE))


def pass_on(context: Context) -> Iterator[list[Draft]]:
    """Do a turn for each pipe."""
    more: list[str] = []
    for name in context.cursors.get(_PIPES, {}):
        record = context.store.queue(name)
        if record is None or record.consume_paused:
            continue
        targets = policy_of(context, name).pipe_to
        if leads_to(context, targets, name):
            _note(context, name, "what leaves it would come back to it")
            continue
        try:
            passed = (
                yield from _from_log(context, record, targets) if record.log else _from_queue(context, record, targets)
            )
        except CommandError as error:
            _note(context, name, str(error))
            continue
        _note(context, name, "")
        if passed:
            more.append(name)
    context.cursors[_MORE] = more


def _from_queue(context: Context, record: QueueRecord, targets: list[str]) -> Any:
    """Pass ready messages on to logs. Returns whether there may be more. Raises ``CommandError``."""
    if not record.counts[State.READY]:
        return False
    logs = [(target, _target(context, target)) for target in targets]
    left = _A_TURN
    while left > 0:
        entries = context.store.several.next_ready(record.name, "", left)
        if not entries:
            return False
        for entry in entries:
            try:
                block = _block(context, entry)
            except BodyLost:
                yield [body_lost(context, entry.key)]
                continue
            except BodyUnread as error:
                raise CommandError(ErrorCode.STORAGE_FAILED, str(error)) from None
            drafts = [appended(found, target, block) for target, found in logs]
            yield [*drafts, *dropped(entry, ReasonCode.APPENDED, "passed on to " + ", ".join(targets))]
        left -= len(entries)
    return True


def _target(context: Context, name: str) -> Any:
    record = context.store.queue(name)
    if record is None or record.log is None:
        raise CommandError(ErrorCode.WRONG_KIND, f"there is no log {name!r}")
    if record.publish_paused:
        raise CommandError(ErrorCode.PAUSED, f"appending to log {name!r} is paused")
    return record.log


def _block(context: Context, entry: Entry) -> bytes:
    """A message as a record: attributes that are no strings, and the other headers, are JSON text. Of a message with
    several parts, the body is the array of these."""
    message: Message = decode_message(context.store.bodies.message(entry))
    body = message.body
    if len(message.parts) > 1:
        body = Part(orjson.dumps([part.as_json() for part in message.parts]), Form.JSON)
    given = message.attributes.value() if message.attributes and message.attributes.form is Form.JSON else {}
    headers: dict[str, Any] = {**(given if type(given) is dict else {}), **message.carried}
    texts: dict[str, str] = {}
    for name, value in headers.items():
        texts[_OTHER_NAMES.get(name, name)] = value if type(value) is str else orjson.dumps(value).decode()
    return block_of_part(body, texts)


def _from_log(context: Context, record: QueueRecord, targets: list[str]) -> Any:
    """Publish records to queues, each by a reader of its own. Returns whether there may be more. Raises
    ``CommandError``."""
    assert record.log
    more, refused = False, None
    for target in targets:
        reader = _READER + target
        found = context.store.queue(record.name)
        if found is None or found.log is None:
            return False
        after = found.log.readers.get(reader, (0, 0))[0]
        page = context.store.logs.read(found.log.created, after, _A_TURN, _BYTES_A_TURN)
        drafts: list[Draft] = []
        alone, last = context.afresh(), after
        for _, position, block in records_of(page.raw):
            try:
                drafts += _published(alone, target, block)
            except CommandError as error:
                refused = error
                break
            last = position
        if last > after:
            moved = {"queue": record.name, "log": found.log.created, "reader": reader, "position": last}
            yield [*drafts, {"type": EventType.READER_MOVED, **moved}]
            more = more or not refused
    if refused and not more:
        raise refused
    return more


def _published(context: Context, target: str, block: bytes) -> list[Draft]:
    part, attributes = open_block(block)
    fields = common_fields(Command.PUBLISH, queue=target)
    if attributes:
        fields["attributes"] = attributes
    context.payload, context.read_body = fields, lambda _: (part,)
    return admit(context, fields)[0]


def _note(context: Context, name: str, why: str) -> None:
    """Log once why a pipe is stuck; it goes on by itself."""
    stuck: dict[str, str] = context.cursors.get(_STUCK, {})
    if stuck.get(name, "") != why:
        context.cursors[_STUCK] = {one: text for one, text in stuck.items() if one != name} | (
            {name: why} if why else {}
        )
        if why:
            log.warning("the pipe of %r is stuck: %s", name, why, extra=about(queue=name))
