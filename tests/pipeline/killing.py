"""Runs that end where they stand, and quick ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from postroom_pipeline.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of small frames, most of the time is spent on compiling.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


class Killed(BaseException):
    """The run is gone, as by a kill: nobody catches it."""


@contextmanager
def killed_at_rename(number: int) -> Iterator[None]:
    """The block is a run that is gone when it comes to its so-manieth rename."""
    rename, left = Storage.rename, [number]

    def dying(self: Storage, source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed
        rename(self, source, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Storage, "rename", dying)
        yield


@contextmanager
def quickly(spark: SparkSession) -> Iterator[None]:
    """The time in which Spark compiles nothing."""
    before = {name: str(spark.conf.get(name)) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
