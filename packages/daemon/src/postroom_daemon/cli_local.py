"""``postroomd local``: the one-shot commands on a stopped root, made from the protocol's table of fields."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any, Final

import click
from postroom_common.codec import strict_loads
from postroom_common.errors import CommandError, PostroomError
from postroom_common.protocol import FIELDS, Command, Field, Kind
from postroom_common.settings import split_words

from .cli_options import Source

NOTHING_TO_CONSUME: Final = 4

#: Fields that make no sense where nobody else publishes meanwhile.
_ONLY_SERVED: Final = frozenset({"waitMs", "waitLock"})
#: Short spellings beside the rule that ``messageKey`` is ``--message-key``.
_SHORT: Final = {
    "delayMs": "--delay",
    "targetConsumerId": "--target",
    "visibilityTimeoutSec": "--visibility",
    "deduplicationKey": "--dedup-key",
}
_NAMES: Final = {
    Command.PUBLISH: ("publish", "Put a message into a queue."),
    Command.CONSUME_NEXT: ("consume", "Lease the next message of a queue."),
    Command.ACK: ("ack", "Say that a leased message is done."),
    Command.NACK: ("nack", "Say that a leased message failed: to retry it, or to give it up as a dead letter."),
    Command.RELEASE: ("release", "Give a leased message back as if it had not been delivered."),
    Command.EXTEND_LEASE: ("extend", "Prolong a lease, counted from now."),
    Command.STATUS: ("status", "Show one queue."),
    Command.HEALTH: ("health", "Probe journal, store and disk."),
    Command.METRICS: ("metrics", "Show counts and times."),
    Command.LIST_QUEUES: ("queues", "List the queues."),
    Command.LIST_DLQ: ("list-dlq", "List the dead letters of a queue."),
    Command.REPROCESS_DLQ: ("reprocess", "Make a dead letter ready again, its attempts counted from zero."),
    Command.PAUSE: ("pause", "Stop consuming from a queue, or with --publish publishing to it."),
    Command.RESUME: ("resume", "Undo a pause."),
}
_POLICY_NAMES: Final = {
    Command.GET_POLICY: ("get", "Show the policy in force for a queue."),
    Command.SET_POLICY: ("set", "Set keys of a queue's policy over the configuration."),
}


def _local_command(command: Command, name: str, help: str) -> click.Command:  # noqa: A002 - as click says
    @click.pass_obj
    def carry_out(source: Source, /, **given: Any) -> None:
        payload = {field.name: given[_variable(field)] for field in FIELDS[command] if _variable(field) in given}
        _call(source, command, {name: value for name, value in payload.items() if value is not None})

    params: list[click.Parameter] = [_option(field) for field in FIELDS[command] if field.name not in _ONLY_SERVED]
    return click.Command(name, callback=carry_out, params=params, help=help, short_help=help)


def _call(source: Source, command: Command, payload: dict[str, Any]) -> None:
    _unpack_message(payload)
    config = source.load()
    if not config.root.is_dir():
        raise PostroomError(f"{config.root} does not exist; make it with: postroomd init --root {config.root}")
    from .service import open_local

    try:
        with open_local(config) as session:
            data = session.call(command.value, payload)
    except CommandError as error:
        click.echo(json.dumps({"error": {"code": error.code, "message": error.message}}, ensure_ascii=False))
        raise SystemExit(1) from None
    click.echo(json.dumps(data, ensure_ascii=False))
    if command is Command.CONSUME_NEXT and data["message"] is None:
        raise SystemExit(NOTHING_TO_CONSUME)


def _option(field: Field) -> click.Option:
    if field.name == "operation":
        return click.Option(
            ["--publish", _variable(field)], flag_value="publish", help="Publishing instead of consuming."
        )
    names = ["--" + split_words(field.name, "-"), _variable(field)]
    if field.name in _SHORT:
        names.insert(0, _SHORT[field.name])
    text = f"{field.help[0].upper()}{field.help[1:]}."
    if field.name == "message":
        text = "The body: a text, @FILE for a file's content, or - for standard input."
    if field.kind is Kind.FLAG:
        return click.Option(names, is_flag=True, default=None, help=text)
    return click.Option(
        names,
        type={Kind.INTEGER: int, Kind.NUMBER: float}.get(field.kind, str),
        callback=_parse_object if field.kind is Kind.OBJECT else None,
        required=field.required or field.name == "message",
        help=text,
    )


def _variable(field: Field) -> str:
    return split_words(field.name, "_")


def _parse_object(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = strict_loads(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"not valid JSON: {error}") from None
    if type(value) is not dict:
        raise click.BadParameter('expected a JSON object, such as {"retry": {"limit": 3}}')
    return value


def _unpack_message(payload: dict[str, Any]) -> None:
    # Bytes that are no text travel as base64, so that any file can be a body.
    text = payload.get("message", "")
    if text == "-":
        content = sys.stdin.buffer.read()
    elif text.startswith("@"):
        try:
            content = Path(text[1:]).read_bytes()
        except OSError as error:
            raise click.UsageError(f"--message: {text[1:]} cannot be read: {error.strerror}") from None
    else:
        return
    try:
        payload["message"] = content.decode()
    except UnicodeDecodeError:
        if "encoding" in payload:
            raise click.UsageError("--message: with --encoding the content must be text") from None
        payload["message"], payload["encoding"] = base64.b64encode(content).decode(), "base64"


#: The commands of ``postroomd local``.
LOCAL_COMMANDS: Final[list[click.Command]] = [_local_command(command, *named) for command, named in _NAMES.items()]
LOCAL_COMMANDS.append(
    click.Group(
        "policy",
        commands=[_local_command(command, *named) for command, named in _POLICY_NAMES.items()],
        help="Show or change the policy of a queue.",
    )
)
