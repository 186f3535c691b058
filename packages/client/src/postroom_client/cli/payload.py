"""Turns the arguments of a command line into the payload of a command."""

import json
import os
import sys

from .._codec import encode_base64, lacks_delivery
from .._compat import ordered_dict
from .._protocol import FIELDS, REQUEST_BYTES_DEFAULT
from .names import option_names

#: How long a request of ``log read --follow`` waits for a record.
_FOLLOW_MS = 20000


class UsageError(Exception):
    """The command line is wrong; the text says why."""


def payload_of(options):
    """Return the payload of a command, with the wire's field names. Raises ``UsageError``."""
    fields = {}
    for name, _, kind, _, required, _ in FIELDS[options.command]:
        value = getattr(options, name, None)
        if kind in ("object", "array") and (value is not None or required):
            option = option_names(name)[0]
            value = _json_value(_text(_source(value, option), option), option)
        if value is not None:
            fields[name] = value
    if lacks_delivery(options.command, fields):
        raise UsageError("--message-key or --lease-id is required")
    for number, item in enumerate(fields.get("messages") or ()):
        if isinstance(item, dict) and "message" not in item:
            raise UsageError("--messages: item %d (the first is 0) has no message" % number)
    if options.command in ("publish", "set") or (options.command == "append" and "messages" not in fields):
        _complete_publish(options, fields)
    elif options.command == "draft":
        _complete_attributes(fields, as_value=False)
    elif options.command == "set_schedule" and "message" in fields:
        options.binary = False
        _complete_publish(options, fields)
    elif options.command == "create_queue" and options.log:
        fields["createWith"] = dict(fields.get("createWith") or {}, kind="log")
    elif options.command in ("consume_next", "read"):
        if options.command == "read" and options.follow:
            fields.setdefault("waitMs", _FOLLOW_MS)
        if fields.get("waitMs"):
            fields.setdefault("waitLock", True)
        else:
            fields.pop("waitLock", None)
    return fields


def _complete_publish(options, fields):
    body = _source(fields.get("message"), "--message")
    if options.binary:
        fields["message"] = encode_base64(body)
        fields["encoding"] = "base64"
    else:
        text = _text(body, "--message")
        fields["message"] = _json_value(text, "--message", _QUOTES_HINT) if options.json_body else text
    _complete_attributes(fields, options.json_body)


def _complete_attributes(fields, as_value):
    if "attributes" in fields:
        text = _text(_source(fields["attributes"], "--attributes"), "--attributes")
        value = _json_value(text, "--attributes", _OBJECT_HINT)
        if not isinstance(value, dict):
            raise UsageError("--attributes is not a JSON object" + _OBJECT_HINT)
        fields["attributes"] = value if as_value else text


_QUOTES_HINT = """ (a string needs quotes: '"hello"'; or leave out --json-body)"""
_OBJECT_HINT = """ (example: '{"name": "value"}')"""


def _source(argument, option):
    """Return the bytes of an argument: the argument itself, the file ``@file``, or standard input."""
    if argument is None or argument == "-":
        stdin = getattr(sys.stdin, "buffer", sys.stdin)
        if argument is None and (stdin is None or stdin.isatty()):
            raise UsageError("%s is missing: give TEXT, @FILE or -" % option)
        data = _read(stdin, "standard input")
        if argument is None and not data:
            hint = " (%s '' sends an empty message)" % option if option == "--message" else ""
            raise UsageError("%s is missing and standard input is empty%s" % (option, hint))
        return data
    if argument.startswith("@") and not argument.startswith("@@"):
        try:
            with open(argument[1:], "rb") as file:
                return _read(file, argument[1:])
        except (IOError, OSError) as error:
            raise UsageError("%s: cannot read %s: %s" % (option, argument[1:], os.strerror(error.errno)))
    argument = argument[1:] if argument.startswith("@@") else argument
    return argument if isinstance(argument, bytes) else os.fsencode(argument)


def _read(file, name):
    data = file.read(REQUEST_BYTES_DEFAULT + 1)
    if len(data) > REQUEST_BYTES_DEFAULT:
        raise UsageError("%s has more than %d bytes" % (name, REQUEST_BYTES_DEFAULT))
    return data


def _text(data, option):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("%s is not UTF-8 (byte %d): binary data needs --binary" % (option, error.start))


def _json_value(text, option, hint=""):
    try:
        return json.loads(text, object_pairs_hook=_check_keys)
    except ValueError as error:
        raise UsageError("%s is not JSON: %s%s" % (option, error, hint))


def _check_keys(pairs):
    result = ordered_dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result
