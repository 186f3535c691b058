"""Runs that are killed at a given point."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroom_pipeline.jobs.ingest import ingest
from postroom_pipeline.spark.hadoop_storage import HadoopStorage
from postroom_pipeline.spark.runlog import Progress, Run
from postroom_pipeline.spark.storage import replace_locally
from postroom_pipeline.spark.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """The run is gone, as by a kill: nobody catches it."""


@contextmanager
def killed_at_rename(number: int) -> Iterator[None]:
    """The block is a run that is gone when it comes to its so-manieth rename; a small file gets its name by one too."""
    left = number

    def dying(rename: Callable[..., None]) -> Callable[..., None]:
        def renamed(*arguments: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Killed
            rename(*arguments)

        return renamed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(HadoopStorage, "rename", dying(HadoopStorage.rename))
        patch.setattr("postroom_pipeline.spark.hadoop_storage.replace_locally", dying(replace_locally))
        yield


class KilledRun(Run):
    """A run that is gone when it comes to a stage."""

    def __init__(self, progress: Progress, at: str) -> None:
        super().__init__("ingest", progress)
        self._at = at

    def stage(self, name: str) -> Any:
        if name == self._at:
            raise Killed
        return super().stage(name)


def take_in(
    spark: SparkSession, landing: Path, tables: Path, killed_at: str = "", *, reports: bool = False
) -> Warehouse:
    """One run of ``ingest``, which is killed when it comes to a stage."""
    warehouse = Warehouse(spark, str(tables))
    with warehouse.writing("test"):
        ingest(spark, str(landing), warehouse, KilledRun(Progress(spark, io.StringIO()), killed_at), reports=reports)
    return warehouse
