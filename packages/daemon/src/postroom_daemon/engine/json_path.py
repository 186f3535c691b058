"""JSONPath queries (RFC 9535) on bodies with bounded work, so that neither a query nor a body can block the daemon.

Anything whose work grows faster than the body is rejected: the functions ``match`` and ``search``, and in a filter
(``[?...]``) all queries except those of a single value that start at ``@``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterExpression,
    FilterQuery,
    FunctionExtension,
    LogicalExpression,
    PrefixExpression,
    RootFilterQuery,
)
from jsonpath_rfc9535.node import JSONPathNode
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath_rfc9535.selectors import FilterSelector

#: Maximum length of a query.
QUERY_LIMIT: Final = 300


class BudgetExceeded(Exception):
    """The budget is used up before a match was found."""


class Budget:
    """The number of values that may still be visited."""

    def __init__(self, values: int) -> None:
        self.left = values

    def take(self, values: int = 1) -> None:
        """Use some of the budget. Raises ``BudgetExceeded``."""
        self.left -= values
        if self.left < 0:
            raise BudgetExceeded


class JsonPath:
    """A compiled query."""

    def __init__(self, text: str) -> None:
        """Raises ``ValueError`` with what is wrong with the query."""
        if len(text) > QUERY_LIMIT:
            raise ValueError(f"it must be at most {QUERY_LIMIT} characters")
        try:
            self._segments = _environment().compile(text).segments
        except JSONPathError as error:
            raise ValueError(str(error).splitlines()[0]) from None
        except OverflowError:
            raise ValueError("a number in it is too large") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        self._weight = 1
        for segment in self._segments:
            for selector in segment.selectors:
                if isinstance(selector, FilterSelector):
                    self._weight += _check(selector.expression)

    def matches(self, value: Any, budget: Budget) -> bool:
        """Whether the query selects anything in a body. Raises ``BudgetExceeded``."""
        root = JSONPathNode(value=value, location=(), parent=None, root=value)
        return self._matches(root, 0, budget)

    def _matches(self, node: JSONPathNode, at: int, budget: Budget) -> bool:
        if at == len(self._segments):
            return True
        segment = self._segments[at]
        for one in _parents(node, segment, budget):
            for selector in segment.selectors:
                budget.take(self._weight * (1 + _size(one.value)))
                if any(self._matches(child, at + 1, budget) for child in selector.resolve(one)):
                    return True
        return False


def _parents(node: JSONPathNode, segment: JSONPathSegment, budget: Budget) -> Iterator[JSONPathNode]:
    """The nodes whose children a segment selects: the node itself, and all below it for a descendant segment."""
    if not isinstance(segment, JSONPathRecursiveDescentSegment):
        yield node
        return
    stack = [node]
    while stack:
        one = stack.pop()
        budget.take(1 + _size(one.value))
        yield one
        if isinstance(one.value, dict):
            below = [one.new_child(value, name, one) for name, value in one.value.items() if _size(value)]
        elif isinstance(one.value, list):
            below = [one.new_child(value, index, one) for index, value in enumerate(one.value) if _size(value)]
        else:
            below = []
        stack += reversed(below)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _check(expression: Expression) -> int:
    """The number of steps of a filter's expression. Raises ``ValueError`` if it is not bounded."""
    if isinstance(expression, FilterExpression):
        return _check(expression.expression)
    if isinstance(expression, PrefixExpression):
        return 1 + _check(expression.right)
    if isinstance(expression, LogicalExpression | ComparisonExpression):
        return 1 + _check(expression.left) + _check(expression.right)
    if isinstance(expression, FunctionExtension):
        return 1 + sum(_check(argument) for argument in expression.args)
    if isinstance(expression, RootFilterQuery):
        raise ValueError("queries inside a filter must begin with @")
    if isinstance(expression, FilterQuery):
        if not expression.query.singular_query():
            raise ValueError("queries inside a filter must name a single value")
        return 1 + len(expression.query.segments)
    return 1


def _environment() -> JSONPathEnvironment:
    environment = JSONPathEnvironment()
    for name in ("match", "search"):  # regular expressions may take exponential time
        environment.function_extensions.pop(name, None)
    return environment
