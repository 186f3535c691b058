"""``postroomd local``: the one-shot commands on a stopped root, made from the protocol's table of fields."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from postroom_common.codec import strict_loads
from postroom_common.errors import CommandError, PostroomError
from postroom_common.protocol import FIELDS, PAGE_LIMIT, Command, Field, Kind
from postroom_common.settings import is_text, split_words

from .options import Source

if TYPE_CHECKING:
    from ..maintenance.local import LocalSession

NOTHING_TO_CONSUME: Final = 4

#: Fields that make no sense where there is no request file.
_ONLY_SERVED: Final = frozenset({"waitLock"})
#: Short spellings beside the rule that ``messageKey`` is ``--message-key``; as in the client's command line.
_SHORT: Final = {
    "delayMs": "--delay",
    "targetConsumerId": "--target",
    "visibilityTimeoutSec": "--visibility",
    "deduplicationKey": "--dedup-key",
    "waitMs": "--wait",
    "version": "--msg-version",
}
#: What an option's help says where the words of the protocol's field do not fit an option.
_HELP: Final = {
    "message": "The body, sent as a text, byte for byte",
    "messageKey": "Key of the message, as publish or consume printed it.",
    "leaseId": "Lease of the delivery; without it --consumer-id must name its holder.",
    "consumerId": "Name of the consumer (default local).",
    "visibilityTimeoutSec": "Seconds that the lease lasts, fractions allowed (default: as the queue's policy says).",
    "waitMs": "Milliseconds to wait for a message (default 0).",
    "payloadAs": "Print payload and attributes as strings or as JSON values (default text).",
    "reason": "Why, for the record of the message.",
    "requeue": "Retry by the queue's policy; without this the message becomes a dead letter.",
    "limit": "Most entries to print (default 100).",
    "previewBytes": "Bytes of each body to print (default 256).",
    "operation": "What is meant (default consume).",
    "policy": 'JSON object with the keys to set over the configuration, as \'{"retry": {"limit": 3}}\'; keys that were '
    "set before stay, {} takes them all back",
    "targetConsumerId": "Only this consumer may have it (default: anyone).",
    "encoding": "base64 says that the message is a base64 text of binary data; see also --binary.",
    "delayMs": "Milliseconds before it can be consumed (default 0).",
    "messages": "JSON array of objects with the fields of publish",
    "items": "JSON array of objects that each name a message and its lease",
    "filter": "Which messages are meant, as '{\"olderThanMs\": 86400000}' (default: all)",
    "fullBodies": "Print whole bodies, not previews.",
    "deduplicationKey": "Key of this fact: by the queue's policy, a second message with it is not stored.",
    "ttlMs": "Milliseconds after which it is no longer wanted (default: as the queue's policy says).",
    "targetFallbackMs": "Milliseconds after which anyone may have it, if its target has not (default: as the queue's "
    "policy says).",
    "draining": "End it.",
    "quarantined": "Take it back.",
}
#: Options that take one of a few words.
_CHOICES: Final = {"payloadAs": ("text", "value"), "operation": ("consume", "publish")}
#: Fields whose argument may be a file or standard input.
_FROM_FILES: Final = frozenset({"message", "policy", "messages", "items", "filter"})
_JSON: Final = (Kind.OBJECT, Kind.ARRAY)
_WITH_BODY: Final = (Command.PUBLISH, Command.SET_SCHEDULE)
#: The word, or the group and the word, of each command, and what it does.
_NAMES: Final = {
    Command.PUBLISH: ("publish", "Put a message into a queue."),
    Command.PUBLISH_BATCH: ("publish-batch", "Put several messages into queues at once."),
    Command.CONSUME_NEXT: ("consume", "Lease the next message of a queue."),
    Command.ACK: ("ack", "Say that a leased message is done."),
    Command.ACK_BATCH: ("ack-batch", "Say that several leased messages are done."),
    Command.ACK_AND_PUBLISH: (
        "ack-and-publish",
        "Say that a message is done and put others into queues, all or nothing.",
    ),
    Command.NACK: ("nack", "Say that a leased message failed: to retry it, or to give it up as a dead letter."),
    Command.NACK_BATCH: ("nack-batch", "Say that several leased messages failed."),
    Command.RELEASE: ("release", "Give a leased message back as if it had not been delivered."),
    Command.EXTEND_LEASE: ("extend", "Prolong a lease, counted from now."),
    Command.STATUS: ("status", "Show one queue."),
    Command.HEALTH: ("health", "Probe journal, store and disk."),
    Command.METRICS: ("metrics", "Show counts and times."),
    Command.LIST_QUEUES: ("queues", "List the queues."),
    Command.LIST_CONSUMERS: ("consumers", "Show who consumes."),
    Command.LIST_INFLIGHT: ("inflight", "Show what is leased, by whom, until when."),
    Command.BROWSE: ("browse", "Look at the messages of a queue without taking them."),
    Command.GET_MESSAGE: ("message", "Show one message, and what happened to it."),
    Command.LIST_DLQ: ("list-dlq", "List the dead letters of a queue."),
    Command.COUNT_DLQ: ("count-dlq", "Count the dead letters of a queue by reason."),
    Command.REPROCESS_DLQ: ("reprocess", "Make dead letters ready again, their attempts counted from zero."),
    Command.DROP_DLQ: ("drop-dlq", "Remove dead letters."),
    Command.QUARANTINE_DLQ: ("quarantine", "Set a dead letter apart, so that only its own key brings it back."),
    Command.HOLD: ("hold", "Keep one message from being delivered."),
    Command.UNHOLD: ("unhold", "Undo a hold."),
    Command.MOVE: ("move", "Bring messages to another queue."),
    Command.PURGE: ("purge", "Remove messages from a queue."),
    Command.DELETE_QUEUE: ("delete-queue", "Delete a queue that holds no messages."),
    Command.PAUSE: ("pause", "Stop consuming from a queue, or with --publish publishing to it."),
    Command.RESUME: ("resume", "Undo a pause."),
    Command.DRAIN: ("drain", "Take no new messages in any queue, or with --no-draining again."),
    Command.GET_POLICY: ("policy get", "Show the policy in force for a queue."),
    Command.SET_POLICY: ("policy set", "Set keys of a queue's policy over the configuration."),
    Command.LIST_SCHEDULES: ("schedule list", "List the schedules."),
    Command.SET_SCHEDULE: ("schedule set", "Publish a message by the clock."),
    Command.DELETE_SCHEDULE: ("schedule delete", "Forget a schedule."),
}
#: Commands that go on by pages, and the field of the reply that says how many messages a page did.
_COUNTED: Final = {
    Command.MOVE: "moved",
    Command.PURGE: "purged",
    Command.REPROCESS_DLQ: "reprocessed",
    Command.DROP_DLQ: "dropped",
}
#: What it says for one command, where that is not what it says for the others.
_HELP_OF: Final = {
    (command, "limit"): "Do one page, of at most so many (default: all pages)." for command in _COUNTED
} | {
    (
        Command.NACK,
        "delayMs",
    ): "Milliseconds until it is tried again, with --requeue (default: as the queue's policy says)."
}
_GROUPS: Final = {
    "policy": "Show or change the policy of a queue.",
    "schedule": "Messages that are published by the clock.",
}


always_json_option: Final = click.option(
    "--json", is_flag=True, expose_value=False, help="One JSON object, as is printed in any case."
)
_root_option: Final = click.Option(
    ["--root"],
    type=click.Path(path_type=Path, readable=False),
    metavar="DIR",
    help="As the option of `local`, which may stand here too.",
)


def _local_command(command: Command, name: str, help: str) -> click.Command:  # noqa: A002 - as click says
    @click.pass_context
    def carry_out(context: click.Context, /, **given: Any) -> None:
        context.obj.root = given["root"] or context.obj.root
        payload: dict[str, Any] = {field.name: given.get(_variable(field)) for field in FIELDS[command]}
        if command in _WITH_BODY:
            _complete_publish(payload, given["json_body"], given.get("binary", False))
        elif given.get("publishing"):
            if payload["operation"] == "consume":
                raise click.UsageError("--publish and --operation consume: give one of them")
            payload["operation"] = "publish"
        for field in FIELDS[command]:
            if field.kind in _JSON and (field.required or payload[field.name] is not None):
                option = "--" + split_words(field.name, "-")
                payload[field.name] = parse_json(read_text(payload[field.name], option), option)
            value = payload[field.name]
            if type(value) is str and not is_text(value):
                raise click.UsageError(f"{field.name} is not UTF-8")
        word = context.command_path.partition(" local ")[2]
        _call(context.obj, command, word, {name: value for name, value in payload.items() if value is not None})

    params: list[click.Parameter] = [
        _option(command, field) for field in FIELDS[command] if field.name not in _ONLY_SERVED
    ]
    if command in _WITH_BODY:
        params.append(
            click.Option(["--json-body"], is_flag=True, help="Message and attributes are JSON: take the values.")
        )
    if command is Command.PUBLISH:
        params.append(click.Option(["--binary"], is_flag=True, help="The message is bytes: take them as base64."))
    if command in (Command.PAUSE, Command.RESUME):
        params.append(click.Option(["--publish", "publishing"], is_flag=True, help="The same as --operation publish."))
    params.append(_root_option)
    return always_json_option(click.Command(name, callback=carry_out, params=params, help=help, short_help=help))


def _call(source: Source, command: Command, word: str, payload: dict[str, Any]) -> None:
    config = source.load()
    if not config.root.is_dir():
        raise PostroomError(f"{config.root} does not exist; make it with: postroomd init --root {config.root}")
    from ..maintenance.local import open_local

    try:
        with open_local(config) as session:
            data = _all_pages(session, command, payload)
    except CommandError as error:
        answer = {"code": str(error.code), "message": error.message}
        click.echo(json.dumps({"ok": False, "command": word, "error": answer}))
        raise SystemExit(1) from None
    click.echo(json.dumps({"ok": True, "command": word, "data": data}))
    if command is Command.CONSUME_NEXT and data["message"] is None:
        raise SystemExit(NOTHING_TO_CONSUME)


def _all_pages(session: LocalSession, command: Command, payload: dict[str, Any]) -> dict[str, Any]:
    """The reply to a command; without a limit to the last page of one that goes on by pages, with the sum of all."""
    counted = _COUNTED.get(command)
    if counted is None or "limit" in payload or "messageKey" in payload:
        return session.call(command.value, payload)
    payload, count = payload | {"limit": PAGE_LIMIT}, 0
    while True:
        data = session.call(command.value, payload)
        count += data[counted]
        if not data["next"]:
            return data | {counted: count}
        payload |= {"after": data["next"]} | {name: data[name] for name in ("upToEvent",) if name in data}


def _option(command: Command, field: Field) -> click.Option:
    names = ["--" + split_words(field.name, "-"), _variable(field)]
    if field.name in _SHORT:
        names.insert(0, _SHORT[field.name])
    text = _HELP_OF.get((command, field.name)) or _HELP.get(field.name) or _of_protocol(field)
    if field.name in _FROM_FILES:
        none = "" if field.name == "filter" else ", or none"
        text = f"{text}: TEXT, @FILE (@@ for a leading @), or standard input (-{none})."
    if field.kind is Kind.FLAG:
        if field.default:
            names[0] = names[0].replace("--", "--no-", 1)
            return click.Option(names, flag_value=False, type=bool, default=None, help=text)
        return click.Option(names, is_flag=True, default=None, help=text)
    kind: Any = {Kind.INTEGER: int, Kind.NUMBER: float}.get(field.kind, str)
    if field.name in _CHOICES:
        kind = click.Choice(_CHOICES[field.name])
    required = field.required and field.name not in _FROM_FILES
    callback = _to_scalar if field.kind is Kind.SCALAR else None
    return click.Option(names, type=kind, required=required, callback=callback, help=text)


def _of_protocol(field: Field) -> str:
    default = f" (default {field.default})" if type(field.default) in (int, str) and field.default != "" else ""
    return f"{field.help[0].upper()}{field.help[1:]}{default}."


def _variable(field: Field) -> str:
    return split_words(field.name, "_")


def _to_scalar(context: click.Context, parameter: click.Parameter, text: str | None) -> str | float | None:
    """A number where the text is one, else the text."""
    for convert in (int, float):
        try:
            number = convert(text or "")
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return text


def _complete_publish(payload: dict[str, Any], json_body: bool, binary: bool) -> None:
    if binary:
        payload["message"] = base64.b64encode(read_source(payload["message"], "--message")).decode()
        payload["encoding"] = "base64"
        return
    payload["message"] = read_text(payload["message"], "--message")
    if json_body:
        payload["message"] = parse_json(payload["message"], "--message")
        if payload["attributes"] is not None:
            payload["attributes"] = parse_json(payload["attributes"], "--attributes")


def read_source(argument: str | None, option: str) -> bytes:
    """The bytes that an argument means: its own, those of ``@file``, or standard input."""
    if argument is None and sys.stdin.isatty():
        raise click.UsageError(f"{option} is missing: give TEXT, @FILE or -")
    if argument is None or argument == "-":
        return sys.stdin.buffer.read()
    if not argument.startswith("@"):
        return os.fsencode(argument)
    if argument.startswith("@@"):
        return os.fsencode(argument[1:])
    try:
        return Path(argument[1:]).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{option}: {argument[1:]} cannot be read: {error.strerror}") from None


def read_text(argument: str | None, option: str) -> str:
    """As ``read_source``, for text."""
    try:
        return read_source(argument, option).decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{option} is not UTF-8 (byte {error.start}); binary messages need --binary") from None


def parse_json(text: str, option: str) -> Any:
    """The value of a JSON text."""
    try:
        return strict_loads(text.encode())
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{option} is not valid JSON: {error}") from None


def _local_commands() -> list[click.Command]:
    groups = {name: click.Group(name, help=text) for name, text in _GROUPS.items()}
    commands: list[click.Command] = []
    for command, (words, text) in _NAMES.items():
        first, _, second = words.partition(" ")
        made = _local_command(command, second or first, text)
        if second:
            groups[first].add_command(made)
        else:
            commands.append(made)
    return [*commands, *groups.values()]


#: The commands of ``postroomd local``.
LOCAL_COMMANDS: Final = _local_commands()
