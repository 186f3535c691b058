"""The message schema of the C++ system, with its error texts: rules about the top-level fields of a JSON object.

An absent field passes every rule except ``required``, and a value of another type passes the rules of length, value,
pattern and enum. Lengths are bytes of UTF-8. A pattern must match the whole value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .schema import Pattern

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_Holds = Callable[[Any], bool]


class MessageRules:
    """A queue's ``messageSchema``, which ``config.file`` has checked.

    Raises ``ValueError`` for an unusable pattern.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._rules = [_rule(rule) for rule in schema["rules"]]

    def problems(self, value: Any) -> list[str]:
        """The text of each rule that a body violates."""
        fields = value if type(value) is dict else {}
        return [text for name, required, holds, text in self._rules if not _passes(fields, name, required, holds)]


def _passes(fields: dict[str, Any], name: str, required: bool, holds: _Holds) -> bool:
    return holds(fields[name]) if name in fields else not required


def _rule(rule: dict[str, Any]) -> tuple[str, bool, _Holds, str]:
    """The field, whether it is required, the predicate for its value, and the text of a violation."""
    holds, text = _KINDS[rule["type"]](rule)
    message = rule.get("errorMessage") or f"field '{rule['field']}' {text}"
    return rule["field"], rule["type"] == "required", holds, message


def _required(rule: dict[str, Any]) -> tuple[_Holds, str]:
    return lambda value: True, "is required"


def _type(rule: dict[str, Any]) -> tuple[_Holds, str]:
    expected = _TYPES[rule["expectedType"]]
    return lambda value: type(value) in expected, f"must be of type '{rule['expectedType']}'"


def _length(rule: dict[str, Any]) -> tuple[_Holds, str]:
    bound = rule["value"]
    if rule["type"] == "minLength":
        return _for((str,), lambda value: len(value.encode()) >= bound), f"must be at least {bound:.15g} characters"
    return _for((str,), lambda value: len(value.encode()) <= bound), f"must be at most {bound:.15g} characters"


def _value(rule: dict[str, Any]) -> tuple[_Holds, str]:
    bound = rule["value"]
    if rule["type"] == "minValue":
        return _for((int, float), lambda value: value >= bound), f"must be at least {bound:.15g}"
    return _for((int, float), lambda value: value <= bound), f"must be at most {bound:.15g}"


def _pattern(rule: dict[str, Any]) -> tuple[_Holds, str]:
    pattern = Pattern(rule["value"])
    return _for((str,), pattern.matches_whole), f"does not match pattern '{rule['value']}'"


def _enum(rule: dict[str, Any]) -> tuple[_Holds, str]:
    values = rule["values"]
    listed = ", ".join(f"'{value}'" for value in values)
    return _for((str,), lambda value: value in values), f"must be one of: {listed}"


def _custom(rule: dict[str, Any]) -> tuple[_Holds, str]:
    return lambda value: True, "failed custom validation"  # names code, which the C++ system never had either


def _for(types: tuple[type, ...], holds: _Holds) -> _Holds:
    return lambda value: type(value) not in types or holds(value)


_KINDS: Final[dict[str, Callable[[dict[str, Any]], tuple[_Holds, str]]]] = {
    "required": _required,
    "type": _type,
    "minLength": _length,
    "maxLength": _length,
    "minValue": _value,
    "maxValue": _value,
    "pattern": _pattern,
    "enum": _enum,
    "custom": _custom,
}
