"""Work that is done a step at a time, so that whoever does it can do something else in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Does a step of less than a few milliseconds each time; gives its result at the end."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once. The result; raises what a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
