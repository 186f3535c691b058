"""JSON Schema, and patterns: by the library jsonschema-rs, whose regular expressions take linear time.

The library takes 7 to 9 MB of memory: it is loaded when the first schema or pattern is. A ``$ref`` that leads out of
the schema is refused, whatever it names; nothing is ever fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from postroom_common.errors import ConfigurationError
from postroom_common.policy import Layer

from .schema_cost import Work

if TYPE_CHECKING:
    from jsonschema_rs import Validator

#: Size of the largest schema, as JSON.
SCHEMA_BYTES_LIMIT: Final = 65536
#: Bodies up to this size are told of all that is wrong with them, larger ones of the first thing only: the library
#: finds all faults before it tells of one, and a body may have one in every other byte.
_ALL_FAULTS_BYTES: Final = 16384
#: Looks at values that a body may take where its faults are to be told and the schema has alternatives, each of which
#: has faults of its own, or refers to itself.
_FAULT_LOOKS: Final = 2000
#: Faults that are told, and characters of each.
_FAULTS: Final = 20
_FAULT_TEXT: Final = 300


class JsonSchema:
    """A schema, ready to be used. Raises ``ValueError`` with the reason for one that cannot be."""

    def __init__(self, schema: Any) -> None:
        self._work = Work(schema)
        self._validator = _compiled(schema)

    def problems(self, value: Any) -> list[str]:
        """What is wrong with a body, each as ``<JSON Pointer>: <text>``."""
        if self._validator.is_valid(value):
            return []
        from jsonschema_rs import ValidationError

        work = self._work
        if (work.recursive or work.alternatives) and work.exceeds(value, _FAULT_LOOKS):
            return ["does not fit the schema, whose alternatives are too many for so large a body to tell where"]
        if len(orjson.dumps(value)) > _ALL_FAULTS_BYTES:
            try:
                self._validator.validate(value)
            except ValidationError as error:
                return [_told(error), "more may be wrong"]
        found = [_told(error) for error in self._validator.iter_errors(value)]
        return found if len(found) <= _FAULTS else [*found[:_FAULTS], f"{len(found) - _FAULTS} more"]


def check_schema(layer: Layer, where: str) -> None:
    """Raise ``ConfigurationError`` for a layer of a policy with a schema that cannot be used."""
    schema = layer.get("validation.schema")
    if schema:
        try:
            JsonSchema(schema)
        except ValueError as error:
            raise ConfigurationError(f"{where}.validation.schema: {error}") from None


class Pattern:
    """A regular expression. Raises ``ValueError`` with the reason for one that cannot be used."""

    def __init__(self, expression: str) -> None:
        try:
            _compiled({"pattern": expression})  # by itself: it is not to end the group that it is put into
            self._validator = _compiled({"pattern": f"^(?:{expression})$"})
        except ValueError:
            raise ValueError(
                f"{_cut(expression, 80)!r} is no regular expression that can be used: those that look ahead or back, or"
                " refer to a group, are not"
            ) from None

    def matches_whole(self, text: str) -> bool:
        """Whether it matches a text from its beginning to its end."""
        return self._validator.is_valid(text)


def _compiled(schema: Any) -> Validator:
    from jsonschema_rs import RegexOptions, ValidationError, validator_for

    try:
        if len(orjson.dumps(schema)) > SCHEMA_BYTES_LIMIT:
            raise ValueError(f"a schema must be at most {SCHEMA_BYTES_LIMIT} bytes of JSON")
        return validator_for(schema, pattern_options=RegexOptions(), offline=True)
    except ValidationError as error:  # which is a ValueError with a text of many lines
        raise ValueError(_told(error)) from None


def _told(error: Any) -> str:
    """A fault in one line: where it is, and what it is."""
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path)
    text = _cut(" ".join(str(error.message).split()), _FAULT_TEXT)
    return f"{_cut(pointer, _FAULT_TEXT)}: {text}" if pointer else text


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
