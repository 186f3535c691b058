"""Tests of a whole table: one test for all rows, where a test for each would take longer than what it checks."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest


def table(names: str, rows: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated function for each row, in any order; like ``parametrize``, but as one test.

    The rows share the fixtures of the test. All of them run, whichever fail; a failure names its row.

    :param names: the parameters that a row gives, as in ``"before, after"``.
    :param rows: the values of each row by its name: a tuple if there are several parameters.
    """
    assert rows, "a table without rows checks nothing"
    given = names.split(", ")

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for name, row in random.sample(list(rows.items()), len(rows)):
                values = row if len(given) > 1 else (row,)
                try:
                    check(**fixtures, **dict(zip(given, values, strict=True)))
                except (Exception, pytest.fail.Exception) as failure:
                    failure.add_note(f"row: {name}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows fail", failures)

        signature = inspect.signature(check)
        fixtures = [one for name, one in signature.parameters.items() if name not in given]
        test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return test

    return decorate
