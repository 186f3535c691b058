"""Checks the payload of a command against the protocol's table of fields."""

from __future__ import annotations

from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import FIELDS, TEXT_LIMIT, Command, ErrorCode, Field, Kind, queue_name_problem

Fields = dict[str, Any]

_INTEGER_LIMIT: Final = 2.0**63
_TYPES: Final[dict[Kind, tuple[type, ...]]] = {
    Kind.TEXT: (str,),
    Kind.QUEUE: (str,),
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.FLAG: (bool,),
    Kind.OBJECT: (dict,),
    Kind.ARRAY: (list,),
    Kind.ATTRIBUTES: (str, dict),
    Kind.VALUE: (str, int, float, bool, dict, list, type(None)),
    Kind.SCALAR: (str, int, float),
}
#: By command and name: the field, its types, whether null counts as absent, and whether it has bounds.
_TABLE: Final = {
    command: {
        field.name: (
            field,
            _TYPES[field.kind],
            field.kind is not Kind.VALUE,
            field.kind in (Kind.QUEUE, Kind.TEXT) or field.low is not None,
        )
        for field in fields
    }
    for command, fields in FIELDS.items()
}
_DEFAULTS: Final = {command: {field.name: field.default for field in fields} for command, fields in FIELDS.items()}
_REQUIRED: Final = {command: [field.name for field in fields if field.required] for command, fields in FIELDS.items()}


def read_fields(command: Command, payload: dict[str, Any]) -> Fields:
    """Every field of ``command`` by name, absent ones with their defaults (None if they have none).

    Unknown fields are ignored; null counts as absent unless the field accepts any value. ``1500.0`` is an integer, and
    true is 1.

    Raises ``CommandError``: ERR_INVALID_REQUEST for a field that is missing or out of bounds, and for ``queue`` and
    ``messageKey`` of a wrong type; ERR_PARSE_ERROR for another field of a wrong type.
    """
    table = _TABLE[command]
    fields = _DEFAULTS[command].copy()
    for name, value in payload.items():
        rule = table.get(name)
        if rule is None:
            continue
        field, types, null_is_absent, bounded = rule
        if value is None and null_is_absent:
            continue
        if type(value) not in types:
            value = _as_number(field, value)
        if bounded:
            _check_bounds(field, value)
        fields[name] = value
    for name in _REQUIRED[command]:
        if fields[name] in (None, ""):
            raise CommandError(ErrorCode.INVALID_REQUEST, f"{name} is required")
    return fields


def _as_number(field: Field, value: Any) -> int:
    """The number that a boolean or, for an integer, a float without a fraction is to the C++ system. Raises
    ``CommandError`` for any other value of a wrong type."""
    is_whole = type(value) is float and value.is_integer() and abs(value) < _INTEGER_LIMIT
    if field.kind in (Kind.INTEGER, Kind.NUMBER) and (is_whole or type(value) is bool):
        return int(value)
    names_something = field.name in ("queue", "messageKey") or (
        field.required and field.kind in (Kind.QUEUE, Kind.TEXT)
    )
    code = ErrorCode.INVALID_REQUEST if names_something else ErrorCode.PARSE_ERROR
    raise CommandError(code, f"{field.name} must be of type {field.kind}, but is {_kind_of(value)}")


def _check_bounds(field: Field, value: Any) -> None:
    if field.kind is Kind.QUEUE:
        problem = queue_name_problem(value)
        if problem:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"{field.name} {problem}")
    elif field.kind is Kind.TEXT:
        if len(value) > TEXT_LIMIT:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"{field.name} must be at most {TEXT_LIMIT} characters")
    elif field.low is not None and field.high is not None and not field.low <= value <= field.high:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{field.name} must be from {field.low:.15g} to {field.high:.15g}, but is {value}",
        )


def _kind_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
