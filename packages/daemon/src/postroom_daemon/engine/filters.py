"""Filters select messages. All commands have the same grammar: see "Filters" in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson

from postroom_common.body import GATHERED, Form, Message, Part, decode_message
from postroom_common.errors import CommandError
from postroom_common.protocol import DELAY_MS_LIMIT, TEXT_LIMIT, ErrorCode, ReasonCode, State

from ..model.records import Entry

if TYPE_CHECKING:  # the import takes a while, and few requests need it
    from .json_path import JsonPath

#: Maximum number of values in bodies that a jsonPath visits per request, and per message.
REQUEST_VALUES: Final = 200_000
_MESSAGE_VALUES: Final = 20_000

_MOST: Final = 2**63 - 1
#: The type of each key, and its bounds if it is a number.
KEYS: Final[dict[str, tuple[type, int, int]]] = {
    "reasonCode": (str, 0, 0),
    "notReasonCode": (str, 0, 0),
    "reasonText": (str, 0, 0),
    "olderThanMs": (int, 0, DELAY_MS_LIMIT),
    "youngerThanMs": (int, 0, DELAY_MS_LIMIT),
    "from": (int, 0, _MOST),
    "to": (int, 0, _MOST),
    "consumerId": (str, 0, 0),
    "attemptAtLeast": (int, 0, _MOST),
    "priority": (int, -_MOST - 1, _MOST),
    "attribute": (dict, 0, 0),
    "text": (str, 0, 0),
    "jsonPath": (str, 0, 0),
    "targetConsumerId": (str, 0, 0),
    "orderingKey": (str, 0, 0),
    "correlationId": (str, 0, 0),
}
_OF_HISTORY: Final = frozenset({"reasonText", "consumerId", "reasonCode", "notReasonCode"})
_OF_ENVELOPE: Final = frozenset({"attribute", "text", "jsonPath", "correlationId"})
_TYPE_NAMES: Final = {str: "string", int: "integer", dict: "object"}


class Filter:
    """A parsed filter. It reads the history and the body of a message only if it has a condition on them.

    ``values`` is the number of values in bodies that its jsonPath may still visit.
    """

    def __init__(self, value: dict[str, Any] | None) -> None:
        """Raises ``CommandError`` (ERR_INVALID_REQUEST) for an unknown key or an invalid value."""
        self._wants = value or {}
        self._path: JsonPath | None = None
        self.values = REQUEST_VALUES
        for name, wanted in self._wants.items():
            _check(name, wanted)
        if "jsonPath" in self._wants:
            from .json_path import JsonPath

            try:
                self._path = JsonPath(self._wants["jsonPath"])
            except ValueError as error:
                raise _invalid(f"filter.jsonPath: {error}") from None
        self.needs_history = bool(_OF_HISTORY & self._wants.keys())
        self.needs_envelope = bool(_OF_ENVELOPE & self._wants.keys())

    def __bool__(self) -> bool:
        """Whether it has any condition."""
        return bool(self._wants)

    def matches(
        self, entry: Entry, now: int, history: Callable[[], list[dict[str, Any]]], envelope: Callable[[], bytes]
    ) -> bool:
        """Whether a message matches at engine time ``now``. ``history`` and ``envelope`` are called only if all other
        conditions match.

        Raises what ``envelope`` raises.
        """
        if not self._fits_entry(entry, now):
            return False
        if self.needs_history and not self._fits_failure(entry, (history() or [{}])[-1]):
            return False
        return not self.needs_envelope or self._fits_message(decode_message(envelope()))

    def _fits_entry(self, entry: Entry, now: int) -> bool:
        wants = self._wants
        age: int = now - (entry.dead_at if entry.state is State.DEAD else entry.created)
        return bool(
            ("olderThanMs" not in wants or age >= wants["olderThanMs"])
            and ("youngerThanMs" not in wants or age < wants["youngerThanMs"])
            and wants.get("from", 0) <= entry.created_wall <= wants.get("to", _MOST)
            and entry.attempt >= wants.get("attemptAtLeast", 0)
            and wants.get("priority", entry.priority) == entry.priority
            and wants.get("targetConsumerId", entry.target) == entry.target
            and wants.get("orderingKey", entry.order_key) == entry.order_key
        )

    def _fits_failure(self, entry: Entry, last: dict[str, Any]) -> bool:
        wants = self._wants
        code = entry.reason or last.get("reasonCode", "")
        return (
            wants.get("reasonCode", code) == code
            and wants.get("notReasonCode") != code
            and wants.get("reasonText", "") in last.get("reasonMessage", "")
            and ("consumerId" not in wants or wants["consumerId"] in (entry.consumer_id, last.get("consumerId")))
        )

    def _fits_message(self, message: Message) -> bool:
        """Whether a message fits; of a gathered one, whether one of its parts does."""
        if GATHERED not in message.carried:
            return self._fits_part(message)
        return any(self._fits_part(Message((part,), part.attributes, part.carried)) for part in message.parts)

    def _fits_part(self, message: Message) -> bool:
        wants = self._wants
        if "correlationId" in wants and message.carried.get("correlationId") != wants["correlationId"]:
            return False
        if "attribute" in wants:
            has = _json_of(message.attributes)
            if type(has) is not dict:
                return False
            for name, value in wants["attribute"].items():
                if name not in has or not _same(has[name], value):
                    return False
        if "text" in wants and wants["text"].encode() not in message.body.data:
            return False
        return self._path is None or self._matches_path(self._path, message.body)

    def _matches_path(self, path: JsonPath, part: Part) -> bool:
        from .json_path import Budget, BudgetExceeded

        allowed = min(_MESSAGE_VALUES, max(0, self.values))
        budget = Budget(allowed)
        try:
            return path.matches(_json_of(part), budget)
        except (BudgetExceeded, RecursionError):
            return False
        finally:
            self.values -= allowed - max(0, budget.left)


def _check(name: str, wanted: Any) -> None:
    if name not in KEYS:
        raise _invalid(f"filter.{name[:80]} is unknown; use {', '.join(KEYS)}")
    kind, low, high = KEYS[name]
    if type(wanted) is not kind:
        raise _invalid(f"filter.{name} must be of type {_TYPE_NAMES[kind]}")
    if type(wanted) is int and not low <= wanted <= high:
        raise _invalid(f"filter.{name} must be from {low} to {high}, but is {wanted}")
    if type(wanted) is str and len(wanted) > TEXT_LIMIT:
        raise _invalid(f"filter.{name} must be at most {TEXT_LIMIT} characters")
    if name == "reasonCode" and wanted not in list(ReasonCode):
        raise _invalid(f"filter.reasonCode {wanted!r} is unknown; use {', '.join(ReasonCode)}")
    if name == "attribute" and not wanted:
        raise _invalid("filter.attribute must name at least one attribute")


def _json_of(part: Part | None) -> Any:
    """The JSON value of a part; None if it is not JSON."""
    if part is None or part.form is Form.BINARY:
        return None
    try:
        return orjson.loads(part.data)
    except orjson.JSONDecodeError:
        return None


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: true is not 1."""
    return type(one) is type(other) and bool(one == other)


def _invalid(text: str) -> CommandError:
    return CommandError(ErrorCode.INVALID_REQUEST, text)
