"""Runs that are killed at a given point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from postroom_pipeline.spark.hadoop_storage import HadoopStorage


class Killed(BaseException):
    """The run is gone, as by a kill: nobody catches it."""


@contextmanager
def killed_at_rename(number: int) -> Iterator[None]:
    """The block is a run that is gone when it comes to its so-manieth rename."""
    rename, left = HadoopStorage.rename, [number]

    def dying(self: HadoopStorage, source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed
        rename(self, source, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(HadoopStorage, "rename", dying)
        yield
