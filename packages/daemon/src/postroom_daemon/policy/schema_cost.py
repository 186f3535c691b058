"""How much work a JSON Schema makes, counted before the work is done.

The library that validates says quickly whether a body fits. But it writes every reference out when it makes a schema
ready, unless that leads back to where it is; and to tell what is wrong it writes down every fault of every alternative
(``anyOf``, ``oneOf``) with a copy of the part that has it. Both may take for ever, and all memory. A count takes one
look at each pair of a schema and a value, however often the library would come by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

#: Schemas that one may come to when its references are written out.
EXPANDED_LIMIT: Final = 10_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
#: Keywords of one schema, of a list of schemas, and of an object of them, that look at the same value; and those that
#: look at what the value holds.
_ONE: Final = ("not", "if", "then", "else")
_LIST: Final = ("allOf", *_ALTERNATIVES)
_MAP: Final = ("dependentSchemas", "dependencies")
_OF_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_OF_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_ONE_BELOW: Final = (*_OF_MEMBERS, *_OF_ITEMS, "propertyNames")
_LIST_BELOW: Final = ("items", "prefixItems")
_MAP_BELOW: Final = ("properties", "patternProperties")


class _Over(Exception):
    """There is more work than was asked about."""


class Work:
    """The work of one schema. ``recursive``: it refers to itself. ``alternatives``: it has some, somewhere.

    Raises ``ValueError`` for one that comes to too much, whatever the body.
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
                f"with its references written out it has more than {EXPANDED_LIMIT:,} schemas: let it refer to fewer"
            )

    def exceeds(self, value: Any, limit: int) -> bool:
        """Whether a body is looked at more than ``limit`` times. Takes no more than so many steps itself."""
        try:
            return self._count(self._root, value, limit, {}) > limit
        except (_Over, RecursionError):
            return True

    def _name(self, part: Any) -> None:
        """Note the names by which parts are referred to, and whether there are alternatives."""
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
        """What a reference names; nothing if it leads out of the schema, to where no reference leads back."""
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
        """The schemas that look at the same value."""
        for keyword in _REFERENCES:
            if keyword in schema:
                yield self._referred(schema[keyword])
        yield from _schemas(schema, _ONE, _LIST, _MAP)

    def _expanded(self, schema: Any, known: dict[int, int]) -> int:
        """To how many schemas one comes when all references are written out, but for those that lead back."""
        if not isinstance(schema, dict):
            return 0
        count = known.get(id(schema))
        if count is None:
            known[id(schema)] = -1
            count = 1 + sum(self._expanded(one, known) for one in self._beside(schema))
            below = _schemas(schema, _ONE_BELOW, _LIST_BELOW, _MAP_BELOW)
            count += sum(self._expanded(one, known) for one in below)
            known[id(schema)] = count
        elif count < 0:
            self.recursive = True
        return max(count, 0)

    def _count(self, schema: Any, value: Any, limit: int, known: dict[tuple[int, int], int]) -> int:
        """How often values are looked at when ``value`` is."""
        if not isinstance(schema, dict):
            return 0
        pair = (id(schema), id(value))
        count = known.get(pair)
        if count is None:
            if len(known) >= limit:
                raise _Over
            known[pair] = 0  # a way that leads back to itself is not gone a second time
            count = 1 + sum(self._count(one, value, limit, known) for one in self._beside(schema))
            count += sum(self._count(one, held, limit, known) for one, held in _below(schema, value))
            known[pair] = count
            if count > limit:
                raise _Over
        return count


def _schemas(
    schema: dict[str, Any], ones: tuple[str, ...], lists: tuple[str, ...], maps: tuple[str, ...]
) -> Iterator[Any]:
    """The schemas under some keywords of a schema."""
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
    """The schemas that look at what a value holds, each with that."""
    if isinstance(value, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from ((properties[name], held) for name, held in value.items() if name in properties)
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            yield from ((one, held) for one in patterns.values() for held in value.values())
        for keyword in _OF_MEMBERS:
            if keyword in schema:
                yield from ((schema[keyword], held) for held in value.values())
        if "propertyNames" in schema:
            yield from ((schema["propertyNames"], name) for name in value)
    elif isinstance(value, list):
        for keyword in _LIST_BELOW:
            if isinstance(schema.get(keyword), list):
                yield from zip(schema[keyword], value, strict=False)
        for keyword in _OF_ITEMS:
            if isinstance(schema.get(keyword), dict):
                yield from ((schema[keyword], held) for held in value)
