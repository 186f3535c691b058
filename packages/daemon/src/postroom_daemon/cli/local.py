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
    from ..maintenance.local import LocalRoot

NOTHING_TO_CONSUME: Final = 4

#: Fields that make no sense without a request file.
_ONLY_SERVED: Final = frozenset({"waitLock"})
#: Shorter names of options, as in the client's command line. The option named like the field exists as well.
_SHORT: Final = {
    "delayMs": "--delay",
    "targetConsumerId": "--target",
    "visibilityTimeoutSec": "--visibility",
    "deduplicationKey": "--dedup-key",
    "waitMs": "--wait",
    "version": "--msg-version",
}
#: Help of an option whose field has another help in the protocol.
_HELP: Final = {
    "message": "The body, sent as text, byte for byte",
    "messageKey": "Key of the message, as publish, consume and list-dlq print it.",
    "leaseId": "Lease id, as consume prints it; without it, --consumer-id must be that of the lease.",
    "consumerId": "Name of the consumer (default local).",
    "visibilityTimeoutSec": "Lease duration in seconds, fractions allowed (default: by the queue's policy).",
    "waitMs": "Milliseconds to wait for a message (default 0).",
    "payloadAs": "Print payload and attributes as strings or as JSON values, or not at all (default text).",
    "anyHolder": "Whoever has the lease; a lease id that is given must still be right.",
    "reason": "The reason, recorded with the message.",
    "requeue": "Retry it later by the queue's policy; without this, the message becomes a dead letter.",
    "limit": "Maximum number of entries to print (default 100).",
    "previewBytes": "Bytes of each body to print (default 256).",
    "operation": "What to pause or resume (default consume).",
    "policy": 'JSON object of keys to set, such as \'{"retry": {"limit": 3}}\'; keys that were set before stay, {} '
    "removes them all",
    "patterns": 'JSON array of objects such as \'{"pattern": "^eu[.]", "policy": {"ttlSec": 60}}\'; the first that '
    "matches a queue's name applies, [] removes them all",
    "createWith": "JSON object: policy with which the queue is created if it does not exist ({}: without one)",
    "targetConsumerId": "The only consumer that may get the message (default: any).",
    "encoding": "base64: the message is binary data as base64 text; see also --binary.",
    "delayMs": "Milliseconds before the message can be consumed (default 0).",
    "messages": "JSON array of objects with the fields of publish",
    "parts": 'JSON array of the names of its parts, such as \'["head", "image"]\'',
    "items": "JSON array of objects, each with a message key and a lease id",
    "filter": "JSON object that selects messages, such as '{\"olderThanMs\": 86400000}' (default: all)",
    "fullBodies": "Print complete bodies, not previews.",
    "deduplicationKey": "The publisher's name for one fact: by the queue's policy, another message with it is not "
    "stored.",
    "ttlMs": "Milliseconds after which the message expires (default: by the queue's policy).",
    "targetFallbackMs": "Milliseconds after which any consumer may get the message, if its target has not (default: by "
    "the queue's policy).",
    "draining": "End the drain: accept new messages again.",
    "quarantined": "Lift the quarantine.",
}
#: Options with a few allowed words.
_CHOICES: Final = {
    "start": ("oldest", "newest"),
    "ifTrimmed": ("error", "skip"),
    "payloadAs": ("text", "value", "none"),
    "operation": ("consume", "publish"),
}
#: Fields whose argument may be a file or standard input.
_FROM_FILES: Final = frozenset({"message", "policy", "patterns", "parts", "createWith", "messages", "items", "filter"})
_JSON: Final = (Kind.OBJECT, Kind.ARRAY)
_WITH_BODY: Final = (Command.PUBLISH, Command.SET, Command.SET_SCHEDULE, Command.APPEND)
#: The word, or the group and the word, of each command, and its help.
_NAMES: Final = {
    Command.PUBLISH: ("publish", "Publish a message."),
    Command.PUBLISH_BATCH: ("publish-batch", "Publish several messages at once."),
    Command.DRAFT: ("draft", "Store a message with named parts, which is ready when all of them are set."),
    Command.SET: ("set", "Set a part of a draft, or the body of a leased message."),
    Command.CONSUME_NEXT: ("consume", "Lease the next message."),
    Command.ACK: ("ack", "Acknowledge a message: it is done."),
    Command.ACK_BATCH: ("ack-batch", "Acknowledge several messages."),
    Command.ACK_AND_PUBLISH: (
        "ack-and-publish",
        "Acknowledge a message and publish others, all or nothing.",
    ),
    Command.NACK: ("nack", "Settle a message as failed: retry it with --requeue, else make it a dead letter."),
    Command.NACK_BATCH: ("nack-batch", "Settle several messages as failed."),
    Command.RELEASE: ("release", "Return a message unprocessed: the attempt does not count."),
    Command.EXTEND_LEASE: ("extend", "Extend a lease, counted from now."),
    Command.ACTIVATE: ("activate", "Begin to work on a message whose lease is ordered."),
    Command.ABANDON: ("abandon", "Give up a message in whatever state: it becomes a dead letter."),
    Command.APPEND: ("log append", "Append records to a log."),
    Command.READ: ("log read", "Show records of a log."),
    Command.LIST_READERS: ("log readers", "List the readers of a log."),
    Command.MOVE_READER: ("log move-reader", "Record up to which position a reader has processed a log."),
    Command.DELETE_READER: ("log delete-reader", "Delete a reader of a log."),
    Command.STATUS: ("status", "Show the backlog, policy and pauses of a queue."),
    Command.HEALTH: ("health", "Show whether journal, store and disk work."),
    Command.METRICS: ("metrics", "Show counters and rates."),
    Command.LIST_QUEUES: ("queues", "List the queues."),
    Command.QUEUE_STATISTICS: ("statistics", "Show rates and waiting times of queues."),
    Command.LIST_CONSUMERS: ("consumers", "List the consumers."),
    Command.LIST_INFLIGHT: ("inflight", "List the leased messages: by whom, until when."),
    Command.BROWSE: ("browse", "List the messages of a queue without leasing them."),
    Command.GET_MESSAGE: ("message", "Show one message and its events."),
    Command.LIST_DLQ: ("list-dlq", "List the dead letters of a queue."),
    Command.COUNT_DLQ: ("count-dlq", "Count the dead letters of a queue by reason."),
    Command.REPROCESS_DLQ: ("reprocess", "Make dead letters ready again; their attempts start from zero."),
    Command.DROP_DLQ: ("drop-dlq", "Remove dead letters."),
    Command.QUARANTINE_DLQ: ("quarantine", "Quarantine a dead letter, so that only its own key makes it ready again."),
    Command.HOLD: ("hold", "Put one message on hold: it is not delivered until unhold."),
    Command.UNHOLD: ("unhold", "Undo hold."),
    Command.MOVE: ("move", "Move messages to another queue."),
    Command.PURGE: ("purge", "Remove messages from a queue."),
    Command.CREATE_QUEUE: ("create-queue", "Create a queue, or a log."),
    Command.DELETE_QUEUE: ("delete-queue", "Delete a queue that is empty, or with its messages."),
    Command.PAUSE: ("pause", "Stop consuming from a queue; with --publish, stop publishing to it."),
    Command.RESUME: ("resume", "Undo pause."),
    Command.DRAIN: ("drain", "Refuse new messages in all queues; --no-draining ends that."),
    Command.GET_POLICY: ("policy get", "Show a queue's policy."),
    Command.SET_POLICY: ("policy set", "Set keys of a queue's policy, which override the configuration."),
    Command.GET_POLICY_PATTERNS: ("policy patterns", "Show the policies by pattern."),
    Command.SET_POLICY_PATTERNS: ("policy set-patterns", "Replace the policies by pattern."),
    Command.LIST_SCHEDULES: ("schedule list", "List the schedules."),
    Command.SET_SCHEDULE: ("schedule set", "Publish a message at given times."),
    Command.DELETE_SCHEDULE: ("schedule delete", "Delete a schedule."),
}
#: Commands that work in pages, and the field of the reply with the number of messages in a page.
_COUNTED: Final = {
    Command.MOVE: "moved",
    Command.PURGE: "purged",
    Command.REPROCESS_DLQ: "reprocessed",
    Command.DROP_DLQ: "dropped",
}
#: Help of an option of one command, where other commands with that option have another.
_HELP_OF: Final = {
    (command, "limit"): "Do one page of at most so many messages (default: all pages)." for command in _COUNTED
} | {
    (
        Command.NACK,
        "delayMs",
    ): "Milliseconds until it is retried, with --requeue (default: by the queue's policy).",
    (
        Command.RELEASE,
        "undelivered",
    ): "It did not reach its consumer: return it to its place, whatever the policy says.",
    (
        Command.CONSUME_NEXT,
        "orderedSec",
    ): "Begin the lease ordered, not counted as an attempt, for so many seconds, in which activate must follow; 0:"
    " active at once (default: by the queue's policy).",
    (
        Command.CONSUME_NEXT,
        "mustExist",
    ): "Fail if the queue does not exist, or is deleted while this waits.",
    (Command.ABANDON, "leaseId"): "Lease id, as consume prints it: the message must be leased under it.",
    (Command.ABANDON, "ifState"): "Give it up only if it is in this state, or its lease in this phase.",
    (Command.PURGE, "ifState"): "Remove it only if it is in this state, or its lease in this phase.",
    (Command.PURGE, "resetTally"): "Set the tally of the queue to 0 at the end.",
    (Command.DRAFT, "ttlMs"): "Milliseconds after which the message expires, from when it is ready (default: by the "
    "queue's policy).",
    (
        Command.APPEND,
        "messages",
    ): "JSON array of objects with message, attributes, encoding and contentType; instead of --message",
    (Command.APPEND, "delayMs"): "Milliseconds after which the records are appended (default 0).",
    (Command.READ, "waitMs"): "Milliseconds to wait for a record (default 0).",
    (Command.CREATE_QUEUE, "createWith"): 'JSON object: policy of the queue, {"kind": "log"} for a log',
    (Command.CREATE_QUEUE, "mustBeNew"): "No error if the queue exists.",
    (Command.SET, "messageKey"): "Key of the message, as draft prints it; with --lease-id not needed.",
    (Command.SET, "queue"): "Without --message-key: queue in which the message must be.",
}
for _command in (
    Command.ACK,
    Command.ACK_AND_PUBLISH,
    Command.NACK,
    Command.RELEASE,
    Command.EXTEND_LEASE,
    Command.ACTIVATE,
):
    _HELP_OF[_command, "messageKey"] = "Key of the message, as consume prints it; --lease-id alone is enough."
    _HELP_OF[_command, "queue"] = "Without --message-key: queue in which the message must be."
_GROUPS: Final = {
    "policy": "Show or set policies.",
    "log": "Append and read records that stay.",
    "schedule": "Publish messages at given times.",
}


always_json_option: Final = click.option(
    "--json", is_flag=True, expose_value=False, help="Accepted; the output is always one JSON object."
)
_root_option: Final = click.Option(
    ["--root"],
    type=click.Path(path_type=Path, readable=False),
    metavar="DIR",
    help="The same as the option of `local`.",
)


def _local_command(command: Command, name: str, help: str) -> click.Command:  # noqa: A002 - as click says
    @click.pass_context
    def carry_out(context: click.Context, /, **given: Any) -> None:
        context.obj.root = given["root"] or context.obj.root
        payload: dict[str, Any] = {field.name: given.get(_variable(field)) for field in FIELDS[command]}
        if command in _WITH_BODY and payload.get("messages") is None:
            _complete_publish(payload, given["json_body"], given.get("binary", False))
        elif given.get("publishing"):
            if payload["operation"] == "consume":
                raise click.UsageError("--publish and --operation consume: give one of them")
            payload["operation"] = "publish"
        _check_replaced(command, payload)
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
            click.Option(["--json-body"], is_flag=True, help="Message and attributes are JSON: send the values.")
        )
    if command in (Command.PUBLISH, Command.SET, Command.APPEND):
        params.append(click.Option(["--binary"], is_flag=True, help="The message is binary: send it as base64."))
    if command in (Command.PAUSE, Command.RESUME):
        params.append(click.Option(["--publish", "publishing"], is_flag=True, help="The same as --operation publish."))
    params.append(_root_option)
    return always_json_option(click.Command(name, callback=carry_out, params=params, help=help, short_help=help))


def _check_replaced(command: Command, payload: dict[str, Any]) -> None:
    """Raise ``click.UsageError`` unless a required field, or the one that is given instead of it, is there."""
    for field in FIELDS[command]:
        if field.instead_of and payload[field.name] is None and payload[field.instead_of] is None:
            options = [split_words(name, "-") for name in (field.instead_of, field.name)]
            raise click.UsageError("Missing option '--{}' or '--{}'.".format(*options))


def _call(source: Source, command: Command, word: str, payload: dict[str, Any]) -> None:
    config = source.load()
    if not config.root.is_dir():
        raise PostroomError(f"{config.root} does not exist; create it with: postroomd init --root {config.root}")
    from ..maintenance.local import open_local

    try:
        with open_local(config) as local:
            data = _all_pages(local, command, payload)
    except CommandError as error:
        answer = {"code": str(error.code), "message": error.message}
        click.echo(json.dumps({"ok": False, "command": word, "error": answer}))
        raise SystemExit(1) from None
    click.echo(json.dumps({"ok": True, "command": word, "data": data}))
    if command is Command.CONSUME_NEXT and data["message"] is None:
        raise SystemExit(NOTHING_TO_CONSUME)


def _all_pages(local: LocalRoot, command: Command, payload: dict[str, Any]) -> dict[str, Any]:
    """The reply to a command. Without a limit, one that works in pages does all of them; its reply has the sum."""
    counted = _COUNTED.get(command)
    if counted is None or "limit" in payload or "messageKey" in payload:
        return local.call(command.value, payload)
    payload, count = payload | {"limit": PAGE_LIMIT}, 0
    while True:
        data = local.call(command.value, payload)
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
        none = "" if field.name in ("filter", "createWith") else ", or none"
        text = f"{text}: TEXT, @FILE (@@ for a leading @), or standard input (-{none})."
    if field.kind is Kind.FLAG:
        if field.default:
            names[0] = names[0].replace("--", "--no-", 1)
            return click.Option(names, flag_value=False, type=bool, default=None, help=text)
        return click.Option(names, is_flag=True, default=None, help=text)
    kind: Any = {Kind.INTEGER: int, Kind.NUMBER: float}.get(field.kind, str)
    if field.name in _CHOICES:
        kind = click.Choice(_CHOICES[field.name])
    replaced = any(other.instead_of == field.name for other in FIELDS[command])
    required = field.required and not replaced and field.name not in _FROM_FILES
    callback = _to_scalar if field.kind is Kind.SCALAR else None
    return click.Option(names, type=kind, required=required, callback=callback, help=text)


def _of_protocol(field: Field) -> str:
    default = f" (default {field.default})" if type(field.default) in (int, str) and field.default != "" else ""
    return f"{field.help[0].upper()}{field.help[1:]}{default}."


def _variable(field: Field) -> str:
    return split_words(field.name, "_")


def _to_scalar(context: click.Context, parameter: click.Parameter, text: str | None) -> str | float | None:
    """A number if the text is one, else the text."""
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
    """The bytes of an argument: its own, those of ``@file``, or standard input."""
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
    """The text of an argument: its own, that of ``@file``, or standard input."""
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
