"""What an object keeps in memory, whatever its attributes are called."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from typing import Any


def reached(start: object, kind: type[Any] = object) -> int:
    """How many objects of a kind are reachable from an object. Classes, modules and functions are not followed."""
    seen, pending, count = {id(start)}, [start], 0
    while pending:
        one = pending.pop()
        count += isinstance(one, kind)
        for below in gc.get_referents(one):
            if id(below) not in seen and not isinstance(below, type | ModuleType | FunctionType):
                seen.add(id(below))
                pending.append(below)
    return count
