"""Checks the payload of a command against the protocol's table of fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import (
    FIELDS,
    QUEUE_NAME_BYTES_LIMIT,
    TEXT_LIMIT,
    Command,
    ErrorCode,
    Field,
    Kind,
    queue_name_problem,
)

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
    Kind.VALUE: (str, int, float, bool, dict, list, type(None), bytes),  # bytes: a body that is not in the JSON
    Kind.SCALAR: (str, int, float),
}
Check = Callable[[Any], str | None]
_Rule = tuple[tuple[type, ...], int, Check | None, Field]


#: No text has so many characters.
_UNLIMITED: Final = 2**62
#: As ``queue_name_problem``: the same queues come again and again.
_remembered_problem: Final = lru_cache(maxsize=4096)(queue_name_problem)


def _queue_problem(name: str) -> str | None:
    """As ``queue_name_problem``. What is too long is not remembered: it may be as long as a request."""
    return _remembered_problem(name) if len(name) <= QUEUE_NAME_BYTES_LIMIT else queue_name_problem(name)


def _range_problem(low: int | float, high: int | float) -> Check:  # compiled, a "float" is never an integer
    def problem(value: int | float) -> str | None:
        return None if low <= value <= high else f"must be from {low:.15g} to {high:.15g}, but is {value}"

    return problem


def _check_of(field: Field) -> Check | None:
    """What says of a value what is wrong with it; None if every value of the type is right."""
    if field.kind is Kind.QUEUE:
        return _queue_problem
    if field.kind is Kind.TEXT:
        return None  # it is only too long
    return None if field.low is None or field.high is None else _range_problem(field.low, field.high)


def _longest(field: Field) -> int:
    """The longest text of a field (characters)."""
    if field.kind is not Kind.TEXT:
        return _UNLIMITED
    return TEXT_LIMIT if field.high is None else int(field.high)


def _rules(fields: tuple[Field, ...]) -> dict[str, _Rule]:
    return {field.name: (_TYPES[field.kind], _longest(field), _check_of(field), field) for field in fields}


#: By command: the types, the longest text, the check and the field of each name; the defaults; which names are
#: required; and which may be given instead of them.
_TABLE: Final = {
    command: (
        _rules(fields),
        {field.name: field.default for field in fields},
        [field.name for field in fields if field.required],
        {field.instead_of: field.name for field in fields if field.instead_of},
    )
    for command, fields in FIELDS.items()
}


def common_fields(command: Command, **given: Any) -> Fields:
    """Every field of ``command`` by name: what a request gives for all items of a batch, else the defaults."""
    return _TABLE[command][1] | given


def read_fields(command: Command, payload: dict[str, Any], common: Fields | None = None) -> Fields:
    """Every field of ``command`` by name, absent ones as in ``common``, else with their defaults (None if they have
    none).

    Unknown fields are ignored; null counts as absent unless the field accepts any value. ``1500.0`` is an integer, and
    true is 1.

    Raises ``CommandError``: ERR_INVALID_REQUEST for a field that is missing or out of bounds, and for ``queue`` and
    ``messageKey`` of a wrong type; ERR_PARSE_ERROR for another field of a wrong type.
    """
    rules, defaults, required, instead = _TABLE[command]
    fields: Fields = (common or defaults).copy()
    for name, value in payload.items():
        rule = rules.get(name)
        if rule is None:
            continue
        types, longest, check, field = rule
        if type(value) not in types:
            if value is None:
                continue
            value = _as_number(field, value)
        if check and (problem := check(value)):
            raise CommandError(ErrorCode.INVALID_REQUEST, f"{name} {problem}")
        if type(value) is str and len(value) > longest:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"{name} must be at most {longest} characters")
        fields[name] = value
    for name in required:
        if fields[name] in (None, "") and (name not in instead or fields[instead[name]] is None):
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


def _kind_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
