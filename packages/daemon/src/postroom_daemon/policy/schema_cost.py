"""The cost of a JSON Schema, computed before the library does the work.

The library quickly decides whether a body is valid. But to compile a schema it expands every reference that is not
recursive, and to report errors it collects those of every alternative (``anyOf``, ``oneOf``) with a copy of the invalid
value. Both may take all time and memory. The computation here visits each pair of a schema and a value once, however
often the library would visit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

#: Maximum number of subschemas once all references are expanded.
EXPANDED_LIMIT: Final = 10_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
#: Keywords with one schema, with a list of schemas and with an object of schemas that apply to the same value; and
#: those that apply to the members or items of the value.
_ONE: Final = ("not", "if", "then", "else")
_LIST: Final = ("allOf", *_ALTERNATIVES)
_MAP: Final = ("dependentSchemas", "dependencies")
_OF_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_OF_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_ONE_BELOW: Final = (*_OF_MEMBERS, *_OF_ITEMS, "propertyNames")
_LIST_BELOW: Final = ("items", "prefixItems")
_MAP_BELOW: Final = ("properties", "patternProperties")


class _LimitExceeded(Exception):
    """The work exceeds the limit."""


class SchemaCost:
    """The cost of one schema. ``recursive``: it refers to itself. ``alternatives``: it has ``anyOf`` or ``oneOf``.

    Raises ``ValueError`` for a schema that costs too much whatever the body is.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._named: dict[str, Any] = {}
        self.recursive = self.alternatives = False
        try:
            self._name(schema)
            expanded = self._expanded(schema, {})
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if expanded > EXPANDED_LIMIT:
            raise ValueError(
                f"with its references expanded it has more than {EXPANDED_LIMIT:,} subschemas: use fewer references"
            )

    def exceeds(self, value: Any, limit: int) -> bool:
        """Whether validating a body visits values more than ``limit`` times. Takes at most ``limit`` steps itself."""
        try:
            return self._count(self._root, value, limit, {}) > limit
        except (_LimitExceeded, RecursionError):
            return True

    def _name(self, part: Any) -> None:
        """Register the names of subschemas, and whether there are alternatives."""
        if isinstance(part, dict):
            for keyword in ("$id", "id", "$anchor", "$dynamicAnchor"):
                name = part.get(keyword)
                if type(name) is str:
                    self._named.setdefault(name if "id" in keyword else "#" + name, part)
            self.alternatives |= any(type(part.get(keyword)) is list for keyword in _ALTERNATIVES)
        if isinstance(part, dict | list):
            for one in part.values() if isinstance(part, dict) else part:
                self._name(one)

    def _referred(self, reference: Any) -> Any:
        """The subschema that a reference names; None if it leads out of the schema."""
        if type(reference) is not str:
            return None
        base, _, place = reference.partition("#")
        if place and not place.startswith("/"):
            return self._named.get("#" + place)
        part = self._named.get(base) if base else self._root
        for step in place.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list):
                part = part[int(step)] if step.isdecimal() and int(step) < len(part) else None
            else:
                part = part.get(step) if isinstance(part, dict) else None
        return part

    def _beside(self, schema: dict[str, Any]) -> Iterator[Any]:
        """The subschemas that apply to the same value."""
        for keyword in _REFERENCES:
            if keyword in schema:
                yield self._referred(schema[keyword])
        yield from _schemas(schema, _ONE, _LIST, _MAP)

    def _expanded(self, schema: Any, counts: dict[int, int]) -> int:
        """The number of subschemas once all references are expanded, except recursive ones."""
        if not isinstance(schema, dict):
            return 0
        count = counts.get(id(schema))
        if count is None:
            counts[id(schema)] = -1
            count = 1 + sum(self._expanded(one, counts) for one in self._beside(schema))
            below = _schemas(schema, _ONE_BELOW, _LIST_BELOW, _MAP_BELOW)
            count += sum(self._expanded(one, counts) for one in below)
            counts[id(schema)] = count
        elif count < 0:
            self.recursive = True
        return max(count, 0)

    def _count(self, schema: Any, value: Any, limit: int, counts: dict[tuple[int, int], int]) -> int:
        """How often values are visited to validate ``value``."""
        if not isinstance(schema, dict):
            return 0
        pair = (id(schema), id(value))
        count = counts.get(pair)
        if count is None:
            if len(counts) >= limit:
                raise _LimitExceeded
            counts[pair] = 0  # a cycle is not followed twice
            count = 1 + sum(self._count(one, value, limit, counts) for one in self._beside(schema))
            count += sum(self._count(one, member, limit, counts) for one, member in _below(schema, value))
            counts[pair] = count
            if count > limit:
                raise _LimitExceeded
        return count


def _schemas(
    schema: dict[str, Any], ones: tuple[str, ...], lists: tuple[str, ...], maps: tuple[str, ...]
) -> Iterator[Any]:
    """The subschemas under some keywords of a schema."""
    for keyword in ones:
        if isinstance(schema.get(keyword), dict):
            yield schema[keyword]
    for keyword in lists:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]
    for keyword in maps:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()


def _below(schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
    """The members and items of a value, each with a subschema that applies to it."""
    if isinstance(value, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from ((properties[name], member) for name, member in value.items() if name in properties)
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            yield from ((one, member) for one in patterns.values() for member in value.values())
        for keyword in _OF_MEMBERS:
            if keyword in schema:
                yield from ((schema[keyword], member) for member in value.values())
        if "propertyNames" in schema:
            yield from ((schema["propertyNames"], name) for name in value)
    elif isinstance(value, list):
        for keyword in _LIST_BELOW:
            if isinstance(schema.get(keyword), list):
                yield from zip(schema[keyword], value, strict=False)
        for keyword in _OF_ITEMS:
            if isinstance(schema.get(keyword), dict):
                yield from ((schema[keyword], member) for member in value)
