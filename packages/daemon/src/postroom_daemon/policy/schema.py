"""JSON Schema and regular expressions by the library jsonschema-rs, whose regular expressions take linear time.

The library takes 7 to 9 MB of memory, so it is loaded with the first schema or pattern. A ``$ref`` that leads out of
the schema is refused; nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson

from postroom_common.errors import ConfigurationError
from postroom_common.policy import Layer
from postroom_common.protocol import PATTERN_LIMIT

from .schema_cost import SchemaCost

if TYPE_CHECKING:
    from jsonschema_rs import Validator

#: Maximum size of a schema as JSON.
SCHEMA_BYTES_LIMIT: Final = 65536
#: Maximum size of a body for which all errors are reported; for a larger one it is only the first. The library collects
#: all errors before it returns one, and every other byte of a body may be wrong.
_ALL_ERRORS_BYTES: Final = 16384
#: Maximum work (validated values) to report errors of a body if the schema is recursive or has alternatives, each of
#: which has errors of its own.
_ERROR_WORK: Final = 2000
#: Maximum size of a compiled pattern of a request, and of the memory to match it. A larger one is refused within some
#: milliseconds.
_PATTERN_BYTES: Final = 512 * 1024
_MATCHER_BYTES: Final = 512 * 1024
#: Maximum number of errors in a report, and of characters of each.
_ERRORS: Final = 20
_ERROR_TEXT: Final = 300


class JsonSchema:
    """A compiled schema. Raises ``ValueError`` with the reason for an unusable one."""

    def __init__(self, schema: Any) -> None:
        self._cost = SchemaCost(schema)
        self._validator = _compiled(schema)

    def problems(self, value: Any) -> list[str]:
        """The errors of a body, each as ``<JSON Pointer>: <text>``; none if it is valid."""
        if self._validator.is_valid(value):
            return []
        from jsonschema_rs import ValidationError

        cost = self._cost
        if (cost.recursive or cost.alternatives) and cost.exceeds(value, _ERROR_WORK):
            return ["does not match the schema; it has too many alternatives to say where in so large a body"]
        if len(orjson.dumps(value)) > _ALL_ERRORS_BYTES:
            try:
                self._validator.validate(value)
            except ValidationError as error:
                return [_error_text(error), "there may be further errors"]
        errors = [_error_text(error) for error in self._validator.iter_errors(value)]
        return errors if len(errors) <= _ERRORS else [*errors[:_ERRORS], f"{len(errors) - _ERRORS} more"]


def check_schema(layer: Layer, where: str) -> None:
    """Raise ``ConfigurationError`` for a layer of a policy with an unusable schema."""
    schema = layer.get("validation.schema")
    if schema:
        try:
            JsonSchema(schema)
        except ValueError as error:
            raise ConfigurationError(f"{where}.validation.schema: {error}") from None


class Pattern:
    """A compiled regular expression. Raises ``ValueError`` with the reason for an unusable one."""

    def __init__(self, expression: str) -> None:
        try:
            _compiled({"pattern": expression})  # on its own first, so that it cannot close the group below
            self._validator = _compiled({"pattern": f"^(?:{expression})$"})
        except ValueError:
            raise ValueError(
                f"{_cut(expression, 80)!r} is not a regular expression that is supported: lookahead, lookbehind and"
                " references to groups are not"
            ) from None

    def matches_whole(self, text: str) -> bool:
        """Whether it matches all of a text."""
        return self._validator.is_valid(text)


class NamePattern:
    """A compiled regular expression that a request gives for the names of queues: it is searched in them, not anchored.
    Raises ``ValueError`` with the reason for an unusable one.

    Anybody may send one, so time and memory to compile it are limited as well: it has at most so many characters, and
    compiled so many bytes."""

    def __init__(self, expression: str) -> None:
        if len(expression) > PATTERN_LIMIT:
            raise ValueError(f"it has {len(expression):,} characters; at most {PATTERN_LIMIT:,} are allowed")
        try:
            validator = _compiled({"pattern": expression}, (_PATTERN_BYTES, _MATCHER_BYTES))
        except ValueError:
            raise ValueError(
                f"{_cut(expression, 80)!r} is not a regular expression that is supported, or is too large compiled:"
                " lookahead, lookbehind and references to groups are not, nor are counted repetitions of many"
            ) from None
        self.text = expression
        self.matches: Callable[[str], bool] = validator.is_valid
        """Whether it is found in a name."""


def _compiled(schema: Any, limits: tuple[int, int] | None = None) -> Validator:
    """A compiled schema; ``limits`` are the bytes of a compiled pattern, and of memory to match it."""
    from jsonschema_rs import RegexOptions, ValidationError, validator_for

    try:
        if len(orjson.dumps(schema)) > SCHEMA_BYTES_LIMIT:
            raise ValueError(f"a schema must be at most {SCHEMA_BYTES_LIMIT} bytes of JSON")
        return validator_for(schema, pattern_options=RegexOptions(*(limits or ())), offline=True)
    except ValidationError as error:  # which is a ValueError with a text of several lines
        raise ValueError(_error_text(error)) from None


def _error_text(error: Any) -> str:
    """An error on one line: its place, and what is wrong."""
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path)
    text = _cut(" ".join(str(error.message).split()), _ERROR_TEXT)
    return f"{_cut(pointer, _ERROR_TEXT)}: {text}" if pointer else text


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
